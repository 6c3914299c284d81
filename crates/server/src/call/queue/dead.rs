//! `queue dead`, `redrive`, `purge`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::queue::{Purge, Redrive};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{number, write_items, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::query;

const COUNT: Arg = Arg {
    name: "count",
    holds: ArgType::Positive,
    required: false,
    help: "At most so many; all unless given",
};

pub(in super::super) const DEAD: Call = Call {
    kind: Kind::Queue,
    verb: "dead",
    effect: Effect::Reads,
    template: "/v1/queue/{name}/dead",
    about: "List dead letters",
    args: &[
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many; 100 unless given",
        },
        Arg {
            name: "offset",
            holds: ArgType::Integer,
            required: false,
            help: "From which on; 0 is the oldest",
        },
    ],
    said_no: |_| false,
    run: |app, input| dead(app, input).boxed(),
};
pub(in super::super) const REDRIVE: Call = Call {
    kind: Kind::Queue,
    verb: "redrive",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/redrive",
    about: "Put dead letters back into the queue, oldest first",
    args: &[
        COUNT,
        Arg {
            name: "overflow",
            holds: ArgType::Flag,
            required: false,
            help: "Items of the overflow list instead of dead letters",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["full"] == true,
    run: |app, input| redrive(app, input).boxed(),
};
pub(in super::super) const PURGE: Call = Call {
    kind: Kind::Queue,
    verb: "purge",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/purge",
    about: "Delete dead letters, oldest first",
    args: &[
        COUNT,
        Arg {
            name: "older_than_ms",
            holds: ArgType::Integer,
            required: false,
            help: "Only those that died longer ago than this",
        },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| purge(app, input).boxed(),
};

/// What `dead` answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueDead {
    /// Dead letters, the oldest first.
    items: Vec<QueueDeadItem>,
    /// How many there are in all.
    length: u64,
}

/// A dead letter, as it lies in the list.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueDeadItem {
    /// The job as it was pushed.
    original_job: serde_json::Value,
    /// What the last attempt said.
    error: String,
    /// How often it was tried.
    attempt_count: u32,
    /// When it first failed, UTC.
    #[schema(example = "2026-01-24T10:30:05.000000")]
    first_failed_at: String,
    /// When it last failed, UTC.
    #[schema(example = "2026-01-24T10:30:15.000000")]
    last_failed_at: String,
    /// The queue it came from.
    queue_name: String,
}

/// What `redrive` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueRedriven {
    /// Dead letters that wait again.
    moved: u64,
    /// Dead letters left where they are: those no worker could be given.
    left: u64,
    /// Whether it ended because the queue is full.
    full: bool,
}

/// What `purge` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePurged {
    /// Dead letters that are gone.
    removed: u64,
}

#[derive(Debug, Default)]
struct RedriveBody<'a> {
    count: Option<u64>,
    overflow: Option<bool>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for RedriveBody<'de> {
    const NAMES: &'static [&'static str] = &["count", "overflow", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "count" => self.count = value.optional_count()?,
            "overflow" => self.overflow = value.optional_truth()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct PurgeBody<'a> {
    count: Option<u64>,
    older_than_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for PurgeBody<'de> {
    const NAMES: &'static [&'static str] = &["count", "older_than_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "count" => self.count = value.optional_count()?,
            "older_than_ms" => self.older_than_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `redrive` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueRedrive {
    /// At most so many; all unless given.
    #[schema(minimum = 0)]
    count: Option<u64>,
    /// Items of the overflow list instead of dead letters.
    #[schema(default = false)]
    overflow: Option<bool>,
    /// Taken and not needed: what was moved is not there to be moved again.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `purge` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueuePurge {
    /// At most so many; all unless given.
    #[schema(minimum = 0)]
    count: Option<u64>,
    /// Only those that died longer ago than this.
    #[schema(minimum = 0)]
    older_than_ms: Option<u64>,
    /// Taken and not needed: what was removed is not there to be removed again.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Lists dead letters.
#[utoipa::path(
    get, path = "/v1/queue/{name}/dead", operation_id = "queue.dead", tag = "queue",
    params(
        ("name" = String, Path, description = "the queue's name in the schema"),
        ("count" = Option<u64>, Query, description = "at most so many, 1 to 1000; 100 unless given"),
        ("offset" = Option<u64>, Query, description = "from which on; 0 is the oldest"),
    ),
    responses((status = 200, body = QueueDead, description = "dead letters, the oldest first"), crate::page::openapi::Problems),
)]
pub(crate) async fn dead(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let [count, offset] = query::named(input.query, ["count", "offset"])?;
    let count = number(count.as_deref(), "count")?.unwrap_or(100);
    let offset = number(offset.as_deref(), "offset")?.unwrap_or(0);
    let page = queue.dead(usize::try_from(count).unwrap_or(usize::MAX), offset).await?;
    let mut out = vec![b'{'];
    write_items(&mut out, &page.items);
    out.extend_from_slice(format!(",\"length\":{}}}", page.length).as_bytes());
    Ok(Bytes::from(out))
}

/// Puts dead letters back into the queue.
#[utoipa::path(
    post, path = "/v1/queue/{name}/redrive", operation_id = "queue.redrive", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueueRedrive,
    responses((status = 200, body = QueueRedriven, description = "how many wait again"), crate::page::openapi::Problems),
)]
pub(crate) async fn redrive(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: RedriveBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let overflow = body.overflow.unwrap_or(false);
    let which = Redrive { count: body.count, overflow, request_id: body.request_id.map(Cow::into_owned) };
    let told = queue.redrive(which, |done| input.done(done)).await?;
    Ok(written(&QueueRedriven { moved: told.moved, left: told.left, full: told.full }))
}

/// Deletes dead letters.
#[utoipa::path(
    post, path = "/v1/queue/{name}/purge", operation_id = "queue.purge", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueuePurge,
    responses((status = 200, body = QueuePurged, description = "how many are gone"), crate::page::openapi::Problems),
)]
pub(crate) async fn purge(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: PurgeBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let older_than = body.older_than_ms.map(Duration::from_millis);
    let which = Purge { count: body.count, older_than, request_id: body.request_id.map(Cow::into_owned) };
    let removed = queue.purge(which, |done| input.done(done)).await?;
    Ok(written(&QueuePurged { removed }))
}
