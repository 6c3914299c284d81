//! The arithmetic between a script's integers and its answer, against plain models.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use proptest::prelude::*;
use quaymaster_schema::{Algorithm, LimitSpec};

use super::answer::{Raw, Verdict, Word, increment, verdict};

fn spec(algorithm: Algorithm, limit: u64, window_ms: u64) -> LimitSpec {
    let window = Duration::from_millis(window_ms);
    LimitSpec { algorithm, limit, window, safety_buffer: 0, ttl: window }
}

fn retry_ms(verdict: &Verdict) -> Option<u64> {
    verdict.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap())
}

fn weighs(previous: u64, current: u64, elapsed: u64, window: u64) -> u64 {
    (previous * (window - elapsed)).div_ceil(window) + current
}

/// What the two counters weigh `later` milliseconds on, if nobody calls.
fn weighs_later(raw: Raw, later: u64, window: u64) -> u64 {
    let at = raw.z + later;
    match at / window {
        0 => weighs(raw.x, raw.y, at, window),
        1 => weighs(raw.y, 0, at - window, window),
        _ => 0,
    }
}

#[test]
fn cost_over_the_limit_never_passes_and_says_so() {
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::SlidingWindow, Algorithm::TokenBucket]
    {
        let answer = verdict(&spec(algorithm, 5, 1000), Word::Limited, Raw { x: 0, y: 0, z: 0 }, 6);
        assert!(!answer.is_allowed());
        assert_eq!(answer.retry_after(), None, "{algorithm:?}");
        assert_eq!(answer.quota().remaining, 5);
    }
}

#[test]
fn the_safety_buffer_is_taken_off_limit_and_remaining() {
    let mut spec = spec(Algorithm::FixedWindow, 5000, 3_600_000);
    spec.safety_buffer = 25;
    let answer = verdict(&spec, Word::Allowed, Raw { x: 1247, y: 60_000, z: 0 }, 1);
    assert_eq!((answer.quota().limit, answer.quota().remaining), (4975, 3728));
    spec.safety_buffer = 6000;
    let answer = verdict(&spec, Word::Limited, Raw { x: 0, y: 60_000, z: 0 }, 1);
    assert_eq!((answer.quota().limit, answer.quota().remaining), (0, 0));
    assert_eq!(answer.retry_after(), None);
}

#[test]
fn a_rate_that_does_not_divide_the_window_is_kept_exactly() {
    let spec = spec(Algorithm::TokenBucket, 7, 60_000);
    let (mut whole, mut part) = (0, 0);
    for _ in 0..7 {
        let (inc, inc_part) = increment(&spec, 1);
        whole += inc;
        part += inc_part;
        if part >= 7 {
            whole += 1;
            part -= 7;
        }
    }
    assert_eq!((whole, part), (60_000_000, 0));
    assert_eq!(increment(&spec, 7), (60_000_000, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 50_000, ..ProptestConfig::default() })]

    #[test]
    fn sliding_window_says_the_first_millisecond_that_has_room(
        limit in 1u64..200, window in 1u64..5000, previous in 0u64..200, current in 0u64..200,
        at in 0.0f64..1.0, cost in 1u64..200,
    ) {
        let elapsed = ((window as f64) * at) as u64;
        let (cost, previous, current) = (1 + cost % limit, previous % (limit + 1), current % (limit + 1));
        let raw = Raw { x: previous, y: current, z: elapsed };
        prop_assume!(weighs_later(raw, 0, window) + cost > limit);
        let answer = verdict(&spec(Algorithm::SlidingWindow, limit, window), Word::Limited, raw, cost);
        prop_assert_eq!(answer.quota().used, weighs_later(raw, 0, window));
        let wait = retry_ms(&answer).unwrap();
        prop_assert!(weighs_later(raw, wait, window) + cost <= limit, "too early: {}", wait);
        prop_assert!(weighs_later(raw, wait - 1, window) + cost > limit, "too late: {}", wait);
        let reset = u64::try_from(answer.quota().reset_after.as_millis()).unwrap();
        prop_assert_eq!(weighs_later(raw, reset, window), 0);
    }

    #[test]
    fn token_bucket_says_the_first_millisecond_that_has_tokens(
        limit in 1u64..500, window_ms in 1u64..100_000, taken in 1u64..500, cost in 1u64..500, gone_us in 0u64..1_000_000,
    ) {
        let (cost, taken) = (1 + cost % limit, 1 + taken % limit);
        let spec = spec(Algorithm::TokenBucket, limit, window_ms);
        let window_us = u128::from(window_ms) * 1000;
        // Units of 1/limit µs, exactly.
        let ahead = (u128::from(taken) * window_us).saturating_sub(u128::from(gone_us) * u128::from(limit));
        let fits = |later_us: u128| {
            ahead.saturating_sub(later_us * u128::from(limit)) + u128::from(cost) * window_us
                <= window_us * u128::from(limit)
        };
        prop_assume!(!fits(0));
        let raw = Raw {
            x: u64::try_from(ahead / u128::from(limit)).unwrap(),
            y: u64::try_from(ahead % u128::from(limit)).unwrap(),
            z: 0,
        };
        let answer = verdict(&spec, Word::Limited, raw, cost);
        let wait = u128::from(retry_ms(&answer).unwrap());
        prop_assert!(fits(wait * 1000), "too early: {}", wait);
        prop_assert!(wait == 1 || !fits((wait - 1) * 1000), "too late: {}", wait);
        prop_assert_eq!(u128::from(answer.quota().used), ahead.div_ceil(window_us));
    }
}
