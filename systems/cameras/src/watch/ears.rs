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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use notify::event::{DataChange, Flag};

    /// What is heard of these events, by ears with room for `room` of them.
    async fn heard(room: usize, events: Vec<notify::Result<Event>>) -> (Vec<(PathBuf, Sign)>, bool) {
        let ((out, mut inbox), missed) = (channel(room), Notify::new());
        for event in events {
            hear(event, &out, &missed);
        }
        drop(out);
        let mut files = Vec::new();
        while let Some(file) = inbox.recv().await {
            files.push(file);
        }
        let told = futures_util::FutureExt::now_or_never(missed.notified()).is_some();
        (files, told)
    }

    fn event(kind: EventKind, path: &str) -> Event {
        Event::new(kind).add_path(path.into())
    }

    #[tokio::test]
    async fn writing_closing_and_renaming_are_told_apart() {
        let close = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
        let both = Event::new(moved).add_path("/old.jpg".into()).add_path("/new.jpg".into());
        let read = EventKind::Access(AccessKind::Close(AccessMode::Read));
        let events =
            [event(write, "/a.jpg"), event(close, "/a.jpg"), event(read, "/b.jpg"), both].map(Ok).into();
        let (files, missed) = heard(9, events).await;
        let told: Vec<(&str, Sign)> =
            files.iter().map(|(path, sign)| (path.to_str().unwrap(), *sign)).collect();
        let expected = [("/a.jpg", Sign::Touched), ("/a.jpg", Sign::Finished), ("/new.jpg", Sign::Finished)];
        assert_eq!((told.as_slice(), missed), (expected.as_slice(), false));
    }

    #[tokio::test]
    async fn whatever_may_have_been_missed_asks_for_a_walk() {
        let create = EventKind::Create(CreateKind::File);
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(heard(9, vec![Ok(overflow)]).await, (vec![], true), "the kernel's queue overflowed");
        let (files, missed) = heard(1, vec![Ok(event(create, "/a.jpg")), Ok(event(create, "/b.jpg"))]).await;
        assert_eq!((files.len(), missed), (1, true), "ours did");
        let folder = event(EventKind::Create(CreateKind::Folder), "/new");
        assert_eq!(
            heard(9, vec![Ok(folder)]).await,
            (vec![], true),
            "a folder may be filled before it is watched"
        );
        assert_eq!(heard(9, vec![Err(notify::Error::generic("broken"))]).await, (vec![], true));
        let renamed = event(EventKind::Modify(ModifyKind::Name(RenameMode::To)), env!("CARGO_MANIFEST_DIR"));
        assert_eq!(heard(9, vec![Ok(renamed)]).await, (vec![], true), "a folder came with all that is in it");
    }
}
