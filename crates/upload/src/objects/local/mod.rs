//! Objects on local disk: folders of part files with a manifest.
//!
//! ```text
//! FOLDER/
//!   objects/<key>/manifest.json       size, ETag, token, MIME type, part files in order
//!                 00001-<digest>      the first part
//!   uploads/<id>/upload.json          key, token, when it was begun
//!                00002-<digest>       a part that is durable
//!   trash/                            on its way out
//! ```
//!
//! A part is a file that is moved, never copied, when it lies on the same file system, and gets its name when it is
//! whole and synced. Completing writes the manifest and renames the folder: one step for all bytes, so an object is
//! there whole or not at all. Other bytes under a number are another file, so a sender that is late harms nobody:
//! the manifest names those that were recorded.

mod disk;
mod manifest;
mod read;

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;

use super::Pieces;
use super::answer::{
    Abort, About, Completed, Cursor, Head, MultipartId, PartBody, Pending, PendingPage, Source, Then,
};
use super::key::Key;
use super::options::Fsync;
use crate::ledger::Part;
use crate::synced::sync_folder;
use crate::threads::{OUT, SYNC, Threads, WHOLE};
use crate::{Digest, Error, Result, Sha256, Trouble};
use disk::Writing;
use manifest::{BEGUN, Begun, Description, MANIFEST, Manifest, PartFile, part_file};

/// Pending uploads on a page.
const PAGE: usize = 1000;

/// Digits of an id that tell the key.
const MARK: usize = 12;

/// No beginning takes so long.
const STILLBORN: Duration = Duration::from_secs(3600);

/// The store.
#[derive(Debug, Clone)]
pub(super) struct Local {
    folders: Arc<Folders>,
}

#[derive(Debug)]
struct Folders {
    objects: PathBuf,
    uploads: PathBuf,
    trash: PathBuf,
    fsync: Fsync,
}

/// The ETag of an object of these parts.
pub(super) fn etag_of(parts: &[Part]) -> String {
    manifest::etag_of(parts.iter().map(|part| part_file(part.number, &part.etag)))
}

impl Local {
    pub(super) async fn open(folder: PathBuf, fsync: Fsync) -> Result<Self> {
        let folders = Arc::new(Folders {
            objects: folder.join("objects"),
            uploads: folder.join("uploads"),
            trash: folder.join("trash"),
            fsync,
        });
        let local = Self { folders };
        local
            .off("objects.open", move |folders| {
                for made in [&folders.objects, &folders.uploads, &folders.trash] {
                    disk::make_folders(made, fsync)
                        .map_err(|error| Error::io("objects.open", made.display(), error))?;
                }
                // Left by a process that died while it removed something.
                let left = fs::read_dir(&folders.trash).into_iter().flatten().flatten();
                for entry in left {
                    let _ = fs::remove_dir_all(entry.path());
                }
                Ok(())
            })
            .await?;
        Ok(local)
    }

    /// Runs where waiting for a disk holds nobody up: what changes folders, and syncs them.
    async fn off<T: Send + 'static>(
        &self,
        op: &'static str,
        work: impl FnOnce(&Folders) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.off_on(&SYNC, op, work).await
    }

    async fn off_on<T: Send + 'static>(
        &self,
        threads: &Threads,
        op: &'static str,
        work: impl FnOnce(&Folders) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folders = Arc::clone(&self.folders);
        threads
            .off(move || work(&folders))
            .await
            .unwrap_or_else(|_| Err(Error::new(op, Trouble::Passing, "the work was called off")))
    }

    pub(super) async fn begin(&self, key: &Key, about: &About) -> Result<MultipartId> {
        let (key, about) = (key.clone(), Description::from(about));
        self.off("objects.begin", move |folders| folders.begin(&key, about)).await
    }

    pub(super) async fn part(
        &self,
        _key: &Key,
        id: &MultipartId,
        number: u32,
        body: PartBody,
    ) -> Result<String> {
        const OP: &str = "objects.part";
        let PartBody { size, digest, source } = body;
        let folder = self.folders.upload(OP, id)?;
        let etag = format!("\"{digest}\"");
        let to = folder.join(part_file(number, &etag));
        match source {
            // On another file system they are copied.
            Source::File(path, then) => {
                let take = move |folders: &Folders| folders.take(&path, then, &folder, &to, size, digest);
                self.off_on(&WHOLE, OP, take).await?;
            }
            Source::Written(path, _) => {
                let then = Then::Take;
                let take = move |folders: &Folders| folders.take(&path, then, &folder, &to, size, digest);
                self.off_on(&WHOLE, OP, take).await?;
            }
            Source::Pieces(pieces) => {
                self.off_on(&WHOLE, OP, move |folders| {
                    let mut writing = folders.writing(&folder, &to, digest)?;
                    for piece in &pieces {
                        writing.write(piece).map_err(|error| Error::io(OP, "the part", error))?;
                    }
                    writing.finish(size)
                })
                .await?;
            }
            Source::Stream(mut pieces) => {
                let mut writing = self.off(OP, move |folders| folders.writing(&folder, &to, digest)).await?;
                while let Some(piece) = pieces.next().await {
                    let piece = piece.map_err(|error| Error::io(OP, "the part's bytes", error))?;
                    writing = self
                        .off_on(&OUT, OP, move |_| {
                            writing.write(&piece).map_err(|error| Error::io(OP, "the part", error))?;
                            Ok(writing)
                        })
                        .await?;
                }
                self.off(OP, move |_| writing.finish(size)).await?;
            }
        }
        Ok(etag)
    }

    pub(super) async fn complete(&self, key: &Key, id: &MultipartId, parts: &[Part]) -> Result<Completed> {
        let (key, id, parts) = (key.clone(), id.clone(), parts.to_vec());
        self.off("objects.complete", move |folders| folders.complete(&key, &id, &parts)).await
    }

    /// What is seen is proved, so it must not vanish with the power: whoever put the object there may have died between
    /// the rename and the sync of a folder above it.
    pub(super) async fn head(&self, key: &Key) -> Result<Option<Head>> {
        const OP: &str = "objects.head";
        let folder = self.folders.object(key);
        self.off(OP, move |folders| {
            let Some(manifest) = read_manifest(OP, &folder)? else { return Ok(None) };
            for above in folder.ancestors().skip(1).take_while(|above| above.starts_with(&folders.objects)) {
                sync_folder(above, folders.fsync).map_err(|error| Error::io(OP, above.display(), error))?;
            }
            Ok(Some(manifest.head()))
        })
        .await
    }

    async fn manifest(&self, op: &'static str, key: &Key) -> Result<Option<(PathBuf, Manifest)>> {
        let folder = self.folders.object(key);
        let read = move |_: &Folders| Ok(read_manifest(op, &folder)?.map(|manifest| (folder, manifest)));
        self.off_on(&OUT, op, read).await
    }

    pub(super) async fn abort(&self, _key: &Key, id: &MultipartId) -> Result<Abort> {
        let Ok(folder) = self.folders.upload("objects.abort", id) else { return Ok(Abort::Gone) };
        self.off("objects.abort", move |folders| folders.discard("objects.abort", &folder)).await
    }

    pub(super) async fn read(&self, key: &Key, range: Option<Range<u64>>) -> Result<Option<Pieces>> {
        let Some((folder, manifest)) = self.manifest("objects.read", key).await? else { return Ok(None) };
        Ok(Some(read::pieces(folder, manifest, range)))
    }

    pub(super) async fn put_empty(&self, key: &Key, about: &About) -> Result<()> {
        let (key, about) = (key.clone(), Description::from(about));
        self.off("objects.put_empty", move |folders| {
            let id = folders.begin(&key, about.clone())?;
            let folder = folders.upload("objects.put_empty", &id)?;
            folders.publish("objects.put_empty", &key, &folder, &Manifest::new(about, Vec::new())).map(drop)
        })
        .await
    }

    pub(super) async fn pending(&self, prefix: &str, after: Option<&Cursor>) -> Result<PendingPage> {
        let (prefix, after) = (prefix.to_owned(), after.map(|cursor| cursor.id.clone()).unwrap_or_default());
        self.off("objects.pending", move |folders| folders.pending("", &prefix, &after)).await
    }

    pub(super) async fn pending_of(&self, key: &Key, after: Option<&Cursor>) -> Result<PendingPage> {
        let (key, after) = (key.clone(), after.map(|cursor| cursor.id.clone()).unwrap_or_default());
        self.off("objects.pending", move |folders| folders.pending(&mark(key.as_str()), key.as_str(), &after))
            .await
    }
}

impl Folders {
    fn object(&self, key: &Key) -> PathBuf {
        self.objects.join(key.as_str())
    }

    /// The folder of an upload. Ids are ours: anything else names none.
    fn upload(&self, op: &'static str, id: &MultipartId) -> Result<PathBuf> {
        let ours = id.as_str().len() == 32 && id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit());
        if ours { Ok(self.uploads.join(id.as_str())) } else { Err(no_such_upload(op)) }
    }

    fn begin(&self, key: &Key, about: Description) -> Result<MultipartId> {
        const OP: &str = "objects.begin";
        let failed = |error| Error::io(OP, "a folder for the parts", error);
        let id = format!("{}{}", mark(key.as_str()), &disk::unique().map_err(failed)?[MARK..]);
        let folder = self.uploads.join(&id);
        let begun =
            Begun { key: key.to_string(), initiated_ms: jiff::Timestamp::now().as_millisecond(), about };
        let bytes = serde_json::to_vec(&begun)
            .map_err(|error| Error::new(OP, Trouble::Never, error.to_string()).because(error))?;
        let begun = disk::make_folders(&folder, self.fsync)
            .and_then(|()| disk::write_whole(&folder.join(BEGUN), &bytes, self.fsync));
        if begun.is_err() {
            // Nobody knows its id.
            let _ = fs::remove_dir_all(&folder);
        }
        begun.map_err(failed)?;
        Ok(MultipartId::new(id))
    }

    fn writing(&self, folder: &Path, to: &Path, digest: Digest) -> Result<Writing> {
        const OP: &str = "objects.part";
        match Writing::begin(to, digest, self.fsync) {
            Ok(writing) => Ok(writing),
            Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => Err(no_such_upload(OP)),
            Err(error) => Err(Error::io(OP, "the part", error)),
        }
    }

    /// A part from a file: moved if it may be and can be, else copied.
    fn take(
        &self,
        from: &Path,
        then: Then,
        folder: &Path,
        to: &Path,
        size: u64,
        digest: Digest,
    ) -> Result<()> {
        const OP: &str = "objects.part";
        if then == Then::Take {
            match disk::move_file(from, to, size, self.fsync) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return if !folder.exists() {
                        Err(no_such_upload(OP))
                    } else if to.metadata().is_ok_and(|found| found.len() == size) {
                        // Moved before; the answer was lost.
                        sync_folder(folder, self.fsync).map_err(|error| Error::io(OP, "the part", error))
                    } else {
                        Err(Error::io(OP, from.display(), error))
                    };
                }
                Err(error) => return Err(Error::io(OP, from.display(), error)),
            }
        }
        let mut writing = self.writing(folder, to, digest)?;
        disk::copy(from, &mut writing).map_err(|error| Error::io(OP, from.display(), error))?;
        writing.finish(size)?;
        if then == Then::Take {
            let _ = fs::remove_file(from);
        }
        Ok(())
    }

    fn complete(&self, key: &Key, id: &MultipartId, parts: &[Part]) -> Result<Completed> {
        const OP: &str = "objects.complete";
        let Ok(folder) = self.upload(OP, id) else { return Ok(Completed::Unknown(no_such_upload(OP))) };
        let Some(begun) = read_json::<Begun>(OP, &folder.join(BEGUN))? else {
            return Ok(Completed::Unknown(no_such_upload(OP)));
        };
        if begun.key != key.as_str() {
            return Err(
                Error::new(OP, Trouble::Never, format!("the upload is of {:?}", begun.key)).saying("key")
            );
        }
        let mut files = Vec::with_capacity(parts.len());
        for Part { number, etag, size, .. } in parts {
            let file = part_file(*number, etag);
            // Of the ETag only a digest can be part of a name.
            let known = etag.trim_matches('"').parse::<Digest>().is_ok();
            let Some(found) = known.then(|| folder.join(&file).metadata().ok()).flatten() else {
                if !folder.exists() {
                    return Ok(Completed::Unknown(no_such_upload(OP)));
                }
                let detail = format!("part {number} with ETag {etag} is not there");
                return Err(Error::new(OP, Trouble::Never, detail).saying("InvalidPart"));
            };
            if found.len() != *size {
                let detail =
                    format!("part {number} has {} bytes, not the {size} that were recorded", found.len());
                return Err(Error::new(OP, Trouble::Never, detail).saying("damaged"));
            }
            files.push(PartFile { file, size: *size });
        }
        self.publish(OP, key, &folder, &Manifest::new(begun.about, files))
    }

    /// Gives a folder of parts its manifest and the object's name.
    fn publish(&self, op: &'static str, key: &Key, folder: &Path, manifest: &Manifest) -> Result<Completed> {
        let failed = |error| Error::io(op, format_args!("the object {key}"), error);
        let bytes = serde_json::to_vec(manifest)
            .map_err(|error| Error::new(op, Trouble::Never, error.to_string()).because(error))?;
        match disk::write_whole(&folder.join(MANIFEST), &bytes, self.fsync) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Completed::Unknown(no_such_upload(op)));
            }
            written => written.map_err(failed)?,
        }
        let object = self.object(key);
        let parent = object.parent().unwrap_or(&self.objects).to_owned();
        self.refuse_nested(op, key, &parent)?;
        disk::make_folders(&parent, self.fsync).map_err(failed)?;
        match fs::rename(folder, &object) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => {
                return Ok(Completed::Unknown(no_such_upload(op)));
            }
            Err(error) if object.exists() => self.replace(op, key, folder, &object, error)?,
            Err(error) => return Err(failed(error)),
        }
        sync_folder(&parent, self.fsync)
            .and_then(|()| sync_folder(&self.uploads, self.fsync))
            .map_err(failed)?;
        sweep_folder(&object, manifest);
        Ok(Completed::Done { etag: Some(manifest.etag.clone()) })
    }

    /// Puts a folder in the place of an object that is there.
    fn replace(
        &self,
        op: &'static str,
        key: &Key,
        folder: &Path,
        object: &Path,
        error: std::io::Error,
    ) -> Result<()> {
        if !object.join(MANIFEST).is_file() {
            let detail = format!("the key {key} is a folder of other objects");
            return Err(Error::new(op, Trouble::Never, detail).saying("key").because(error));
        }
        let failed = |error| Error::io(op, format_args!("the object {key}"), error);
        if disk::exchange(folder, object).is_ok() {
            return self.discard(op, folder).map(drop);
        }
        // Not on this file system: for a moment there is no object, and whoever resumes puts the new one there.
        let _ = self.discard(op, object)?;
        fs::rename(folder, object).map_err(failed)
    }

    /// An object has no objects in it.
    fn refuse_nested(&self, op: &'static str, key: &Key, parent: &Path) -> Result<()> {
        let above = parent.ancestors().take_while(|folder| *folder != self.objects);
        if above.into_iter().any(|folder| folder.join(MANIFEST).is_file()) {
            let detail = format!("the key {key} lies in another object");
            return Err(Error::new(op, Trouble::Never, detail).saying("key"));
        }
        Ok(())
    }

    /// Takes a folder away in one step, then removes what is in it.
    fn discard(&self, op: &'static str, folder: &Path) -> Result<Abort> {
        let failed = |error| Error::io(op, folder.display(), error);
        let trash = self.trash.join(disk::unique().map_err(failed)?);
        match fs::rename(folder, &trash) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Abort::Gone),
            Err(error) => return Err(failed(error)),
        }
        sync_folder(&self.uploads, self.fsync).map_err(failed)?;
        // What cannot be removed now is removed when the store is opened.
        if let Err(error) = fs::remove_dir_all(&trash) {
            tracing::warn!(%error, folder = %trash.display(), "trash stays for now");
        }
        Ok(Abort::Done)
    }

    /// Those whose ids begin with `mark`, and keys with `prefix`.
    fn pending(&self, mark: &str, prefix: &str, after: &str) -> Result<PendingPage> {
        const OP: &str = "objects.pending";
        let failed = |error| Error::io(OP, self.uploads.display(), error);
        let mut ids: Vec<String> = fs::read_dir(&self.uploads)
            .map_err(failed)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|id| id.as_str() > after && id.starts_with(mark))
            .collect();
        ids.sort_unstable();
        let more = ids.len() > PAGE;
        ids.truncate(PAGE);
        let next =
            if more { ids.last().map(|id| Cursor { key: String::new(), id: id.clone() }) } else { None };
        let mut uploads = Vec::new();
        for id in ids {
            // One that ended meanwhile has no file; one whose beginning died has none yet, and nobody knows its id.
            let (key, initiated_ms) = match read_json::<Begun>(OP, &self.uploads.join(&id).join(BEGUN)) {
                Ok(Some(begun)) => (begun.key, Some(begun.initiated_ms)),
                Ok(None) => {
                    Self::drop_stillborn(&self.uploads.join(&id));
                    continue;
                }
                // Nobody knows whose it is; the others must be found nevertheless.
                Err(error) => {
                    tracing::warn!(id, %error, "a multipart upload is left where it is");
                    continue;
                }
            };
            if key.starts_with(prefix) {
                uploads.push(Pending { key, id: MultipartId::new(id), initiated_ms });
            }
        }
        Ok(PendingPage { uploads, next })
    }
}

impl Folders {
    /// Removes the empty folder of an upload whose beginning died long ago.
    fn drop_stillborn(folder: &Path) {
        let age = folder.metadata().and_then(|found| found.modified()).map(|made| made.elapsed());
        if matches!(age, Ok(Ok(age)) if age > STILLBORN) {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// What the ids of a key's uploads begin with: so they are found among all without a look into each.
fn mark(key: &str) -> String {
    Sha256::of(key.as_bytes()).to_string()[..MARK].to_owned()
}

/// Removes what a whole object does not need: its beginning, and parts that were sent and not recorded.
fn sweep_folder(object: &Path, manifest: &Manifest) {
    let needed: std::collections::HashSet<&str> =
        manifest.parts.iter().map(|part| part.file.as_str()).chain([MANIFEST]).collect();
    for entry in fs::read_dir(object).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_none_or(|name| !needed.contains(name)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn read_manifest(op: &'static str, folder: &Path) -> Result<Option<Manifest>> {
    read_json(op, &folder.join(MANIFEST))
}

fn read_json<T: serde::de::DeserializeOwned>(op: &'static str, path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        // A key may lie below a file, or be a folder of others.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::io(op, path.display(), error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let detail = format!("{} is damaged: {error}", path.display());
        Error::new(op, Trouble::Never, detail).saying("damaged").because(error)
    })
}

fn no_such_upload(op: &'static str) -> Error {
    Error::new(op, Trouble::Never, "no such multipart upload: completed, aborted or never begun")
        .saying("NoSuchUpload")
}
