//! `lock acquire`, `renew`, `release`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::lock::{Acquire, Acquired, Lease, OWNER_MAX, Released, Renewed, WAIT_MAX};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Answer, Call, Input, MISMATCH, No, Policy, Repeat, call, millis, pairs, token, written};
use crate::request::{KEY, KeyValues, REQUEST_ID, REQUEST_ID_UNUSED, Spec, VISIBLE, request};
use crate::services::Services;

const LOST: No = No::Words("outcome", &["lost"]);

pub(super) const CALLS: &[Call] = &[ACQUIRE, RENEW, RELEASE];

const ACQUIRE: Call = call!(
    Lock "lock" "acquire", Writes, LockAcquire => LockAcquired, acquire,
    "Take the lock, or learn when to ask again",
    no: No::Words("outcome", &["held"]),
    refusals: &[MISMATCH],
);
const RENEW: Call = call!(
    Lock "lock" "renew", Writes, LockRenew => LockRenewed, renew, "Begin the lease anew if it is still ours",
    repeat: Repeat::Safe,
    no: LOST,
    refusals: &[MISMATCH],
);
const RELEASE: Call = call!(
    Lock "lock" "release", Writes, LockRelease => LockReleased, release, "Give the lock back if it is still ours",
    no: LOST,
);

const LOCK_KEY: Spec = KEY.example(r#"{"transaction_id": "T-1"}"#);
const TTL_MS: Spec = Spec::integer(1, u64::MAX);
const TOKEN: Spec = Spec::text_of(1, 192).required("acquire answered it").also(VISIBLE);

request! {
    /// What `acquire` is given.
    pub(crate) struct LockAcquire<'a> {
        /// The placeholders of the lock's key, by name.
        key: KeyValues<'a> = LOCK_KEY,
        /// A name that callers who find the lock held are told; visible ASCII.
        owner: Option<Cow<'a, str>> = Spec::text_of(1, OWNER_MAX).also(VISIBLE),
        /// The lease; at most the declared ttl, which it is unless given.
        ttl_ms: Option<u64> = TTL_MS,
        /// How long to wait while the lock is held.
        wait_ms: u64 = Spec::integer(0, WAIT_MAX.as_millis() as u64).default("0"),
        /// The same id again finds its own lease, and renews it.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `renew` is given.
    pub(crate) struct LockRenew<'a> {
        /// The placeholders of the lock's key, by name.
        key: KeyValues<'a> = LOCK_KEY,
        /// What acquire answered.
        token: Cow<'a, str> = TOKEN,
        /// The lease from now on; at most the declared ttl, which it is unless given.
        ttl_ms: Option<u64> = TTL_MS,
        #[expect(dead_code, reason = "renewing twice is renewing once")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

request! {
    /// What `release` is given.
    pub(crate) struct LockRelease<'a> {
        /// The placeholders of the lock's key, by name.
        key: KeyValues<'a> = LOCK_KEY,
        /// What acquire answered.
        token: Cow<'a, str> = TOKEN,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `acquire` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum LockAcquired {
    /// The lock is ours.
    Ours(LockLease),
    /// Somebody else has the lock, or is next.
    Held {
        /// When asking again can help.
        retry_after_ms: u64,
        /// The holder's name, if it gave one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        owner: Option<String>,
    },
}

/// What `renew` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum LockRenewed {
    /// The lock is still ours, and its lease begins anew.
    Ours(LockLease),
    /// The lease had ended before.
    Lost,
}

/// What `release` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum LockReleased {
    /// The lock was ours and is given back.
    Released {
        /// The policy that answered while the store could not be asked; absent when the store did.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Policy")]
        outage: Option<&'static str>,
    },
    /// The lease had ended before.
    Lost,
}

/// A lease that is ours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct LockLease {
    /// Proves that the lease is ours.
    token: String,
    /// Higher than that of every lease before; what the lock protects refuses lower ones than it has seen.
    fence: u64,
    /// How long the lease lasts.
    expires_in_ms: u64,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

async fn acquire(services: &Services, input: Input<'_>) -> Answer {
    let lock = services.quaymaster.lock(input.name)?;
    let request: LockAcquire<'_> = input.read()?;
    let how = Acquire {
        owner: request.owner.as_deref(),
        ttl: request.ttl_ms.map(Duration::from_millis),
        wait: Duration::from_millis(request.wait_ms),
        request_id: request.request_id.as_deref(),
    };
    let key = pairs(&request.key);
    let _place = services.wait_place(how.wait)?;
    let waited = lock.acquire(&key, how);
    // A stop does not wait for somebody else's lock: who waits is told to come again.
    let answer = match services.stopping.run_until_cancelled(waited).await {
        Some(answer) => answer?,
        None => lock.acquire(&key, Acquire { wait: Duration::ZERO, ..how }).await?,
    };
    Ok(written(&match answer {
        Acquired::Ours(lease) => LockAcquired::Ours(ours(input, &lease)),
        Acquired::Held { retry_after, owner } => {
            LockAcquired::Held { retry_after_ms: millis(retry_after), owner }
        }
    }))
}

async fn renew(services: &Services, input: Input<'_>) -> Answer {
    let lock = services.quaymaster.lock(input.name)?;
    let request: LockRenew<'_> = input.read()?;
    let token = token("lock.renew", &request.token)?;
    let ttl = request.ttl_ms.map(Duration::from_millis);
    Ok(written(&match lock.renew(&pairs(&request.key), &token, ttl).await? {
        Renewed::Ours(lease) => LockRenewed::Ours(ours(input, &lease)),
        Renewed::Lost => LockRenewed::Lost,
    }))
}

async fn release(services: &Services, input: Input<'_>) -> Answer {
    let lock = services.quaymaster.lock(input.name)?;
    let request: LockRelease<'_> = input.read()?;
    let token = token("lock.release", &request.token)?;
    let released = lock.release(&pairs(&request.key), &token, request.request_id.as_deref()).await?;
    Ok(written(&match released {
        Released::Released => LockReleased::Released { outage: None },
        Released::Lost => LockReleased::Lost,
        Released::Away(policy) => LockReleased::Released { outage: input.under(Some(policy)) },
    }))
}

fn ours(input: Input<'_>, lease: &Lease) -> LockLease {
    LockLease {
        token: lease.token.as_str().to_owned(),
        fence: lease.fence,
        expires_in_ms: millis(lease.expires_in),
        outage: input.under(lease.outage),
    }
}
