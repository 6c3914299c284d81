//! `guard enter`, `leave`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::guard::{Enter, Entered, Guard, Leave, Left, Pass, Settled};
use quaymaster::limit::Verdict;
use quaymaster::lock::Released;
use quaymaster::schema::Kind;
use quaymaster::{Code, Token};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::idempotency::replayed;
use super::limit::{KeyValue, LimitAnswer};
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::Problem;

pub(super) const ENTER: Call = Call {
    kind: Kind::Guard,
    verb: "enter",
    effect: Effect::Writes,
    template: "/v1/guard/{name}/enter",
    about: "Enter the idempotency, the lock and the limits together, all or none",
    args: &[
        Arg {
            name: "fingerprint",
            holds: ArgType::Text,
            required: false,
            help: "What the request is; another one under the same key is a mismatch",
        },
        Arg {
            name: "ttl_ms",
            holds: ArgType::Positive,
            required: false,
            help: "The lock's lease; at most the declared ttl, which it is unless given",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["outcome"] != "entered" && answer["outcome"] != "finished",
    run: |app, input| enter(app, input).boxed(),
};
pub(super) const LEAVE: Call = Call {
    kind: Kind::Guard,
    verb: "leave",
    effect: Effect::Writes,
    template: "/v1/guard/{name}/leave",
    about: "Finish or abandon the operation and give the lock back",
    args: &[
        Arg { name: "token", holds: ArgType::Text, required: true, help: "What enter answered" },
        Arg { name: "response", holds: ArgType::Json, required: false, help: "What it answered; any JSON" },
        Arg {
            name: "abandon",
            holds: ArgType::Flag,
            required: false,
            help: "It did not take effect: the next one may enter at once",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["outcome"] == "lost",
    run: |app, input| leave(app, input).boxed(),
};

/// What `enter` answers. The fields of the part that said no are there; `entered` has those of every part.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct GuardAnswer {
    /// `entered`; or the first no of: `mismatch`, `finished`, `in_progress`, `held`, `limited`.
    #[schema(example = "entered")]
    outcome: &'static str,
    /// `entered`: proves that claim and lock are ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// `entered`, with a lock: higher than that of every lease before.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// `entered`: until the lock's lease or the claim ends, whichever is first; absent without both.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// `in_progress`, `held`, `limited`: when asking again can help; `null` when waiting never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    retry_after_ms: Option<Wait>,
    /// `finished`: what the operation answered, `null` when no response was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
    /// `finished`: a response that is not JSON, in base64; a program on the crate kept it.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_base64: Option<String>,
    /// `finished`: whether a response was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<bool>,
    /// `limited`: the limit that lets the caller wait longest; the next fields are what it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<String>,
    /// `limited`: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    /// `limited`: units per window, after the safety buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// `limited`: units counted now.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// `limited`: units that would still pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// `limited`: until nothing that is counted now counts any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    /// `entered`, `limited`: what each limit answers, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    limits: BTreeMap<String, LimitAnswer>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// Milliseconds, or `null` when waiting never helps.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
struct Wait(Option<u64>);

/// What `leave` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GuardLeft {
    /// What became of the operation: `finished`, `abandoned` or `lost`; without an idempotency, of the lock:
    /// `released` or `lost`.
    #[schema(example = "finished")]
    outcome: &'static str,
    /// `finished`, `abandoned` or `lost`; absent without an idempotency.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency: Option<&'static str>,
    /// `released` or `lost`; absent without a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<&'static str>,
    /// `finished`: whether the response is replayed; false when none was given, it is over `max_response`, or records
    /// are compact.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<bool>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

#[derive(Debug, Default)]
struct EnterBody<'a> {
    key: KeyValues<'a>,
    fingerprint: Option<Cow<'a, str>>,
    ttl_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for EnterBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "fingerprint", "ttl_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "fingerprint" => self.fingerprint = value.optional_text()?,
            "ttl_ms" => self.ttl_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct LeaveBody<'a> {
    key: KeyValues<'a>,
    token: Option<Cow<'a, str>>,
    response: Option<&'a RawValue>,
    abandon: Option<bool>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for LeaveBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "token", "response", "abandon", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "token" => self.token = value.optional_text()?,
            "response" => self.response = Some(value.raw()?),
            "abandon" => self.abandon = value.optional_truth()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `enter` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct GuardEnter {
    /// The placeholders of all parts' keys, by name.
    #[schema(example = json!({"psp_id": "PSP001", "psp_transaction_id": "PSP-TX-123456"}))]
    key: BTreeMap<String, KeyValue>,
    /// What the request is, as text; only a digest is kept. Another one under the same key is a mismatch.
    fingerprint: Option<String>,
    /// The lock's lease; at most its declared `ttl`, which it is unless given.
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// The same id again finds its own claim and lease, and within ten minutes counts nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `leave` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct GuardLeave {
    /// The placeholders of all parts' keys, by name.
    #[schema(example = json!({"psp_id": "PSP001", "psp_transaction_id": "PSP-TX-123456"}))]
    key: BTreeMap<String, KeyValue>,
    /// What `enter` answered.
    #[schema(min_length = 1, max_length = 192)]
    token: String,
    /// What the operation answered: any JSON, given back as it was written.
    response: Option<serde_json::Value>,
    /// The operation did not take effect: the next one may enter at once.
    #[schema(default = false)]
    abandon: Option<bool>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Enters the idempotency, the lock and the limits together, all or none.
#[utoipa::path(
    post, path = "/v1/guard/{name}/enter", operation_id = "guard.enter", tag = "guard",
    params(("name" = String, Path, description = "the guard's name in the schema")),
    request_body = GuardEnter,
    responses((status = 200, body = GuardAnswer, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn enter(app: &App, input: Input<'_>) -> Answer {
    let guard = app.quaymaster.guard(input.name)?;
    let body: EnterBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let how = Enter {
        fingerprint: body.fingerprint.as_deref().map(str::as_bytes),
        ttl: body.ttl_ms.map(Duration::from_millis),
        request_id: body.request_id.as_deref(),
    };
    let outcome = |outcome| GuardAnswer { outcome, ..GuardAnswer::default() };
    Ok(written(&match guard.enter(&pairs(&body.key), how).await? {
        Entered::Entered(pass) => entered(input, guard, &pass),
        Entered::Limited(verdicts) => limited(input, guard, &verdicts),
        Entered::InProgress { retry_after } => {
            GuardAnswer { retry_after_ms: Some(Wait(Some(millis(retry_after)))), ..outcome("in_progress") }
        }
        Entered::Held { retry_after } => {
            GuardAnswer { retry_after_ms: Some(Wait(Some(millis(retry_after)))), ..outcome("held") }
        }
        Entered::Mismatch => outcome("mismatch"),
        Entered::Finished(replay) => {
            let (response, response_base64) = replayed(&replay);
            let kept = Some(replay.response.is_some());
            GuardAnswer { response, response_base64, kept, ..outcome("finished") }
        }
    }))
}

/// Finishes or abandons the operation and gives the lock back, each if it is still ours.
#[utoipa::path(
    post, path = "/v1/guard/{name}/leave", operation_id = "guard.leave", tag = "guard",
    params(("name" = String, Path, description = "the guard's name in the schema")),
    request_body = GuardLeave,
    responses((status = 200, body = GuardLeft, description = "the answer, also when it is lost"), crate::page::openapi::Problems),
)]
async fn leave(app: &App, input: Input<'_>) -> Answer {
    let guard = app.quaymaster.guard(input.name)?;
    let body: LeaveBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(token) = &body.token else {
        return Err(Problem::new(Code::RequestInvalid, "token is missing; enter answered it").field("token"));
    };
    let token = Token::parse("guard.leave", token).map_err(|error| Problem::from(error).field("token"))?;
    let how = Leave {
        response: body.response.map(|raw| raw.get().as_bytes()),
        abandon: body.abandon.unwrap_or(false),
        request_id: body.request_id.as_deref(),
    };
    Ok(written(&left(input, guard.leave(&pairs(&body.key), &token, how).await?)))
}

fn entered(input: Input<'_>, guard: &Guard, pass: &Pass) -> GuardAnswer {
    let quotas = pass.quotas.iter().cloned().map(Verdict::Allowed);
    GuardAnswer {
        outcome: "entered",
        token: Some(pass.token.as_str().to_owned()),
        fence: pass.fence,
        expires_in_ms: pass.lock_expires_in.into_iter().chain(pass.claim_expires_in).min().map(millis),
        limits: by_name(guard, quotas),
        outage: input.under(pass.outage),
        ..GuardAnswer::default()
    }
}

fn limited(input: Input<'_>, guard: &Guard, verdicts: &[Verdict]) -> GuardAnswer {
    // Waiting for ever is longer than any wait.
    let slowest = (verdicts.iter().zip(guard.limits()))
        .filter(|(verdict, _)| !verdict.is_allowed())
        .max_by_key(|(verdict, _)| verdict.retry_after().unwrap_or(Duration::MAX));
    let quota = slowest.map(|(verdict, _)| verdict.quota());
    GuardAnswer {
        outcome: "limited",
        retry_after_ms: Some(Wait(slowest.and_then(|(verdict, _)| verdict.retry_after()).map(millis))),
        limited_by: slowest.map(|(_, limit)| limit.name().to_owned()),
        allowed: Some(false),
        limit: quota.map(|quota| quota.limit),
        used: quota.map(|quota| quota.used),
        remaining: quota.map(|quota| quota.remaining),
        reset_after_ms: quota.map(|quota| millis(quota.reset_after)),
        limits: by_name(guard, verdicts.iter().cloned()),
        outage: input.under(verdicts.iter().find_map(|verdict| verdict.quota().outage)),
        ..GuardAnswer::default()
    }
}

fn by_name(guard: &Guard, verdicts: impl Iterator<Item = Verdict>) -> BTreeMap<String, LimitAnswer> {
    let answer =
        |(limit, verdict): (&quaymaster::limit::Limit, Verdict)| (limit.name().to_owned(), (&verdict).into());
    guard.limits().iter().zip(verdicts).map(answer).collect()
}

fn left(input: Input<'_>, left: Left) -> GuardLeft {
    let (idempotency, kept) = match left.idempotency {
        None => (None, None),
        Some(Settled::Finished { kept }) => (Some("finished"), Some(kept)),
        Some(Settled::Abandoned) => (Some("abandoned"), None),
        Some(Settled::Lost) => (Some("lost"), None),
    };
    let lock = left.lock.map(|lock| match lock {
        Released::Released | Released::Away(_) => "released",
        Released::Lost => "lost",
    });
    // A guard of limits alone leases nothing: leaving it is always done.
    let outcome = idempotency.or(lock).unwrap_or("released");
    GuardLeft { outcome, idempotency, lock, kept, outage: input.under(left.outage) }
}

fn written(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(320);
    // Strings, integers and JSON that was read as JSON cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
