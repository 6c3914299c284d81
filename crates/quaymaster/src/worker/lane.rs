//! Lanes: each runs the handler for one job after the other.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::counts::Counts;
use super::held::Lost;
use super::outcome::{Done, Failure};
use super::pump::Pump;
use super::{OP, Place};
use crate::queue::Job;
use crate::{Code, Error, Result};

/// Where handlers run, and who runs them.
#[derive(Debug)]
pub(super) struct Lanes {
    runtime: Option<Runtime>,
    handle: Handle,
    count: usize,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Lanes {
    pub(super) fn open(place: &Place, count: usize) -> Result<Self> {
        let runtime = match place {
            Place::Runtime(_) => None,
            Place::Threads(threads) => {
                let built = Builder::new_multi_thread()
                    .worker_threads((*threads).min(count))
                    .thread_name("quaymaster-work")
                    .enable_all()
                    .build();
                Some(built.map_err(|error| {
                    Error::new(OP, Code::Internal, format!("threads for handlers: {error}")).because(error)
                })?)
            }
        };
        let handle = match (place, &runtime) {
            (Place::Runtime(handle), _) => handle.clone(),
            (_, Some(runtime)) => runtime.handle().clone(),
            (Place::Threads(_), None) => Handle::current(),
        };
        Ok(Self { runtime, handle, count, tasks: Mutex::default() })
    }

    pub(super) fn start<H, F, D>(&self, pump: &Arc<Pump>, handler: H)
    where
        H: Fn(Job, Lost) -> F + Send + Sync + 'static,
        F: Future<Output = std::result::Result<D, Failure>> + Send + 'static,
        D: Into<Done> + 'static,
    {
        let handler = Arc::new(handler);
        let lane = || self.handle.spawn(run(pump.clone(), handler.clone()));
        self.tasks.lock().extend((0..self.count).map(|_| lane()));
    }

    /// Waits until every handler has ended, at most `bound`; then cuts them off.
    pub(super) async fn drain(&self, bound: Duration) {
        let mut tasks = Cut(std::mem::take(&mut *self.tasks.lock()));
        let all = futures_util::future::join_all(&mut tasks.0);
        let _ = tokio::time::timeout(bound, all).await;
    }
}

/// Lanes that are cut off when nobody waits for them any more: in time, too late, or because the worker was dropped.
struct Cut(Vec<JoinHandle<()>>);

impl Drop for Cut {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
        // Not waited for: a handler that blocks must not block whoever stops the worker.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn run<H, F, D>(pump: Arc<Pump>, handler: Arc<H>)
where
    H: Fn(Job, Lost) -> F + Send + Sync + 'static,
    F: Future<Output = std::result::Result<D, Failure>> + Send + 'static,
    D: Into<Done> + 'static,
{
    while let Some(slot) = pump.next().await {
        let (key, lost) = (slot.key, slot.lost.clone());
        let busy = Busy::begin(&pump.counts);
        // In one block, so that a handler which panics before its future is made is caught as well.
        let work = AssertUnwindSafe(async { handler(slot.job, slot.lost).await.map(Into::<Done>::into) });
        let work = work.catch_unwind().await;
        drop(busy);
        match work {
            Ok(Ok(done)) => pump.done(key, &lost, done).await,
            Ok(Err(failure)) => pump.failed(key, &lost, failure).await,
            Err(panic) => {
                Counts::add(&pump.counts.panicked, 1);
                let failure = Failure::new(format!("the handler panicked: {}", text(&*panic)));
                tracing::error!(queue = pump.queue.name(), error = failure.error(), "a handler panicked");
                pump.failed(key, &lost, failure).await;
            }
        }
    }
}

/// Counts a running handler, however it ends.
struct Busy<'a>(&'a Counts);

impl<'a> Busy<'a> {
    fn begin(counts: &'a Counts) -> Self {
        counts.busy.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
