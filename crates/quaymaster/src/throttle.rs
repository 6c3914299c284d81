//! Log lines of what may happen often: at most one a second, which says how often it happened since the line before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines are at least so far apart.
const EVERY: Duration = Duration::from_secs(1);

/// Counts events between the lines that tell of them.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    untold: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Notes `events`. `Some` when a line is due: how many there were since the one before.
    pub(crate) fn note(&self, events: u64, now: Instant) -> Option<u64> {
        self.untold.fetch_add(events, Relaxed);
        // Whoever finds it locked leaves the line to the other.
        let mut told = self.told.try_lock()?;
        if told.is_some_and(|at| now.saturating_duration_since(at) < EVERY) {
            return None;
        }
        *told = Some(now);
        Some(self.rest())
    }

    /// How many events no line has told of yet; they count as told now.
    pub(crate) fn rest(&self) -> u64 {
        self.untold.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_one_line_a_second_with_the_count_of_all() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let mut lines = Vec::new();
        for ms in 0..2500 {
            lines.extend(throttle.note(1, start + Duration::from_millis(ms)));
        }
        assert_eq!(lines, [1, 1000, 1000], "the first at once, then each with what came since");
        assert_eq!(throttle.note(2, start + Duration::from_secs(9)), Some(501));
        assert_eq!((throttle.note(3, start + Duration::from_secs(9)), throttle.rest()), (None, 3));
    }
}
