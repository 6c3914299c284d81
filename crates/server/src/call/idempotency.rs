//! `idempotency begin`, `finish`, `abandon`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::idempotency::{Abandoned, Begin, Begun, Finished, Replay};
use quaymaster::schema::Kind;
use quaymaster::{Code, Token};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::Problem;

/// The longest a call waits, whatever it asks for: it holds one of the server's places meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(30);

const TOKEN: Arg = Arg { name: "token", holds: ArgType::Text, required: true, help: "What begin answered" };

pub(super) const BEGIN: Call = Call {
    kind: Kind::Idempotency,
    verb: "begin",
    effect: Effect::Writes,
    template: "/v1/idempotency/{name}/begin",
    about: "Claim an operation, or learn who runs it or what it answered",
    args: &[
        Arg {
            name: "fingerprint",
            holds: ArgType::Text,
            required: false,
            help: "What the request is; another one under the same key is a mismatch",
        },
        Arg {
            name: "wait_ms",
            holds: ArgType::Integer,
            required: false,
            help: "How long to wait while somebody else runs it; 0 unless given, 30000 at most",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["outcome"] == "in_progress" || answer["outcome"] == "mismatch",
    run: |app, input| begin(app, input).boxed(),
};
pub(super) const FINISH: Call = Call {
    kind: Kind::Idempotency,
    verb: "finish",
    effect: Effect::Writes,
    template: "/v1/idempotency/{name}/finish",
    about: "Keep the operation's answer for everybody who begins it again",
    args: &[
        TOKEN,
        Arg { name: "response", holds: ArgType::Json, required: false, help: "What it answered; any JSON" },
        REQUEST_ID,
    ],
    said_no: lost,
    run: |app, input| finish(app, input).boxed(),
};
pub(super) const ABANDON: Call = Call {
    kind: Kind::Idempotency,
    verb: "abandon",
    effect: Effect::Writes,
    template: "/v1/idempotency/{name}/abandon",
    about: "Give the claim back: the operation did not take effect",
    args: &[TOKEN, REQUEST_ID],
    said_no: lost,
    run: |app, input| abandon(app, input).boxed(),
};

fn lost(answer: &serde_json::Value) -> bool {
    answer["outcome"] == "lost"
}

/// What `begin` answers.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct IdempotencyBegun {
    /// `started`, `in_progress`, `finished` or `mismatch`.
    #[schema(example = "started")]
    outcome: &'static str,
    /// `started`: proves the claim to `finish` and `abandon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// `started`: how long nobody else may run the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// `in_progress`: when the other's claim ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// `finished`: what the operation answered, as JSON; null when no response was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
    /// `finished`: a response that is not JSON, in base64; a program on the crate kept it.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_base64: Option<String>,
    /// `finished`: whether a response was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<bool>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// What `finish` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdempotencyFinished {
    /// `finished`, or `lost` when the claim had expired or is another one's.
    #[schema(example = "finished")]
    outcome: &'static str,
    /// Whether the response is replayed; false when none was given, it is over `max_response`, or records are compact.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<bool>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// What `abandon` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdempotencyAbandoned {
    /// `abandoned`, or `lost` when the claim had expired or is another one's.
    #[schema(example = "abandoned")]
    outcome: &'static str,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

#[derive(Debug, Default)]
struct BeginBody<'a> {
    key: KeyValues<'a>,
    fingerprint: Option<Cow<'a, str>>,
    wait_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for BeginBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "fingerprint", "wait_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "fingerprint" => self.fingerprint = value.optional_text()?,
            "wait_ms" => self.wait_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct FinishBody<'a> {
    key: KeyValues<'a>,
    token: Option<Cow<'a, str>>,
    response: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for FinishBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "token", "response", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "token" => self.token = value.optional_text()?,
            "response" => self.response = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct AbandonBody<'a> {
    key: KeyValues<'a>,
    token: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for AbandonBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "token", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "token" => self.token = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `begin` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct IdempotencyBegin {
    /// The placeholders of the key, by name.
    #[schema(example = json!({"psp_transaction_id": "PSP-TX-123456"}))]
    key: BTreeMap<String, KeyValue>,
    /// What the request is, as text; only a digest is kept. Another one under the same key is a mismatch.
    fingerprint: Option<String>,
    /// How long to wait while somebody else runs the operation; more than 30000 counts as 30000.
    #[schema(default = 0)]
    wait_ms: Option<u64>,
    /// The same id again finds its own claim and is told again that it started.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `finish` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct IdempotencyFinish {
    /// The placeholders of the key, by name.
    #[schema(example = json!({"psp_transaction_id": "PSP-TX-123456"}))]
    key: BTreeMap<String, KeyValue>,
    /// What `begin` answered.
    #[schema(max_length = 192)]
    token: String,
    /// What the operation answered: any JSON, given back as it was written.
    response: Option<serde_json::Value>,
    /// Accepted for every call that writes; the token already makes a repeated finish safe.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `abandon` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct IdempotencyAbandon {
    /// The placeholders of the key, by name.
    #[schema(example = json!({"psp_transaction_id": "PSP-TX-123456"}))]
    key: BTreeMap<String, KeyValue>,
    /// What `begin` answered.
    #[schema(max_length = 192)]
    token: String,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Claims an operation, or says who runs it or what it answered.
#[utoipa::path(
    post, path = "/v1/idempotency/{name}/begin", operation_id = "idempotency.begin", tag = "idempotency",
    params(("name" = String, Path, description = "the idempotency's name in the schema")),
    request_body = IdempotencyBegin,
    responses((status = 200, body = IdempotencyBegun, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn begin(app: &App, input: Input<'_>) -> Answer {
    let idempotency = app.quaymaster.idempotency(input.name)?;
    let body: BeginBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let wait = Duration::from_millis(body.wait_ms.unwrap_or(0)).min(WAIT_MAX);
    // A wait that is cut short asks once more, and must find the claim it may just have been granted.
    let own_id = (!wait.is_zero()).then(|| format!("wait-{:032x}", fastrand::u128(..)));
    let begin = Begin {
        fingerprint: body.fingerprint.as_deref().map(str::as_bytes),
        wait,
        request_id: body.request_id.as_deref().or(own_id.as_deref()),
    };
    let key = pairs(&body.key);
    let _place = app.wait_place(wait)?;
    // A stop does not wait for somebody else's answer: who waits is told to come again.
    let answer = match app.stopping.run_until_cancelled(idempotency.begin(&key, begin)).await {
        Some(answer) => answer?,
        None => idempotency.begin(&key, Begin { wait: Duration::ZERO, ..begin }).await?,
    };
    Ok(write(&match answer {
        Begun::Started(claim) => IdempotencyBegun {
            outcome: "started",
            token: Some(claim.token.as_str().to_owned()),
            expires_in_ms: Some(millis(claim.expires_in)),
            outage: input.under(claim.outage),
            ..IdempotencyBegun::default()
        },
        Begun::InProgress { retry_after } => IdempotencyBegun {
            outcome: "in_progress",
            retry_after_ms: Some(millis(retry_after)),
            ..IdempotencyBegun::default()
        },
        Begun::Finished(replay) => finished(&replay),
        Begun::Mismatch => IdempotencyBegun { outcome: "mismatch", ..IdempotencyBegun::default() },
    }))
}

/// Keeps the operation's answer for everybody who begins it again.
#[utoipa::path(
    post, path = "/v1/idempotency/{name}/finish", operation_id = "idempotency.finish", tag = "idempotency",
    params(("name" = String, Path, description = "the idempotency's name in the schema")),
    request_body = IdempotencyFinish,
    responses((status = 200, body = IdempotencyFinished, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn finish(app: &App, input: Input<'_>) -> Answer {
    let idempotency = app.quaymaster.idempotency(input.name)?;
    let body: FinishBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let token = token("idempotency.finish", body.token.as_deref())?;
    check_request_id(body.request_id.as_deref())?;
    let response = body.response.map(|raw| raw.get().as_bytes());
    Ok(write(&match idempotency.finish(&pairs(&body.key), &token, response).await? {
        Finished::Finished { kept, outage } => {
            IdempotencyFinished { outcome: "finished", kept: Some(kept), outage: input.under(outage) }
        }
        Finished::Lost => IdempotencyFinished { outcome: "lost", kept: None, outage: None },
    }))
}

/// Gives the claim back: the operation did not take effect.
#[utoipa::path(
    post, path = "/v1/idempotency/{name}/abandon", operation_id = "idempotency.abandon", tag = "idempotency",
    params(("name" = String, Path, description = "the idempotency's name in the schema")),
    request_body = IdempotencyAbandon,
    responses((status = 200, body = IdempotencyAbandoned, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn abandon(app: &App, input: Input<'_>) -> Answer {
    let idempotency = app.quaymaster.idempotency(input.name)?;
    let body: AbandonBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let token = token("idempotency.abandon", body.token.as_deref())?;
    let answer = idempotency.abandon(&pairs(&body.key), &token, body.request_id.as_deref()).await?;
    let (outcome, policy) = match answer {
        Abandoned::Abandoned => ("abandoned", None),
        Abandoned::Lost => ("lost", None),
        Abandoned::Away(policy) => ("abandoned", Some(policy)),
    };
    Ok(write(&IdempotencyAbandoned { outcome, outage: input.under(policy) }))
}

fn finished(replay: &Replay) -> IdempotencyBegun {
    let (response, response_base64) = replayed(replay);
    let kept = Some(replay.response.is_some());
    IdempotencyBegun { outcome: "finished", kept, response, response_base64, ..IdempotencyBegun::default() }
}

/// A replay as JSON: what was kept, spliced in as it was written, `null` for nothing; or in base64 when it is no JSON.
pub(super) fn replayed(replay: &Replay) -> (Option<Box<RawValue>>, Option<String>) {
    let text = replay.response.as_deref().map(std::str::from_utf8);
    let raw = match text {
        Some(Ok(text)) => RawValue::from_string(text.to_owned()).ok(),
        _ => None,
    };
    let opaque = match (&replay.response, &raw) {
        (Some(bytes), None) => Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
        _ => None,
    };
    let raw = raw.or_else(|| RawValue::from_string("null".to_owned()).ok().filter(|_| opaque.is_none()));
    (raw, opaque)
}

fn token(op: &'static str, text: Option<&str>) -> Result<Token, Problem> {
    let Some(text) = text else {
        return Err(Problem::new(Code::RequestInvalid, "token is missing; begin answered it").field("token"));
    };
    Token::parse(op, text).map_err(|error| Problem::from(error).field("token"))
}

/// `finish` needs none, and still refuses one that no call would take.
fn check_request_id(id: Option<&str>) -> Result<(), Problem> {
    match id {
        Some(id) if id.is_empty() || id.len() > 128 => {
            let detail = "request_id: 1 to 128 bytes";
            Err(Problem::new(Code::RequestInvalid, detail).field("request_id"))
        }
        _ => Ok(()),
    }
}

fn write(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(160);
    // Strings, integers and JSON that was read as JSON cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
