//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use crate::Result;
use crate::bound::{Bound, Key};
use crate::scripts::dedupe_first;

pub(super) const FIRST: &str = "dedupe.first";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

pub(super) fn first(
    bound: &Bound,
    key: Key<'_>,
    stored: &[u8],
    ttl: Duration,
    request_id: Option<&str>,
    now_us: i64,
) -> Result<Invocation> {
    let (start_ms, end_ms) = bound.bucket_ms(now_us);
    let call = dedupe_first::Call {
        first: bound.key(key, now_us),
        request: request_id.map(|id| bound.request(key, id)),
        value: stored,
        ttl_ms: i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX),
        start_ms,
        end_ms,
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(FIRST, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}
