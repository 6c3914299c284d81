//! `queue push`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::queue::{Push, PushDedupe};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::cache::stored_text;
use super::super::limit::KeyValue;
use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{missing, owned, verbatim, written};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::Problem;

pub(in super::super) const PUSH: Call = Call {
    kind: Kind::Queue,
    verb: "push",
    effect: Effect::Writes,
    template: "/v1/queue/{name}/push",
    about: "Put jobs at the end of the queue",
    args: &[
        Arg { name: "payload", holds: ArgType::Json, required: false, help: "The job" },
        Arg {
            name: "payloads",
            holds: ArgType::Json,
            required: false,
            help: "A list of jobs instead; all of them or none",
        },
        Arg {
            name: "priority",
            holds: ArgType::Json,
            required: false,
            help: "Of a priority queue: highest first; 0 unless given",
        },
        Arg {
            name: "delay_ms",
            holds: ArgType::Integer,
            required: false,
            help: "How long it stays away from claims; 0 unless given",
        },
        Arg {
            name: "id",
            holds: ArgType::Text,
            required: false,
            help: "The same id again within a day is a duplicate",
        },
        Arg {
            name: "dedupe",
            holds: ArgType::Json,
            required: false,
            help: "{\"name\", \"key\", \"value\"?}: pushed only if this dedupe has not seen it",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["duplicate"] == true,
    run: |app, input| push(app, input).boxed(),
};

/// What `push` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePushed {
    /// Jobs added.
    accepted: u64,
    /// Jobs that wait now.
    queue_length: u64,
    /// Older ones moved to the overflow list to make room.
    moved_to_dlq: u64,
    /// Older ones dropped to make room.
    dropped: u64,
    /// There when the id or the dedupe was seen before: nothing was added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    duplicate: bool,
}

#[derive(Debug, Default)]
struct PushBody<'a> {
    payload: Option<&'a RawValue>,
    payloads: Option<Vec<&'a RawValue>>,
    priority: Option<f64>,
    delay_ms: Option<u64>,
    id: Option<Cow<'a, str>>,
    dedupe: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for PushBody<'de> {
    const NAMES: &'static [&'static str] =
        &["payload", "payloads", "priority", "delay_ms", "id", "dedupe", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "payload" => self.payload = Some(value.raw()?),
            "payloads" => self.payloads = value.optional_raws()?,
            "priority" => self.priority = value.optional_number()?,
            "delay_ms" => self.delay_ms = value.optional_count()?,
            "id" => self.id = value.optional_text()?,
            "dedupe" => self.dedupe = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct DedupeBody<'a> {
    name: Option<Cow<'a, str>>,
    key: KeyValues<'a>,
    value: Option<&'a RawValue>,
}

impl<'de> Fields<'de> for DedupeBody<'de> {
    const NAMES: &'static [&'static str] = &["name", "key", "value"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "name" => self.name = value.optional_text()?,
            "key" => self.key = value.key_values()?,
            _ => self.value = Some(value.raw()?),
        }
        Ok(())
    }
}

/// What `push` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueuePush {
    /// The job: any JSON, kept as it was written. Either this or `payloads`.
    #[schema(example = json!({"camera_id": "front_door"}))]
    payload: Option<serde_json::Value>,
    /// Several jobs: all of them are added, or none.
    payloads: Option<Vec<serde_json::Value>>,
    /// Of a priority queue: the highest comes first; 0 unless given.
    priority: Option<f64>,
    /// How long it stays away from claims.
    #[schema(minimum = 0, default = 0)]
    delay_ms: Option<u64>,
    /// The same id again within a day is a duplicate and adds nothing.
    #[schema(min_length = 1, max_length = 512)]
    id: Option<String>,
    /// Pushed only if this dedupe has not seen it; both in one step.
    dedupe: Option<QueuePushDedupe>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// A dedupe of the same schema.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueuePushDedupe {
    /// The dedupe's name in the schema.
    name: String,
    /// The placeholders of its key, by name.
    key: BTreeMap<String, KeyValue>,
    /// What later ones are told; `1` unless given.
    value: Option<serde_json::Value>,
}

/// Puts jobs at the end of the queue.
#[utoipa::path(
    post, path = "/v1/queue/{name}/push", operation_id = "queue.push", tag = "queue",
    params(("name" = String, Path, description = "the queue's name in the schema")),
    request_body = QueuePush,
    responses(
        (status = 200, body = QueuePushed, description = "the answer, also when it was a duplicate"),
        (status = 422, body = crate::http::problem::ProblemBody<'static>, content_type = "application/problem+json",
            description = "on a cluster the dedupe lies elsewhere than the queue"),
        (status = 429, body = crate::http::problem::ProblemBody<'static>, content_type = "application/problem+json",
            description = "the queue is full; nothing was added"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn push(app: &App, input: Input<'_>) -> Answer {
    let queue = app.quaymaster.queue(input.name)?;
    let body: PushBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    // `null` is a job like any other; beside a list it is what typed clients send for a field they do not use.
    let payload = body.payload.filter(|one| body.payloads.is_none() || one.get() != "null");
    let mut push = match (payload, body.payloads) {
        (Some(one), None) => Push::one(verbatim(one)),
        (None, Some(many)) => Push::many(many.into_iter().map(verbatim).collect()),
        (None, None) => return Err(missing("payload", "give one, or a list as payloads")),
        (Some(_), Some(_)) => {
            let detail = "payload and payloads are both given; one of them is enough";
            return Err(Problem::new(Code::RequestInvalid, detail).field("payloads"));
        }
    };
    push.priority = body.priority;
    push.delay = body.delay_ms.map(Duration::from_millis);
    push.id = owned(body.id);
    push.request_id = owned(body.request_id);
    if let Some(dedupe) = body.dedupe.filter(|dedupe| dedupe.get() != "null") {
        let dedupe: DedupeBody<'_> = json::nested(dedupe, "dedupe")?;
        let Some(name) = dedupe.name else {
            return Err(missing("dedupe.name", "it is a dedupe of the schema"));
        };
        let value = dedupe.value.filter(|value| value.get() != "null");
        push.dedupe = Some(PushDedupe {
            name: name.into_owned(),
            key: dedupe
                .key
                .into_iter()
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
            value: value.map(stored_text),
        });
    }
    let told = queue.push(push).await.map_err(bound_named)?;
    Ok(written(&QueuePushed {
        accepted: told.accepted,
        queue_length: told.queue_length,
        moved_to_dlq: told.moved_to_dlq,
        dropped: told.dropped,
        duplicate: told.duplicate,
    }))
}

/// Whoever is over the bound is told where it is set.
fn bound_named(error: quaymaster::Error) -> Problem {
    let one = error.code == Code::RequestTooLarge && error.detail.starts_with("payload:");
    let mut problem = Problem::from(error);
    // A caller's id is a part of a key, and refused like one.
    if problem.detail.starts_with("`id`") {
        problem.field = Some("id".to_owned());
    }
    if one {
        problem.detail = format!("{}; max_payload_bytes in [queues] sets the bound", problem.detail).into();
        problem.field = Some("payload".to_owned());
    }
    problem
}
