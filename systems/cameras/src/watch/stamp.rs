//! What tells one version of a file from another without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ring::digest::{Context, SHA256};

/// Size and time of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    pub(crate) modified_ns: i128,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { bytes: metadata.len(), modified_ns }
    }

    /// The file's stamp now; `None` when it is gone or no plain file (a link may point anywhere, a pipe never ends).
    pub(crate) fn read(path: &Path) -> std::io::Result<Option<Self>> {
        match path.symlink_metadata() {
            Ok(metadata) => Ok(metadata.is_file().then(|| Self::of(&metadata))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Sixteen bytes that stand for one version of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Mark(pub(crate) u128);

impl Mark {
    /// By the path below the watched folder, so that the folder may be mounted elsewhere.
    pub(crate) fn of(relative: &Path, stamp: Stamp) -> Self {
        Self::made(relative, stamp, b"")
    }

    /// The same with the content: what makes a repeated push of this version harmless.
    pub(crate) fn with_content(relative: &Path, stamp: Stamp, sha256: &[u8; 32]) -> Self {
        Self::made(relative, stamp, sha256)
    }

    fn made(relative: &Path, stamp: Stamp, content: &[u8]) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(&stamp.bytes.to_le_bytes());
        digest.update(&stamp.modified_ns.to_le_bytes());
        // Of fixed length or absent, so that path and content cannot run into each other.
        digest.update(&[content.len() as u8]);
        digest.update(content);
        digest.update(relative.as_os_str().as_encoded_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finish().as_ref()[..16]);
        Self(u128::from_be_bytes(bytes))
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_version_makes_another_mark() {
        let stamp = Stamp { bytes: 7, modified_ns: 1_000 };
        let path = Path::new("door/a.jpg");
        let marks = [
            Mark::of(path, stamp),
            Mark::of(Path::new("door/b.jpg"), stamp),
            Mark::of(path, Stamp { bytes: 8, ..stamp }),
            Mark::of(path, Stamp { modified_ns: 1_001, ..stamp }),
            Mark::with_content(path, stamp, &[1; 32]),
            Mark::with_content(path, stamp, &[2; 32]),
        ];
        let different: std::collections::HashSet<Mark> = marks.into_iter().collect();
        assert_eq!(different.len(), marks.len());
        assert_eq!(Mark::of(path, stamp), marks[0]);
        assert_eq!(marks[0].to_string().len(), 32);
    }
}
