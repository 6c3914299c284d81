//! Whether a file is still the one whose bytes are known.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// How a file looked when its digest was taken. As long as it looks the same to the process that wrote it, nobody has
/// written to it since, as far as its time of change tells, and it need not be read a second time to be believed. Not
/// for another process: what a power cut left behind may look like anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Look {
    /// As it is now.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}
