//! `queue claim`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::queue::{Claim, Job, Queue};
use quaymaster::schema::Kind;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{LEASE_MS, QueueJob, owned, write_jobs};
use crate::app::App;
use crate::http::json::{self, Fields, Value};

pub(in super::super) const CLAIM: Call = Call {
    kind: Kind::Queue,
    verb: "claim",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/claim",
    about: "Take jobs under a lease",
    args: &[
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many; 1 unless given",
        },
        LEASE_MS,
        Arg {
            name: "wait_ms",
            holds: ArgType::Integer,
            required: false,
            help: "How long to wait while there is none; 0 unless given",
        },
        Arg {
            name: "worker",
            holds: ArgType::Text,
            required: false,
            help: "A name that is kept with the jobs while they are held",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["jobs"].as_array().is_some_and(Vec::is_empty),
    run: |app, input| claim(app, input).boxed(),
};

#[derive(Debug, Default)]
struct ClaimBody<'a> {
    count: Option<u64>,
    lease_ms: Option<u64>,
    wait_ms: Option<u64>,
    worker: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ClaimBody<'de> {
    const NAMES: &'static [&'static str] = &["count", "lease_ms", "wait_ms", "worker", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "count" => self.count = value.optional_count()?,
            "lease_ms" => self.lease_ms = value.optional_count()?,
            "wait_ms" => self.wait_ms = value.optional_count()?,
            "worker" => self.worker = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `claim` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueClaim {
    /// At most so many.
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    count: Option<u64>,
    /// How long they stay away from others; the queue's own lease unless given.
    #[schema(minimum = 1)]
    lease_ms: Option<u64>,
    /// How long to wait while there is none.
    #[schema(minimum = 0, maximum = 3_600_000, default = 0)]
    wait_ms: Option<u64>,
    /// A name that is kept with the jobs while they are held.
    #[schema(min_length = 1, max_length = 64)]
    worker: Option<String>,
    /// The same id again gets the same jobs, while they are still held by it.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `claim` answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueClaimed {
    /// The jobs, none when there are none or the queue is paused.
    jobs: Vec<QueueJob>,
}

/// Takes jobs under a lease.
#[utoipa::path(
    post, path = "/v1/queue/{name}/claim", operation_id = "queue.claim", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueClaim,
    responses((status = 200, body = QueueClaimed, description = "the jobs, also when there are none"), crate::page::openapi::Problems),
)]
pub(crate) async fn claim(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: ClaimBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let claim = Claim {
        count: body.count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX)),
        lease: body.lease_ms.map(Duration::from_millis),
        wait: Duration::from_millis(body.wait_ms.unwrap_or(0)),
        worker: owned(body.worker),
        request_id: owned(body.request_id),
    };
    let _place = app.wait_place(claim.wait)?;
    let jobs = if claim.wait.is_zero() {
        queue.claim(claim).await?
    } else {
        waiting(app, input, queue, claim).await?
    };
    let mut out = Vec::with_capacity(16 + jobs.iter().map(|job| job.payload.len() + 160).sum::<usize>());
    out.push(b'{');
    write_jobs(&mut out, &jobs);
    out.push(b'}');
    Ok(Bytes::from(out))
}

/// A stop, and a caller that hangs up, end the wait before the next look at the queue. One that hangs up between that
/// look and its answer gives the jobs back; what remains is a caller that vanishes without a word, whose jobs come
/// again when their leases end.
async fn waiting(app: &App, input: Input<'_>, queue: &Queue, claim: Claim) -> quaymaster::Result<Vec<Job>> {
    let over = app.stopping.child_token();
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
