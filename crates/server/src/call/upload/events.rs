//! `upload events`: completions as the outbox keeps them, in order.

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::run::moment;
use quaymaster::schema::Kind;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input};
use super::{berth, written};
use crate::app::App;
use crate::http::problem::{Problem, excerpt};
use crate::http::query;

pub(in super::super) const EVENTS: Call = Call {
    kind: Kind::Upload,
    verb: "events",
    effect: Effect::Reads,
    template: "/v1/upload/{name}/events",
    about: "Read completions in their order, as the outbox keeps them",
    args: &[
        Arg {
            name: "after",
            holds: ArgType::Integer,
            required: false,
            help: "The `next` of the page before",
        },
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many, up to 1000; 100 unless given",
        },
    ],
    said_no: |_| false,
    run: |app, input| events(app, input).boxed(),
};

const COUNT: u64 = 100;
const COUNT_MAX: u64 = 1000;

/// What `events` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadEvents {
    events: Vec<UploadEvent>,
    /// Where to go on; the same as `after` when there is nothing new.
    next: u64,
}

/// A completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadEvent {
    /// Its place in the order; the place to go on from.
    seq: u64,
    /// Stable: an event that is told twice has the same.
    event_id: String,
    upload_id: String,
    #[schema(example = "repository.uploads.completed")]
    topic: String,
    /// The documented event: `node_id, s3_key, etag, size, timestamp` and what it is recognised by.
    #[schema(value_type = serde_json::Value)]
    payload: Box<RawValue>,
    created_at: String,
}

fn number(text: Option<&str>, field: &'static str, default: u64, most: u64) -> Result<u64, Problem> {
    let Some(text) = text else { return Ok(default) };
    text.parse().ok().filter(|number| *number <= most).ok_or_else(|| {
        let detail = format!("{field} must be an integer from 0 to {most}, got {}", excerpt(text));
        Problem::new(Code::RequestInvalid, detail).field(field)
    })
}

/// Completions in their order. Events are kept for as long as the outbox keeps them; readers remember `next`.
#[utoipa::path(
    get, path = "/v1/upload/{name}/events", operation_id = "upload.events", tag = "upload",
    params(
        ("name" = String, Path, description = "the upload's name in the schema"),
        ("after" = Option<u64>, Query, description = "the `next` of the page before; 0 for the first"),
        ("count" = Option<u64>, Query, description = "at most so many, up to 1000; 100 unless given"),
    ),
    responses((status = 200, body = UploadEvents, description = "the events, also when there are none"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn events(app: &App, input: Input<'_>) -> Answer {
    let berth = berth(app, input.name)?;
    let [after, count] = query::named(input.query, ["after", "count"])?;
    let after = number(after.as_deref(), "after", 0, i64::MAX as u64)?;
    let count = number(count.as_deref(), "count", COUNT, COUNT_MAX)?;
    let ledger = berth.uploads().await?.ledger();
    let mut page = ledger.events(after as i64, count as u32).await?;
    let next = page.last().map_or(after, |event| u64::try_from(event.seq).unwrap_or(after));
    // Several uploads may share a database and its outbox, each under a topic of its own.
    page.retain(|event| event.topic == berth.store().spec().topic);
    let events = page.into_iter().filter_map(|event| {
        Some(UploadEvent {
            seq: u64::try_from(event.seq).ok()?,
            event_id: event.event_id,
            upload_id: event.upload_id,
            topic: event.topic,
            payload: RawValue::from_string(event.payload).ok()?,
            created_at: moment(event.created_ms.saturating_mul(1000)),
        })
    });
    Ok(written(&UploadEvents { events: events.collect(), next }))
}
