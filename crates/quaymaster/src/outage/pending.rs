//! What was counted under one key without the store, by the window it belongs to. Plain arithmetic, no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use quaymaster_schema::{Algorithm, LimitSpec};

use crate::limit::SLIDING_LOG_MAX_COST;

/// The window a unit belongs to, as one number:
///
/// | algorithm | slot |
/// |---|---|
/// | `fixed_window` | the millisecond in which the window ends |
/// | `sliding_log` | the millisecond in which it was let through |
/// | `sliding_window` | the millisecond in which its aligned window began |
/// | `token_bucket` | the millisecond in which all tokens would be back |
pub(crate) type Slot = i64;

/// Units and the window they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: Slot,
    pub(crate) units: u64,
}

/// Units let through and not yet told to the store.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By slot; not used by token buckets.
    slots: BTreeMap<Slot, u64>,
    /// Tokens that are out, in units × microseconds of the window, so that a refill is exact.
    level: u128,
    at_us: i64,
}

pub(crate) fn window_ms(spec: &LimitSpec) -> i64 {
    whole(spec.window.as_millis())
}

pub(crate) fn window_us(spec: &LimitSpec) -> i64 {
    whole(spec.window.as_micros())
}

fn whole(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The slot of a unit let through at `now_ms`; `end_ms` is the end of a fixed window.
pub(crate) fn slot(spec: &LimitSpec, now_ms: i64, end_ms: i64) -> Slot {
    match spec.algorithm {
        Algorithm::FixedWindow => end_ms,
        Algorithm::SlidingLog => now_ms,
        Algorithm::SlidingWindow => now_ms - now_ms.rem_euclid(window_ms(spec).max(1)),
        Algorithm::TokenBucket => 0,
    }
}

/// From when on units of a slot do not count any more.
pub(crate) fn past_at(spec: &LimitSpec, slot: Slot) -> i64 {
    match spec.algorithm {
        Algorithm::FixedWindow | Algorithm::TokenBucket => slot,
        Algorithm::SlidingLog => slot.saturating_add(window_ms(spec)),
        Algorithm::SlidingWindow => slot.saturating_add(window_ms(spec).saturating_mul(2)),
    }
}

/// The most units that one addition to the store may carry.
pub(crate) fn most(spec: &LimitSpec) -> u64 {
    match spec.algorithm {
        Algorithm::SlidingLog => SLIDING_LOG_MAX_COST,
        _ => u64::MAX,
    }
}

/// How long `units` tokens take to come back at the limit's own rate.
pub(crate) fn refill(spec: &LimitSpec, units: u64) -> Duration {
    let us = (u128::from(units) * spec.window.as_micros()).div_ceil(u128::from(spec.effective().max(1)));
    Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
}

impl Pending {
    /// Notes a call that was let through. `rate` units come back to a token bucket per window.
    pub(super) fn add(&mut self, spec: &LimitSpec, rate: u64, units: u64, now_us: i64, end_ms: i64) {
        if spec.algorithm == Algorithm::TokenBucket {
            self.drain(rate, now_us);
            self.level = self.level.saturating_add(u128::from(units) * spec.window.as_micros());
            return;
        }
        let now_ms = now_us.div_euclid(1000);
        self.slots.retain(|slot, _| past_at(spec, *slot) > now_ms);
        *self.slots.entry(slot(spec, now_ms, end_ms)).or_default() += units;
    }

    /// Notes units given back: the newest first, and never more than were let through.
    pub(super) fn give_back(&mut self, spec: &LimitSpec, rate: u64, mut units: u64, now_us: i64) {
        if spec.algorithm == Algorithm::TokenBucket {
            self.drain(rate, now_us);
            self.level = self.level.saturating_sub(u128::from(units) * spec.window.as_micros());
            return;
        }
        while units > 0
            && let Some(mut newest) = self.slots.last_entry()
        {
            let less = units.min(*newest.get());
            *newest.get_mut() -= less;
            units -= less;
            if *newest.get() == 0 {
                newest.remove();
            }
        }
    }

    /// Tokens come back at the rate at which they were handed out.
    fn drain(&mut self, rate: u64, now_us: i64) {
        let elapsed = u128::try_from(now_us - self.at_us).unwrap_or(0);
        self.level = self.level.saturating_sub(elapsed * u128::from(rate));
        self.at_us = self.at_us.max(now_us);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.level == 0
    }

    /// Whether anything still counts.
    pub(super) fn counts(&self, spec: &LimitSpec, now_ms: i64) -> bool {
        if spec.algorithm == Algorithm::TokenBucket {
            // A bucket is full again one window after the last call at the latest.
            let full_ms = self.at_us.div_euclid(1000).saturating_add(window_ms(spec));
            return self.level > 0 && full_ms > now_ms;
        }
        self.slots.keys().next_back().is_some_and(|slot| past_at(spec, *slot) > now_ms)
    }

    /// Hands over everything that still counts, in pieces the store takes, and is empty after it.
    pub(super) fn hand_over(&mut self, spec: &LimitSpec, rate: u64, now_us: i64) -> Vec<Taken> {
        let now_ms = now_us.div_euclid(1000);
        if spec.algorithm == Algorithm::TokenBucket {
            self.drain(rate, now_us);
            let window = spec.window.as_micros().max(1);
            let units = u64::try_from(std::mem::take(&mut self.level).div_ceil(window)).unwrap_or(u64::MAX);
            if units == 0 {
                return Vec::new();
            }
            let back_ms = now_ms.saturating_add(whole(refill(spec, units).as_millis())).saturating_add(1);
            return vec![Taken { slot: back_ms, units }];
        }
        let mut taken = Vec::new();
        for (slot, mut units) in std::mem::take(&mut self.slots) {
            while units > 0 && past_at(spec, slot) > now_ms {
                let piece = units.min(most(spec));
                taken.push(Taken { slot, units: piece });
                units -= piece;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn spec(algorithm: Algorithm, limit: u64) -> LimitSpec {
        let window = Duration::from_secs(60);
        LimitSpec { algorithm, limit, window, safety_buffer: 0, ttl: window }
    }

    #[test]
    fn units_of_a_window_that_is_over_are_not_handed_over() {
        let fixed = spec(Algorithm::FixedWindow, 10);
        let mut pending = Pending::default();
        pending.add(&fixed, 10, 3, 0, 60_000);
        pending.add(&fixed, 10, 2, 59 * SECOND, 60_000);
        pending.add(&fixed, 10, 4, 61 * SECOND, 120_000);
        let handed = pending.hand_over(&fixed, 10, 62 * SECOND);
        assert_eq!(handed, [Taken { slot: 120_000, units: 4 }]);
        assert!(pending.is_empty() && pending.hand_over(&fixed, 10, 62 * SECOND).is_empty());
    }

    #[test]
    fn a_log_keeps_the_moment_of_every_unit_and_large_pieces_are_cut() {
        let log = spec(Algorithm::SlidingLog, 100_000);
        let mut pending = Pending::default();
        pending.add(&log, 1, 1, SECOND, 0);
        pending.add(&log, 1, 2, 30 * SECOND, 0);
        pending.add(&log, 1, SLIDING_LOG_MAX_COST, 30 * SECOND, 0);
        let handed = pending.hand_over(&log, 1, 61 * SECOND);
        assert_eq!(
            handed,
            [Taken { slot: 30_000, units: SLIDING_LOG_MAX_COST }, Taken { slot: 30_000, units: 2 }]
        );
    }

    #[test]
    fn windows_are_aligned_and_the_one_before_still_counts() {
        let weighted = spec(Algorithm::SlidingWindow, 10);
        let mut pending = Pending::default();
        for at in [10, 70, 130] {
            pending.add(&weighted, 10, 1, at * SECOND, 0);
        }
        let slots: Vec<Slot> =
            pending.hand_over(&weighted, 10, 130 * SECOND).iter().map(|taken| taken.slot).collect();
        assert_eq!(slots, [60_000, 120_000]);
    }

    #[test]
    fn tokens_come_back_while_they_wait_and_none_is_invented() {
        let bucket = spec(Algorithm::TokenBucket, 7);
        let mut pending = Pending::default();
        pending.add(&bucket, 7, 3, SECOND, 0);
        assert_eq!(
            pending.hand_over(&bucket, 7, SECOND)[0].units,
            3,
            "to the token, though 60 s / 7 is no integer"
        );
        pending.add(&bucket, 7, 7, 2 * SECOND, 0);
        assert_eq!(
            pending.hand_over(&bucket, 7, 32 * SECOND)[0].units,
            4,
            "3.5 of 7 are back after half a window"
        );
        pending.add(&bucket, 7, 7, 40 * SECOND, 0);
        assert!(pending.hand_over(&bucket, 7, 100 * SECOND).is_empty());
    }

    #[test]
    fn what_is_given_back_is_taken_off_the_newest_and_never_below_nothing() {
        let log = spec(Algorithm::SlidingLog, 10);
        let mut pending = Pending::default();
        pending.add(&log, 1, 2, SECOND, 0);
        pending.add(&log, 1, 2, 2 * SECOND, 0);
        pending.give_back(&log, 1, 3, 3 * SECOND);
        assert_eq!(pending.hand_over(&log, 1, 3 * SECOND), [Taken { slot: 1_000, units: 1 }]);
        pending.give_back(&log, 1, 3, 3 * SECOND);
        assert!(pending.is_empty());
    }
}
