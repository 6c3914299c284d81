//! The file behind the access log, and the thread that writes it.
//!
//! Callers append to a buffer of bounded size and go on. The thread takes what has gathered a few times a second. A disk
//! that is slow, full or gone costs lines, which are counted, and never a caller's time.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

use super::AccessTo;
use super::line::moment;

/// Bytes that may wait; as many again may be on their way to the disk.
const BOUND: usize = 4 << 20;
/// Bytes of the buffer that are kept when nothing waits.
const KEPT: usize = 64 << 10;
/// For how long lines gather before they are written.
const GATHER: Duration = Duration::from_millis(50);
/// How long a stop waits for the disk.
const LAST: Duration = Duration::from_secs(2);
/// How often the log says that lines are lost.
const COMPLAIN: Duration = Duration::from_secs(60);

/// What became of the lines.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    lines: u64,
    /// Lines that found no room since the last batch.
    dropped: u64,
    reopen: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    counts: Counts,
    /// Set when the thread has ended.
    ended: CancellationToken,
}

/// Takes lines.
#[derive(Debug)]
pub(super) struct Writer(Arc<Shared>);

/// Makes the file opened anew.
#[derive(Debug, Clone)]
pub(super) struct Handle(Arc<Shared>);

impl Handle {
    pub(super) fn reopen(&self) {
        self.0.waiting.lock().reopen = true;
        self.0.wake.notify_one();
    }
}

impl Writer {
    /// Opens the file, and starts the thread.
    pub(super) fn start(to: &AccessTo) -> io::Result<Self> {
        let place = Place::open(to)?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        std::thread::Builder::new().name("access-log".into()).spawn(move || {
            let _ended = theirs.ended.clone().drop_guard();
            Thread { shared: &theirs, place, broken: false, complained: None }.run();
        })?;
        Ok(Self(shared))
    }

    /// Takes a line, or counts it where there is no room.
    pub(super) fn push(&self, line: &str) {
        let mut waiting = self.0.waiting.lock();
        if waiting.bytes.len() + line.len() > BOUND {
            waiting.dropped += 1;
            self.0.counts.dropped.fetch_add(1, Relaxed);
            return;
        }
        let first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line.as_bytes());
        waiting.lines += 1;
        drop(waiting);
        // The thread is woken once for all that gathers.
        if first {
            self.0.wake.notify_one();
        }
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(self.0.clone())
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Lets the thread write what waits, and end.
    pub(super) async fn close(&self) {
        self.stop();
        if tokio::time::timeout(LAST, self.0.ended.cancelled()).await.is_err() {
            let left = self.0.waiting.lock().lines;
            tracing::warn!(left, "the access log could not be written to its end");
        }
    }

    fn stop(&self) {
        self.0.waiting.lock().stop = true;
        self.0.wake.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Thread<'a> {
    shared: &'a Shared,
    place: Place,
    /// The last batch was not written to its end: a line may be torn.
    broken: bool,
    complained: Option<Instant>,
}

impl Thread<'_> {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let (lines, unseen, reopen, stop) = self.next(&mut batch);
            if let Err(error) = self.place.follow(reopen) {
                self.complain(&format!("it cannot be opened anew: {error}; writing goes on in the old file"));
            }
            if lines + unseen > 0 {
                self.write(&mut batch, lines, unseen);
            }
            batch.clear();
            batch.shrink_to(KEPT);
            if stop && self.shared.waiting.lock().bytes.is_empty() {
                return;
            }
        }
    }

    /// Waits for lines and takes them: how many, how many were dropped before them, what else is to be done.
    fn next(&self, batch: &mut Vec<u8>) -> (u64, u64, bool, bool) {
        let mut waiting = self.shared.waiting.lock();
        while waiting.bytes.is_empty() && !waiting.reopen && !waiting.stop {
            self.shared.wake.wait(&mut waiting);
        }
        if !waiting.reopen && !waiting.stop {
            // A signal or a stop ends this early.
            self.shared.wake.wait_for(&mut waiting, GATHER);
        }
        std::mem::swap(batch, &mut waiting.bytes);
        let (lines, unseen) = (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.dropped));
        (lines, unseen, std::mem::take(&mut waiting.reopen), waiting.stop)
    }

    fn write(&mut self, batch: &mut Vec<u8>, lines: u64, unseen: u64) {
        if unseen > 0 {
            self.complain("the disk is too slow: lines are dropped, see quaymaster_access_log_dropped_total");
            batch.extend_from_slice(gap(unseen).as_bytes());
        }
        let written = self.resume().and_then(|()| self.place.file.write_all(batch));
        self.broken = written.is_err();
        match written {
            Ok(()) => {
                self.shared.counts.written.fetch_add(lines, Relaxed);
            }
            Err(error) => {
                self.shared.counts.dropped.fetch_add(lines, Relaxed);
                // The gap is told once something can be written again.
                self.shared.waiting.lock().dropped += lines + unseen;
                self.complain(&format!("it cannot be written: {error}; its lines are dropped"));
            }
        }
    }

    /// Ends a line that an error may have torn.
    fn resume(&mut self) -> io::Result<()> {
        if self.broken { self.place.file.write_all(b"\n") } else { Ok(()) }
    }

    fn complain(&mut self, what: &str) {
        if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN) {
            self.complained = Some(Instant::now());
            tracing::warn!("access log: {what}");
        }
    }
}

/// Says in the log itself that lines are missing from it.
fn gap(lines: u64) -> String {
    let mut out = String::from(r#"{"time":""#);
    moment(&mut out, SystemTime::now());
    let _ = writeln!(out, "\",\"dropped\":{lines}}}");
    out
}

/// An open file, and where it was found.
struct Place {
    file: File,
    path: Option<PathBuf>,
}

impl Place {
    fn open(to: &AccessTo) -> io::Result<Self> {
        match to {
            // A handle of its own: nobody else who prints waits for a reader of the log.
            AccessTo::Stdout => {
                Ok(Self { file: File::from(io::stdout().as_fd().try_clone_to_owned()?), path: None })
            }
            AccessTo::File(path) => Ok(Self { file: append(path)?, path: Some(path.clone()) }),
        }
    }

    /// Opens the file anew when it was asked for, or when another file, or none, has its name.
    fn follow(&mut self, asked: bool) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let (ours, there) = (self.file.metadata()?, std::fs::metadata(path));
        let same = there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if asked || !same {
            self.file = append(path)?;
        }
        Ok(())
    }
}

/// Opens a file at its end. A pipe would make the server wait for its reader.
fn append(path: &Path) -> io::Result<File> {
    if let Ok(there) = std::fs::metadata(path)
        && !there.is_file()
        && !there.file_type().is_char_device()
    {
        return Err(io::Error::other("it is no file; \"-\" is standard output"));
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
