//! A wall clock that tests hold, shared by real servers and helper processes.
//!
//! `libfaketime` cannot run Debian's redis-server (jemalloc asks for the time before malloc works) and
//! reads a file at every look. This one is a mapped page: it stands still or runs with an offset, moves
//! at once in every process that was started with [`HeldClock::environment`], and leaves monotonic
//! clocks alone.

#![expect(clippy::expect_used, reason = "what cannot be set up or told fails the test that asked for it")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The clock; clones hold the same one.
#[derive(Debug, Clone)]
pub struct HeldClock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    page: File,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl HeldClock {
    /// A clock that stands still at `us` microseconds since the epoch.
    pub fn frozen(us: i64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("clock");
        let page = File::options().read(true).write(true).create_new(true).open(&path).expect("a clock file");
        page.set_len(4096).expect("room for the clock");
        let clock = Self { inner: Arc::new(Inner { page, path, _folder: folder }) };
        clock.freeze(us);
        clock
    }

    /// A clock that shows `us` now and runs on.
    pub fn running(us: i64) -> Self {
        let clock = Self::frozen(us);
        clock.run_from(us);
        clock
    }

    /// Stands still at `us` from now on.
    pub fn freeze(&self, us: i64) {
        assert!(us > 0, "0 means running");
        self.store(0, us);
    }

    /// Runs on from `us`.
    pub fn run_from(&self, us: i64) {
        self.store(8, us - true_us());
        self.store(0, 0);
    }

    /// What the clock shows.
    pub fn now_us(&self) -> i64 {
        match self.load(0) {
            0 => true_us() + self.load(8),
            frozen => frozen,
        }
    }

    /// What a process needs to be started with.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".to_owned(), env!("HELD_CLOCK_LIBRARY").to_owned()),
            ("HELD_CLOCK_FILE".to_owned(), self.inner.path.display().to_string()),
        ]
    }

    // The page cache behind a file is what its mappings see, so a plain write moves every process's clock.
    fn store(&self, at: u64, value: i64) {
        self.inner.page.write_all_at(&value.to_ne_bytes(), at).expect("the clock can be set");
    }

    fn load(&self, at: u64) -> i64 {
        let mut bytes = [0; 8];
        self.inner.page.read_exact_at(&mut bytes, at).expect("the clock can be read");
        i64::from_ne_bytes(bytes)
    }
}

fn true_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_of_a_child(clock: &HeldClock) -> i64 {
        let said =
            std::process::Command::new("date").arg("+%s").envs(clock.environment()).output().expect("date");
        String::from_utf8(said.stdout).expect("digits").trim().parse().expect("seconds")
    }

    #[test]
    fn a_process_lives_in_the_time_it_is_given() {
        let clock = HeldClock::frozen(1_800_000_000_123_456);
        assert_eq!(seconds_of_a_child(&clock), 1_800_000_000);
        assert_eq!(clock.now_us(), 1_800_000_000_123_456);
        clock.run_from(1_900_000_000_000_000);
        let before = clock.now_us();
        let said = seconds_of_a_child(&clock) * 1_000_000;
        assert!(said + 1_000_000 > before && said <= clock.now_us(), "{before} {said}");
    }
}
