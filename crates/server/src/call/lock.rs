//! `lock acquire`, `renew`, `release`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::lock::{Acquire, Acquired, Lease, Released, Renewed};
use quaymaster::schema::Kind;
use quaymaster::{Code, Token};
use serde::Serialize;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::Problem;

const TTL_MS: Arg = Arg {
    name: "ttl_ms",
    holds: ArgType::Positive,
    required: false,
    help: "The lease; at most the declared ttl, which it is unless given",
};
const TOKEN: Arg = Arg { name: "token", holds: ArgType::Text, required: true, help: "What acquire answered" };

fn lost(answer: &serde_json::Value) -> bool {
    answer["outcome"] == "lost"
}

pub(super) const ACQUIRE: Call = Call {
    kind: Kind::Lock,
    verb: "acquire",
    effect: Effect::Writes,
    template: "/v1/lock/{name}/acquire",
    about: "Take the lock, or learn when to ask again",
    args: &[
        Arg {
            name: "owner",
            holds: ArgType::Text,
            required: false,
            help: "A name told to callers who find the lock held",
        },
        TTL_MS,
        Arg {
            name: "wait_ms",
            holds: ArgType::Integer,
            required: false,
            help: "How long to wait while it is held; 0 unless given",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["outcome"] == "held",
    run: |app, input| acquire(app, input).boxed(),
};
pub(super) const RENEW: Call = Call {
    kind: Kind::Lock,
    verb: "renew",
    effect: Effect::Writes,
    template: "/v1/lock/{name}/renew",
    about: "Begin the lease anew if it is still ours",
    args: &[TOKEN, TTL_MS, REQUEST_ID],
    said_no: lost,
    run: |app, input| renew(app, input).boxed(),
};
pub(super) const RELEASE: Call = Call {
    kind: Kind::Lock,
    verb: "release",
    effect: Effect::Writes,
    template: "/v1/lock/{name}/release",
    about: "Give the lock back if it is still ours",
    args: &[TOKEN, REQUEST_ID],
    said_no: lost,
    run: |app, input| release(app, input).boxed(),
};

/// What `acquire` and `renew` answer.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct LockAnswer {
    /// `acquire`: `ours` or `held`. `renew`: `ours` or `lost`.
    #[schema(example = "ours")]
    pub outcome: &'static str,
    /// Proves that the lease is ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Higher than that of every lease before; what the lock protects refuses lower ones than it has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How long the lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// `held`: when asking again can help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `held`: the holder's name, if it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<&'static str>,
}

/// What `release` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LockReleased {
    /// `released`, or `lost` when the lease had ended before.
    #[schema(example = "released")]
    pub outcome: &'static str,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<&'static str>,
}

#[derive(Debug, Default)]
struct AcquireBody<'a> {
    key: KeyValues<'a>,
    owner: Option<Cow<'a, str>>,
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for AcquireBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "owner", "ttl_ms", "wait_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "owner" => self.owner = value.optional_text()?,
            "ttl_ms" => self.ttl_ms = value.optional_count()?,
            "wait_ms" => self.wait_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// The body of `renew` and `release`; only the first has a `ttl_ms`.
#[derive(Debug, Default)]
struct HeldBody<'a> {
    key: KeyValues<'a>,
    token: Option<Cow<'a, str>>,
    ttl_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> HeldBody<'de> {
    fn token(&self, op: &'static str) -> Result<Token, Problem> {
        match &self.token {
            Some(text) => Token::parse(op, text).map_err(|error| Problem::from(error).field("token")),
            None => {
                Err(Problem::new(Code::RequestInvalid, "token is missing; acquire answered it")
                    .field("token"))
            }
        }
    }

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "token" => self.token = value.optional_text()?,
            "ttl_ms" => self.ttl_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct RenewBody<'a>(HeldBody<'a>);

impl<'de> Fields<'de> for RenewBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "token", "ttl_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        self.0.read(name, value)
    }
}

#[derive(Debug, Default)]
struct ReleaseBody<'a>(HeldBody<'a>);

impl<'de> Fields<'de> for ReleaseBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "token", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        self.0.read(name, value)
    }
}

/// What `acquire` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct LockAcquire {
    /// The placeholders of the lock's key, by name.
    #[schema(example = json!({"transaction_id": "T-1"}))]
    key: BTreeMap<String, KeyValue>,
    /// A name that callers who find the lock held are told; visible ASCII.
    #[schema(min_length = 1, max_length = 64)]
    owner: Option<String>,
    /// The lease; at most the declared `ttl`, which it is unless given.
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// How long to wait while the lock is held.
    #[schema(minimum = 0, maximum = 3_600_000, default = 0)]
    wait_ms: Option<u64>,
    /// The same id again finds its own lease, and renews it.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `renew` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct LockRenew {
    /// The placeholders of the lock's key, by name.
    #[schema(example = json!({"transaction_id": "T-1"}))]
    key: BTreeMap<String, KeyValue>,
    /// What `acquire` answered.
    #[schema(min_length = 1, max_length = 192)]
    token: String,
    /// The lease from now on; the declared `ttl` unless given.
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// Taken and not needed: renewing twice is renewing once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `release` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct LockRelease {
    /// The placeholders of the lock's key, by name.
    #[schema(example = json!({"transaction_id": "T-1"}))]
    key: BTreeMap<String, KeyValue>,
    /// What `acquire` answered.
    #[schema(min_length = 1, max_length = 192)]
    token: String,
    /// The same id again within ten minutes gets the same answer.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Takes the lock, or says when to ask again.
#[utoipa::path(
    post, path = "/v1/lock/{name}/acquire", operation_id = "lock.acquire", tag = "lock",
    params(("name" = String, Path, description = "the lock's name in the schema")),
    request_body = LockAcquire,
    responses((status = 200, body = LockAnswer, description = "the answer, also when it is held"), crate::page::openapi::Problems),
)]
async fn acquire(app: &App, input: Input<'_>) -> Answer {
    let lock = app.quaymaster.lock(input.name)?;
    let body: AcquireBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let how = Acquire {
        owner: body.owner.as_deref(),
        ttl: body.ttl_ms.map(Duration::from_millis),
        wait: Duration::from_millis(body.wait_ms.unwrap_or(0)),
        request_id: body.request_id.as_deref(),
    };
    let key = pairs(&body.key);
    let _place = app.wait_place(how.wait)?;
    let waited = lock.acquire(&key, how);
    // A stop does not wait for somebody else's lock: who waits is told to come again.
    let answer = match app.stopping.run_until_cancelled(waited).await {
        Some(answer) => answer?,
        None => lock.acquire(&key, Acquire { wait: Duration::ZERO, ..how }).await?,
    };
    Ok(written(&match answer {
        Acquired::Ours(lease) => ours(input, &lease),
        Acquired::Held { retry_after, owner } => LockAnswer {
            outcome: "held",
            retry_after_ms: Some(millis(retry_after)),
            owner,
            ..LockAnswer::default()
        },
    }))
}

/// Begins the lease anew if it is still ours.
#[utoipa::path(
    post, path = "/v1/lock/{name}/renew", operation_id = "lock.renew", tag = "lock",
    params(("name" = String, Path, description = "the lock's name in the schema")),
    request_body = LockRenew,
    responses((status = 200, body = LockAnswer, description = "the answer, also when it is lost"), crate::page::openapi::Problems),
)]
async fn renew(app: &App, input: Input<'_>) -> Answer {
    let lock = app.quaymaster.lock(input.name)?;
    let RenewBody(body) = json::read(input.body, app.bounds.max_json_depth)?;
    let (token, ttl) = (body.token("lock.renew")?, body.ttl_ms.map(Duration::from_millis));
    Ok(written(&match lock.renew(&pairs(&body.key), &token, ttl).await? {
        Renewed::Ours(lease) => ours(input, &lease),
        Renewed::Lost => LockAnswer { outcome: "lost", ..LockAnswer::default() },
    }))
}

/// Gives the lock back if it is still ours, and wakes who is next.
#[utoipa::path(
    post, path = "/v1/lock/{name}/release", operation_id = "lock.release", tag = "lock",
    params(("name" = String, Path, description = "the lock's name in the schema")),
    request_body = LockRelease,
    responses((status = 200, body = LockReleased, description = "the answer, also when it is lost"), crate::page::openapi::Problems),
)]
async fn release(app: &App, input: Input<'_>) -> Answer {
    let lock = app.quaymaster.lock(input.name)?;
    let ReleaseBody(body) = json::read(input.body, app.bounds.max_json_depth)?;
    let token = body.token("lock.release")?;
    let (outcome, policy) = match lock.release(&pairs(&body.key), &token, body.request_id.as_deref()).await? {
        Released::Released => ("released", None),
        Released::Lost => ("lost", None),
        Released::Away(policy) => ("released", Some(policy)),
    };
    Ok(written(&LockReleased { outcome, outage: input.under(policy) }))
}

fn ours(input: Input<'_>, lease: &Lease) -> LockAnswer {
    LockAnswer {
        outcome: "ours",
        token: Some(lease.token.as_str().to_owned()),
        fence: Some(lease.fence),
        expires_in_ms: Some(millis(lease.expires_in)),
        outage: input.under(lease.outage),
        ..LockAnswer::default()
    }
}

fn written(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(160);
    // A struct of texts and integers cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
