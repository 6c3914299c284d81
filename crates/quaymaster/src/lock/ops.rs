//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::LockSpec;
use quaymaster_store::{Invocation, Workload};

use super::keys;
use crate::bound::{Bound, Key};
use crate::scripts::{lock_acquire, lock_leave, lock_release, lock_renew};
use crate::{Result, Token};

pub(super) const ACQUIRE: &str = "lock.acquire";
pub(super) const RENEW: &str = "lock.renew";
pub(super) const RELEASE: &str = "lock.release";
pub(super) const LEAVE: &str = "lock.leave";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// Whether a call that finds the lock held stands in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Join,
    No,
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A repetition finds its own token in the lock, so the call may be sent again.
pub(super) fn acquire(
    bound: &Bound,
    spec: &LockSpec,
    key: Key<'_>,
    token: &Token,
    ttl: Duration,
    queue: Queue,
) -> Result<Invocation> {
    let call = lock_acquire::Call {
        lock: keys::all(bound, key),
        token: token.as_str(),
        ttl_ms: millis(ttl),
        fence_ttl_ms: millis(spec.fence_ttl()),
        wait: match queue {
            Queue::Join => "1",
            Queue::No => "0",
        },
    };
    Ok(call.on(bound.at(ACQUIRE, Workload::Default))?.repeat_safe())
}

/// Renewing twice is renewing once. `away_fence` is that of a lease that a policy gave out; 0 for one of the store's.
pub(super) fn renew(
    bound: &Bound,
    spec: &LockSpec,
    key: Key<'_>,
    token: &Token,
    ttl: Duration,
    away_fence: u64,
) -> Result<Invocation> {
    let call = lock_renew::Call {
        lock: keys::all(bound, key),
        token: token.as_str(),
        ttl_ms: millis(ttl),
        fence_ttl_ms: millis(spec.fence_ttl()),
        away_fence: i64::try_from(away_fence).unwrap_or(i64::MAX),
    };
    Ok(call.on(bound.at(RENEW, Workload::Default))?.repeat_safe())
}

/// Without a `request_id` a repetition would be told "lost", so it is sent once.
pub(super) fn release(
    bound: &Bound,
    spec: &LockSpec,
    key: Key<'_>,
    token: &Token,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = lock_release::Call {
        lock: keys::all(bound, key),
        request: request_id.map(|id| bound.request(key, id)),
        token: token.as_str(),
        fence_ttl_ms: millis(spec.fence_ttl()),
        channel: &keys::channel(RELEASE, bound, key)?,
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(RELEASE, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}

/// Leaving twice is leaving once.
pub(super) fn leave(bound: &Bound, key: Key<'_>, token: &Token) -> Result<Invocation> {
    let [queue, alive] = keys::waiters(bound, key);
    let channel = &keys::channel(LEAVE, bound, key)?;
    let call = lock_leave::Call { lock: bound.key(key, 0), queue, alive, token: token.as_str(), channel };
    Ok(call.on(bound.at(LEAVE, Workload::Default))?.repeat_safe())
}
