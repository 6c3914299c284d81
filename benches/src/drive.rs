//! Drives a call from a number of tasks for a while.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;

use crate::cpu::{Own, Watch};
use crate::sample::{Latency, Sample, histogram};

/// How long a run is and how wide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    /// Callers are `0..keys`, drawn evenly.
    pub(crate) keys: u64,
    pub(crate) lasting: Duration,
}

/// Every task calls `call(caller)` in a loop; each call is timed. A failed call ends the run.
pub(crate) fn drive<F, Fut>(
    runtime: &Runtime,
    load: Load,
    processes: &[(&'static str, u32)],
    call: F,
) -> Result<Sample>
where
    F: Fn(u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    // Connections, scripts and caches are warm before anything counts.
    runtime.block_on(round(Load { lasting: load.lasting / 10, ..load }, &call))?;
    let watch = Watch::start(processes);
    let began = Instant::now();
    let latencies = runtime.block_on(round(load, &call))?;
    let mut sample = Sample::new(latencies.len(), began.elapsed());
    sample.latency = Some(Latency::from(&latencies));
    Ok(watch.note(sample, Own::Counts))
}

async fn round<F, Fut>(load: Load, call: &F) -> Result<Histogram<u64>>
where
    F: Fn(u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let end = Instant::now() + load.lasting;
    let tasks: Vec<_> = (0..load.tasks)
        .map(|_| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut kept = histogram()?;
                let mut random = fastrand::Rng::new();
                let mut at = Instant::now();
                while at < end {
                    call(random.u64(..load.keys)).await?;
                    // A store in memory may never wait; the other tasks want their turn all the same.
                    tokio::task::coop::consume_budget().await;
                    let now = Instant::now();
                    kept.saturating_record((now - at).as_nanos() as u64);
                    at = now;
                }
                anyhow::Ok(kept)
            })
        })
        .collect();
    let mut all = histogram()?;
    for task in tasks {
        all.add(task.await.context("a task panicked")??)?;
    }
    Ok(all)
}
