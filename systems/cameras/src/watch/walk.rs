//! A walk through the watched folder: finds what was there before us and what no event told of.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc::Sender;

use super::stamp::Stamp;
use crate::camera;

/// Folders in folders; more is a mistake or a trap.
const MAX_DEPTH: usize = 16;

/// What a walk comes by.
#[derive(Debug)]
pub(crate) enum Step {
    /// A file with an image's name; its path is below the root.
    File(PathBuf, Stamp),
    /// Something that could not be looked at.
    Trouble(PathBuf, std::io::Error),
    /// The walk is over.
    End,
}

/// Walks through all of `root`; blocks. Ends early when nobody listens any more.
pub(crate) fn walk(root: &Path, out: &Sender<Step>) {
    let mut open = vec![(PathBuf::new(), 0)];
    while let Some((relative, depth)) = open.pop() {
        let entries = match std::fs::read_dir(root.join(&relative)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound && depth > 0 => continue,
            Err(error) => {
                if out.blocking_send(Step::Trouble(relative, error)).is_err() {
                    return;
                }
                continue;
            }
        };
        for entry in entries {
            let step = match entry {
                Ok(entry) => look(&relative.join(entry.file_name()), &entry, depth, &mut open),
                Err(error) => Some(Step::Trouble(relative.clone(), error)),
            };
            if let Some(step) = step
                && out.blocking_send(step).is_err()
            {
                return;
            }
        }
    }
    let _ = out.blocking_send(Step::End);
}

/// Every file that a walk comes by; what cannot be looked at is an error.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<(PathBuf, Stamp)>> {
    let (out, mut steps) = tokio::sync::mpsc::channel(256);
    // On threads of their own: neither end of the channel may wait on a thread of the runtime.
    let files = std::thread::scope(|threads| {
        threads.spawn(move || walk(root, &out));
        let files = threads.spawn(move || {
            let mut files = Vec::new();
            while let Some(step) = steps.blocking_recv() {
                match step {
                    Step::File(path, stamp) => files.push((path, stamp)),
                    Step::Trouble(path, error) => {
                        let what = format!("cannot look at {}", root.join(path).display());
                        return Err(anyhow::Error::new(error).context(what));
                    }
                    Step::End => break,
                }
            }
            Ok(files)
        });
        files.join()
    });
    files.unwrap_or_else(|_| Err(anyhow::anyhow!("the walk through {} panicked", root.display())))
}

fn look(
    path: &Path,
    entry: &std::fs::DirEntry,
    depth: usize,
    open: &mut Vec<(PathBuf, usize)>,
) -> Option<Step> {
    let result = entry.file_type().and_then(|kind| {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_dir() && !hidden && depth < MAX_DEPTH {
            open.push((path.to_owned(), depth + 1));
        }
        if !kind.is_file() || !camera::is_image_name(path) {
            return Ok(None);
        }
        entry.metadata().map(|metadata| Some(Step::File(path.to_owned(), Stamp::of(&metadata))))
    });
    match result {
        Ok(step) => step,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Step::Trouble(path.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_walk_comes_by_every_image_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("door/2026/11")).unwrap();
        std::fs::create_dir_all(root.join("door/.trash")).unwrap();
        for name in [
            "top.jpg",
            "door/a.jpg",
            "door/2026/11/b.PNG",
            "door/.trash/c.jpg",
            "door/d.jpg.tmp",
            "door/e.txt",
        ] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        // Round in circles, if links were followed.
        std::os::unix::fs::symlink(root, root.join("door/again")).unwrap();
        let (out, mut steps) = tokio::sync::mpsc::channel(100);
        walk(root, &out);
        let mut files = Vec::new();
        while let Ok(Step::File(path, _)) = steps.try_recv() {
            files.push(path.display().to_string());
        }
        files.sort();
        assert_eq!(files, ["door/2026/11/b.PNG", "door/a.jpg", "top.jpg"]);
        assert_eq!(all(root).unwrap().len(), 3);
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let (out, mut steps) = tokio::sync::mpsc::channel(100);
        assert!(all(Path::new("/nowhere/at/all")).is_err());
        walk(Path::new("/nowhere/at/all"), &out);
        assert!(matches!(steps.try_recv(), Ok(Step::Trouble(..))));
        assert!(matches!(steps.try_recv(), Ok(Step::End)));
    }
}
