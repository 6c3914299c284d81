//! `guard enter`, `leave`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::guard::{Enter, Entered, Guard, Leave, Left, Pass, Settled};
use quaymaster::limit::{Limit, Verdict};
use quaymaster::lock::Released;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::idempotency::IdempotencyReplay;
use super::limit::LimitAnswer;
use super::{Answer, Call, Input, MISMATCH, No, Policy, Reaches, call, millis, pairs, token, written};
use crate::http::problem::Problem;
use crate::request::{Holds, JSON, KEY, KeyValues, REQUEST_ID, Spec, VISIBLE, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[ENTER, LEAVE];

const ENTER: Call = call!(
    Guard "guard" "enter", Writes, GuardEnter => GuardEntered, enter,
    "Enter the idempotency, the lock and the limits together, all or none",
    reaches: Reaches::Declared,
    no: No::Words("outcome", &["mismatch", "in_progress", "held", "limited"]),
    refusals: &[MISMATCH],
);
const LEAVE: Call = call!(
    Guard "guard" "leave", Writes, GuardLeave => GuardLeft, leave,
    "Finish or abandon the operation and give the lock back",
    reaches: Reaches::Declared,
    no: No::Words("outcome", &["lost"]),
    refusals: &[MISMATCH],
);

const PARTS_KEY: Spec = KEY.example(r#"{"psp_id": "PSP001", "psp_transaction_id": "PSP-TX-123456"}"#);

request! {
    /// What `enter` is given.
    pub(crate) struct GuardEnter<'a> {
        /// The placeholders of all parts' keys, by name.
        key: KeyValues<'a> = PARTS_KEY,
        /// What the request is, as text; only a digest is kept. Another one under the same key is a mismatch.
        fingerprint: Option<Cow<'a, str>> = Spec::text(),
        /// The lock's lease; at most its declared ttl, which it is unless given.
        ttl_ms: Option<u64> = Spec::integer(1, u64::MAX),
        /// The same id again finds its own claim and lease, and within ten minutes counts nothing.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `leave` is given.
    pub(crate) struct GuardLeave<'a> {
        /// The placeholders of all parts' keys, by name.
        key: KeyValues<'a> = PARTS_KEY,
        /// What enter answered.
        token: Cow<'a, str> = Spec::text_of(1, 192).required("enter answered it").also(VISIBLE),
        /// What the operation answered: any JSON, given back as it was written.
        response: Option<&'a RawValue> = JSON,
        /// The operation did not take effect: the next one may enter at once.
        abandon: bool = Spec::of(Holds::Truth).default("false"),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
    also r#"{"if": {"properties": {"abandon": {"enum": [false, null]}}}, "else": {"properties": {"response": {"not": {}}}}}"#;
}

/// What `enter` answers: `entered`, or the first no of `mismatch`, `finished`, `in_progress`, `held`, `limited`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum GuardEntered {
    /// Every part said yes: go ahead, then leave.
    Entered {
        /// Proves that claim and lock are ours.
        token: String,
        /// Higher than that of every lease before; absent without a lock.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        fence: Option<u64>,
        /// Until the lock's lease or the claim ends, whichever is first; absent without both.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        expires_in_ms: Option<u64>,
        /// What each limit answers, by its name; absent without limits.
        #[serde(skip_serializing_if = "GuardLimits::is_empty")]
        limits: GuardLimits,
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// The key was used for another request: its fingerprint is another one.
    Mismatch,
    /// The operation has run.
    Finished(IdempotencyReplay),
    /// Somebody else runs the operation.
    InProgress {
        /// When the other's claim ends at the latest.
        retry_after_ms: u64,
    },
    /// Somebody else has the lock, or is next.
    Held {
        /// When asking again can help.
        retry_after_ms: u64,
    },
    /// A limit refused, and nothing was taken.
    Limited(GuardLimited),
}

/// What each limit of a guard answers, by its name. A schema of its own: openapi-python-client drops an answer that
/// holds such a map in place.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(description = "What each limit of a guard answers, by its name.")]
#[serde(transparent)]
pub(crate) struct GuardLimits(BTreeMap<String, LimitAnswer>);

impl GuardLimits {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the limits of a guard answer when one refused.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct GuardLimited {
    /// When asking again can help; null when waiting never does.
    #[schemars(required)]
    retry_after_ms: Option<u64>,
    /// The limit that lets the caller wait longest; the next fields are what it answers.
    limited_by: String,
    /// Always false.
    allowed: bool,
    /// Units per window, after the safety buffer.
    limit: u64,
    /// Units counted now.
    used: u64,
    /// Units that would still pass.
    remaining: u64,
    /// Until nothing that is counted now counts any more.
    reset_after_ms: u64,
    /// What each limit answers, by its name.
    limits: GuardLimits,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

/// What `leave` answers: what became of the operation; without an idempotency, of the lock.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum GuardLeft {
    /// Everybody who enters from now on is told so.
    Finished {
        /// What became of the operation.
        idempotency: GuardOperation,
        /// What became of the lock; absent without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "GuardLock")]
        lock: Option<GuardLock>,
        /// Whether the response is replayed; false when none was given, it is over `max_response`, or records are
        /// compact.
        kept: bool,
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// The next one may enter at once.
    Abandoned(GuardParts),
    /// The lock is given back; there is no idempotency.
    Released(GuardParts),
    /// The claim, or without an idempotency the lease, had expired or is another one's.
    Lost(GuardParts),
}

/// What became of the parts of a guard.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct GuardParts {
    /// What became of the operation; absent without an idempotency.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GuardOperation")]
    idempotency: Option<GuardOperation>,
    /// What became of the lock; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GuardLock")]
    lock: Option<GuardLock>,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardOperation {
    /// Its answer is kept.
    Finished,
    /// The next one may enter at once.
    Abandoned,
    /// The claim had expired, or is another one's.
    Lost,
}

/// What became of a lock.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardLock {
    /// It was ours and is given back.
    Released,
    /// The lease had ended before.
    Lost,
}

async fn enter(services: &Services, input: Input<'_>) -> Answer {
    let guard = services.quaymaster.guard(input.name)?;
    let request: GuardEnter<'_> = input.read()?;
    let how = Enter {
        fingerprint: request.fingerprint.as_deref().map(str::as_bytes),
        ttl: request.ttl_ms.map(Duration::from_millis),
        request_id: request.request_id.as_deref(),
    };
    Ok(written(&match guard.enter(&pairs(&request.key), how).await? {
        Entered::Entered(pass) => entered(input, guard, &pass),
        Entered::Limited(verdicts) => GuardEntered::Limited(limited(input, guard, &verdicts)?),
        Entered::InProgress { retry_after } => {
            GuardEntered::InProgress { retry_after_ms: millis(retry_after) }
        }
        Entered::Held { retry_after } => GuardEntered::Held { retry_after_ms: millis(retry_after) },
        Entered::Mismatch => GuardEntered::Mismatch,
        Entered::Finished(replay) => GuardEntered::Finished((&replay).into()),
    }))
}

async fn leave(services: &Services, input: Input<'_>) -> Answer {
    let guard = services.quaymaster.guard(input.name)?;
    let request: GuardLeave<'_> = input.read()?;
    let token = token("guard.leave", &request.token)?;
    let how = Leave {
        response: request.response.map(|raw| raw.get().as_bytes()),
        abandon: request.abandon,
        request_id: request.request_id.as_deref(),
    };
    Ok(written(&left(input, guard.leave(&pairs(&request.key), &token, how).await?)))
}

fn entered(input: Input<'_>, guard: &Guard, pass: &Pass) -> GuardEntered {
    let quotas = pass.quotas.iter().cloned().map(Verdict::Allowed);
    GuardEntered::Entered {
        token: pass.token.as_str().to_owned(),
        fence: pass.fence,
        expires_in_ms: pass.lock_expires_in.into_iter().chain(pass.claim_expires_in).min().map(millis),
        limits: by_name(guard, quotas),
        outage: input.under(pass.outage),
    }
}

fn limited(input: Input<'_>, guard: &Guard, verdicts: &[Verdict]) -> Result<GuardLimited, Problem> {
    // Waiting for ever is longer than any wait.
    let (verdict, limit) = (verdicts.iter().zip(guard.limits()))
        .filter(|(verdict, _)| !verdict.is_allowed())
        .max_by_key(|(verdict, _)| verdict.retry_after().unwrap_or(Duration::MAX))
        .ok_or_else(|| Problem::new(Code::Internal, "a guard was limited by none of its limits"))?;
    let quota = verdict.quota();
    Ok(GuardLimited {
        retry_after_ms: verdict.retry_after().map(millis),
        limited_by: limit.name().to_owned(),
        allowed: false,
        limit: quota.limit,
        used: quota.used,
        remaining: quota.remaining,
        reset_after_ms: millis(quota.reset_after),
        limits: by_name(guard, verdicts.iter().cloned()),
        outage: input.under(verdicts.iter().find_map(|verdict| verdict.quota().outage)),
    })
}

fn by_name(guard: &Guard, verdicts: impl Iterator<Item = Verdict>) -> GuardLimits {
    let answer = |(limit, verdict): (&Limit, Verdict)| (limit.name().to_owned(), (&verdict).into());
    GuardLimits(guard.limits().iter().zip(verdicts).map(answer).collect())
}

fn left(input: Input<'_>, left: Left) -> GuardLeft {
    let lock = left.lock.map(|lock| match lock {
        Released::Released | Released::Away(_) => GuardLock::Released,
        Released::Lost => GuardLock::Lost,
    });
    let outage = input.under(left.outage);
    let parts = |idempotency| GuardParts { idempotency, lock, outage };
    match left.idempotency {
        Some(Settled::Finished { kept }) => {
            GuardLeft::Finished { idempotency: GuardOperation::Finished, lock, kept, outage }
        }
        Some(Settled::Abandoned) => GuardLeft::Abandoned(parts(Some(GuardOperation::Abandoned))),
        Some(Settled::Lost) => GuardLeft::Lost(parts(Some(GuardOperation::Lost))),
        None => match lock {
            Some(GuardLock::Lost) => GuardLeft::Lost(parts(None)),
            // A guard of limits alone leases nothing: leaving it is always done.
            Some(GuardLock::Released) | None => GuardLeft::Released(parts(None)),
        },
    }
}
