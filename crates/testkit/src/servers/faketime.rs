//! A faked wall clock for a server: libfaketime reads the offset from a file at every call.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// The clock of one server; jumps live.
#[derive(Debug, Clone)]
pub struct FakeTime {
    file: PathBuf,
}

impl FakeTime {
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("faketime") };
        clock.set_offset_ms(0);
        clock
    }

    pub(super) fn env(&self) -> Vec<(String, String)> {
        let library = LIBRARIES
            .into_iter()
            .find(|path| Path::new(path).exists())
            .unwrap_or_else(|| panic!("libfaketime is not installed: run scripts/test-tools"));
        let pairs = [
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().expect("temporary folders are UTF-8")),
            ("FAKETIME_NO_CACHE", "1"),
            // Time-outs and the event loop keep real time: only the date jumps.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("TZ", "UTC"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// The server's clock is the real one plus this much, and runs.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        let sign = if offset_ms < 0 { '-' } else { '+' };
        let (seconds, ms) = (offset_ms.unsigned_abs() / 1000, offset_ms.unsigned_abs() % 1000);
        self.write(&format!("{sign}{seconds}.{ms:03}"));
    }

    /// The server's clock shows this moment now, and runs.
    pub fn set_time(&self, moment: SystemTime) {
        let us =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        self.set_offset_ms((us(moment) - us(SystemTime::now())) / 1000);
    }

    // Whole or not at all: the server may read at any moment.
    fn write(&self, text: &str) {
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, text).expect("the clock's file can be written");
        std::fs::rename(&fresh, &self.file).expect("the clock's file can be replaced");
    }
}
