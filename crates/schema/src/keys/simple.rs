//! Limits and idempotencies.

use super::{REQUEST_TTL, RowDraft, request, row, side};
use crate::kind::{Algorithm, RedisType};
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::{IdempotencySpec, LimitSpec};

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
