//! How often a stand-in fails and how long it takes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a stand-in is told at its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Temper {
    /// The share of calls that fail, 0 to 1.
    pub(crate) fail: f64,
    /// How long a call takes.
    pub(crate) delay: Duration,
    /// The same seed fails on the same calls.
    pub(crate) seed: u64,
}

/// A temper, and how busy it keeps.
#[derive(Debug)]
pub(crate) struct Mood {
    temper: Temper,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    chance: fastrand::Rng,
    running: u32,
    /// Since when this window has been counted, and how long of it something ran.
    began: Instant,
    changed: Instant,
    busy: Duration,
}

/// The utilization is that of the time since it was last asked for, but of no less than this.
const WINDOW: Duration = Duration::from_secs(1);

/// A call under way.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a Mood);

impl Mood {
    pub(crate) fn new(temper: Temper) -> Self {
        let now = Instant::now();
        let state = State {
            chance: fastrand::Rng::with_seed(temper.seed),
            running: 0,
            began: now,
            changed: now,
            busy: Duration::ZERO,
        };
        Self { temper, state: Mutex::new(state) }
    }

    /// Takes its time, then fails or goes ahead.
    pub(crate) async fn begin(&self) -> Result<Busy<'_>, &'static str> {
        let fails = self.with(|state| {
            state.turn(1);
            state.chance.f64() < self.temper.fail
        });
        let busy = Busy(self);
        if !self.temper.delay.is_zero() {
            tokio::time::sleep(self.temper.delay).await;
        }
        if fails { Err("the stand-in was told to fail now and then") } else { Ok(busy) }
    }

    /// The share of time in which something ran, in percent.
    pub(crate) fn utilization(&self) -> f64 {
        self.with(|state| {
            state.turn(0);
            let window = state.changed - state.began;
            let share = state.busy.as_secs_f64() / window.as_secs_f64().max(0.001);
            if window >= WINDOW {
                (state.began, state.busy) = (state.changed, Duration::ZERO);
            }
            (share.min(1.0) * 1000.0).round() / 10.0
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Counts the time up to now; one more or one less runs from here on.
    fn turn(&mut self, change: i32) {
        let now = Instant::now();
        if self.running > 0 {
            self.busy += now - self.changed;
        }
        self.changed = now;
        self.running = self.running.saturating_add_signed(change);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.turn(-1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failures(temper: Temper, calls: usize) -> Vec<usize> {
        let mood = Mood::new(temper);
        let mut failed = Vec::new();
        for call in 0..calls {
            if mood.begin().await.is_err() {
                failed.push(call);
            }
        }
        failed
    }

    #[tokio::test]
    async fn a_fifth_of_the_calls_fail_and_the_seed_says_which() {
        let temper = Temper { fail: 0.2, delay: Duration::ZERO, seed: 7 };
        let failed = failures(temper, 2_000).await;
        assert!((300..500).contains(&failed.len()), "{}", failed.len());
        assert_eq!(failures(temper, 2_000).await, failed);
        assert_ne!(failures(Temper { seed: 8, ..temper }, 2_000).await, failed);
        assert_eq!(failures(Temper { fail: 0.0, ..temper }, 500).await, [0; 0]);
        assert_eq!(failures(Temper { fail: 1.0, ..temper }, 50).await.len(), 50);
    }

    #[tokio::test]
    async fn a_stand_in_is_idle_before_its_first_call() {
        let mood = Mood::new(Temper { fail: 0.0, delay: Duration::ZERO, seed: 1 });
        assert!(mood.utilization().abs() < f64::EPSILON);
        let busy = mood.begin().await;
        assert!(busy.is_ok());
        assert!(mood.with(|state| state.running) == 1);
        drop(busy);
        assert!(mood.with(|state| state.running) == 0);
    }
}
