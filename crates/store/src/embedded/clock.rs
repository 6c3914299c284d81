//! The store's clock: microseconds since the epoch, never backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where an embedded store takes its time from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clock. A clock set back stands still until it has caught up.
    #[default]
    System,
    /// Microseconds since the epoch that somebody else sets: for tests.
    Manual(Arc<AtomicI64>),
}

/// A clock and the latest time it has told.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Clock,
    latest_us: AtomicI64,
}

impl Ticker {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, latest_us: AtomicI64::new(0) }
    }

    pub(crate) fn now_us(&self) -> i64 {
        match &self.clock {
            Clock::Manual(time) => time.load(Ordering::SeqCst),
            Clock::System => {
                let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
                self.latest_us.fetch_max(now, Ordering::Relaxed).max(now)
            }
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_us().div_euclid(1000)
    }
}
