//! Group commit: many scripts, one write, one sync.
//!
//! A script's changes are enqueued while the data model is still locked, so the queue's order is the order
//! of execution, and its place in the queue is its ticket. Whoever then finds nobody committing commits
//! everything that is queued, in its own thread: with one caller there is no hop between threads. The
//! others wait; when a commit ends, all of its group go on and one of the next group commits that one.
//!
//! After a failed commit the data model is ahead of the disk for good, so nothing is accepted any more and
//! whoever watches [`Committer::failure`] is told: opening the folder again shows what is really there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};

use super::change::{Change, Generation};
use super::options::Durability;
use crate::{Code, Error, Result};

/// What a failed write or sync says.
pub(crate) type Cause = Box<dyn std::error::Error + Send + std::marker::Sync>;

/// How far a commit must reach before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// On the disk: it survives a power cut.
    Disk,
    /// With the operating system: it survives the end of this process.
    System,
}

/// Where commits go: the journal, or a double in tests.
pub(crate) trait Sink: Send + std::marker::Sync + 'static {
    /// Writes the changes of the scripts `first..=last` as one atomic record; returns the collections
    /// that ended with it.
    fn commit(
        &self,
        first: u64,
        last: u64,
        changes: Vec<Change>,
        sync: Sync,
    ) -> Result<Vec<Generation>, Cause>;

    /// Makes everything up to `last` durable.
    fn sync(&self, last: u64) -> Result<(), Cause>;
}

/// While commits are quicker than this the caller's thread makes them and nothing else meanwhile: handing the
/// other tasks of a runtime to another thread costs two switches, half as much as the sync of a good disk.
const QUICK_US: u64 = 1_000;

/// Commits slower than this are made on another thread, so that deadlines hold on a bad disk.
const SLOW_US: u64 = 5_000;

#[derive(Debug)]
pub(crate) struct Committer<S> {
    sink: S,
    durability: Durability,
    queue: Mutex<Queue>,
    /// The last ticket handed out.
    enqueued: AtomicU64,
    /// The last ticket whose group is written.
    written: AtomicU64,
    /// The last ticket that survives a power cut.
    durable: AtomicU64,
    last_commit_us: AtomicU64,
    failed: AtomicBool,
    failure: watch::Sender<bool>,
    dead: Mutex<Vec<Generation>>,
}

#[derive(Debug)]
struct Queue {
    pending: Vec<Change>,
    last: u64,
    taken: u64,
    /// When the commit under way began.
    leading: Option<Instant>,
    /// Those whose changes are in `pending`, and those whose changes are being written.
    current: Arc<Notify>,
    writing: Arc<Notify>,
    failed: Option<Arc<str>>,
}

enum Place {
    Done,
    Lead,
    Follow(Arc<Notify>),
}

impl<S: Sink> Committer<S> {
    /// A committer whose first ticket follows `last`.
    pub(crate) fn new(sink: S, durability: Durability, last: u64) -> Self {
        let queue = Queue {
            pending: Vec::new(),
            last,
            taken: last,
            leading: None,
            current: Arc::default(),
            writing: Arc::default(),
            failed: None,
        };
        Self {
            sink,
            durability,
            queue: Mutex::new(queue),
            enqueued: AtomicU64::new(last),
            written: AtomicU64::new(last),
            durable: AtomicU64::new(last),
            last_commit_us: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            failure: watch::Sender::new(false),
            dead: Mutex::default(),
        }
    }

    pub(crate) fn sink(&self) -> &S {
        &self.sink
    }

    /// Queues one script's changes and returns the ticket to wait for. Without changes that is the ticket
    /// of the last change there was: what the script saw must be durable before anybody hears of it.
    pub(crate) fn enqueue(&self, changes: Vec<Change>) -> u64 {
        if changes.is_empty() {
            return self.enqueued.load(Acquire);
        }
        let mut queue = self.queue.lock();
        if queue.failed.is_some() {
            // Never to be committed and never to be acknowledged: waiting for it ends in the error.
            queue.last += 1;
            self.enqueued.store(queue.last, Release);
            return queue.last;
        }
        if queue.pending.is_empty() {
            queue.pending = changes;
        } else {
            queue.pending.extend(changes);
        }
        queue.last += 1;
        self.enqueued.store(queue.last, Release);
        queue.last
    }

    /// The ticket of the last change there was.
    pub(crate) fn last_ticket(&self) -> u64 {
        self.enqueued.load(Acquire)
    }

    /// Refuses once a commit has failed: a call that has not begun is not made.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.failed.load(Acquire) {
            return Ok(());
        }
        match &self.queue.lock().failed {
            Some(cause) => Err(refused(cause)),
            None => Ok(()),
        }
    }

    /// Refuses while a commit is under way that the disk has not taken within `limit`.
    pub(crate) fn check_disk(&self, limit: Duration) -> Result<()> {
        let Some(taken) = self.queue.lock().leading.map(|since| since.elapsed()) else { return Ok(()) };
        if taken < limit {
            return Ok(());
        }
        let detail = format!("the disk has not taken a commit for {} ms", taken.as_millis());
        Err(Error::new("store.ready", Code::StoreTimedOut, detail))
    }

    /// Becomes true when a commit has failed.
    pub(crate) fn failure(&self) -> watch::Receiver<bool> {
        self.failure.subscribe()
    }

    /// Whether the reply that belongs to `ticket` may go out: its changes are durable, under `everysec`
    /// with the operating system.
    pub(crate) fn is_released(&self, ticket: u64) -> bool {
        let reached = match self.durability {
            Durability::Always => &self.durable,
            Durability::EverySec => &self.written,
        };
        reached.load(Acquire) >= ticket
    }

    /// Waits until the reply that belongs to `ticket` may go out, for as long as `deadline`.
    pub(crate) async fn released(self: &Arc<Self>, ticket: u64, deadline: Duration) -> Result<()> {
        if self.is_released(ticket) {
            return Ok(());
        }
        // Whatever is ready to run runs first and joins the group.
        tokio::task::yield_now().await;
        if !self.is_released(ticket) && self.last_commit_us.load(Relaxed) < QUICK_US {
            self.lead();
        }
        if self.is_released(ticket) {
            return Ok(());
        }
        tokio::time::timeout(deadline, self.settled(ticket)).await.unwrap_or_else(|_| {
            let detail = format!("the disk did not take the changes within {deadline:?}");
            Err(Error::new("store.commit", Code::StoreTimedOut, detail))
        })
    }

    async fn settled(self: &Arc<Self>, ticket: u64) -> Result<()> {
        loop {
            let group = match self.place(ticket)? {
                Place::Done => return Ok(()),
                Place::Lead => {
                    self.lead_here().await;
                    continue;
                }
                Place::Follow(group) => group,
            };
            let mut notified = std::pin::pin!(group.notified());
            // From here on no wake-up is missed; one that came before shows in the second look.
            notified.as_mut().enable();
            if let Place::Follow(_) = self.place(ticket)? {
                notified.await;
            }
        }
    }

    fn place(&self, ticket: u64) -> Result<Place> {
        let queue = self.queue.lock();
        if self.is_released(ticket) {
            return Ok(Place::Done);
        }
        if let Some(cause) = &queue.failed {
            // What was never handed to the disk is not there when the folder is opened again.
            return Err(if ticket <= queue.taken { unsure(cause) } else { refused(cause) });
        }
        Ok(if ticket <= queue.taken {
            Place::Follow(Arc::clone(&queue.writing))
        } else if queue.leading.is_some() {
            Place::Follow(Arc::clone(&queue.current))
        } else {
            Place::Lead
        })
    }

    async fn lead_here(self: &Arc<Self>) {
        let flavor = || Handle::try_current().map(|handle| handle.runtime_flavor());
        let last_us = self.last_commit_us.load(Relaxed);
        if last_us > SLOW_US {
            let this = Arc::clone(self);
            // A runtime that is shutting down drops the work: the commit is then made when the store closes.
            let _ = tokio::task::spawn_blocking(move || this.lead()).await;
        } else if last_us >= QUICK_US
            && self.durability == Durability::Always
            && matches!(flavor(), Ok(RuntimeFlavor::MultiThread))
        {
            tokio::task::block_in_place(|| self.lead());
        } else {
            self.lead();
        }
    }

    /// Commits what is queued unless somebody else does.
    pub(crate) fn lead(&self) {
        let mut queue = self.queue.lock();
        if queue.leading.is_some() || queue.pending.is_empty() || queue.failed.is_some() {
            return;
        }
        let started = Instant::now();
        queue.leading = Some(started);
        let changes = std::mem::take(&mut queue.pending);
        let (first, last) = (queue.taken + 1, queue.last);
        queue.taken = last;
        queue.writing = std::mem::take(&mut queue.current);
        let group = Arc::clone(&queue.writing);
        drop(queue);

        let sync = match self.durability {
            Durability::Always => Sync::Disk,
            Durability::EverySec => Sync::System,
        };
        let commit = || self.sink.commit(first, last, changes, sync);
        let outcome = catch_unwind(AssertUnwindSafe(commit))
            .unwrap_or_else(|_| Err(Cause::from("the journal panicked")));
        self.last_commit_us.store(started.elapsed().as_micros().try_into().unwrap_or(u64::MAX), Relaxed);
        let failed = match outcome {
            Ok(dead) => {
                if !dead.is_empty() {
                    self.dead.lock().extend(dead);
                }
                self.written.store(last, Release);
                if sync == Sync::Disk {
                    self.durable.store(last, Release);
                }
                None
            }
            Err(cause) => Some(cause),
        };

        let mut queue = self.queue.lock();
        queue.leading = None;
        if let Some(cause) = failed {
            self.fail(&mut queue, cause);
            return;
        }
        let next = (!queue.pending.is_empty()).then(|| Arc::clone(&queue.current));
        drop(queue);
        group.notify_waiters();
        if let Some(next) = next {
            next.notify_one();
        }
    }

    /// Makes everything written durable (`everysec`).
    pub(crate) fn sync(&self) {
        let written = self.written.load(Acquire);
        if self.durable.load(Acquire) >= written || self.queue.lock().failed.is_some() {
            return;
        }
        match self.sink.sync(written) {
            Ok(()) => {
                self.durable.fetch_max(written, Release);
            }
            Err(cause) => self.fail(&mut self.queue.lock(), cause),
        }
    }

    /// Accepts nothing any more, for a reason found elsewhere.
    pub(crate) fn condemn(&self, cause: impl Into<Cause>) {
        self.fail(&mut self.queue.lock(), cause.into());
    }

    fn fail(&self, queue: &mut Queue, cause: Cause) {
        if queue.failed.is_some() {
            return;
        }
        tracing::error!(%cause, "the journal cannot be written; nothing is accepted until it is opened again");
        queue.failed = Some(cause.to_string().into());
        self.failed.store(true, Release);
        queue.pending = Vec::new();
        queue.current.notify_waiters();
        queue.writing.notify_waiters();
        self.failure.send_replace(true);
    }

    /// Commits and syncs everything that is queued; blocks.
    pub(crate) fn finish(&self) -> Result<()> {
        loop {
            self.lead();
            let queue = self.queue.lock();
            if let Some(cause) = &queue.failed {
                return Err(unsure(cause));
            }
            if queue.leading.is_none() && queue.pending.is_empty() {
                break;
            }
            drop(queue);
            // Somebody else is committing, in a thread that does not depend on this one.
            std::thread::sleep(Duration::from_micros(200));
        }
        self.sync();
        self.check()
    }

    /// The collections that ended since the last call: their elements are garbage on disk now.
    pub(crate) fn take_dead(&self) -> Vec<Generation> {
        std::mem::take(&mut self.dead.lock())
    }
}

/// The changes may be on disk or not.
fn unsure(cause: &str) -> Error {
    let detail = format!("the journal could not be written ({cause})");
    Error::new("store.commit", Code::StoreDisk, detail)
}

/// The call was not made.
fn refused(cause: &str) -> Error {
    let detail =
        format!("the journal could not be written ({cause}); nothing is accepted until it is opened again");
    Error::new("store.commit", Code::StoreFolder, detail)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "commit_tests.rs"]
mod tests;
