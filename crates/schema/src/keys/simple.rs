//! Limits, idempotency, locks, caches, dedupe, foreign keys.

use std::time::Duration;

use super::{REQUEST_TTL, RowDraft, request, row, side};
use crate::kind::{Algorithm, RedisType};
use crate::pattern::{Class, Template};
use crate::schema::{Field, Ttl};
use crate::spec::{CacheSpec, DedupeSpec, IdempotencySpec, KeySpec, LimitSpec, LockSpec};

pub(crate) fn limit_rows(key: Template, spec: &LimitSpec) -> Vec<RowDraft> {
    let format = match spec.algorithm {
        Algorithm::FixedWindow => "the count, a decimal integer",
        Algorithm::SlidingLog => "one unique member per admitted unit; its score is the moment of admission",
        Algorithm::SlidingWindow => "counts of the current and the previous window",
        Algorithm::TokenBucket => "the theoretical arrival time in microseconds",
    };
    let tag = key.without_bucket();
    let holds = spec.algorithm.redis_type();
    let mut primary = row("limit", key, holds, Ttl::For(spec.ttl), "What has been used").format(format);
    if spec.algorithm == Algorithm::SlidingWindow {
        primary = primary.fields(&[
            ("start", "the current window's start, in milliseconds"),
            ("current", "units in the current window"),
            ("previous", "units in the window before"),
        ]);
    }
    vec![primary, request(&tag)]
}

pub(crate) fn idempotency_rows(key: Template, spec: &IdempotencySpec) -> Vec<RowDraft> {
    let tag = key.without_bucket();
    vec![
        row(
            "record",
            key,
            RedisType::String,
            Ttl::For(spec.ttl),
            "Who runs the operation, or what it answered",
        )
        .format(
            "`p token deadline fingerprint` in progress, `f fingerprint tail encoding response` finished, \
                 without a response `f fingerprint tail`; a foreign `1` counts as finished",
        ),
        // Not `request_id`: a key of an idempotency may well have a placeholder of that name.
        side(
            "request",
            &tag,
            "req",
            Some(("abandon_id", Class::Wide)),
            RedisType::String,
            Ttl::For(REQUEST_TTL),
            "The answer a request id got, given again when it comes again",
        ),
    ]
}

pub(crate) fn lock_rows(key: Template, spec: &LockSpec) -> Vec<RowDraft> {
    let tag = key.without_bucket();
    // Waiters ask again every second; a queue nobody asks in is swept after a minute.
    let queue_ttl = Ttl::For(Duration::from_secs(60));
    vec![
        row("lock", key, RedisType::String, Ttl::For(spec.ttl), "The holder's token; its TTL is the lease")
            .format("the holder's token"),
        side(
            "fence",
            &tag,
            "fence",
            None,
            RedisType::String,
            Ttl::For(spec.fence_ttl()),
            "The last fencing number handed out",
        )
        .format("a decimal integer, max(last + 1, store time in microseconds)"),
        side("queue", &tag, "queue", None, RedisType::Zset, queue_ttl.clone(), "Who waits for the lock")
            .format("waiters' tokens; the score is the arrival in microseconds"),
        side("alive", &tag, "alive", None, RedisType::Hash, queue_ttl, "Which waiters are still there")
            .format("a waiter's token, and the millisecond by which it must ask again"),
        request(&tag),
    ]
}

pub(crate) fn cache_rows(
    key: Template,
    spec: &CacheSpec,
    fields: Vec<Field>,
    format: Option<String>,
) -> Vec<RowDraft> {
    let holds = match spec.holds {
        crate::kind::CacheType::String | crate::kind::CacheType::Json => RedisType::String,
        crate::kind::CacheType::Hash => RedisType::Hash,
    };
    let tag = key.without_bucket();
    // A lease is asked for by the load; one of this length outlives the longest.
    let load_ttl = Ttl::For(Duration::from_secs(61));
    vec![
        row("entry", key, holds, spec.ttl.clone(), "A cached value").documented(fields, format),
        side("load", &tag, "load", None, RedisType::String, load_ttl, "Who loads the value now")
            .format("the load's token, and the millisecond its lease ends"),
        request(&tag),
    ]
}

pub(crate) fn dedupe_rows(key: Template, spec: &DedupeSpec, format: Option<String>) -> Vec<RowDraft> {
    let tag = key.without_bucket();
    vec![
        row("first", key, RedisType::String, Ttl::For(spec.ttl), "The value of the first one seen")
            .documented(Vec::new(), format),
        request(&tag),
    ]
}

pub(crate) fn key_row(key: Template, spec: &KeySpec, fields: Vec<Field>, format: Option<String>) -> RowDraft {
    row("key", key, spec.holds, spec.ttl.clone(), "Owned by another program").documented(fields, format)
}
