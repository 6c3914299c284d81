//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use crate::Result;
use crate::bound::{Bound, Key};
use crate::scripts::berth_take;

pub(super) const TAKE: &str = "berth.take";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

pub(super) fn take(
    bound: &Bound,
    key: Key<'_>,
    ttl: Duration,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = berth_take::Call {
        berth: bound.key(key, bound.engine.now_us()),
        request: request_id.map(|id| bound.request(key, id)),
        ttl_ms: i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX),
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(TAKE, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}
