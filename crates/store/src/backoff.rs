//! How long to wait before trying again: base × 2^(n-1), capped, plus 0 to 25 % jitter.

use std::time::Duration;

/// A backoff schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The wait before the first repetition.
    pub base: Duration,
    /// No wait before jitter is longer.
    pub max: Duration,
    /// The most that is added, as a share of the wait.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_secs(1), max: Duration::from_secs(30), jitter: 0.25 }
    }
}

impl Backoff {
    /// The wait before attempt `attempt` is repeated, without jitter; attempts count from 1.
    pub fn floor(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.base.checked_mul(1 << doublings).map_or(self.max, |wait| wait.min(self.max))
    }

    /// The wait with its jitter.
    pub fn delay(&self, attempt: u32) -> Duration {
        let floor = self.floor(attempt);
        floor + floor.mul_f64(self.jitter.max(0.0) * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_the_documented_table() {
        let backoff = Backoff::default();
        for (attempt, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (400, 30)] {
            let floor = Duration::from_secs(seconds);
            assert_eq!(backoff.floor(attempt), floor);
            for _ in 0..100 {
                let delay = backoff.delay(attempt);
                assert!(delay >= floor && delay <= floor.mul_f64(1.25), "{attempt}: {delay:?}");
            }
        }
    }
}
