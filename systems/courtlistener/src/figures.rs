//! What a node saw of the API: calls, failures, times, peaks.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// Counted as calls end.
#[derive(Debug)]
pub(crate) struct Figures {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    attempts: u64,
    failures: u64,
    slowed: u64,
    consecutive_failures: u64,
    spent: Duration,
    /// Calls of the minute under way, and the most of any.
    minute: u64,
    in_minute: u64,
    peak: u64,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Slowed,
    Badly,
}

/// The figures so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Told {
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    /// Calls answered with "not now".
    pub(crate) slowed: u64,
    pub(crate) success_rate: f64,
    pub(crate) consecutive_failures: u64,
    pub(crate) average_ms: u64,
    /// The most calls in one minute.
    pub(crate) peak_per_minute: u64,
}

impl Figures {
    pub(crate) fn new(began: Instant) -> Self {
        let state = State {
            began,
            attempts: 0,
            failures: 0,
            slowed: 0,
            consecutive_failures: 0,
            spent: Duration::ZERO,
            minute: 0,
            in_minute: 0,
            peak: 0,
        };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn call(&self, ended: Ended, took: Duration, now: Instant) {
        let mut state = self.state.lock();
        state.attempts += 1;
        state.spent += took;
        let minute = now.saturating_duration_since(state.began).as_secs() / 60;
        if minute != state.minute {
            (state.minute, state.in_minute) = (minute, 0);
        }
        state.in_minute += 1;
        state.peak = state.peak.max(state.in_minute);
        match ended {
            Ended::Well => state.consecutive_failures = 0,
            Ended::Slowed => state.slowed += 1,
            Ended::Badly => {
                state.failures += 1;
                state.consecutive_failures += 1;
            }
        }
    }

    pub(crate) fn told(&self) -> Told {
        let state = self.state.lock();
        let bad = state.failures + state.slowed;
        let share = (state.attempts - bad) as f64 / state.attempts.max(1) as f64;
        Told {
            attempts: state.attempts,
            failures: state.failures,
            slowed: state.slowed,
            success_rate: if state.attempts == 0 { 1.0 } else { share },
            consecutive_failures: state.consecutive_failures,
            average_ms: u64::try_from(state.spent.as_millis()).unwrap_or(u64::MAX) / state.attempts.max(1),
            peak_per_minute: state.peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_calls() {
        let began = Instant::now();
        let figures = Figures::new(began);
        assert!((figures.told().success_rate - 1.0).abs() < f64::EPSILON);
        let at = |seconds| began + Duration::from_secs(seconds);
        for (ended, ms, second) in [
            (Ended::Well, 100, 1),
            (Ended::Badly, 300, 2),
            (Ended::Badly, 100, 59),
            (Ended::Slowed, 0, 61),
            (Ended::Well, 0, 62),
            (Ended::Badly, 100, 600),
        ] {
            figures.call(ended, Duration::from_millis(ms), at(second));
        }
        let told = figures.told();
        assert_eq!((told.attempts, told.failures, told.slowed), (6, 3, 1));
        assert_eq!((told.consecutive_failures, told.average_ms, told.peak_per_minute), (1, 100, 3));
        assert!((told.success_rate - 2.0 / 6.0).abs() < 1e-9);
    }
}
