//! Reading a limit: its algorithm's arithmetic bounds what it may declare.

use std::time::Duration;

use super::common::{Body, Reading};
use super::duration_text;
use crate::field::MILLISECOND;
use crate::field::Spec;
use crate::field::limit::{ALGORITHM, KEY, LIMIT, SAFETY_BUFFER, TTL, WINDOW};
use crate::keys::limit_rows;
use crate::kind::Algorithm;
use crate::spec::LimitSpec;

/// One member each: more would make one key a database.
const MOST_LOGGED: u64 = 1_000_000;
/// Doubles are exact up to here.
const EXACT: u128 = 1 << 53;

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let key = reading.key(&KEY);
    let algorithm = fields.required(&ALGORITHM);
    let limit = fields.required(&LIMIT);
    let window = fields.required(&WINDOW);
    let (safety_buffer, buffer_at) = fields.placed(&SAFETY_BUFFER);
    let least_ttl = match (algorithm, window) {
        (Some((algorithm, _)), Some((window, _))) => Some(least_ttl(algorithm, window)),
        _ => None,
    };
    let ttl = reading.lifetime(&TTL, least_ttl.or(Some(MILLISECOND)));
    let ((key, key_at), (algorithm, algorithm_at), (limit, limit_at), (window, window_at), (ttl, ttl_at)) =
        (key?, algorithm?, limit?, window?, ttl?);

    if limit > 0 && safety_buffer >= limit {
        let message = format!("a safety buffer of {safety_buffer} leaves nothing of a limit of {limit}");
        reading.add(
            buffer_at,
            "limit-refuses-all",
            message,
            Some("everything is refused; lower one or raise the other"),
        );
    }
    let window_ms = window.as_millis();
    match algorithm {
        Algorithm::SlidingLog if limit > MOST_LOGGED => {
            let message = format!("a sliding_log keeps a member per unit; at most {MOST_LOGGED}");
            reading.add(limit_at, "limit-bounds", message, Some("use sliding_window or token_bucket"));
        }
        Algorithm::SlidingWindow if u128::from(limit) * window_ms > EXACT => {
            let message = "limit × window in milliseconds must stay below 2^53 for exact arithmetic";
            reading.add(limit_at, "limit-bounds", message, Some("use a shorter window or token_bucket"));
        }
        Algorithm::TokenBucket if u128::from(limit) > window.as_micros() => {
            let message = "a token_bucket hands out at most one token a microsecond";
            reading.add(limit_at, "limit-bounds", message, Some("use a longer window or another algorithm"));
        }
        _ => {}
    }
    match (algorithm, key.bucket()) {
        (Algorithm::FixedWindow, Some(unit)) => {
            if window_ms != unit.millis().unsigned_abs().into() {
                let message =
                    format!("the key has a `{{{unit}}}` bucket, but the window is {}", duration_text(window));
                reading.add(window_at, "window-not-bucket", message, Some("make both the same length"));
            }
        }
        (Algorithm::FixedWindow, None) => {
            if ttl != window {
                let message = "without a time bucket in the key, the key's expiry is the end of the window";
                reading.add(ttl_at, "ttl-not-window", message, Some("leave `ttl` out"));
            }
        }
        (_, Some(unit)) => {
            let message = format!("{algorithm} counts across buckets, but the key has `{{{unit}}}`");
            reading.add(
                algorithm_at,
                "bucket-in-sliding",
                message,
                Some("take the bucket out of the key, or use fixed_window"),
            );
        }
        (_, None) => {}
    }
    let least = least_ttl?;
    if ttl < least {
        let message = format!(
            "a TTL of {} ends before the {} it must outlive",
            duration_text(ttl),
            duration_text(least)
        );
        reading.add(ttl_at, "ttl-shorter-than-window", message, Some("leave `ttl` out, or make it longer"));
    }
    let spec = LimitSpec { algorithm, limit, window, safety_buffer, ttl };
    let rows = limit_rows(key, &spec);
    Some(Body::new(Spec::Limit(spec), rows, key_at))
}

/// What the algorithm needs to remember.
fn least_ttl(algorithm: Algorithm, window: Duration) -> Duration {
    match algorithm {
        Algorithm::SlidingWindow => window * 2,
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::TokenBucket => window,
    }
}
