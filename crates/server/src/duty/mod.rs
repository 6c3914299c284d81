//! What happens by itself on every node: sweeps, statuses and clean-ups. Each duty is a function that does one round and says when
//! the next is due; any number of nodes may do it at once, and the store sees to it that everything happens once.
//!
//! A store that is away is told by the probe, not by the duties: they try again, quietly and ever more seldom.

mod clean;
mod status;
mod sweep;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use quaymaster::Quaymaster;
use tokio_util::sync::CancellationToken;

pub use clean::CleanConfig;
pub(crate) use clean::Cleaning;

use crate::metrics::Cleaned;

/// A round that failed is tried again after this, doubled with every failure up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The shortest pause between two rounds: a duty that always finds something must not fill the store's time.
const SHORTEST: Duration = Duration::from_millis(5);

/// Does every duty of the schema until `stop`, and cleans up if told to.
pub(crate) async fn run(
    quaymaster: &Quaymaster,
    cleaning: Option<&Cleaning>,
    cleaned: &Cleaned,
    stop: &CancellationToken,
) {
    let sweeps = quaymaster
        .batches()
        .map(|batch| repeat("batch.sweep", batch.name(), stop, move || sweep::batch(batch).boxed()).boxed());
    let queues = quaymaster
        .queues()
        .map(|queue| repeat("queue.sweep", queue.name(), stop, move || sweep::queue(queue).boxed()).boxed());
    let runs = quaymaster
        .runs()
        .map(|run| repeat("run.sweep", run.name(), stop, move || sweep::run(run).boxed()).boxed());
    let stats = quaymaster
        .all_stats()
        .map(|stats| repeat("stats.sweep", stats.name(), stop, move || sweep::stats(stats).boxed()).boxed());
    let statuses = quaymaster
        .events()
        .filter(|event| event.spec().status.is_some())
        .map(|event| repeat("event.status", event.name(), stop, move || status::tell(event).boxed()).boxed());
    let cleaning = cleaning.map(|cleaning| {
        let round = move || cleaning.round(quaymaster, cleaned, stop).boxed();
        repeat("clean", "store", stop, round).boxed()
    });
    join_all(sweeps.chain(queues).chain(runs).chain(stats).chain(statuses).chain(cleaning)).await;
}

/// One duty, round after round.
async fn repeat<'a>(
    duty: &'static str,
    name: &'a str,
    stop: &CancellationToken,
    round: impl Fn() -> BoxFuture<'a, quaymaster::Result<Duration>>,
) {
    let mut failures = 0;
    // Nodes that start together do not all come at once.
    let mut pause = spread(FIRST_PAUSE);
    while stop.run_until_cancelled(tokio::time::sleep(pause.max(SHORTEST))).await.is_some() {
        // A round that has begun is let finish: the store bounds it.
        let done = AssertUnwindSafe(round()).catch_unwind().await;
        if let Ok(Ok(next)) = done {
            (failures, pause) = (0, next);
            continue;
        }
        failures += 1;
        pause = spread((FIRST_PAUSE * 2_u32.pow((failures - 1).min(5))).min(LONGEST_PAUSE));
        match done {
            Ok(Err(error)) => {
                tracing::debug!(duty, name, code = %error.code, detail = error.detail, "will try again");
            }
            // A defect of one duty must not end the others, nor the server.
            _ => tracing::error!(duty, name, "a duty panicked; it will be tried again"),
        }
    }
}

/// A pause of about this length, so that nodes drift apart.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + 0.5 * fastrand::f64())
}
