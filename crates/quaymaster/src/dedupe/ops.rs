//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::keys;
use crate::bound::{Bound, Key};
use crate::{Result, scripts};

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
    let mut call = Invocation::new(&scripts::DEDUPE_FIRST.script, Workload::Default);
    let bucket = keys::bind(FIRST, bound, key, request_id, now_us, &mut call.keys)?;
    call.args.push(stored);
    call.args.push_int(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    call.args.push_int(bucket.map_or(0, |bucket| bucket.start_ms));
    call.args.push_int(bucket.map_or(0, |bucket| bucket.end_ms));
    call.args.push_int(KEEP_MS);
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}
