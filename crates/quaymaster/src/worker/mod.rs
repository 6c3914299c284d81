//! `worker`: runs a handler for every job of a queue, many at once, until told to stop.
//!
//! | file | what it does |
//! |---|---|
//! | `pump` | claims in batches; acks in batches, with the next claim in the same step |
//! | `lane` | runs the handler for one job after the other; there are `concurrency` of them |
//! | `held` | what is claimed and not settled, and the task that renews its leases |
//! | `settle` | what becomes of a job whose handler said anything but a plain yes |
//! | `counts` | for metrics |
//!
//! Handlers run on threads of their own, so that one which blocks can starve neither the renewal of the leases nor
//! the connections to the store. Nothing is lost by a worker that dies: what it held comes back when its lease ends.

mod counts;
mod held;
mod lane;
mod outcome;
mod pump;
mod settle;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quaymaster_store::backoff::Backoff;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use counts::Counts;
pub use held::Lost;
pub use outcome::{Done, Failure};

use crate::queue::{Job, LEASE_MAX, Queue, WORKER_MAX};
use crate::{Code, Error, Result};

use lane::Lanes;
use pump::Pump;

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/workers.md")]
struct Page;

const OP: &str = "worker.run";

/// Handlers at once, unless told.
pub const CONCURRENCY: usize = 10;
/// The most handlers at once.
pub const CONCURRENCY_MAX: usize = 10_000;
/// What handlers get to finish after a stop, unless told.
pub const DRAIN: Duration = Duration::from_secs(30);

/// What the last acks get to be told after a drain.
const FLUSH: Duration = Duration::from_secs(5);

/// Where handlers run.
#[derive(Debug, Clone)]
enum Place {
    /// On so many threads of the worker's own.
    Threads(usize),
    /// On a runtime of the caller's.
    Runtime(Handle),
}

/// A worker of one queue, not running yet.
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it runs"]
pub struct Worker {
    queue: Queue,
    concurrency: usize,
    lease: Option<Duration>,
    name: Option<String>,
    drain: Duration,
    away: Backoff,
    place: Place,
    counts: Arc<Counts>,
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "jobs whose handlers were cut off come again"]
pub struct Ended {
    /// Claimed jobs that no handler had begun; given back as if they had never been claimed.
    pub given_back: u64,
    /// Jobs whose handlers did not end in time. They were cut off, and their jobs come again as a failed attempt.
    pub cut: u64,
}

impl Worker {
    /// A worker of `queue`: ten handlers at once, the queue's own lease, thirty seconds to drain, one to thirty seconds
    /// between attempts while the store is away.
    pub fn new(queue: Queue) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            queue,
            concurrency: CONCURRENCY,
            lease: None,
            name: None,
            drain: DRAIN,
            away: Backoff::default(),
            place: Place::Threads(threads),
            counts: Arc::default(),
        }
    }

    /// Handlers at once, from 1 to [`CONCURRENCY_MAX`].
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// The lease of each job; the queue's own unless told. It is renewed every third of it while the handler runs,
    /// so it decides how soon the job of a worker that died comes again. A store that takes two thirds of it to
    /// answer is too slow for it: its jobs are not begun.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// A name that is kept with the jobs this worker holds.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long handlers may go on after a stop before they are cut off.
    pub fn drain(mut self, bound: Duration) -> Self {
        self.drain = bound;
        self
    }

    /// How long to wait before the store is asked again that failed: 1 s, 2 s, 4 s … 30 s unless told, and up to a
    /// quarter more. What is about a job in hand waits a quarter of its lease at most.
    pub fn retry(mut self, away: Backoff) -> Self {
        self.away = away;
        self
    }

    /// Threads for the handlers; as many as the machine has cores unless told. Handlers that block need one each.
    pub fn threads(mut self, threads: usize) -> Self {
        self.place = Place::Threads(threads);
        self
    }

    /// Runs handlers on this runtime instead of threads of their own: for handlers that never block. One that does
    /// may keep the leases from being renewed.
    pub fn handlers_on(mut self, runtime: Handle) -> Self {
        self.place = Place::Runtime(runtime);
        self
    }

    /// What it does, counted from now on; the same for every clone.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Its queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Runs until `stop`, then lets handlers finish for at most the drain's bound.
    ///
    /// A handler is given the job and a signal that its lease was lost: somebody else may be at the job then, and
    /// what the handler does besides must be fenced or harmless. `Ok` acks; an error, or a panic, is a failed
    /// attempt, and the queue's `retry` decides when the job comes again. While the store is away the worker waits
    /// and tries again, and goes on by itself.
    ///
    /// Dropping the future stops everything at once; jobs held then come again when their leases end.
    pub async fn run<H, F, D>(self, handler: H, stop: CancellationToken) -> Result<Ended>
    where
        H: Fn(Job, Lost) -> F + Send + Sync + 'static,
        F: Future<Output = std::result::Result<D, Failure>> + Send + 'static,
        D: Into<Done> + 'static,
    {
        self.check()?;
        let lanes = Lanes::open(&self.place, self.concurrency)?;
        let pump = Arc::new(Pump::new(&self, stop.clone()));
        let _running = counts::Running::begin(&self.counts);
        lanes.start(&pump, handler);
        let renewing = AbortOnDrop(tokio::spawn(held::renew(pump.clone())));
        let fetching = AbortOnDrop(tokio::spawn(pump.clone().fetch()));
        let acking = AbortOnDrop(tokio::spawn(pump.clone().ack()));

        stop.cancelled().await;
        pump.shut();
        fetching.ended().await;
        let mut given_back = pump.give_back_unbegun(Duration::MAX).await;
        lanes.drain(self.drain).await;
        pump.close();
        // An ack that cannot be told is a job that comes again; a stop does not wait for a store that is away.
        let _ = tokio::time::timeout(FLUSH, acking.ended()).await;
        // What the last acks had claimed.
        given_back += pump.give_back_unbegun(Duration::MAX).await;
        let cut = pump.cut_off().await;
        drop(renewing);
        Ok(Ended { given_back, cut })
    }

    fn check(&self) -> Result<()> {
        let wrong = |field: &'static str, detail: String| {
            Err(Error::new(OP, Code::RequestInvalid, detail).field(field))
        };
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return wrong(
                "concurrency",
                format!("concurrency: 1 to {CONCURRENCY_MAX}, got {}", self.concurrency),
            );
        }
        // What the store would refuse with every claim is refused here, once.
        if let Some(lease) = self.lease.filter(|lease| lease.as_millis() == 0 || *lease > LEASE_MAX) {
            return wrong("lease", format!("lease: 1 ms to {} s, got {lease:?}", LEASE_MAX.as_secs()));
        }
        let fine = |name: &str| {
            let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
            visible && (1..=WORKER_MAX).contains(&name.len()) && name != "-"
        };
        if self.name.as_deref().is_some_and(|name| !fine(name)) {
            return wrong(
                "worker",
                format!("worker: 1 to {WORKER_MAX} visible ASCII characters, and not `-`"),
            );
        }
        match self.place {
            Place::Threads(threads @ (0 | 1025..)) => {
                wrong("threads", format!("threads: 1 to 1024, got {threads}"))
            }
            _ => Ok(()),
        }
    }
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl AbortOnDrop {
    async fn ended(mut self) {
        if let Err(error) = (&mut self.0).await
            && error.is_panic()
        {
            tracing::error!("a worker's own task panicked; its leases end by themselves");
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
