//! `event publish`, `report`, `stream`, `ws`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::schema::Kind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Answer, Answers, Call, Handler, Input, MISMATCH, Opening, Operation, Repeat, Shows, call, pairs, written,
};
use crate::app::App;
use crate::http::problem::Problem;
use crate::http::{sse, ws};
use crate::request::query::query;
use crate::request::{
    Field, Holds, JSON, KeyValues, REQUEST_ID, REQUEST_ID_UNUSED, Request as _, Spec, request,
};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[PUBLISH, REPORT];

const PUBLISH: Call = call!(
    Event "event" "publish", Writes, EventPublish => EventPublished, publish,
    "Send a message to everybody who listens now",
);
const REPORT: Call = call!(
    Event "event" "report", Writes, EventReport => EventReported, report, "Leave values that the next statuses tell",
    repeat: Repeat::Safe,
    refusals: &[
        MISMATCH,
        (429, "the status holds as many values as it may, or the caller is over a limit of the server"),
    ],
);

/// What is heard from now on.
pub(super) static STREAMS: [Operation; 2] = [STREAM, WS];

const STREAM: Operation = Operation {
    request: EventListen::SHAPE,
    shows: Some(Shows::Values),
    headers: &[LAST_EVENT_ID],
    ..Operation::get(
        (Kind::Event, "stream", "/v1/event/{name}/stream"),
        "Hear what is published from now on, as server-sent events",
        Answers::Events(
            "Each message's JSON in `data`; `event: missed` with `{\"missed\": n}` in place of what the reader was too slow for.",
        ),
        Handler::Stream(|app, opening| stream(app, opening).boxed()),
    )
};
const WS: Operation = Operation {
    request: EventListen::SHAPE,
    shows: Some(Shows::Values),
    headers: &[
        handshake("Connection", "Asks for another protocol.", Spec::of(Holds::Word(&["Upgrade"]))),
        handshake("Upgrade", "The protocol.", Spec::of(Holds::Word(&["websocket"]))),
        handshake("Sec-WebSocket-Version", "Its version.", Spec::of(Holds::Word(&["13"]))),
        handshake("Sec-WebSocket-Key", "16 random bytes in base64.", Spec::text().also(NONCE)),
    ],
    ..Operation::get(
        (Kind::Event, "ws", "/v1/event/{name}/ws"),
        "Hear what is published from now on, over a WebSocket",
        Answers::Socket(
            "a text message for each message's JSON, `{\"missed\": n}` in place of what the reader was too slow for.",
        ),
        Handler::Stream(|app, opening| ws(app, opening).boxed()),
    )
};

const LAST_EVENT_ID: Field = Field {
    name: "last-event-id",
    about: "The `id` of the last event that the reader has: it is told first how many it missed.",
    spec: Spec::text(),
};

const NONCE: &str = r#"{"pattern": "^[A-Za-z0-9+/]{21}[AQgw]==$"}"#;

/// A header without which there is no WebSocket.
const fn handshake(name: &'static str, about: &'static str, spec: Spec) -> Field {
    Field { name, about, spec: spec.required("") }
}

/// Most channels have no placeholders.
const CHANNEL_KEY: Spec = Spec::of(Holds::Key);

request! {
    /// What `publish` is given.
    pub(crate) struct EventPublish<'a> {
        /// The placeholders of the channel, by name; most channels have none.
        key: KeyValues<'a> = CHANNEL_KEY,
        /// The message: any JSON of at most 1 MiB, published as it is.
        data: &'a RawValue = JSON.required("").example(r#"{"type": "event", "data": {"event_id": 1}}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// Values by name; the names of a status are its own.
const REPORTED: &str = r#"{
    "minProperties": 1, "maxProperties": 64,
    "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$", "not": {"enum": ["timestamp", "queue_depths"]}}
}"#;

request! {
    /// What `report` is given.
    pub(crate) struct EventReport<'a> {
        /// An object: 1 to 64 names and their values, any JSON; timestamp and queue_depths are the status's own.
        data: &'a RawValue =
            Spec::of(Holds::Map).required("").also(REPORTED).example(r#"{"gpu_utilization": 45.2, "cameras_online": 4}"#),
        /// How long they count.
        ttl_ms: u64 = Spec::integer(1, 86_400_000).default("60000"),
        #[expect(dead_code, reason = "reporting twice is reporting once")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

request! {
    /// What `stream` and `ws` are asked.
    pub(crate) struct EventListen<'a> {
        /// The placeholders of the channel, by name; most channels have none.
        key: KeyValues<'a> = CHANNEL_KEY,
    }
}

/// What `publish` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventPublished {
    /// How many got it, as the store counts them: a server counts once for all its readers, and on a cluster one node
    /// counts its own.
    receivers: u64,
}

/// What `report` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventReported {
    /// How many values were left.
    reported: u64,
}

async fn publish(services: &Services, input: Input<'_>) -> Answer {
    let event = services.quaymaster.event(input.name)?;
    let request: EventPublish<'_> = input.read()?;
    let (key, data) = (pairs(&request.key), request.data.get().as_bytes());
    let receivers = event.publish_as(&key, data, request.request_id.as_deref()).await?;
    Ok(written(&EventPublished { receivers }))
}

async fn report(services: &Services, input: Input<'_>) -> Answer {
    let event = services.quaymaster.event(input.name)?;
    let request: EventReport<'_> = input.read()?;
    let values: BTreeMap<String, &RawValue> = serde_json::from_str(request.data.get())
        .map_err(|_| Problem::new(Code::RequestInvalid, "data must be an object").field("data"))?;
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
    event.report(&values, Some(Duration::from_millis(request.ttl_ms))).await?;
    Ok(written(&EventReported { reported: values.len() as u64 }))
}

/// Messages as server-sent events, from now on.
async fn stream(app: &App, opening: Opening<'_>) -> Result<Response<Body>, Problem> {
    let event = app.services.quaymaster.event(opening.name)?;
    let key = EventListen::of(query(EventListen::SHAPE, opening.query)?)?.key;
    let reader = app.fan.listen(event, &pairs(&key)).await?;
    let (presence, pace) = (opening.presence.clone(), opening.activity.endless());
    let channel = sse::Channel::new(reader, opening.headers);
    Ok(sse::response(channel, app.line(presence, pace)))
}

/// Messages over a WebSocket, from now on.
async fn ws(app: &App, opening: Opening<'_>) -> Result<Response<Body>, Problem> {
    let event = app.services.quaymaster.event(opening.name)?;
    let key = EventListen::of(query(EventListen::SHAPE, opening.query)?)?.key;
    let response = ws::accept(opening.headers)?;
    let upgrade = opening.upgrade.ok_or_else(|| {
        Problem::new(Code::RequestInvalid, "this connection cannot become a WebSocket").field("upgrade")
    })?;
    let reader = app.fan.listen(event, &pairs(&key)).await?;
    let session =
        ws::Session { reader, heartbeat: app.bounds.heartbeat, stopping: app.services.stopping.clone() };
    opening.activity.becomes(session.run(upgrade).boxed());
    Ok(response)
}
