//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Words, Workload};

use super::response::Packed;
use crate::Token;
use crate::scripts;

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// `idempotency.begin`. Safe to repeat: the same token finds its own claim.
pub(super) fn begin(record: Words, token: &Token, fingerprint: &str, in_progress: Duration) -> Invocation {
    let mut call = Invocation::new(&scripts::IDEMPOTENCY_BEGIN.script, Workload::Default).repeat_safe();
    call.keys = record;
    call.args.push(token.as_str());
    call.args.push(fingerprint);
    call.args.push_int(millis(in_progress));
    call
}

/// `idempotency.finish`. Safe to repeat: the finisher's token is known again.
pub(super) fn finish(
    record: Words,
    token: &Token,
    ttl: Duration,
    packed: &Packed<'_>,
    channel: &[u8],
) -> Invocation {
    let mut call = Invocation::new(&scripts::IDEMPOTENCY_FINISH.script, Workload::Default).repeat_safe();
    call.keys = record;
    call.args.push(token.as_str());
    call.args.push_int(millis(ttl));
    call.args.push(packed.encoding);
    call.args.push(&packed.bytes);
    call.args.push(channel);
    call
}

/// `idempotency.abandon`; `keys` may end with the request's key.
pub(super) fn abandon(keys: Words, token: &Token, channel: &[u8]) -> Invocation {
    let mut call = Invocation::new(&scripts::IDEMPOTENCY_ABANDON.script, Workload::Default);
    call.keys = keys;
    call.args.push(token.as_str());
    call.args.push(channel);
    call.args.push_int(KEEP_MS);
    call
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}
