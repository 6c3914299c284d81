//! `event publish`, `report`, `stream`, `ws`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::cache::written;
use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, Opening, REQUEST_ID, Stream, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::Problem;
use crate::http::{query, sse, ws};

pub(super) const PUBLISH: Call = Call {
    kind: Kind::Event,
    verb: "publish",
    effect: Effect::Writes,
    template: "/v1/event/{name}/publish",
    about: "Send a message to everybody who listens now",
    args: &[
        Arg {
            name: "data",
            holds: ArgType::Json,
            required: true,
            help: "The message: any JSON, published as it is",
        },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| publish(app, input).boxed(),
};
pub(super) const REPORT: Call = Call {
    kind: Kind::Event,
    verb: "report",
    effect: Effect::Writes,
    template: "/v1/event/{name}/report",
    about: "Leave values that the next statuses tell",
    args: &[
        Arg { name: "data", holds: ArgType::Json, required: true, help: "An object: names and their values" },
        Arg {
            name: "ttl_ms",
            holds: ArgType::Positive,
            required: false,
            help: "How long they count; a minute unless given",
        },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| report(app, input).boxed(),
};
pub(super) const STREAM: Stream = Stream {
    kind: Kind::Event,
    verb: "stream",
    template: "/v1/event/{name}/stream",
    open: |app, opening| stream(app, opening).boxed(),
};
pub(super) const WS: Stream = Stream {
    kind: Kind::Event,
    verb: "ws",
    template: "/v1/event/{name}/ws",
    open: |app, opening| ws(app, opening).boxed(),
};

/// What `publish` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPublished {
    /// How many got it, as the store counts them: a server counts once for all its readers, and on a cluster one node
    /// counts its own.
    receivers: u64,
}

/// What `report` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventReported {
    /// How many values were left.
    reported: u64,
}

#[derive(Debug, Default)]
struct PublishBody<'a> {
    key: KeyValues<'a>,
    data: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for PublishBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "data", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "data" => self.data = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct ReportBody<'a> {
    data: Option<&'a RawValue>,
    ttl_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ReportBody<'de> {
    const NAMES: &'static [&'static str] = &["data", "ttl_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "data" => self.data = Some(value.raw()?),
            "ttl_ms" => self.ttl_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `publish` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct EventPublish {
    /// The placeholders of the channel, by name; most channels have none.
    key: Option<BTreeMap<String, KeyValue>>,
    /// The message: any JSON of at most 1 MiB, published as it is.
    #[schema(example = json!({"type": "event", "data": {"event_id": 1}}))]
    data: serde_json::Value,
    /// The same id again within ten minutes gets the same answer and publishes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `report` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct EventReport {
    /// Names and their values, any JSON; `timestamp` and `queue_depths` are the status's own.
    #[schema(example = json!({"gpu_utilization": 45.2, "cameras_online": 4}))]
    data: BTreeMap<String, serde_json::Value>,
    /// How long they count.
    #[schema(minimum = 1, maximum = 86_400_000, default = 60_000)]
    ttl_ms: Option<u64>,
    /// Taken and not needed: reporting twice is reporting once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

fn given(data: Option<&RawValue>) -> Result<&str, Problem> {
    data.map(RawValue::get).ok_or_else(|| Problem::new(Code::RequestInvalid, "data is missing").field("data"))
}

/// Sends a message to everybody who listens now.
#[utoipa::path(
    post, path = "/v1/event/{name}/publish", operation_id = "event.publish", tag = "event",
    params(("name" = String, Path, description = "the event's name in the schema")),
    request_body = EventPublish,
    responses((status = 200, body = EventPublished, description = "it is published"), crate::page::openapi::Problems),
)]
async fn publish(app: &App, input: Input<'_>) -> Answer {
    let event = app.quaymaster.event(input.name)?;
    let body: PublishBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let data = given(body.data)?;
    let receivers = event.publish_as(&pairs(&body.key), data.as_bytes(), body.request_id.as_deref()).await?;
    Ok(written(&EventPublished { receivers }))
}

/// Leaves values that the next statuses tell.
#[utoipa::path(
    post, path = "/v1/event/{name}/report", operation_id = "event.report", tag = "event",
    params(("name" = String, Path, description = "the event's name in the schema")),
    request_body = EventReport,
    responses((status = 200, body = EventReported, description = "they are left"), crate::page::openapi::Problems),
)]
async fn report(app: &App, input: Input<'_>) -> Answer {
    let event = app.quaymaster.event(input.name)?;
    let body: ReportBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let data = given(body.data)?;
    let values: BTreeMap<String, &RawValue> = serde_json::from_str(data)
        .map_err(|_| Problem::new(Code::RequestInvalid, "data must be an object").field("data"))?;
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
    event.report(&values, body.ttl_ms.map(Duration::from_millis)).await?;
    Ok(written(&EventReported { reported: values.len() as u64 }))
}

/// Messages as server-sent events, from now on.
#[utoipa::path(
    get, path = "/v1/event/{name}/stream", operation_id = "event.stream", tag = "event",
    params(
        ("name" = String, Path, description = "the event's name in the schema"),
        ("key" = Option<BTreeMap<String, KeyValue>>, Query, style = DeepObject,
            description = "one parameter `key.<placeholder>` for every placeholder of the channel"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream",
            description = "each message's JSON in `data`; `{\"missed\": n}` in place of what the reader was too slow for"),
        crate::page::openapi::Problems),
)]
async fn stream(app: &App, opening: Opening<'_>) -> Result<Response<Body>, Problem> {
    let event = app.quaymaster.event(opening.name)?;
    let key = query::key_values(opening.query)?;
    let reader = app.fan.listen(event, &pairs(&key)).await?;
    let (presence, pace) = (opening.presence.clone(), opening.activity.endless());
    let channel = sse::Channel::new(reader, opening.headers);
    Ok(sse::response(channel, app.line(presence, pace)))
}

/// Messages over a WebSocket, from now on.
#[utoipa::path(
    get, path = "/v1/event/{name}/ws", operation_id = "event.ws", tag = "event",
    params(
        ("name" = String, Path, description = "the event's name in the schema"),
        ("key" = Option<BTreeMap<String, KeyValue>>, Query, style = DeepObject,
            description = "one parameter `key.<placeholder>` for every placeholder of the channel"),
    ),
    responses(
        (status = 101, description = "a WebSocket: a text message for each message's JSON, `{\"missed\": n}` in place of \
            what the reader was too slow for"),
        crate::page::openapi::Problems),
)]
async fn ws(app: &App, opening: Opening<'_>) -> Result<Response<Body>, Problem> {
    let event = app.quaymaster.event(opening.name)?;
    let key = query::key_values(opening.query)?;
    let response = ws::accept(opening.headers)?;
    let upgrade = opening.upgrade.ok_or_else(|| {
        Problem::new(Code::RequestInvalid, "this connection cannot become a WebSocket").field("upgrade")
    })?;
    let reader = app.fan.listen(event, &pairs(&key)).await?;
    let session = ws::Session { reader, heartbeat: app.bounds.heartbeat, stopping: app.stopping.clone() };
    opening.activity.becomes(session.run(upgrade).boxed());
    Ok(response)
}
