//! `upload events`: completions as the outbox keeps them, in order; a page at a time, or as server-sent events.

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::run::moment;
use quaymaster_upload::ledger::Event;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, Opening, Shows, Streamed, call};
use super::{berth, written};
use crate::app::App;
use crate::depot::tail::Reader;
use crate::fan::Seated;
use crate::http::problem::Problem;
use crate::http::sse;
use crate::request::{Field, Request as _, Spec, query, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[EVENTS];

const EVENTS: Call = call!(
    Upload "upload" "events", Reads, UploadEventsAsk => UploadEvents, events,
    "Read completions in their order, as the outbox keeps them",
    shows: Some(Shows::Facts),
    streamed: Some(Streamed {
        about: "Those behind `after` first, each with its JSON in `data` and its `seq` in `id`, and then each as it happens.",
        // A page passes it over, whatever it is.
        headers: &[Field { spec: Spec::text(), ..LAST_EVENT_ID }],
        open: |app, opening| Box::pin(follow(app, opening)).boxed(),
    }),
);

const AFTER: Spec = Spec::integer(0, i64::MAX as u64).default("0").strict();
const LAST_EVENT_ID: Field = Field {
    name: sse::LAST_EVENT_ID,
    about: "Of a stream: the `seq` of the last event that the reader has, a whole number; it counts in place of `after`.",
    spec: Spec { default: None, ..AFTER },
};

request! {
    /// What `events` is asked.
    pub(crate) struct UploadEventsAsk<'a> {
        /// The `next` of the page before; 0 for the first.
        after: u64 = AFTER,
        /// At most so many; not for a stream.
        count: u64 = Spec::integer(0, COUNT_MAX).default("100").strict(),
    }
}

request! {
    /// What `events` is asked by those who follow them: all that there is.
    pub(crate) struct UploadEventsFollow<'a> {
        /// The last event that the reader has; 0 for none.
        after: u64 = AFTER,
    }
}

const COUNT_MAX: u64 = 1000;

/// What `events` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UploadEvents {
    events: Vec<UploadEvent>,
    /// Where to go on; the same as `after` when there is nothing new.
    next: u64,
}

/// A completion.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UploadEvent {
    /// Its place in the order; the place to go on from.
    seq: u64,
    /// Stable: an event that is told twice has the same.
    event_id: String,
    upload_id: String,
    #[schemars(extend("examples" = ["repository.uploads.completed"]))]
    topic: String,
    /// The documented event: `node_id, s3_key, etag, size, timestamp`, what it is recognised by, and its `resource`.
    #[schemars(with = "serde_json::Value")]
    payload: Box<RawValue>,
    created_at: String,
}

impl UploadEvent {
    fn of(event: Event) -> Option<Self> {
        Some(Self {
            seq: u64::try_from(event.seq).ok()?,
            event_id: event.event_id,
            upload_id: event.upload_id,
            topic: event.topic,
            payload: RawValue::from_string(event.payload).ok()?,
            created_at: moment(event.created_ms.saturating_mul(1000)),
        })
    }
}

pub(crate) async fn events(services: &Services, input: Input<'_>) -> Answer {
    let berth = berth(services, input.name)?;
    let UploadEventsAsk { after, count, .. } = input.read()?;
    let mut page = berth.uploads().await?.ledger().events(after as i64, count as u32).await?;
    let next = page.last().map_or(after, |event| u64::try_from(event.seq).unwrap_or(after));
    page.retain(|event| berth.tail().own().has(event));
    let events = page.into_iter().filter_map(UploadEvent::of).collect();
    Ok(written(&UploadEvents { events, next }))
}

/// One reader of a stream.
struct Feed {
    reader: Reader,
    listening: bool,
    /// Given back when the reader is gone.
    _seat: Seated,
}

async fn follow(app: &App, opening: Opening<'_>) -> Result<Response<Body>, Problem> {
    let berth = berth(&app.services, opening.name)?;
    let shape = UploadEventsFollow::SHAPE;
    let UploadEventsFollow { after, .. } = UploadEventsFollow::of(query::query(shape, opening.query)?)?;
    // A browser that comes again asks for the same `after`, and says how far it came.
    let after = last_heard(opening.headers)?.unwrap_or(after);
    let uploads = berth.uploads().await?;
    let seat = app.fan.seat()?;
    let reader = berth.tail().read(uploads, after as i64, told).await?;
    let feed = Feed { reader, listening: false, _seat: seat };
    Ok(sse::response(feed, app.line(opening.presence.clone(), opening.activity.endless())))
}

fn last_heard(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(text) = headers.get(sse::LAST_EVENT_ID) else { return Ok(None) };
    query::value(&LAST_EVENT_ID, String::from_utf8_lossy(text.as_bytes())).map(Some)
}

/// An event as a stream has it. Nothing in it has a line's end: the payload is ours.
fn told(event: Event) -> Option<Bytes> {
    let event = UploadEvent::of(event)?;
    let data = serde_json::to_string(&event).ok()?;
    Some(Bytes::from(format!("id: {}\ndata: {data}\n\n", event.seq)))
}

impl sse::Source for Feed {
    fn waiting(&mut self) -> Option<Bytes> {
        (!std::mem::replace(&mut self.listening, true)).then_some(sse::LISTENING)
    }

    async fn next(&mut self) -> Option<Bytes> {
        match self.reader.next().await {
            Ok(event) => Some(event),
            Err(error) => {
                // The reader comes again, and goes on where it was.
                tracing::debug!(%error, "events cannot be read");
                None
            }
        }
    }
}
