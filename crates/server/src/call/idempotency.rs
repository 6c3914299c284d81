//! `idempotency begin`, `finish`, `abandon`.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use quaymaster::idempotency::{Abandoned, Begin, Begun, Finished, Replay};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Answer, Call, Input, No, Policy, Repeat, call, millis, pairs, token, written};
use crate::request::{JSON, KEY, KeyValues, MILLIS, REQUEST_ID, Spec, VISIBLE, request};
use crate::services::Services;

/// The longest a call waits, whatever it asks for: it holds one of the server's places meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(30);

const LOST: No = No::Words("outcome", &["lost"]);

pub(super) const CALLS: &[Call] = &[BEGIN, FINISH, ABANDON];

const BEGIN: Call = call!(
    Idempotency "idempotency" "begin", Writes, IdempotencyBegin => IdempotencyBegun, begin,
    "Claim an operation, or learn who runs it or what it answered",
    no: No::Words("outcome", &["in_progress", "mismatch"]),
);
const FINISH: Call = call!(
    Idempotency "idempotency" "finish", Writes, IdempotencyFinish => IdempotencyFinished, finish,
    "Keep the operation's answer for everybody who begins it again",
    repeat: Repeat::Safe,
    no: LOST,
);
const ABANDON: Call = call!(
    Idempotency "idempotency" "abandon", Writes, IdempotencyAbandon => IdempotencyAbandoned, abandon,
    "Give the claim back: the operation did not take effect",
    no: LOST,
);

const OPERATION_KEY: Spec = KEY.example(r#"{"psp_transaction_id": "PSP-TX-123456"}"#);
const TOKEN: Spec = Spec::text_of(1, 192).required("begin answered it").also(VISIBLE);

request! {
    /// What `begin` is given.
    pub(crate) struct IdempotencyBegin<'a> {
        /// The placeholders of the key, by name.
        key: KeyValues<'a> = OPERATION_KEY,
        /// What the request is, as text; only a digest is kept. Another one under the same key is a mismatch.
        fingerprint: Option<Cow<'a, str>> = Spec::text(),
        /// How long to wait while somebody else runs it; more than 30000 counts as 30000.
        wait_ms: u64 = MILLIS.default("0"),
        /// The same id again finds its own claim and is told again that it started.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `finish` is given.
    pub(crate) struct IdempotencyFinish<'a> {
        /// The placeholders of the key, by name.
        key: KeyValues<'a> = OPERATION_KEY,
        /// What begin answered.
        token: Cow<'a, str> = TOKEN,
        /// What the operation answered: any JSON, given back as it was written.
        response: Option<&'a RawValue> = JSON,
        /// Taken, as by every call that writes, and not needed: this call is safe to repeat.
        #[expect(dead_code, reason = "finishing twice is finishing once")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `abandon` is given.
    pub(crate) struct IdempotencyAbandon<'a> {
        /// The placeholders of the key, by name.
        key: KeyValues<'a> = OPERATION_KEY,
        /// What begin answered.
        token: Cow<'a, str> = TOKEN,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `begin` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum IdempotencyBegun {
    /// The claim is ours: run the operation.
    Started {
        /// Proves the claim to `finish` and `abandon`.
        token: String,
        /// How long nobody else may run the operation.
        expires_in_ms: u64,
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// Somebody else runs the operation.
    InProgress {
        /// When the other's claim ends at the latest.
        retry_after_ms: u64,
    },
    /// The operation has run.
    Finished(IdempotencyReplay),
    /// The key was used for another request: its fingerprint is another one.
    Mismatch,
}

/// What an operation answered when it ran.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct IdempotencyReplay {
    /// What the operation answered, as JSON; null when no response was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    response: Option<Box<RawValue>>,
    /// A response that is not JSON, in base64; a program on the crate kept it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    response_base64: Option<String>,
    /// Whether a response was kept.
    kept: bool,
}

/// What `finish` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum IdempotencyFinished {
    /// Everybody who begins the operation from now on is told so.
    Finished {
        /// Whether the response is replayed; false when none was given, it is over `max_response`, or records are
        /// compact.
        kept: bool,
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// The claim had expired, or is another one's.
    Lost,
}

/// What `abandon` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum IdempotencyAbandoned {
    /// The next one may begin at once.
    Abandoned {
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// The claim had expired, or is another one's.
    Lost,
}

async fn begin(services: &Services, input: Input<'_>) -> Answer {
    let idempotency = services.quaymaster.idempotency(input.name)?;
    let request: IdempotencyBegin<'_> = input.read()?;
    let wait = Duration::from_millis(request.wait_ms).min(WAIT_MAX);
    // A wait that is cut short asks once more, and must find the claim it may just have been granted.
    let own_id = (!wait.is_zero()).then(|| format!("wait-{:032x}", fastrand::u128(..)));
    let begin = Begin {
        fingerprint: request.fingerprint.as_deref().map(str::as_bytes),
        wait,
        request_id: request.request_id.as_deref().or(own_id.as_deref()),
    };
    let key = pairs(&request.key);
    let _place = services.wait_place(wait)?;
    // A stop does not wait for somebody else's answer: who waits is told to come again.
    let answer = match services.stopping.run_until_cancelled(idempotency.begin(&key, begin)).await {
        Some(answer) => answer?,
        None => idempotency.begin(&key, Begin { wait: Duration::ZERO, ..begin }).await?,
    };
    Ok(written(&match answer {
        Begun::Started(claim) => IdempotencyBegun::Started {
            token: claim.token.as_str().to_owned(),
            expires_in_ms: millis(claim.expires_in),
            outage: input.under(claim.outage),
        },
        Begun::InProgress { retry_after } => {
            IdempotencyBegun::InProgress { retry_after_ms: millis(retry_after) }
        }
        Begun::Finished(replay) => IdempotencyBegun::Finished((&replay).into()),
        Begun::Mismatch => IdempotencyBegun::Mismatch,
    }))
}

async fn finish(services: &Services, input: Input<'_>) -> Answer {
    let idempotency = services.quaymaster.idempotency(input.name)?;
    let request: IdempotencyFinish<'_> = input.read()?;
    let token = token("idempotency.finish", &request.token)?;
    let response = request.response.map(|raw| raw.get().as_bytes());
    Ok(written(&match idempotency.finish(&pairs(&request.key), &token, response).await? {
        Finished::Finished { kept, outage } => {
            IdempotencyFinished::Finished { kept, outage: input.under(outage) }
        }
        Finished::Lost => IdempotencyFinished::Lost,
    }))
}

async fn abandon(services: &Services, input: Input<'_>) -> Answer {
    let idempotency = services.quaymaster.idempotency(input.name)?;
    let request: IdempotencyAbandon<'_> = input.read()?;
    let token = token("idempotency.abandon", &request.token)?;
    let answer = idempotency.abandon(&pairs(&request.key), &token, request.request_id.as_deref()).await?;
    Ok(written(&match answer {
        Abandoned::Abandoned => IdempotencyAbandoned::Abandoned { outage: None },
        Abandoned::Lost => IdempotencyAbandoned::Lost,
        Abandoned::Away(policy) => IdempotencyAbandoned::Abandoned { outage: input.under(Some(policy)) },
    }))
}

/// A replay as JSON: what was kept, spliced in as it was written, `null` for nothing; or in base64 when it is no JSON.
impl From<&Replay> for IdempotencyReplay {
    fn from(replay: &Replay) -> Self {
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
        Self { response: raw, response_base64: opaque, kept: replay.response.is_some() }
    }
}
