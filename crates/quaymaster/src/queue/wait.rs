//! Waiting for jobs: woken by the list itself, by this process, or by what is due.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Job;
use super::keys::Role;
use super::ops::Terms;
use super::tell::Told;
use super::{Claim, Counts, Queue, WAIT_MAX, ops, sort, tell};
use crate::{Code, Error, Result};

/// A waiting claim looks again at least so often: what another process delays or gives back is found then.
const SLICE: Duration = Duration::from_millis(500);

/// The same for a zset, which cannot be waited for.
const POLL: Duration = Duration::from_millis(100);

/// What was claimed, and when the look that found it was sent: a wait may have gone before.
pub(super) async fn claim(
    queue: &Queue,
    how: Claim,
    over: &CancellationToken,
) -> Result<(Vec<Job>, std::time::Instant)> {
    const OP: &str = ops::CLAIM;
    if how.wait > WAIT_MAX {
        let detail = format!("wait_ms: at most {}, got {}", WAIT_MAX.as_millis(), how.wait.as_millis());
        return Err(Error::new(OP, Code::RequestInvalid, detail).field("wait_ms"));
    }
    let request_id = how.request_id.as_deref();
    let terms = queue.terms(OP, how.count, how.lease, how.worker.as_deref(), request_id)?;
    let until = Instant::now() + how.wait;
    // What cannot be delivered is buried and looked behind, for as long as one call may last.
    let patience = until.max(Instant::now() + queue.place.bound.engine.deadline());
    let mut waiting: Option<Waiting<'_>> = None;
    loop {
        let nudged = queue.place.nudge.notified();
        tokio::pin!(nudged);
        // Listening comes before the question, so that nothing in between is missed.
        nudged.as_mut().enable();
        let asked = std::time::Instant::now();
        if over.is_cancelled() {
            return Ok((Vec::new(), asked));
        }
        let took = match &waiting {
            None => take(queue, &terms, request_id).await?,
            Some(_) => take_or_give_back(queue, &terms, request_id).await?,
        };
        let now = Instant::now();
        let enough = now >= until || took.again;
        if !took.jobs.is_empty() || (enough && !took.others) || now >= patience {
            return Ok((took.jobs, asked));
        }
        if took.others {
            continue;
        }
        if waiting.is_none() {
            waiting = Some(Waiting::new(&queue.counts));
        }
        let nap = took.next.map_or(SLICE, |next| next.max(Duration::from_millis(1)).min(SLICE));
        let nap = nap.min(until.saturating_duration_since(now));
        if took.paused || !queue.place.is_fifo() {
            // A list that is paused has items and would be found at once, again and again.
            let nap = if took.paused { nap } else { nap.min(POLL) };
            let _ = over.run_until_cancelled(tokio::time::timeout(nap, nudged)).await;
        } else {
            let engine = &queue.place.bound.engine;
            tokio::select! {
                found = engine.wait_for_item(queue.place.key(Role::Items), nap) => {
                    if let Err(error) = found {
                        // It takes nothing, so nothing is lost with it; whether the store can be asked is for the
                        // next look to say, which waits for a connection as every call does.
                        tracing::debug!(queue = queue.name(), %error, "a wait broke off; looking again");
                        let _ = over.run_until_cancelled(tokio::time::sleep(nap.min(POLL))).await;
                    }
                }
                () = nudged => {}
                () = over.cancelled() => {}
            }
        }
    }
}

/// What one look gave.
struct Took {
    jobs: Vec<Job>,
    others: bool,
    paused: bool,
    again: bool,
    next: Option<Duration>,
}

async fn take(queue: &Queue, terms: &Terms, request_id: Option<&str>) -> Result<Took> {
    const OP: &str = ops::CLAIM;
    let call = ops::claim(&queue.place, terms, request_id)?;
    let reply = queue.place.bound.run(OP, call).await?.parts(OP)?;
    let Told { paused, again, next, handed } = tell::handed(OP, reply, terms.lease, !queue.place.is_fifo())?;
    if handed.is_empty() {
        return Ok(Took { jobs: Vec::new(), others: false, paused, again, next });
    }
    let sorted = sort::sort(queue, handed, &terms.token, request_id).await;
    Ok(Took { jobs: sorted.jobs, others: sorted.others, paused, again, next })
}

/// The same in a task of its own: whoever stopped waiting meanwhile must not keep jobs from others until their leases
/// end. With a `request_id` the caller may come again for them.
async fn take_or_give_back(queue: &Queue, terms: &Terms, request_id: Option<&str>) -> Result<Took> {
    if request_id.is_some() {
        return take(queue, terms, request_id).await;
    }
    let (queue, terms) = (queue.clone(), terms.clone());
    let (give, got) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let took = take(&queue, &terms, None).await;
        if let Err(Ok(took)) = give.send(took)
            && !took.jobs.is_empty()
        {
            let leases: Vec<_> = took.jobs.into_iter().map(|job| job.lease).collect();
            if let Err(error) = queue.release(&leases).await {
                tracing::warn!(queue = queue.name(), %error, "jobs come again when their lease has ended");
            }
        }
    });
    got.await.map_err(|_| Error::new(ops::CLAIM, Code::Internal, "the claim ended without an answer"))?
}

/// Counted while it waits.
struct Waiting<'a>(&'a Counts);

impl<'a> Waiting<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.waiting.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
