//! Counts in process, flushes once per tick.
//!
//! Recording locks one of a few shards, chosen by thread, adds to a handful of integers there and returns. A task takes
//! the shards' sums once per flush, freezes them under a sequence number, and sends the very same bytes until it knows
//! that the store has them. While the store is away the shards go on counting: what they hold is bounded by endpoints,
//! buckets and hours, not by requests, and nothing is lost unless the process ends.

mod outbox;
mod shard;

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::Method;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::{Stats, micros};
use crate::Result;
use outbox::Outbox;
use shard::{Admission, Shard};

/// One request that was served.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The route it matched, as a template; `None` when it matched none.
    pub route: Option<&'a str>,
    /// The status of its response.
    pub status: u16,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether it was let in.
    pub accepted: bool,
}

/// Counts requests and connections of this process. Cheap to clone, shared by all threads.
#[derive(Debug, Clone)]
pub struct Recorder {
    handle: Arc<Handle>,
}

/// The last clone's end ends the task.
#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
    stop: CancellationToken,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Debug)]
struct Inner {
    stats: Stats,
    instance: String,
    shards: Vec<Shard>,
    admission: RwLock<Admission>,
    open: AtomicI64,
    peak: AtomicI64,
    outbox: tokio::sync::Mutex<Outbox>,
}

/// A connection that is open; dropping it closes it.
#[derive(Debug)]
#[must_use = "the connection counts as open for as long as this lives"]
pub struct Connected {
    inner: Arc<Inner>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.inner.open.fetch_sub(1, Relaxed);
    }
}

/// Shards are handed out to threads in turn.
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = NEXT_THREAD.fetch_add(1, Relaxed);
}

impl Recorder {
    pub(super) fn start(stats: Stats, instance: String) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let shards = (2 * threads).next_power_of_two().clamp(2, 32);
        let most = usize::try_from(stats.spec.max_endpoints).unwrap_or(usize::MAX);
        let inner = Arc::new(Inner {
            instance: usable(instance),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            admission: RwLock::new(Admission::new(most)),
            open: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            outbox: tokio::sync::Mutex::new(Outbox::new()),
            stats,
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(outbox::run(inner.clone(), stop.clone()));
        Self { handle: Arc::new(Handle { inner, stop, task: Mutex::new(Some(task)) }) }
    }

    /// Counts one request. Well under a microsecond: no allocation once the route is known, no waiting for the store.
    #[inline]
    pub fn record(&self, seen: &Seen<'_>) {
        let inner = &*self.handle.inner;
        let now_us = inner.stats.bound.engine.now_us();
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(0);
        let shard = &inner.shards[thread & (inner.shards.len() - 1)];
        let fold = inner.stats.spec.fold_ids;
        shard.count(seen, micros(seen.elapsed), now_us, fold, &inner.admission);
    }

    /// Counts a connection as open for as long as the answer lives.
    pub fn connected(&self) -> Connected {
        let inner = self.handle.inner.clone();
        let open = inner.open.fetch_add(1, Relaxed) + 1;
        inner.peak.fetch_max(open, Relaxed);
        Connected { inner }
    }

    /// Connections that are open in this process.
    pub fn connections(&self) -> u64 {
        u64::try_from(self.handle.inner.open.load(Relaxed)).unwrap_or(0)
    }

    /// Whether requests from this address are not counted; the caller then records nothing.
    pub fn ignores(&self, remote: IpAddr) -> bool {
        self.handle.inner.stats.ignores(remote)
    }

    /// The name it counts under.
    pub fn instance(&self) -> &str {
        &self.handle.inner.instance
    }

    /// The stats it counts into.
    pub fn stats(&self) -> &Stats {
        &self.handle.inner.stats
    }

    /// The most names that one shard keeps.
    #[cfg(test)]
    pub(super) fn told_apart(&self) -> usize {
        self.handle.inner.shards.iter().map(Shard::told_apart).max().unwrap_or(0)
    }

    /// Waits until everything recorded before is in the store. After an error it is kept and sent again by itself.
    pub async fn flush(&self) -> Result<()> {
        self.handle.inner.deliver().await
    }

    /// Flushes what is left and stops. What the store does not take within its deadline, tried three times, is lost
    /// and counted as such. Other clones may still record; nobody flushes it.
    pub async fn shutdown(&self) {
        self.handle.stop.cancel();
        let task = self.handle.task.lock().take();
        if let Some(task) = task {
            // A task that panicked has said so.
            let _ = task.await;
        }
    }
}

/// The name of this instance: PM2's `pm_id`, or else `instance-` and the millisecond in which this was asked first, as
/// the documented key has it. It stays the same while the process lives.
pub fn instance_id() -> String {
    static STARTED: LazyLock<i64> = LazyLock::new(|| jiff::Timestamp::now().as_millisecond());
    let pm_id = std::env::var("pm_id").ok().filter(|id| !id.is_empty());
    usable(pm_id.unwrap_or_else(|| format!("instance-{}", *STARTED)))
}

/// What a key cannot contain is replaced: a recorder must count under some name.
fn usable(name: String) -> String {
    if super::check_instance("stats.recorder", &name).is_ok() {
        return name;
    }
    let odd = |c: char| c.is_control() || matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    let chars = name.chars().map(|c| if odd(c) { '_' } else { c });
    let name: String = chars.take(super::MAX_INSTANCE_CHARS).collect();
    match name.as_str() {
        "" => "instance".to_owned(),
        super::OVERFLOW => format!("{name}-"),
        _ => name,
    }
}
