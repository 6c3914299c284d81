//! `queue pressure`, `pause`, `resume`, `peek`.

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{millis, number, write_items, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::query;

pub(in super::super) const PRESSURE: Call = Call {
    kind: Kind::Queue,
    verb: "pressure",
    effect: Effect::Reads,
    template: "/v1/queue/{name}/pressure",
    about: "Say how full the queue is",
    args: &[],
    said_no: |_| false,
    run: |app, input| pressure(app, input).boxed(),
};
pub(in super::super) const PAUSE: Call = Call {
    kind: Kind::Queue,
    verb: "pause",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/pause",
    about: "Give no more jobs to claims; pushes and acks go on",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| pause(app, input).boxed(),
};
pub(in super::super) const RESUME: Call = Call {
    kind: Kind::Queue,
    verb: "resume",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/resume",
    about: "Give jobs to claims again",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| resume(app, input).boxed(),
};
pub(in super::super) const PEEK: Call = Call {
    kind: Kind::Queue,
    verb: "peek",
    effect: Effect::Reads,
    template: "/v1/queue/{name}/peek",
    about: "Look at the jobs that are next",
    args: &[Arg {
        name: "count",
        holds: ArgType::Positive,
        required: false,
        help: "At most so many; 10 unless given",
    }],
    said_no: |_| false,
    run: |app, input| peek(app, input).boxed(),
};

/// What `pressure` answers. Nothing of it is counted by walking a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePressure {
    /// Jobs that wait to be claimed.
    pub(crate) current_length: u64,
    /// How many may; null for any number.
    pub(crate) max_size: Option<u64>,
    /// `current_length` of `max_size`; 0 without one.
    pub(crate) fill_ratio: f64,
    /// Whether that is over the declared `pressure_at`.
    pub(crate) is_at_pressure_threshold: bool,
    /// Whether the next push would not fit.
    pub(crate) is_full: bool,
    /// `reject`, `dlq` or `drop_oldest`.
    pub(crate) overflow_policy: &'static str,
    /// Jobs claimed and not settled.
    pub(crate) leased: u64,
    /// Jobs that come later: delayed pushes and retries.
    pub(crate) delayed: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Items in the overflow list.
    pub(crate) overflowed: u64,
    /// About how long the oldest has waited; null when that is not known, as of items other programs pushed.
    pub(crate) oldest_age_ms: Option<u64>,
    /// Whether claims get nothing.
    pub(crate) paused: bool,
}

impl From<quaymaster::queue::Pressure> for QueuePressure {
    fn from(told: quaymaster::queue::Pressure) -> Self {
        Self {
            current_length: told.current_length,
            max_size: told.max_size,
            fill_ratio: told.fill_ratio,
            is_at_pressure_threshold: told.is_at_pressure_threshold,
            is_full: told.is_full,
            overflow_policy: told.overflow_policy.name(),
            leased: told.leased,
            delayed: told.delayed,
            dead: told.dead,
            overflowed: told.overflowed,
            oldest_age_ms: told.oldest_age.map(millis),
            paused: told.paused,
        }
    }
}

/// What `pause` and `resume` answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePaused {
    /// Whether claims get nothing now.
    paused: bool,
}

/// What `peek` answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueuePeeked {
    /// Payloads, the next one first; what is no JSON as `{"raw" or "raw_base64", "reason"}`.
    items: Vec<serde_json::Value>,
}

/// The body of `pause` and `resume`: pausing twice is pausing once.
#[derive(Debug, Default)]
struct SwitchBody<'a> {
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for SwitchBody<'de> {
    const NAMES: &'static [&'static str] = &["request_id"];

    fn read<A: MapAccess<'de>>(&mut self, _: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        self.request_id = value.optional_text()?;
        Ok(())
    }
}

/// What `pause` and `resume` are given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueSwitch {
    /// Taken and not needed: pausing twice is pausing once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Says how full the queue is.
#[utoipa::path(
    get, path = "/v1/queue/{name}/pressure", operation_id = "queue.pressure", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    responses((status = 200, body = QueuePressure, description = "the queue's depths"), crate::page::openapi::Problems),
)]
pub(crate) async fn pressure(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    query::none(input.query)?;
    Ok(written(&QueuePressure::from(queue.pressure().await?)))
}

/// Gives no more jobs to claims.
#[utoipa::path(
    post, path = "/v1/queue/{name}/pause", operation_id = "queue.pause", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueSwitch,
    responses((status = 200, body = QueuePaused, description = "done"), crate::page::openapi::Problems),
)]
pub(crate) async fn pause(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let _: SwitchBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    queue.pause().await?;
    Ok(written(&QueuePaused { paused: true }))
}

/// Gives jobs to claims again.
#[utoipa::path(
    post, path = "/v1/queue/{name}/resume", operation_id = "queue.resume", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueSwitch,
    responses((status = 200, body = QueuePaused, description = "done"), crate::page::openapi::Problems),
)]
pub(crate) async fn resume(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let _: SwitchBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    queue.resume().await?;
    Ok(written(&QueuePaused { paused: false }))
}

/// Looks at the jobs that are next.
#[utoipa::path(
    get, path = "/v1/queue/{name}/peek", operation_id = "queue.peek", tag = "queue",
    params(
        ("name" = String, Path, description = "the queue's name in the schema"),
        ("count" = Option<u64>, Query, description = "at most so many, 1 to 1000; 10 unless given"),
    ),
    responses((status = 200, body = QueuePeeked, description = "payloads, the next one first"), crate::page::openapi::Problems),
)]
pub(crate) async fn peek(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let [count] = query::named(input.query, ["count"])?;
    let count = number(count.as_deref(), "count")?.unwrap_or(10);
    let items = queue.peek(usize::try_from(count).unwrap_or(usize::MAX)).await?;
    let mut out = vec![b'{'];
    write_items(&mut out, &items);
    out.push(b'}');
    Ok(Bytes::from(out))
}
