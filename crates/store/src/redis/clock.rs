//! The offset between this node's clock and the store's.
//!
//! A sample's error is at most half its round trip, so of the last few samples the quickest counts. A sample
//! that contradicts it by more than both errors means that one of the clocks was set: then only it counts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::script::{LATEST_US, too_late};
use crate::{Code, Error, Result};

/// Samples kept: old enough ones would hide a drift of the clocks.
const KEPT: usize = 8;
/// Clocks that are slewed drift this much between two looks without having been set.
const SLACK_US: i64 = 2_000;

/// The kept offset.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What the store said last where it is too late to count with; 0 otherwise.
    late_us: AtomicI64,
    offset_us: AtomicI64,
    error_us: AtomicU64,
    samples: Mutex<Vec<Sample>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    offset_us: i64,
    error_us: i64,
}

/// This node's clock, in microseconds since the epoch.
pub(super) fn node_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

impl Clock {
    /// The store's clock as last measured.
    pub(super) fn now_us(&self) -> i64 {
        node_us() + self.offset_us.load(Relaxed)
    }

    /// The offset, and how wrong it can be.
    pub(super) fn offset(&self) -> (i64, u64) {
        (self.offset_us.load(Relaxed), self.error_us.load(Relaxed))
    }

    /// Refuses a call while the store's clock is past what scripts can count with.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        match self.late_us.load(Relaxed) {
            0 => Ok(()),
            late_us => Err(Error::new(op, Code::StoreClock, too_late(late_us))),
        }
    }

    /// The store said `store_us` to a question sent at `sent_us` (node clock) and answered after `trip`.
    pub(super) fn sample(&self, sent_us: i64, trip: Duration, store_us: i64) {
        self.late_us.store(if store_us > LATEST_US { store_us } else { 0 }, Relaxed);
        let error_us = trip.as_micros() as i64 / 2;
        let sample = Sample { offset_us: store_us - (sent_us + error_us), error_us };
        let mut samples = self.samples.lock();
        let contradicts = samples.iter().min_by_key(|kept| kept.error_us).is_some_and(|best| {
            (best.offset_us - sample.offset_us).abs() > best.error_us + sample.error_us + SLACK_US
        });
        if contradicts {
            samples.clear();
        } else if samples.len() == KEPT {
            samples.remove(0);
        }
        samples.push(sample);
        if let Some(best) = samples.iter().min_by_key(|kept| kept.error_us) {
            self.offset_us.store(best.offset_us, Relaxed);
            self.error_us.store(best.error_us as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000;

    fn feed(clock: &Clock, offset_us: i64, trip_ms: u64, skew_us: i64) {
        let trip = Duration::from_millis(trip_ms);
        clock.sample(1_000_000, trip, 1_000_000 + offset_us + trip.as_micros() as i64 / 2 + skew_us);
    }

    #[test]
    fn the_quickest_sample_counts() {
        let clock = Clock::default();
        feed(&clock, 500 * MS, 40, 15 * MS);
        assert_eq!(clock.offset(), (515 * MS, 20_000));
        feed(&clock, 500 * MS, 2, 0);
        assert_eq!(clock.offset(), (500 * MS, 1_000));
        feed(&clock, 500 * MS, 60, -25 * MS);
        assert_eq!(clock.offset(), (500 * MS, 1_000));
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
        let clock = Clock::default();
        feed(&clock, 0, 2, 0);
        feed(&clock, 3_600_000 * MS, 8, 0);
        assert_eq!(clock.offset(), (3_600_000 * MS, 4_000));
    }

    #[test]
    fn an_old_quick_sample_does_not_hide_a_drift_for_ever() {
        let clock = Clock::default();
        feed(&clock, 0, 1, 0);
        for _ in 0..KEPT {
            feed(&clock, 2 * MS, 4, 0);
        }
        assert_eq!(clock.offset().0, 2 * MS);
    }
}
