//! What the file system tells us of its own accord: a hint, never the truth.
//!
//! Events are lost when the kernel's queue or ours overflows, when a folder is filled before its watch is set, and
//! on file systems that tell nothing. Whatever is missed is found by the next walk.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::pending::Sign;

/// Events that wait for us; more are forgotten and a walk makes up for them.
const INBOX: usize = 4096;

/// What ears tell.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Something about one file.
    File(PathBuf, Sign),
    /// Something may have been missed since the last time.
    Missed,
}

/// A watch on one folder and all below it.
#[derive(Debug)]
pub(crate) struct Ears {
    inbox: Receiver<(PathBuf, Sign)>,
    missed: Arc<Notify>,
    /// Which folder it is: the one of that name may be replaced.
    folder: Option<(u64, u64)>,
    watcher: Option<RecommendedWatcher>,
}

impl Ears {
    /// Listens to `root`; where that cannot be done, says so and hears nothing.
    pub(crate) fn open(root: &Path) -> Self {
        let (out, inbox) = channel(INBOX);
        let missed = Arc::new(Notify::new());
        let told = missed.clone();
        let watcher =
            notify::recommended_watcher(move |event| hear(event, &out, &told)).and_then(|mut watcher| {
                watcher.watch(root, RecursiveMode::Recursive)?;
                Ok(watcher)
            });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(folder = %root.display(), %error, "no events from this folder; it is only walked through");
        });
        Self { inbox, missed, folder: identity(root), watcher: watcher.ok() }
    }

    /// Whether they still listen, and to the folder that has this name now.
    pub(crate) fn are_open(&self, root: &Path) -> bool {
        self.watcher.is_some() && self.folder == identity(root)
    }

    /// What is heard next; cancel-safe.
    pub(crate) async fn next(&mut self) -> Heard {
        tokio::select! {
            Some((path, sign)) = self.inbox.recv() => Heard::File(path, sign),
            () = self.missed.notified() => Heard::Missed,
        }
    }
}

fn identity(root: &Path) -> Option<(u64, u64)> {
    root.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Called on the watcher's own thread.
fn hear(event: notify::Result<Event>, out: &Sender<(PathBuf, Sign)>, missed: &Notify) {
    let Ok(event) = event else { return missed.notify_one() };
    if event.need_rescan() {
        return missed.notify_one();
    }
    let sign = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Sign::Finished,
        EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => Sign::Finished,
        // Files may have been put into a new folder before its watch was set.
        EventKind::Create(CreateKind::Folder) => return missed.notify_one(),
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => Sign::Touched,
        _ => return,
    };
    // A rename names the old path first.
    let Some(path) = event.paths.into_iter().next_back() else { return };
    if path.is_dir() {
        // Renamed into place, with all that is in it.
        return missed.notify_one();
    }
    if out.try_send((path, sign)).is_err() {
        missed.notify_one();
    }
}
