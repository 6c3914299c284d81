//! `queue claim`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::queue::{Claim, Job, Queue, WAIT_MAX};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::{Answer, Call, Input, No, call};
use super::{COUNT, LEASE_MS, QueueJob, WORKER, count_of, owned, written_with};
use crate::request::{REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[CLAIM];

const CLAIM: Call = call!(
    Queue "queue" "claim", Writes, QueueClaim => QueueClaimed<'static>, claim, "Take jobs under a lease",
    no: No::Empty("jobs"),
);

request! {
    /// What `claim` is given.
    pub(crate) struct QueueClaim<'a> {
        /// At most so many.
        count: u64 = COUNT.default("1"),
        lease_ms: Option<u64> = LEASE_MS,
        /// How long to wait while there is none.
        wait_ms: u64 = Spec::integer(0, WAIT_MAX.as_millis() as u64).default("0"),
        worker: Option<Cow<'a, str>> = WORKER,
        /// The same id again within ten minutes gets the same jobs, as far as they are still held by it.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `claim` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueClaimed<'a> {
    /// The jobs, none when there are none or the queue is paused.
    pub(super) jobs: Vec<QueueJob<'a>>,
}

async fn claim(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueClaim<'_> = input.read()?;
    let claim = Claim {
        count: count_of(request.count),
        lease: request.lease_ms.map(Duration::from_millis),
        wait: Duration::from_millis(request.wait_ms),
        worker: owned(request.worker),
        request_id: owned(request.request_id),
    };
    let _place = services.wait_place(claim.wait)?;
    let jobs = if claim.wait.is_zero() {
        queue.claim(claim).await?
    } else {
        waiting(services, input, queue, claim).await?
    };
    Ok(written_with(&QueueClaimed { jobs: QueueJob::all(&jobs) }, &jobs))
}

/// A stop, and a caller that hangs up, end the wait before the next look at the queue. One that hangs up between that
/// look and its answer gives the jobs back; what remains is a caller that vanishes without a word, whose jobs come
/// again when their leases end.
async fn waiting(
    services: &Services,
    input: Input<'_>,
    queue: &Queue,
    claim: Claim,
) -> quaymaster::Result<Vec<Job>> {
    let over = services.stopping.child_token();
    let repeatable = claim.request_id.is_some();
    let mut claiming = std::pin::pin!(queue.claim_until(claim, &over));
    let jobs = tokio::select! {
        biased;
        jobs = claiming.as_mut() => jobs?,
        () = input.caller.gone() => {
            over.cancel();
            claiming.await?
        }
    };
    // Whoever named the call may come again for its answer.
    if !jobs.is_empty() && !repeatable && input.caller.is_gone() {
        let leases: Vec<_> = jobs.iter().map(|job| job.lease.clone()).collect();
        let _ = queue.release(&leases).await;
        return Ok(Vec::new());
    }
    Ok(jobs)
}
