//! `queue push`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::queue::{DELAY_MAX, MAX_PUSH, Push, PushDedupe};
use quaymaster::schema::Kind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::cache::stored_text;
use super::super::{Answer, Call, Input, No, Reaches, call, written};
use super::{owned, owned_pairs, verbatim};
use crate::http::problem::Problem;
use crate::request::read::Nested;
use crate::request::{Holds, JSON, KEY, KEY_PART, KeyValues, Names, REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[PUSH];

const PUSH: Call = call!(
    Queue "queue" "push", Writes, QueuePush => QueuePushed, push, "Put jobs at the end of the queue",
    reaches: Reaches::Declared,
    no: No::Truth("duplicate", true),
    refusals: &[
        (422, "the queue has no priorities; or on a cluster the dedupe lies elsewhere than the queue"),
        (429, "the queue is full, and nothing was added; or the caller is over a limit of the server"),
    ],
);

/// How long a job stays away from claims.
pub(super) const DELAY_MS: Spec = Spec::integer(0, DELAY_MAX.as_millis() as u64);

/// What orders a priority queue.
pub(super) const PRIORITY: Spec = Spec::of(Holds::Number)
    .about("Of a priority queue, and only there: the highest comes first; 0 unless given.");

request! {
    /// What `push` is given: `payload` or `payloads`.
    pub(crate) struct QueuePush<'a> {
        /// The job: any JSON, kept as it was written.
        payload: Option<&'a RawValue> = JSON.example(r#"{"camera_id": "front_door"}"#),
        /// A list of jobs instead; all of them are added, or none.
        payloads: Option<Vec<&'a RawValue>> = Spec::of(Holds::Items { min: 1, max: MAX_PUSH }),
        priority: Option<f64> = PRIORITY,
        /// How long it stays away from claims.
        delay_ms: Option<u64> = DELAY_MS.default("0"),
        /// The same id again within a day is a duplicate and adds nothing.
        id: Option<Cow<'a, str>> = Spec::text_of(1, 512).also(KEY_PART),
        /// Pushed only if this dedupe has not seen it; both in one step.
        dedupe: Option<Nested<QueuePushDedupe<'a>>> = Spec::of(Holds::Object(QueuePushDedupe::SHAPE)),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
    one_of "payload" "payloads";
}

request! {
    /// A dedupe of the same schema.
    pub(crate) struct QueuePushDedupe<'a> {
        /// The dedupe's name in the schema.
        name: Cow<'a, str> =
            Spec::text().required("it is a dedupe of the schema").names(Names::Resource(Kind::Dedupe)),
        /// The placeholders of its key, by name.
        key: KeyValues<'a> = KEY,
        /// What later ones are told; `1` unless given.
        value: Option<&'a RawValue> = JSON,
    }
}

/// What `push` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueuePushed {
    /// Jobs added.
    accepted: u64,
    /// Jobs that wait now.
    queue_length: u64,
    /// Older ones moved to the overflow list to make room.
    moved_to_dlq: u64,
    /// Older ones dropped to make room.
    dropped: u64,
    /// There, and `true`, when the id or the dedupe was seen before: nothing was added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

async fn push(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueuePush<'_> = input.read()?;
    let mut push = payloads(request.payload, request.payloads)?;
    push.priority = request.priority;
    push.delay = request.delay_ms.map(Duration::from_millis);
    push.id = owned(request.id);
    push.request_id = owned(request.request_id);
    push.dedupe = request.dedupe.map(|Nested(dedupe)| PushDedupe {
        name: dedupe.name.into_owned(),
        key: owned_pairs(dedupe.key),
        value: dedupe.value.filter(|value| value.get() != "null").map(stored_text),
    });
    let told = queue.push(push).await.map_err(bound_named)?;
    Ok(written(&QueuePushed {
        accepted: told.accepted,
        queue_length: told.queue_length,
        moved_to_dlq: told.moved_to_dlq,
        dropped: told.dropped,
        duplicate: told.duplicate,
    }))
}

/// The one that is given. `null` is a job like any other; beside a list it is what typed clients send for a field they do
/// not use.
fn payloads(payload: Option<&RawValue>, payloads: Option<Vec<&RawValue>>) -> Result<Push, Problem> {
    let payload = payload.filter(|one| payloads.is_none() || one.get() != "null");
    let wrong =
        |field: &str, detail: &'static str| Err(Problem::new(Code::RequestInvalid, detail).field(field));
    match (payload, payloads) {
        (Some(one), None) => Ok(Push::one(verbatim(one))),
        (None, Some(many)) => Ok(Push::many(many.into_iter().map(verbatim).collect())),
        (None, None) => wrong("payload", "payload is missing; give one, or a list as payloads"),
        (Some(_), Some(_)) => wrong("payloads", "payload and payloads are both given; one of them is enough"),
    }
}

/// Whoever is over the bound is told where it is set.
fn bound_named(error: quaymaster::Error) -> Problem {
    let one = error.code == Code::RequestTooLarge && error.field.as_deref() == Some("payload");
    let mut problem = Problem::from(error);
    if one {
        problem.detail = format!("{}; max_payload_bytes in [queues] sets the bound", problem.detail).into();
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_named_for_a_payload_over_its_bound_whatever_the_words() {
        let told = |code: Code, field: &'static str, words: &str| {
            let problem = bound_named(quaymaster::Error::new("queue.push", code, words).field(field));
            (problem.detail.contains("max_payload_bytes"), problem.field)
        };
        let payload = Some("payload".to_owned());
        assert_eq!(told(Code::RequestTooLarge, "payload", "it is too long"), (true, payload.clone()));
        assert_eq!(told(Code::RequestInvalid, "payload", "payload: it is no JSON"), (false, payload));
        assert_eq!(
            told(Code::RequestTooLarge, "payloads", "payload: all of them").1.as_deref(),
            Some("payloads")
        );
        assert!(!told(Code::RequestTooLarge, "payloads", "payload: all of them").0);
    }
}
