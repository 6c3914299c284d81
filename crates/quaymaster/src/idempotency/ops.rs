//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::response::Packed;
use super::{ABANDON, BEGIN, FINISH, keys};
use crate::bound::{Bound, Key};
use crate::scripts::{idempotency_abandon, idempotency_begin, idempotency_finish};
use crate::{Result, Token};

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// `idempotency.begin`. Safe to repeat: the same token finds its own claim.
pub(super) fn begin(
    bound: &Bound,
    key: Key<'_>,
    token: &Token,
    fingerprint: &str,
    in_progress: Duration,
) -> Result<Invocation> {
    let call = idempotency_begin::Call {
        record: keys::record(bound, key),
        token: token.as_str(),
        fp: fingerprint,
        in_progress_ms: millis(in_progress),
    };
    Ok(call.on(bound.at(BEGIN, Workload::Default))?.repeat_safe())
}

/// `idempotency.finish`. Safe to repeat: the finisher's token is known again.
pub(super) fn finish(
    bound: &Bound,
    key: Key<'_>,
    token: &Token,
    ttl: Duration,
    packed: &Packed<'_>,
) -> Result<Invocation> {
    let call = idempotency_finish::Call {
        record: keys::record(bound, key),
        token: token.as_str(),
        ttl_ms: millis(ttl),
        enc: packed.encoding,
        bytes: &packed.bytes,
        channel: &keys::channel(FINISH, bound, key)?,
    };
    Ok(call.on(bound.at(FINISH, Workload::Default))?.repeat_safe())
}

/// `idempotency.abandon`. Safe to repeat with a `request_id`.
pub(super) fn abandon(
    bound: &Bound,
    key: Key<'_>,
    token: &Token,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = idempotency_abandon::Call {
        record: keys::record(bound, key),
        request: request_id.map(|id| bound.request(key, id)),
        token: token.as_str(),
        channel: &keys::channel(ABANDON, bound, key)?,
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(ABANDON, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}
