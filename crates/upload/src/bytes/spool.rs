//! Chunks in files.
//!
//! ```text
//! FOLDER/<upload id>/s-<name>   on its way in; removed when its reservation was given up, or when it has not become
//!                               a chunk within an hour
//!                    c-<name>   a chunk, until it is durable
//!                    l-<name>   a second name of it, which the object store takes
//! ```
//!
//! A file becomes a chunk when the store says so; the new name comes after, so both are looked for, the old one first:
//! whoever renames it meanwhile is met at the new one. The object store
//! gets a second name to move away: the first one stays until the ledger has the part, and a crash in between costs
//! nothing.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::digest::{Digested, Digesting};
use crate::objects::{Fsync, Look};
use crate::synced::{Synced, sync_folder};
use crate::threads::{IN, SYNC, WHOLE};
use crate::{Digest, Digester, Error, Result, Trouble, names};

const OP: &str = "bytes.spool";

/// What was staged and not taken for so long was given up.
const STALE: Duration = Duration::from_secs(3600);

/// For so long a file is believed by its looks: while its bytes are in the system's memory, more likely than not.
const BELIEVED: Duration = Duration::from_secs(60);

/// Files whose looks are kept; with more of them waiting, those that are sent next are not among them. What is not is
/// only hashed once more.
const LOOKS: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct Spool {
    folder: Arc<Path>,
    fsync: Fsync,
    looks: Arc<Looks>,
}

/// Files that this process wrote, of late.
#[derive(Debug, Default)]
struct Looks(Mutex<VecDeque<Written>>);

/// What a file had in it, and how it looked then.
#[derive(Debug)]
struct Written {
    name: String,
    digest: Digest,
    look: Look,
    at: Instant,
}

impl Looks {
    fn keep(&self, written: Written) {
        let mut all = self.0.lock();
        all.retain(|written| written.at.elapsed() < BELIEVED);
        if all.len() == LOOKS {
            all.pop_front();
        }
        all.push_back(written);
    }

    fn of(&self, name: &str, digest: &Digest) -> Option<Look> {
        let all = self.0.lock();
        let written = all.iter().find(|written| written.name == name)?;
        (written.digest == *digest && written.at.elapsed() < BELIEVED).then_some(written.look)
    }

    fn forget(&self, name: &str) {
        self.0.lock().retain(|written| written.name != name);
    }
}

/// What a sweep of the spool found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Uploads of which there are files, each with how long none came or went.
    pub uploads: Vec<(String, Duration)>,
    /// Files removed that never became a chunk.
    pub removed: u64,
    /// Upload and name of what was staged long ago: not taken, or by somebody who died before it got its new name.
    pub(super) stale: Vec<(String, String)>,
}

/// A file on its way in.
pub(super) struct Spooled {
    path: PathBuf,
    name: String,
    state: State,
    fsync: Fsync,
    looks: Arc<Looks>,
}

enum State {
    Waits(Box<Open>),
    Writes(JoinHandle<io::Result<Box<Open>>>),
    /// A step before was broken off, or was the last one.
    Over,
}

struct Open {
    file: Synced,
    digesting: Digesting,
}

/// Off the runtime's threads.
async fn off<T: Send + 'static>(
    what: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    joined(what, IN.off(work)).await
}

async fn joined<T>(what: &Path, work: JoinHandle<io::Result<T>>) -> Result<T> {
    match work.await {
        Ok(done) => done.map_err(|error| Error::io(OP, what.display(), error)),
        Err(error) => Err(Error::new(OP, Trouble::Passing, "the thread of a file ended").because(error)),
    }
}

/// Whether it was there.
fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Spool {
    pub(super) async fn open(folder: PathBuf, fsync: Fsync) -> Result<Self> {
        let made = folder.clone();
        off(&folder, move || fs::create_dir_all(made)).await?;
        Ok(Self { folder: folder.into(), fsync, looks: Arc::default() })
    }

    fn of(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    pub(super) async fn stage(&self, id: &str, name: &str, digesting: Digesting) -> Result<Spooled> {
        let (folder, all, fsync) = (self.of(id), Arc::clone(&self.folder), self.fsync);
        let path = folder.join(format!("s-{name}"));
        let made = path.clone();
        let file = off(&path, move || {
            loop {
                match Synced::create_new(&made, fsync) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    opened => return opened,
                }
                // The folder of another chunk's end may vanish again at once: then once more.
                match fs::create_dir(&folder) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => sync_folder(&all, fsync)?,
                }
            }
        })
        .await?;
        let state = State::Waits(Box::new(Open { file, digesting }));
        let looks = Arc::clone(&self.looks);
        Ok(Spooled { path, name: name.to_owned(), state, fsync, looks })
    }

    /// How a chunk's file looked when this process had written these bytes to it, if it did so of late.
    pub(super) fn look_of(&self, name: &str, digest: &Digest) -> Option<Look> {
        self.looks.of(name, digest)
    }

    /// A second name of a chunk's file, to be given away; `None` when the file is gone or has another size.
    pub(super) async fn lend(&self, id: &str, name: &str, size: u64) -> Result<Option<PathBuf>> {
        let folder = self.of(id);
        let link = folder.join(format!("l-{}", names::unique(OP)?));
        let (to, name) = (link.clone(), name.to_owned());
        let lent = off(&link, move || {
            for kind in ["s", "c"] {
                let from = folder.join(format!("{kind}-{name}"));
                match fs::metadata(&from) {
                    Ok(found) if found.len() == size => {}
                    Ok(_) => return Ok(false),
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
                match fs::hard_link(&from, &to) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    linked => return linked.map(|()| true),
                }
            }
            Ok(false)
        })
        .await?;
        Ok(lent.then_some(link))
    }

    /// By the algorithm of `expected`; `None` when the file is gone.
    pub(super) async fn digest(&self, id: &str, name: &str, expected: &Digest) -> Result<Option<Digest>> {
        let (folder, name, mut digester) = (self.of(id), name.to_owned(), Digester::like(expected));
        let digest = WHOLE.off(move || {
            for kind in ["s", "c"] {
                let mut file = match File::open(folder.join(format!("{kind}-{name}"))) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    opened => opened?,
                };
                let mut buffer = vec![0; 256 * 1024];
                loop {
                    match file.read(&mut buffer)? {
                        0 => return Ok(Some(digester.finish())),
                        length => digester.update(&buffer[..length]),
                    }
                }
            }
            Ok(None)
        });
        joined(&self.of(id), digest).await
    }

    pub(super) async fn remove(&self, id: &str, name: &str) -> Result<()> {
        self.looks.forget(name);
        let (folder, name) = (self.of(id), name.to_owned());
        off(&folder.clone(), move || {
            removed(&folder.join(format!("s-{name}")))?;
            removed(&folder.join(format!("c-{name}"))).map(drop)
        })
        .await
    }

    /// Removes what did not become a chunk.
    pub(super) async fn unstage(&self, id: &str, name: &str) -> Result<()> {
        let path = self.of(id).join(format!("s-{name}"));
        off(&path.clone(), move || removed(&path).map(drop)).await
    }

    /// Removes every file of an upload, and nothing that is not ours: a folder may be shared by mistake.
    pub(super) async fn remove_all(&self, id: &str) -> Result<()> {
        let folder = self.of(id);
        off(&folder.clone(), move || {
            let files = match fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                read => read?,
            };
            for file in files {
                let file = file?;
                if matches!(file.file_name().as_encoded_bytes(), [b's' | b'c' | b'l', b'-', ..]) {
                    removed(&file.path())?;
                }
            }
            match fs::remove_dir(&folder) {
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
                    Err(error)
                }
                _ => Ok(()),
            }
        })
        .await
    }

    pub(super) async fn count(&self, id: &str) -> Result<u64> {
        let folder = self.of(id);
        off(&folder.clone(), move || match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            read => Ok(read?.count() as u64),
        })
        .await
    }

    pub(super) async fn sweep(&self) -> Result<Swept> {
        let folder = Arc::clone(&self.folder);
        let sweep = WHOLE.off(move || {
            let mut swept = Swept::default();
            let now = SystemTime::now();
            let before = now.checked_sub(STALE);
            for upload in fs::read_dir(&folder)? {
                let upload = upload?;
                // Ids are ours: what has another name is somebody else's, whoever put it here.
                let Some(id) = upload.file_name().to_str().filter(|name| is_id(name)).map(str::to_owned)
                else {
                    continue;
                };
                let files = match fs::read_dir(upload.path()) {
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                        continue;
                    }
                    read => read?,
                };
                for file in files {
                    let file = file?;
                    let name = file.file_name();
                    let stale = |file: &fs::DirEntry| {
                        let changed = file.metadata().and_then(|found| found.modified()).ok();
                        matches!((changed, before), (Some(changed), Some(before)) if changed < before)
                    };
                    match name.to_str().unwrap_or_default().split_once('-') {
                        Some(("l", _)) if stale(&file) => swept.removed += u64::from(removed(&file.path())?),
                        Some(("s", name)) if stale(&file) => swept.stale.push((id.clone(), name.to_owned())),
                        _ => {}
                    }
                }
                let changed = upload.metadata().and_then(|found| found.modified()).ok();
                let untouched = changed.and_then(|changed| now.duration_since(changed).ok());
                swept.uploads.push((id, untouched.unwrap_or_default()));
            }
            Ok(swept)
        });
        joined(&self.folder, sweep).await
    }
}

/// Whether this is the name of an upload's folder.
fn is_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|c| c.is_ascii_hexdigit())
}

impl Spooled {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file, once the write before is done.
    async fn open(&mut self) -> Result<Box<Open>> {
        match mem::replace(&mut self.state, State::Over) {
            State::Waits(open) => Ok(open),
            State::Writes(writing) => joined(&self.path, writing).await,
            State::Over => {
                Err(Error::new(OP, Trouble::Passing, format!("{} was given up", self.path.display())))
            }
        }
    }

    /// Waits until the last piece is written.
    pub(super) async fn settle(&mut self) -> Result<()> {
        self.state = State::Waits(self.open().await?);
        Ok(())
    }

    /// Begins to write a piece, once the one before is written.
    pub(super) async fn write(&mut self, piece: Bytes) -> Result<()> {
        let mut open = self.open().await?;
        self.state = State::Writes(IN.off(move || {
            open.digesting.update(&piece);
            open.file.write(&piece)?;
            Ok(open)
        }));
        Ok(())
    }

    /// Once everything is written and synced.
    pub(super) async fn finish(&mut self) -> Result<Digested> {
        let Open { file, digesting } = *self.open().await?;
        let (fsync, folder) = (self.fsync, self.path.parent().map(Path::to_owned));
        let sync = SYNC.off(move || {
            // First: what somebody writes to it from now on is not what was digested.
            let look = file.look()?;
            file.sync()?;
            folder.map_or(Ok(()), |folder| sync_folder(&folder, fsync))?;
            Ok((look, digesting.finish()))
        });
        let (look, digested) = joined(&self.path, sync).await?;
        let (name, digest) = (self.name.clone(), digested.digest);
        self.looks.keep(Written { name, digest, look, at: Instant::now() });
        Ok(digested)
    }

    pub(super) async fn keep(self) -> Result<()> {
        let to = self.path.with_file_name(format!("c-{}", self.name));
        let from = self.path.clone();
        off(&self.path, move || match fs::rename(from, to) {
            // Whoever shipped it was quicker.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        })
        .await
    }

    pub(super) async fn discard(self) -> Result<()> {
        let Self { path, name, state, looks, .. } = self;
        looks.forget(&name);
        let gone = path.clone();
        off(&path, move || {
            let removed = removed(&gone).map(drop);
            // The last to close it gives its blocks back.
            drop(state);
            removed
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::Algorithm;

    #[tokio::test]
    async fn a_file_is_known_by_its_name_and_its_bytes_until_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().to_owned(), Fsync::Never).await.unwrap();
        let digesting = || Digesting::new(Algorithm::Sha256, false);
        let mut digests = Vec::new();
        for name in ["removed", "discarded"] {
            let mut file = spool.stage("id", name, digesting()).await.unwrap();
            file.write(Bytes::from_static(b"some")).await.unwrap();
            file.write(Bytes::from(name)).await.unwrap();
            let digest = file.finish().await.unwrap().digest;
            assert!(spool.look_of(name, &digest).is_some());
            digests.push(digest);
            if name == "discarded" {
                file.discard().await.unwrap();
            } else {
                file.keep().await.unwrap();
                let found = Look::of(&File::open(folder.path().join("id/c-removed")).unwrap()).unwrap();
                assert_eq!(spool.look_of(name, &digest), Some(found), "another name changes nothing");
            }
        }
        assert_eq!(spool.look_of("removed", &digests[1]), None, "other bytes");
        assert_eq!(spool.look_of("discarded", &digests[1]), None);
        spool.remove("id", "removed").await.unwrap();
        assert_eq!(spool.look_of("removed", &digests[0]), None);
    }

    #[tokio::test]
    async fn a_piece_that_has_settled_is_in_its_file_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().to_owned(), Fsync::Never).await.unwrap();
        let mut file = spool.stage("id", "a", Digesting::new(Algorithm::Sha256, false)).await.unwrap();
        let piece = Bytes::from(vec![7; 4096]);
        file.write(piece.clone()).await.unwrap();
        file.settle().await.unwrap();
        assert!(matches!(file.state, State::Waits(_)));
        assert!(piece.is_unique(), "nobody else holds it");
        assert_eq!(fs::read(folder.path().join("id/s-a")).unwrap(), piece);
    }

    #[test]
    fn looks_are_kept_of_a_few_files_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let look = Look::of(&File::create(folder.path().join("file")).unwrap()).unwrap();
        let (looks, digest) = (Looks::default(), Digester::new(Algorithm::Sha256).finish());
        let keep = |name: String, at| looks.keep(Written { name, digest, look, at });
        let now = Instant::now();
        if let Some(old) = now.checked_sub(BELIEVED) {
            keep("old".to_owned(), old);
            assert_eq!(looks.of("old", &digest), None);
        }
        for number in 0..=LOOKS {
            keep(number.to_string(), now + Duration::from_secs(3600));
        }
        assert_eq!(looks.0.lock().len(), LOOKS);
        assert_eq!((looks.of("0", &digest), looks.of("1", &digest)), (None, Some(look)));
    }
}
