//! `queue ack`, `nack`, `extend`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::queue::{Ack, ClaimNext, Extended, Lease, Nack, Nacked};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::then::{self, QueueThen};
use super::{LEASE_MS, QueueJob, millis, missing, owned, write_jobs, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::Problem;

const LEASE: Arg =
    Arg { name: "lease", holds: ArgType::Text, required: true, help: "What claim answered for the job" };

pub(in super::super) const ACK: Call = Call {
    kind: Kind::Queue,
    verb: "ack",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/ack",
    about: "Say that jobs are done",
    args: &[
        Arg {
            name: "leases",
            holds: ArgType::Texts,
            required: true,
            help: "What claim answered for the jobs; several by repeating it",
        },
        Arg {
            name: "then",
            holds: ArgType::Json,
            required: false,
            help: "A list of calls (batch.add, event.publish, queue.push) made in the same step",
        },
        Arg {
            name: "claim",
            holds: ArgType::Json,
            required: false,
            help: "{\"count\"?, \"lease_ms\"?, \"worker\"?}: the next jobs in the same step",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["lost"].as_u64().is_some_and(|lost| lost > 0),
    run: |app, input| ack(app, input).boxed(),
};
pub(in super::super) const NACK: Call = Call {
    kind: Kind::Queue,
    verb: "nack",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/nack",
    about: "Say that a job failed: it comes again, or is dead",
    args: &[
        LEASE,
        Arg { name: "error", holds: ArgType::Text, required: true, help: "What went wrong" },
        Arg {
            name: "delay_ms",
            holds: ArgType::Integer,
            required: false,
            help: "When it comes again; the queue's backoff unless given",
        },
        Arg {
            name: "dead",
            holds: ArgType::Flag,
            required: false,
            help: "No other attempt: dead-letter it now",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["outcome"] == "lost",
    run: |app, input| nack(app, input).boxed(),
};
pub(in super::super) const EXTEND: Call = Call {
    kind: Kind::Queue,
    verb: "extend",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/extend",
    about: "Begin a job's lease anew if it is still ours",
    args: &[LEASE, LEASE_MS, REQUEST_ID],
    said_no: |answer| answer["outcome"] == "lost",
    run: |app, input| extend(app, input).boxed(),
};

#[derive(Debug, Default)]
struct AckBody<'a> {
    leases: Option<Vec<Cow<'a, str>>>,
    then: Option<Vec<&'a RawValue>>,
    claim: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for AckBody<'de> {
    const NAMES: &'static [&'static str] = &["leases", "then", "claim", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "leases" => self.leases = Some(value.texts()?),
            "then" => self.then = value.optional_raws()?,
            "claim" => self.claim = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct NextBody<'a> {
    count: Option<u64>,
    lease_ms: Option<u64>,
    worker: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for NextBody<'de> {
    const NAMES: &'static [&'static str] = &["count", "lease_ms", "worker"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "count" => self.count = value.optional_count()?,
            "lease_ms" => self.lease_ms = value.optional_count()?,
            _ => self.worker = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct NackBody<'a> {
    lease: Option<Cow<'a, str>>,
    error: Option<Cow<'a, str>>,
    delay_ms: Option<u64>,
    dead: Option<bool>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for NackBody<'de> {
    const NAMES: &'static [&'static str] = &["lease", "error", "delay_ms", "dead", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "lease" => self.lease = value.optional_text()?,
            "error" => self.error = value.optional_text()?,
            "delay_ms" => self.delay_ms = value.optional_count()?,
            "dead" => self.dead = value.optional_truth()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct ExtendBody<'a> {
    lease: Option<Cow<'a, str>>,
    lease_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ExtendBody<'de> {
    const NAMES: &'static [&'static str] = &["lease", "lease_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "lease" => self.lease = value.optional_text()?,
            "lease_ms" => self.lease_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `ack` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueAck {
    /// What `claim` answered for the jobs.
    #[schema(max_items = 1000)]
    leases: Vec<String>,
    /// What follows from it, in the same step: all of it, or, when one lease is not ours any more, nothing at all.
    then: Option<Vec<QueueThen>>,
    /// The next jobs, in the same step.
    claim: Option<QueueNext>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Which jobs an ack takes next.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueNext {
    /// At most so many.
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    count: Option<u64>,
    /// The queue's own lease unless given.
    #[schema(minimum = 1)]
    lease_ms: Option<u64>,
    /// A name that is kept with the jobs while they are held.
    #[schema(min_length = 1, max_length = 64)]
    worker: Option<String>,
}

/// What `ack` answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueAcked {
    /// Jobs that are done and gone.
    acked: u64,
    /// Leases that were not ours any more; those jobs come again, or came.
    lost: u64,
    /// The next jobs, when they were asked for.
    jobs: Option<Vec<QueueJob>>,
}

/// What `nack` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueNack {
    /// What `claim` answered for the job.
    lease: String,
    /// What went wrong; kept in the dead letter.
    #[schema(example = "connection refused")]
    error: String,
    /// When it comes again; the queue's backoff unless given.
    #[schema(minimum = 0)]
    delay_ms: Option<u64>,
    /// No other attempt: it is dead-lettered now.
    #[schema(default = false)]
    dead: Option<bool>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `nack` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueNacked {
    /// `retry`, `dead`, or `lost` when the lease was not ours any more.
    #[schema(example = "retry")]
    outcome: &'static str,
    /// Attempts so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// `retry`: when it comes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<u64>,
}

/// What `extend` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueExtend {
    /// What `claim` answered for the job.
    lease: String,
    /// The lease from now on; the queue's own unless given.
    #[schema(minimum = 1)]
    lease_ms: Option<u64>,
    /// Taken and not needed: extending twice is extending once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `extend` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueExtended {
    /// `ours` or `lost`.
    #[schema(example = "ours")]
    outcome: &'static str,
    /// How long the lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_in_ms: Option<u64>,
}

fn lease(op: &'static str, field: &str, text: &str) -> Result<Lease, Problem> {
    Lease::parse(op, text).map_err(|error| Problem::from(error).field(field))
}

/// Says that jobs are done.
#[utoipa::path(
    post, path = "/v1/queue/{name}/ack", operation_id = "queue.ack", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueAck,
    responses(
        (status = 200, body = QueueAcked, description = "the answer, also when some were lost"),
        (status = 422, body = crate::http::problem::ProblemBody<'static>, content_type = "application/problem+json",
            description = "on a cluster what follows lies elsewhere than the queue; nothing was acked"),
        (status = 429, body = crate::http::problem::ProblemBody<'static>, content_type = "application/problem+json",
            description = "a queue that `then` pushes to is full; nothing was acked"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn ack(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: AckBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(leases) = body.leases else { return Err(missing("leases", "claim answered them")) };
    let leases = leases.iter().map(|text| lease("queue.ack", "leases", text)).collect::<Result<_, _>>()?;
    let claim = match body.claim.filter(|claim| claim.get() != "null") {
        None => None,
        Some(raw) => {
            let next: NextBody<'_> = json::nested(raw, "claim")?;
            Some(ClaimNext {
                count: next.count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX)),
                lease: next.lease_ms.map(Duration::from_millis),
                worker: owned(next.worker),
            })
        }
    };
    let then = then::read(body.then.as_deref().unwrap_or_default())?;
    let claims = claim.is_some();
    let told = queue.ack(Ack { leases, then, claim, request_id: owned(body.request_id) }).await?;
    let mut out = Vec::with_capacity(64 + told.jobs.iter().map(|job| job.payload.len() + 160).sum::<usize>());
    out.extend_from_slice(format!("{{\"acked\":{},\"lost\":{}", told.acked, told.lost).as_bytes());
    if claims {
        out.push(b',');
        write_jobs(&mut out, &told.jobs);
    }
    out.push(b'}');
    Ok(Bytes::from(out))
}

/// Says that a job failed.
#[utoipa::path(
    post, path = "/v1/queue/{name}/nack", operation_id = "queue.nack", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueNack,
    responses((status = 200, body = QueueNacked, description = "the answer, also when it is lost"), crate::page::openapi::Problems),
)]
pub(crate) async fn nack(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: NackBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(text) = body.lease else { return Err(missing("lease", "claim answered it")) };
    let Some(error) = body.error else { return Err(missing("error", "say what went wrong")) };
    let nack = Nack {
        lease: lease("queue.nack", "lease", &text)?,
        error: error.into_owned(),
        delay: body.delay_ms.map(Duration::from_millis),
        dead: body.dead.unwrap_or(false),
        request_id: owned(body.request_id),
    };
    Ok(written(&match queue.nack(nack).await? {
        Nacked::Retry { attempt, retry_in } => {
            QueueNacked { outcome: "retry", attempt: Some(attempt), retry_in_ms: Some(millis(retry_in)) }
        }
        Nacked::Dead { attempt } => {
            QueueNacked { outcome: "dead", attempt: Some(attempt), retry_in_ms: None }
        }
        Nacked::Lost => QueueNacked { outcome: "lost", attempt: None, retry_in_ms: None },
    }))
}

/// Begins a job's lease anew if it is still ours.
#[utoipa::path(
    post, path = "/v1/queue/{name}/extend", operation_id = "queue.extend", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueExtend,
    responses((status = 200, body = QueueExtended, description = "the answer, also when it is lost"), crate::page::openapi::Problems),
)]
pub(crate) async fn extend(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: ExtendBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(text) = body.lease else { return Err(missing("lease", "claim answered it")) };
    let lease = lease("queue.extend", "lease", &text)?;
    Ok(written(&match queue.extend(&lease, body.lease_ms.map(Duration::from_millis)).await? {
        Extended::Ours { expires_in } => {
            QueueExtended { outcome: "ours", lease_expires_in_ms: Some(millis(expires_in)) }
        }
        Extended::Lost => QueueExtended { outcome: "lost", lease_expires_in_ms: None },
    }))
}
