//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::LockSpec;
use quaymaster_store::{Invocation, Workload};

use super::keys;
use crate::bound::{Bound, Key};
use crate::scripts;
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
    let mut call = Invocation::new(&scripts::LOCK_ACQUIRE.script, Workload::Default).repeat_safe();
    keys::bind(ACQUIRE, bound, key, &mut call.keys)?;
    call.args.push(token.as_str());
    call.args.push_int(millis(ttl));
    call.args.push_int(millis(spec.fence_ttl()));
    call.args.push(match queue {
        Queue::Join => "1",
        Queue::No => "0",
    });
    Ok(call)
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
    let mut call = Invocation::new(&scripts::LOCK_RENEW.script, Workload::Default).repeat_safe();
    keys::bind(RENEW, bound, key, &mut call.keys)?;
    call.args.push(token.as_str());
    call.args.push_int(millis(ttl));
    call.args.push_int(millis(spec.fence_ttl()));
    call.args.push_int(i64::try_from(away_fence).unwrap_or(i64::MAX));
    Ok(call)
}

/// Without a `request_id` a repetition would be told "lost", so it is sent once.
pub(super) fn release(
    bound: &Bound,
    spec: &LockSpec,
    key: Key<'_>,
    token: &Token,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::LOCK_RELEASE.script, Workload::Default);
    keys::bind(RELEASE, bound, key, &mut call.keys)?;
    if let Some(id) = request_id {
        bound.bind_request(RELEASE, key, id, &mut call.keys)?;
        call = call.repeat_safe();
    }
    call.args.push(token.as_str());
    call.args.push_int(millis(spec.fence_ttl()));
    call.args.push(keys::channel(RELEASE, bound, key)?);
    call.args.push_int(KEEP_MS);
    Ok(call)
}

/// Leaving twice is leaving once.
pub(super) fn leave(bound: &Bound, key: Key<'_>, token: &Token) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::LOCK_LEAVE.script, Workload::Default).repeat_safe();
    keys::bind_queue(LEAVE, bound, key, &mut call.keys)?;
    call.args.push(token.as_str());
    call.args.push(keys::channel(LEAVE, bound, key)?);
    Ok(call)
}
