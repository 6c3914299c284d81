//! Opening a folder: made whole or not at all, checked before the database may touch it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicI64;

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions};
use tracing::warn;

use super::mark::{Mark, Marked};
use super::scan::{self, Scan, Span, Stamp, Tail};
use super::{COMMIT_KEY, FORMAT, FORMAT_KEY, FORMAT_UNPREFIXED, Journal, manifest};
use crate::embedded::folder::{self, reason};
use crate::{Code, Error, Result};

const OP: &str = "store.open";
const DATA: &str = "data";
const DATA_NEW: &str = "data.new";
/// What was found wrong; stays until loss is accepted.
const VERDICT: &str = "damaged";
/// In the order they are made: the database numbers its keyspaces from 1.
const KEYSPACES: [&str; 3] = ["keys", "elements", "meta"];
const STAMP: Stamp = Stamp { keyspace: 3, key: COMMIT_KEY };

/// Whether to go on where acknowledged commits are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Report it and change nothing.
    Refuse,
    /// Go on with what is left.
    Accept,
}

/// The folder is damaged: where, and what to do.
pub(super) fn damaged(dir: &Path, what: impl std::fmt::Display) -> Error {
    let detail = format!(
        "{what} in {}; restore a backup of the folder, or move it away to start empty",
        dir.display()
    );
    Error::new(OP, Code::StoreCorrupt, detail)
}

/// What the database says, in our words.
pub(super) fn failed(dir: &Path, error: fjall::Error) -> Error {
    let code = match &error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            return failed_io(dir, io).because(error);
        }
        fjall::Error::Locked => {
            let detail = format!(
                "another process still has the database in {} open without the folder's lock: the lock file \
                 was removed while it ran; end that process",
                dir.display()
            );
            return Error::new(OP, Code::StoreFolder, detail).because(error);
        }
        fjall::Error::Poisoned => Code::StoreFolder,
        fjall::Error::InvalidVersion(_) => Code::StoreVersion,
        _ => return damaged(dir, format_args!("the database reports {error:?}")).because(error),
    };
    Error::new(OP, code, format!("the database in {} reports {error:?}", dir.display())).because(error)
}

fn failed_io(dir: &Path, error: &io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, InvalidData, InvalidInput, NotFound, UnexpectedEof};
    if matches!(error.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof | AlreadyExists) {
        return damaged(dir, format_args!("a file is missing or cut short ({error})"));
    }
    Error::new(OP, Code::StoreFolder, format!("{}: {}", dir.display(), reason(error)))
}

pub(super) fn io_error(dir: &Path) -> impl Fn(io::Error) -> Error + '_ {
    |error| failed_io(dir, &error).because(error)
}

impl Journal {
    /// Opens the journal in `dir`, making it if there is none. The caller holds the folder's lock.
    pub(crate) fn open(dir: &Path, loss: Loss) -> Result<Self> {
        let io = io_error(dir);
        let data = dir.join(DATA);
        // The database opens its files as it likes: there must be no link among them.
        for place in [&data, &dir.join(DATA_NEW)] {
            folder::check_links(place).map_err(&io)?;
        }
        let marked = Mark::read(dir).map_err(&io)?;
        check_verdict(dir, loss)?;
        if !data.try_exists().map_err(&io)? {
            match marked {
                Marked::Missing | Marked::Empty | Marked::Commit(0) => {}
                _ if loss == Loss::Accept => {
                    warn!(dir = %dir.display(), "the database is missing; starting empty");
                }
                _ => return Err(damaged(dir, "the database is missing though commits were acknowledged")),
            }
            create(dir)?;
        }
        fs::set_permissions(&data, Permissions::from_mode(0o700)).map_err(&io)?;
        let marked = match (Mark::read(dir).map_err(&io)?, loss) {
            (Marked::Commit(commit), _) => commit,
            (_, Loss::Accept) => 0,
            (Marked::Missing, Loss::Refuse) => {
                return Err(damaged(dir, "the file `acknowledged` is missing"));
            }
            (Marked::Empty | Marked::Damaged, Loss::Refuse) => {
                return Err(damaged(dir, "the file `acknowledged` is not readable"));
            }
        };
        check_files(dir, &data)?;
        let mut scan = scan::scan(&data, STAMP).map_err(&io)?;
        let kept = check_scan(dir, &scan, marked, loss)?;
        if scan.disorder {
            warn!(dir = %dir.display(), "the log's records are out of order; going on with what they say");
            settle(dir, &data)?;
            scan = scan::scan(&data, STAMP).map_err(&io)?;
        }
        let (db, [keys, elements, meta]) = start(dir, &data)?;
        let format = check_format(dir, &meta)?;
        // The database has begun to work on its files by now: the next look may not show the damage.
        let recovered =
            check_commits(dir, &meta, &scan, marked, loss).inspect_err(|error| judge(dir, error))?;
        if let Some(kept) = kept {
            // The copy was a precaution: everything acknowledged is there.
            fs::remove_file(kept).map_err(&io)?;
        }
        let mark = Mark::open(dir, recovered).map_err(&io)?;
        if format == FORMAT_UNPREFIXED {
            write_format(dir, &db, &meta)?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            db,
            keys,
            elements,
            meta,
            mark,
            recovered,
            ticker: None,
            kept_us: AtomicI64::new(0),
            #[cfg(feature = "seeded-bugs")]
            hangs: Default::default(),
        })
    }
}

/// Whether the folder was found damaged before.
fn check_verdict(dir: &Path, loss: Loss) -> Result<()> {
    let verdict = dir.join(VERDICT);
    match (folder::read(&verdict), loss) {
        (Ok(_), Loss::Accept) => fs::remove_file(&verdict).map_err(io_error(dir)),
        (Ok(found), Loss::Refuse) => {
            Err(Error::new(OP, Code::StoreCorrupt, String::from_utf8_lossy(&found).trim()))
        }
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        (Err(error), _) => Err(io_error(dir)(error)),
    }
}

fn judge(dir: &Path, error: &Error) {
    if let Err(error) = folder::write(&dir.join(VERDICT), format!("{}\n", error.detail).as_bytes()) {
        warn!(%error, "the damage could not be noted in the folder");
    }
}

/// The format, if this version reads it.
fn check_format(dir: &Path, meta: &Keyspace) -> Result<u32> {
    let format = meta.get(FORMAT_KEY).map_err(|error| failed(dir, error))?;
    let format = format.and_then(|bytes| Some(u32::from_be_bytes(bytes.as_ref().try_into().ok()?)));
    match format {
        Some(format @ (FORMAT | FORMAT_UNPREFIXED)) => Ok(format),
        Some(format) => {
            let detail = format!(
                "{} has format {format}, this version reads {FORMAT} and older; use the version that wrote it",
                dir.display()
            );
            Err(Error::new(OP, Code::StoreVersion, detail))
        }
        None => Err(damaged(dir, "the format number is missing")),
    }
}

/// The last commit there is, once it is sure that none before it is missing.
fn check_commits(dir: &Path, meta: &Keyspace, scan: &Scan, marked: u64, loss: Loss) -> Result<u64> {
    let read = |value: Option<fjall::UserValue>| match value {
        None => Ok(Span { first: 0, last: 0, floor: 0 }),
        Some(bytes) => Span::decode(&bytes).ok_or_else(|| damaged(dir, "the commit number is not readable")),
    };
    let last = read(meta.get(COMMIT_KEY).map_err(|error| failed(dir, error))?)?.last;
    let mut missing = marked.max(scan.last.unwrap_or(0)).saturating_sub(last);
    if let Some((span, seqno)) = scan.oldest {
        // The log begins where the tables end, unless its oldest file was taken away. Once the tables
        // reach into the log they no longer tell; that is asked last, because they grow meanwhile.
        let before = meta.tree.get(COMMIT_KEY, seqno).map_err(|error| failed(dir, error.into()))?;
        if meta.tree.get_highest_persisted_seqno().is_none_or(|persisted| persisted < seqno) {
            missing += span.first.saturating_sub(read(before)?.last + 1);
        }
    }
    if missing > 0 {
        lost(dir, missing, loss)?;
    }
    Ok(last)
}

/// Acknowledged commits are missing: an error, or a warning where loss is accepted.
fn lost(dir: &Path, missing: u64, loss: Loss) -> Result<()> {
    match loss {
        Loss::Accept => {
            warn!(dir = %dir.display(), missing, "acknowledged commits are missing; going on without them");
            Ok(())
        }
        Loss::Refuse => {
            let what = format!("{missing} acknowledged commits are missing: the log was cut or damaged");
            Err(damaged(dir, what))
        }
    }
}

/// The database deletes keyspaces whose description it does not find, so they must all be there.
fn check_files(dir: &Path, data: &Path) -> Result<()> {
    let keyspaces = data.join("keyspaces");
    for keyspace in 0..=KEYSPACES.len() {
        let current = keyspaces.join(keyspace.to_string()).join("current");
        if !current.try_exists().map_err(io_error(dir))? {
            return Err(damaged(dir, format_args!("{} is missing", current.display())));
        }
        let folder = keyspaces.join(keyspace.to_string());
        if let Some(file) = manifest::damaged(&folder).map_err(io_error(dir))? {
            return Err(damaged(dir, format_args!("{} is damaged or missing", file.display())));
        }
    }
    for needed in ["version", "lock"] {
        if !data.join(needed).try_exists().map_err(io_error(dir))? {
            return Err(damaged(dir, format_args!("{} is missing", data.join(needed).display())));
        }
    }
    Ok(())
}

/// Judges the log before the database may cut it; returns the copy it had to make, if any.
fn check_scan(dir: &Path, scan: &Scan, marked: u64, loss: Loss) -> Result<Option<std::path::PathBuf>> {
    if let Some((before, behind)) = scan.gap {
        lost(dir, behind.saturating_sub(before + 1).max(1), loss)?;
    }
    if scan.disorder && loss == Loss::Refuse {
        return Err(damaged(
            dir,
            "the records of the log are not numbered as they were written: one is damaged",
        ));
    }
    match (scan.last, &scan.newest) {
        (Some(last), _) if last < marked => lost(dir, marked - last, loss)?,
        // Nothing of ours can be read, yet something is there: a first commit torn by a kill, or damage
        // at the head of the file. The tables will tell; the database will cut the file meanwhile.
        (None, Some((path, _, Tail::Torn))) => {
            let kept = dir.join("log.damaged");
            let copied = || io::copy(&mut File::open(path)?, &mut folder::write(&kept, &[])?);
            copied().map_err(io_error(dir))?;
            return Ok(Some(kept));
        }
        _ => {}
    }
    Ok(None)
}

/// Makes an empty database under another name and renames it when it is whole.
fn create(dir: &Path) -> Result<()> {
    let io = io_error(dir);
    let new = dir.join(DATA_NEW);
    match fs::remove_dir_all(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    Mark::open(dir, 0).map_err(&io)?;
    // The database's own files are as readable as the system makes them; the folder they lie in is not.
    DirBuilder::new().mode(0o700).create(&new).map_err(&io)?;
    {
        let (db, [_, _, meta]) = open_database(dir, &new)?;
        write_format(dir, &db, &meta)?;
    }
    fs::rename(&new, dir.join(DATA)).map_err(&io)?;
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(&io)
}

fn write_format(dir: &Path, db: &Database, meta: &Keyspace) -> Result<()> {
    let mut batch = db.batch();
    batch.insert(meta, FORMAT_KEY, FORMAT.to_be_bytes().as_slice());
    batch.commit().map_err(|error| failed(dir, error))?;
    // Into a table: the format can be read whatever becomes of the log.
    meta.rotate_memtable_and_wait().map_err(|error| failed(dir, error))
}

/// Moves everything from the log into tables and empties it: what was accepted once is not asked again.
fn settle(dir: &Path, data: &Path) -> Result<()> {
    let (db, keyspaces) = start(dir, data)?;
    for keyspace in &keyspaces {
        keyspace.rotate_memtable_and_wait().map_err(|error| failed(dir, error))?;
    }
    drop((keyspaces, db));
    let empty = |log: &Path| File::options().write(true).open(log)?.set_len(0);
    scan::files(data).and_then(|logs| logs.iter().try_for_each(|log| empty(log))).map_err(io_error(dir))
}

fn start(dir: &Path, data: &Path) -> Result<(Database, [Keyspace; 3])> {
    // Damaged files make the database below panic in places; that is a report, not a crash.
    let opened = catch_unwind(AssertUnwindSafe(|| open_database(dir, data)));
    let (db, keyspaces) =
        opened.unwrap_or_else(|_| Err(damaged(dir, "the database cannot make sense of its files")))?;
    if keyspaces[2].id() != STAMP.keyspace {
        return Err(damaged(dir, "the keyspaces are not the ones that were made"));
    }
    Ok((db, keyspaces))
}

fn open_database(dir: &Path, data: &Path) -> Result<(Database, [Keyspace; 3])> {
    let report = |error| failed(dir, error);
    // The data model is the cache: the database needs memory only for what is not yet in tables.
    let db = Database::builder(data)
        .cache_size(4 << 20)
        .max_journaling_size(128 << 20)
        .manual_journal_persist(true)
        .worker_threads(2)
        .open()
        .map_err(report)?;
    let make = |name: &str, memtable: u64| {
        let options =
            || KeyspaceCreateOptions::default().max_memtable_size(memtable).manual_journal_persist(true);
        db.keyspace(name, options).map_err(report)
    };
    let [keys, elements, meta] = KEYSPACES;
    let keyspaces = [make(keys, 16 << 20)?, make(elements, 16 << 20)?, make(meta, 8 << 20)?];
    Ok((db, keyspaces))
}
