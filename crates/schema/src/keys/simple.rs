//! Limits, idempotency, locks, caches, dedupe, foreign keys.

use std::time::Duration;

use super::{RowDraft, request, row, side};
use crate::kind::{Algorithm, RedisType};
use crate::pattern::Template;
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

pub(crate) fn idempotency_row(key: Template, spec: &IdempotencySpec) -> RowDraft {
    row("record", key, RedisType::String, Ttl::For(spec.ttl), "Who runs the operation, or what it answered")
        .format("state, token, fingerprint and response; a foreign `1` counts as finished")
}

pub(crate) fn lock_rows(key: Template, spec: &LockSpec) -> Vec<RowDraft> {
    // The fence must outlive every lease, and long enough after it to notice a clock that stepped back.
    let fence_ttl = (spec.ttl * 2).max(Duration::from_secs(600));
    let tag = key.without_bucket();
    vec![
        row("lock", key, RedisType::String, Ttl::For(spec.ttl), "The holder's token; its TTL is the lease")
            .format("the holder's token"),
        side(
            "fence",
            &tag,
            "fence",
            None,
            RedisType::String,
            Ttl::For(fence_ttl),
            "The last fencing number handed out",
        )
        .format("a decimal integer, max(last + 1, store time in microseconds)"),
    ]
}

pub(crate) fn cache_row(
    key: Template,
    spec: &CacheSpec,
    fields: Vec<Field>,
    format: Option<String>,
) -> RowDraft {
    let holds = match spec.holds {
        crate::kind::CacheType::String => RedisType::String,
        crate::kind::CacheType::Hash => RedisType::Hash,
    };
    row("entry", key, holds, spec.ttl.clone(), "A cached value").documented(fields, format)
}

pub(crate) fn dedupe_row(key: Template, spec: &DedupeSpec, format: Option<String>) -> RowDraft {
    row("first", key, RedisType::String, Ttl::For(spec.ttl), "The value of the first one seen")
        .documented(Vec::new(), format)
}

pub(crate) fn key_row(key: Template, spec: &KeySpec, fields: Vec<Field>, format: Option<String>) -> RowDraft {
    row("key", key, spec.holds, spec.ttl.clone(), "Owned by another program").documented(fields, format)
}
