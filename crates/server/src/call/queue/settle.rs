//! `queue ack`, `nack`, `extend`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::queue::{Ack, ClaimNext, Extended, Lease, MAX_COUNT, MAX_THEN, Nack, Nacked};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::{Answer, Call, Input, No, Repeat, call, millis, written};
use super::push::DELAY_MS;
use super::then::QueueThen;
use super::{COUNT, LEASE_MS, QueueJob, WORKER, count_of, owned, written_with};
use crate::http::problem::Problem;
use crate::request::read::Nested;
use crate::request::{Holds, REQUEST_ID, REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

const LOST: No = No::Words("outcome", &["lost"]);

pub(in super::super) const CALLS: &[Call] = &[ACK, NACK, EXTEND];

const ACK: Call = call!(
    Queue "queue" "ack", Writes, QueueAck => QueueAcked<'static>, ack, "Say that jobs are done",
    no: No::Some("lost"),
    refusals: &[
        (
            422,
            "what follows is not declared so, or lies elsewhere than the queue on a cluster; nothing was acked",
        ),
        (
            429,
            "a queue that `then` pushes to is full, and nothing was acked; or the caller is over a limit of the server",
        ),
    ],
);
const NACK: Call = call!(
    Queue "queue" "nack", Writes, QueueNack => QueueNacked, nack,
    "Say that a job failed: it comes again, or is dead",
    no: LOST,
);
const EXTEND: Call = call!(
    Queue "queue" "extend", Writes, QueueExtend => QueueExtended, extend,
    "Begin a job's lease anew if it is still ours",
    repeat: Repeat::Safe,
    no: LOST,
);

/// A lease, which is never longer.
const LEASE: Spec = Spec::text_of(1, 96)
    .required("claim answered it")
    .also(LOOKS)
    .about("What `claim` answered for the job.");

/// A job's number, the attempt and a token.
const LOOKS: &str = r#"{
    "pattern": "^(0|[1-9][0-9]{0,15})[.](0|[1-9][0-9]{0,8})[.]([A-Za-z0-9_]|[A-Za-z0-9_-]{2,})$"
}"#;

/// The same, several times.
const ALL_LOOK: &str = r#"{"items": {
    "type": "string", "maxLength": 96,
    "pattern": "^(0|[1-9][0-9]{0,15})[.](0|[1-9][0-9]{0,8})[.]([A-Za-z0-9_]|[A-Za-z0-9_-]{2,})$"
}}"#;

request! {
    /// What `ack` is given.
    pub(crate) struct QueueAck<'a> {
        /// What `claim` answered for the jobs.
        leases: Vec<Cow<'a, str>> =
            Spec::of(Holds::Texts { min: 0, max: MAX_COUNT }).required("claim answered them").also(ALL_LOOK),
        /// What follows from it, in the same step: all of it, or, when one lease is not ours any more, nothing at all.
        then: Option<Vec<Nested<QueueThen<'a>>>> = Spec::of(Holds::Objects(QueueThen::SHAPE, MAX_THEN)),
        /// The next jobs, in the same step.
        claim: Option<Nested<QueueNext<'a>>> = Spec::of(Holds::Object(QueueNext::SHAPE)),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
    also r#"{"if": {"properties": {"leases": {"minItems": 1}}}, "else": {"properties": {"then": {"maxItems": 0}}}}"#;
}

request! {
    /// Which jobs an ack takes next.
    pub(crate) struct QueueNext<'a> {
        /// At most so many.
        count: u64 = COUNT.default("1"),
        lease_ms: Option<u64> = LEASE_MS,
        worker: Option<Cow<'a, str>> = WORKER,
    }
}

request! {
    /// What `nack` is given.
    pub(crate) struct QueueNack<'a> {
        lease: Cow<'a, str> = LEASE,
        /// What went wrong; kept in the dead letter.
        error: Cow<'a, str> = Spec::text().required("say what went wrong").example(r#""connection refused""#),
        /// When it comes again; the queue's backoff unless given.
        delay_ms: Option<u64> = DELAY_MS,
        /// No other attempt: it is dead-lettered now.
        dead: bool = Spec::of(Holds::Truth).default("false"),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `extend` is given.
    pub(crate) struct QueueExtend<'a> {
        lease: Cow<'a, str> = LEASE,
        /// The lease from now on; the queue's own unless given.
        lease_ms: Option<u64> = LEASE_MS,
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

/// What `ack` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueAcked<'a> {
    /// Jobs that are done and gone.
    acked: u64,
    /// Leases that were not ours any more; those jobs come again, or came.
    lost: u64,
    /// The next jobs, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<QueueJob<'a>>")]
    jobs: Option<Vec<QueueJob<'a>>>,
}

/// What `nack` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum QueueNacked {
    /// It comes again.
    Retry {
        /// Attempts so far.
        attempt: u32,
        /// When it comes again.
        retry_in_ms: u64,
    },
    /// It is a dead letter.
    Dead {
        /// Attempts so far.
        attempt: u32,
    },
    /// The lease was not ours any more.
    Lost,
}

/// What `extend` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum QueueExtended {
    /// The lease has begun anew.
    Ours {
        /// How long the lease lasts.
        lease_expires_in_ms: u64,
    },
    /// The lease was not ours any more.
    Lost,
}

fn lease(op: &'static str, field: &str, text: &str) -> Result<Lease, Problem> {
    Lease::parse(op, text).map_err(|error| Problem::from(error).field(field))
}

async fn ack(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueAck<'_> = input.read()?;
    let leases = request.leases.iter().map(|text| lease("queue.ack", "leases", text));
    let leases = leases.collect::<Result<_, _>>()?;
    let claim = request.claim.map(|Nested(next)| ClaimNext {
        count: count_of(next.count),
        lease: next.lease_ms.map(Duration::from_millis),
        worker: owned(next.worker),
    });
    let then = request.then.unwrap_or_default().into_iter().map(|Nested(then)| then.into()).collect();
    let claims = claim.is_some();
    let told = queue.ack(Ack { leases, then, claim, request_id: owned(request.request_id) }).await?;
    let jobs = claims.then(|| QueueJob::all(&told.jobs));
    Ok(written_with(&QueueAcked { acked: told.acked, lost: told.lost, jobs }, &told.jobs))
}

async fn nack(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueNack<'_> = input.read()?;
    let nack = Nack {
        lease: lease("queue.nack", "lease", &request.lease)?,
        error: request.error.into_owned(),
        delay: request.delay_ms.map(Duration::from_millis),
        dead: request.dead,
        request_id: owned(request.request_id),
    };
    Ok(written(&match queue.nack(nack).await? {
        Nacked::Retry { attempt, retry_in } => QueueNacked::Retry { attempt, retry_in_ms: millis(retry_in) },
        Nacked::Dead { attempt } => QueueNacked::Dead { attempt },
        Nacked::Lost => QueueNacked::Lost,
    }))
}

async fn extend(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueExtend<'_> = input.read()?;
    let lease = lease("queue.extend", "lease", &request.lease)?;
    Ok(written(&match queue.extend(&lease, request.lease_ms.map(Duration::from_millis)).await? {
        Extended::Ours { expires_in } => QueueExtended::Ours { lease_expires_in_ms: millis(expires_in) },
        Extended::Lost => QueueExtended::Lost,
    }))
}
