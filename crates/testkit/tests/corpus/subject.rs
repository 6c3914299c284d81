//! A `quaymaster serve` whose clocks a test holds: a Redis of its own, and both live in the time of one page.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{RedisConfig, RedisServer, any_port};
use tempfile::TempDir;

/// 2026-11-15 12:00:20 UTC: twenty seconds into a minute and an hour.
const NOW_US: i64 = 1_794_744_020_000_000;
/// Names another program than the one built beside the test.
const BINARY: &str = "QUAYMASTER_CORPUS_BINARY";
/// The corpus' own schema; its file is beside this one.
const OWN: &str = include_str!("schema.toml");
const SYSTEMS: [&str; 5] = ["psp", "cameras", "courtlistener", "home-assistant", "uploads"];

/// A store, a folder with the schemas, and a clock.
pub(crate) struct Subject {
    pub(crate) folder: TempDir,
    clock: HeldClock,
    redis: RedisServer,
}

/// A running server; ended when dropped.
pub(crate) struct Served {
    child: Child,
    _out: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Subject {
    pub(crate) fn start() -> Self {
        let clock = HeldClock::frozen(NOW_US);
        let redis = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() });
        let folder = tempfile::tempdir().unwrap();
        let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
        for system in SYSTEMS {
            let file = folder.path().join(format!("{system}.toml"));
            std::fs::copy(systems.join(system).join("schema.toml"), file).unwrap();
        }
        std::fs::write(folder.path().join("own.toml"), OWN).unwrap();
        let names = SYSTEMS.iter().map(|system| format!("\"{system}.toml\"")).collect::<Vec<_>>().join(", ");
        let settings = format!("schemas = [\"own.toml\", {names}]\n[server]\nmax_body_bytes = \"64KiB\"\n");
        std::fs::write(folder.path().join("quaymaster.toml"), settings).unwrap();
        Self { folder, clock, redis }
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, ms: u64) {
        self.clock.freeze(self.clock.now_us() + i64::try_from(ms).unwrap() * 1000);
    }

    pub(crate) fn store(&self) -> String {
        self.redis.url()
    }

    /// The command with nothing of the test's environment but its time.
    pub(crate) fn command(&self) -> Command {
        // setpriv becomes the command, which ends with the thread that started it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(binary());
        command.current_dir(self.folder.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.clock.environment()).env("NO_COLOR", "1");
        command
    }

    pub(crate) fn serve(&self) -> Served {
        let mut command = self.command();
        command.args(["serve", "--listen", &any_port().to_string(), "--store", &self.store()]);
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let address = address.unwrap_or_else(|| {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            panic!("it did not start: {line}{log}")
        });
        Served { child, _out: out, address }
    }
}

/// The program under test: the one that is named, else the one that was built beside this test.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os(BINARY) {
        return named.into();
    }
    let test = std::env::current_exe().unwrap();
    let file = test.parent().and_then(Path::parent).unwrap().join("quaymaster");
    let built =
        || format!("`cargo build -p quaymaster-cli` makes {}; or name another in {BINARY}", file.display());
    let age = |path: &Path| path.metadata().and_then(|meta| meta.modified());
    let made = age(&file).unwrap_or_else(|error| panic!("{error}: {}", built()));
    // What it was built from stands beside it: yesterday's program would prove nothing. What a build makes of its
    // sources is written again, the same, by a build with other features; its sources are listed too.
    let sources = std::fs::read_to_string(file.with_extension("d")).unwrap_or_default();
    let made_by_build = file.with_file_name("build");
    let newer = sources
        .split_whitespace()
        .skip(1)
        .map(Path::new)
        .find(|source| !source.starts_with(&made_by_build) && age(source).is_ok_and(|age| age > made));
    assert_eq!(newer, None, "it is newer than the program: {}", built());
    file
}
