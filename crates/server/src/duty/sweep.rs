//! Queues batches that are due, brings jobs back whose worker is gone, and marks runs that nobody works on.

use std::time::Duration;

use quaymaster::Result;
use quaymaster::batch::Batch;
use quaymaster::queue::Queue;
use quaymaster::run::Run;
use quaymaster::stats::Stats;

use super::spread;

/// A new batch may be due sooner than the one that was next when we looked, but not before it can be due at all.
const BATCHES_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// One round over a batch; when the next is due.
pub(super) async fn batch(batch: &Batch) -> Result<Duration> {
    let swept = batch.sweep().await?;
    if swept.closed > 0 || swept.waiting > 0 {
        tracing::debug!(batch = batch.name(), closed = swept.closed, waiting = swept.waiting, "swept");
    }
    let spec = batch.spec();
    // One that has taken its last item is queued by whoever gave it that; the sweep stands in for those who died.
    let soonest = spec.window.min(spec.idle).mul_f64(0.75);
    let rest = spread(soonest.clamp(BATCHES_EVERY.0, BATCHES_EVERY.1));
    Ok(swept.next.map_or(rest, |next| next.min(rest)))
}

/// Claims bring expired jobs back by themselves; the sweep is for queues that nobody claims from, and buries what nobody
/// will claim again. A lease's end is found at the latest about as long after it as the lease was.
const QUEUES_EVERY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// One round over a queue; when the next is due.
pub(super) async fn queue(queue: &Queue) -> Result<Duration> {
    let swept = queue.sweep().await?;
    if swept.returned > 0 || swept.buried > 0 {
        tracing::debug!(queue = queue.name(), returned = swept.returned, buried = swept.buried, "swept");
    }
    Ok(spread(queue.spec().lease.clamp(QUEUES_EVERY.0, QUEUES_EVERY.1)))
}

/// Instances leave after a day: there is no hurry.
const STATS_EVERY: Duration = Duration::from_secs(60);

/// One round over a stats; when the next is due.
pub(super) async fn stats(stats: &Stats) -> Result<Duration> {
    let swept = stats.sweep().await?;
    if swept.left > 0 {
        tracing::debug!(stats = stats.name(), left = swept.left, "swept");
    }
    Ok(spread(STATS_EVERY))
}

/// How often runs are looked at, and how much of the time until they are stale that may be. Whoever asks for a run is
/// told that it is stale in any case; the sweep writes it down for other programs.
const RUNS_EVERY: Duration = Duration::from_secs(30);
const RUNS_SHARE: u32 = 4;

/// One round over the runs of a name; when the next is due.
pub(super) async fn run(run: &Run) -> Result<Duration> {
    let swept = run.sweep().await?;
    if swept.stale > 0 || swept.forgotten > 0 {
        tracing::debug!(run = run.name(), stale = swept.stale, forgotten = swept.forgotten, "swept");
    }
    Ok(spread(RUNS_EVERY.min(run.spec().stale_after / RUNS_SHARE)))
}
