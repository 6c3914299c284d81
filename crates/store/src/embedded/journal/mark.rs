//! The acknowledged mark: the number of the last commit somebody was told about.
//!
//! The database below cuts a damaged tail off its log without a word. This small file beside it says how
//! far the log must reach. It is written after each durable commit and never synced: a killed process
//! leaves it exact, a power cut may leave it behind the log, and nothing leaves it ahead.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::embedded::folder;

const NAME: &str = "acknowledged";
const NAME_NEW: &str = "acknowledged.new";
const MAGIC: [u8; 8] = *b"QMMARK\0\x01";
const LENGTH: usize = 24;

#[derive(Debug)]
pub(super) struct Mark {
    file: File,
}

/// What the mark file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marked {
    /// There is no such file.
    Missing,
    /// There is one without anything in it: where nothing else was made either, a first start that failed.
    Empty,
    /// It is not what was written.
    Damaged,
    /// Everything up to this commit was acknowledged.
    Commit(u64),
}

impl Mark {
    pub(super) fn read(dir: &Path) -> io::Result<Marked> {
        match folder::read(&dir.join(NAME)) {
            Ok(bytes) if bytes.is_empty() => Ok(Marked::Empty),
            Ok(bytes) => Ok(decode(&bytes).map_or(Marked::Damaged, Marked::Commit)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Marked::Missing),
            Err(error) => Err(error),
        }
    }

    /// Puts a new file that says `commit` in the place of the old one: whole or not at all.
    pub(super) fn open(dir: &Path, commit: u64) -> io::Result<Self> {
        let new = dir.join(NAME_NEW);
        let mark = Self { file: folder::write(&new, &[])? };
        mark.set(commit)?;
        mark.file.sync_all()?;
        std::fs::rename(new, dir.join(NAME))?;
        Ok(mark)
    }

    pub(super) fn set(&self, commit: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(commit), 0)
    }
}

fn encode(commit: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&commit.to_be_bytes());
    let sum = checksum(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let commit = u64::from_be_bytes(*bytes[8..].first_chunk()?);
    (encode(commit) == *bytes).then_some(commit)
}

/// FNV-1a: enough to tell a mark from anything that is none.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_or_known_to_be_damaged() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), Marked::Missing);
        let mark = Mark::open(dir.path(), 7).unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), Marked::Commit(7));
        mark.set(u64::MAX - 1).unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), Marked::Commit(u64::MAX - 1));
        let good = encode(9);
        for at in 0..LENGTH {
            for bit in 0..8 {
                let mut bad = good;
                bad[at] ^= 1 << bit;
                assert_eq!(decode(&bad), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(decode(&good[..LENGTH - 1]), None);
    }
}
