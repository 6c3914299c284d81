//! Where dockets are kept: a file each, whole or not there.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Context as _;

use crate::docket::Docket;

/// A folder of dockets.
#[derive(Debug, Clone)]
pub(crate) struct Keep {
    folder: Arc<Path>,
    /// Nodes may share the folder: their unfinished files do not meet …
    node: Arc<str>,
    /// … nor do those of one node, which may have a docket in two hands when it lost its lease of the first.
    next: Arc<AtomicU64>,
}

impl Keep {
    pub(crate) fn open(folder: &Path, node: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // What a node of this name had not finished when it died.
        for entry in
            fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?.flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') && name.ends_with(&format!(".{node}")) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Self { folder: folder.into(), node: node.into(), next: Arc::default() })
    }

    /// Keeps a docket; when this returns it outlives a crash of the machine.
    pub(crate) async fn put(&self, docket: &Docket, body: Vec<u8>) -> io::Result<()> {
        let (keep, docket) = (self.clone(), docket.clone());
        tokio::task::spawn_blocking(move || keep.write(&docket, &body)).await.map_err(io::Error::other)?
    }

    fn write(&self, docket: &Docket, body: &[u8]) -> io::Result<()> {
        let number = self.next.fetch_add(1, Relaxed);
        let name = format!(".{docket}.{}-{number}.{}", std::process::id(), self.node);
        let unfinished = self.folder.join(name);
        let mut file = File::create_new(&unfinished)?;
        file.write_all(body)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.path(docket))?;
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self, docket: &Docket) -> PathBuf {
        self.folder.join(format!("{docket}.json"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_docket_is_kept_whole_and_again_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::open(&folder.path().join("a/b"), "node").unwrap();
        let docket = Docket::parse("12345").unwrap();
        keep.put(&docket, b"{\"id\":1}".to_vec()).await.unwrap();
        keep.put(&docket, b"{}".to_vec()).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a/b/12345.json")).unwrap(), b"{}");
        assert_eq!(
            fs::read_dir(folder.path().join("a/b")).unwrap().count(),
            1,
            "nothing else is left behind"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_docket_in_two_hands_is_kept_whole_by_either() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::open(folder.path(), "node").unwrap();
        let docket = Docket::parse("12345").unwrap();
        let bodies = [vec![b'a'; 300_000], vec![b'b'; 100_000]];
        for _ in 0..20 {
            let (one, two) =
                tokio::join!(keep.put(&docket, bodies[0].clone()), keep.put(&docket, bodies[1].clone()));
            assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
            assert!(
                bodies.contains(&fs::read(folder.path().join("12345.json")).unwrap()),
                "one or the other"
            );
        }
        fs::write(folder.path().join(".7.0.node"), "half").unwrap();
        Keep::open(folder.path(), "node").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "what was not finished is gone");
    }
}
