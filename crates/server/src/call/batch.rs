//! `batch add`, `list`, `close`, `sweep`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::batch::{Add, Closed, Open};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::cache::written;
use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::{Problem, excerpt};
use crate::http::query;

pub(super) const ADD: Call = Call {
    kind: Kind::Batch,
    verb: "add",
    effect: Effect::Writes,
    template: "/v1/batch/{name}/add",
    about: "Put an item into the open batch, or begin one with it",
    args: &[
        Arg { name: "item", holds: ArgType::Json, required: true, help: "Any JSON" },
        Arg {
            name: "id",
            holds: ArgType::Text,
            required: false,
            help: "An id that is already in the batch is not added again",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["duplicate"] == true,
    run: |app, input| add(app, input).boxed(),
};
pub(super) const LIST: Call = Call {
    kind: Kind::Batch,
    verb: "list",
    effect: Effect::Reads,
    template: "/v1/batch/{name}/list",
    about: "Show the batches that are open",
    args: &[
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many, up to 1000; 100 unless given",
        },
        Arg { name: "offset", holds: ArgType::Integer, required: false, help: "After so many others" },
    ],
    said_no: |_| false,
    run: |app, input| list(app, input).boxed(),
};
pub(super) const CLOSE: Call = Call {
    kind: Kind::Batch,
    verb: "close",
    effect: Effect::Writes,
    template: "/v1/batch/{name}/close",
    about: "Close the open batch and queue it",
    args: &[REQUEST_ID],
    said_no: |answer| answer["outcome"] == "none",
    run: |app, input| close(app, input).boxed(),
};
pub(super) const SWEEP: Call = Call {
    kind: Kind::Batch,
    verb: "sweep",
    effect: Effect::Writes,
    template: "/v1/batch/{name}/sweep",
    about: "Queue the batches that are due, as every server does by itself",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| sweep(app, input).boxed(),
};

/// What `add` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchAdded {
    /// The batch the item is in.
    #[schema(example = "3f2a9c04d1b7-8e5566aa0c12")]
    batch_id: String,
    /// How many items it has now.
    size: u64,
    /// `true` when the item's id was in the batch already: nothing was added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    /// `true` when this item was the last one of the batch, which is queued.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
}

/// What `list` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchList {
    /// Those that close first in front.
    batches: Vec<BatchOpen>,
}

/// A batch that is open.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchOpen {
    batch_id: String,
    /// What it is grouped by.
    #[schema(example = json!({"camera_id": "front_door"}))]
    key: BTreeMap<String, String>,
    /// How many items it has.
    size: u64,
    /// When its first item came.
    #[schema(example = "2026-01-24T10:30:00.000000Z")]
    started_at: String,
    /// When its last item came.
    last_activity: String,
    /// When it closes if nothing comes; 0 for one that waits to be queued.
    closes_in_ms: u64,
}

/// What `close` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchClosed {
    /// `closed`, or `none` when no batch was open.
    #[schema(example = "closed")]
    outcome: &'static str,
    /// The batch that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_id: Option<String>,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchSwept {
    /// Batches queued.
    closed: u64,
    /// Batches that found their queue full, and wait.
    waiting: u64,
    /// Batches whose keys had expired before anybody queued them.
    expired: u64,
}

#[derive(Debug, Default)]
struct AddBody<'a> {
    key: KeyValues<'a>,
    item: Option<&'a RawValue>,
    id: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for AddBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "item", "id", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "item" => self.item = Some(value.raw()?),
            "id" => self.id = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct CloseBody<'a> {
    key: KeyValues<'a>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for CloseBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct SweepBody;

impl<'de> Fields<'de> for SweepBody {
    const NAMES: &'static [&'static str] = &["request_id"];

    fn read<A: MapAccess<'de>>(&mut self, _: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        value.optional_text().map(drop)
    }
}

/// What `add` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct BatchAdd {
    /// What the batch is grouped by: the one placeholder of its key.
    #[schema(example = json!({"camera_id": "front_door"}))]
    key: BTreeMap<String, KeyValue>,
    /// Any JSON of at most 256 KiB.
    #[schema(example = json!(1))]
    item: serde_json::Value,
    /// An id that is already in the batch is not added again.
    #[schema(min_length = 1, max_length = 512)]
    id: Option<String>,
    /// The same id again within ten minutes gets the same answer and adds nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `close` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct BatchClose {
    /// What the batch is grouped by: the one placeholder of its key.
    #[schema(example = json!({"camera_id": "front_door"}))]
    key: BTreeMap<String, KeyValue>,
    /// The same id again within ten minutes gets the same answer and closes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `sweep` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct BatchSweep {
    /// Taken and not needed: a batch is queued once, however often it is swept.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Puts an item into the open batch, or begins one with it.
#[utoipa::path(
    post, path = "/v1/batch/{name}/add", operation_id = "batch.add", tag = "batch",
    params(("name" = String, Path, description = "the batch's name in the schema")),
    request_body = BatchAdd,
    responses((status = 200, body = BatchAdded, description = "where the item is"),
        (status = 429, description = "too many batches are open"), crate::page::openapi::Problems),
)]
async fn add(app: &App, input: Input<'_>) -> Answer {
    let batch = app.quaymaster.batch(input.name)?;
    let body: AddBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(item) = body.item else {
        return Err(Problem::new(Code::RequestInvalid, "item is missing").field("item"));
    };
    let item = item.get().as_bytes();
    let add = Add { item, id: body.id.as_deref(), request_id: body.request_id.as_deref() };
    let added = batch.add(&pairs(&body.key), add).await?;
    Ok(written(&BatchAdded {
        batch_id: added.batch_id,
        size: added.size,
        duplicate: added.duplicate,
        closed: added.closed,
    }))
}

/// The batches that are open.
#[utoipa::path(
    get, path = "/v1/batch/{name}/list", operation_id = "batch.list", tag = "batch",
    params(
        ("name" = String, Path, description = "the batch's name in the schema"),
        ("count" = Option<u64>, Query, description = "at most so many; 100 unless given", minimum = 1, maximum = 1000),
        ("offset" = Option<u64>, Query, description = "after so many others"),
    ),
    responses((status = 200, body = BatchList, description = "a page of them"), crate::page::openapi::Problems),
)]
async fn list(app: &App, input: Input<'_>) -> Answer {
    let batch = app.quaymaster.batch(input.name)?;
    let [count, offset] = query::named(input.query, ["count", "offset"])?;
    let number = |name: &'static str, text: Option<Cow<'_, str>>, default: u64| match text {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| {
            let detail = format!("{name} must be an integer of at least 0, got {}", excerpt(&text));
            Problem::new(Code::RequestInvalid, detail).field(name)
        }),
    };
    let open = batch.list(number("offset", offset, 0)?, number("count", count, 100)?).await?;
    let by = &batch.spec().by;
    let batches = open.into_iter().map(|open| shown(by, open)).collect();
    Ok(written(&BatchList { batches }))
}

/// Closes the open batch and queues it.
#[utoipa::path(
    post, path = "/v1/batch/{name}/close", operation_id = "batch.close", tag = "batch",
    params(("name" = String, Path, description = "the batch's name in the schema")),
    request_body = BatchClose,
    responses((status = 200, body = BatchClosed, description = "the answer, also when none was open"),
        (status = 429, description = "its queue is full: the batch takes no more items, and a sweep queues it"),
        crate::page::openapi::Problems),
)]
async fn close(app: &App, input: Input<'_>) -> Answer {
    let batch = app.quaymaster.batch(input.name)?;
    let body: CloseBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    Ok(written(&match batch.close(&pairs(&body.key), body.request_id.as_deref()).await? {
        Closed::Closed { batch_id } => BatchClosed { outcome: "closed", batch_id: Some(batch_id) },
        Closed::None => BatchClosed { outcome: "none", batch_id: None },
    }))
}

/// Queues the batches that are due.
#[utoipa::path(
    post, path = "/v1/batch/{name}/sweep", operation_id = "batch.sweep", tag = "batch",
    params(("name" = String, Path, description = "the batch's name in the schema")),
    request_body = BatchSweep,
    responses((status = 200, body = BatchSwept, description = "what was done"), crate::page::openapi::Problems),
)]
async fn sweep(app: &App, input: Input<'_>) -> Answer {
    let batch = app.quaymaster.batch(input.name)?;
    let SweepBody = json::read(input.body, app.bounds.max_json_depth)?;
    let swept = batch.sweep().await?;
    Ok(written(&BatchSwept { closed: swept.closed, waiting: swept.waiting, expired: swept.expired }))
}

fn shown(by: &str, open: Open) -> BatchOpen {
    BatchOpen {
        batch_id: open.batch_id,
        key: BTreeMap::from([(by.to_owned(), open.by)]),
        size: open.size,
        started_at: quaymaster::batch::moment(open.started_us),
        last_activity: quaymaster::batch::moment(open.last_us),
        closes_in_ms: u64::try_from(open.closes_in.as_millis()).unwrap_or(u64::MAX),
    }
}
