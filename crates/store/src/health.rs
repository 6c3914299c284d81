//! Counters of a store: attempts, failures, success rate, consecutive failures, operations, latency.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the latency buckets, in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 14] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];

/// Counts as they happen; cheap enough for the hot path.
#[derive(Debug, Default)]
pub struct Counters {
    connect_attempts: AtomicU64,
    connect_failures: AtomicU64,
    operations: AtomicU64,
    failures: AtomicU64,
    consecutive_failures: AtomicU64,
    retries: AtomicU64,
    latency_sum_us: AtomicU64,
    latency_buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
}

/// A snapshot of [`Counters`] with what the engine knows about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// Whether the last thing heard from the store was an answer.
    pub connected: bool,
    /// Whether calls are held back after repeated failures.
    pub breaker_open: bool,
    /// Connections tried.
    pub connect_attempts: u64,
    /// Connections that failed.
    pub connect_failures: u64,
    /// Calls made.
    pub operations: u64,
    /// Calls that failed because of the store.
    pub failures: u64,
    /// Failures since the last success.
    pub consecutive_failures: u64,
    /// Calls sent again.
    pub retries: u64,
    /// Sum of all latencies.
    pub latency_sum_us: u64,
    /// Calls per bucket of [`LATENCY_BOUNDS_US`], not cumulative, the unbounded one last.
    pub latency_buckets: Vec<u64>,
    /// The store's clock minus this node's, as last measured.
    pub clock_offset_us: i64,
    /// Half the round trip of that measurement: how wrong it can be.
    pub clock_error_us: u64,
}

impl Counters {
    /// A connection was tried.
    pub fn connect_attempt(&self) {
        self.connect_attempts.fetch_add(1, Relaxed);
    }

    /// It failed.
    pub fn connect_failure(&self) {
        self.connect_failures.fetch_add(1, Relaxed);
        self.consecutive_failures.fetch_add(1, Relaxed);
    }

    /// A call is sent again.
    pub fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// A call was answered, whatever the answer.
    pub fn success(&self, latency: Duration) {
        self.observe(latency);
        if self.consecutive_failures.load(Relaxed) != 0 {
            self.consecutive_failures.store(0, Relaxed);
        }
    }

    /// A call failed because of the store.
    pub fn failure(&self, latency: Duration) {
        self.observe(latency);
        self.failures.fetch_add(1, Relaxed);
        self.consecutive_failures.fetch_add(1, Relaxed);
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u64 {
        self.consecutive_failures.load(Relaxed)
    }

    fn observe(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.operations.fetch_add(1, Relaxed);
        self.latency_sum_us.fetch_add(us, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.latency_buckets[bucket].fetch_add(1, Relaxed);
    }

    /// The counts so far; the caller fills in what it knows of connection, breaker and clock.
    pub fn snapshot(&self) -> Health {
        Health {
            connect_attempts: self.connect_attempts.load(Relaxed),
            connect_failures: self.connect_failures.load(Relaxed),
            operations: self.operations.load(Relaxed),
            failures: self.failures.load(Relaxed),
            consecutive_failures: self.consecutive_failures.load(Relaxed),
            retries: self.retries.load(Relaxed),
            latency_sum_us: self.latency_sum_us.load(Relaxed),
            latency_buckets: self.latency_buckets.iter().map(|b| b.load(Relaxed)).collect(),
            ..Health::default()
        }
    }
}

impl Health {
    /// Calls that did not fail, of all calls; 1 before the first.
    pub fn success_rate(&self) -> f64 {
        if self.operations == 0 {
            return 1.0;
        }
        (self.operations - self.failures.min(self.operations)) as f64 / self.operations as f64
    }

    /// Mean latency in microseconds; 0 before the first call.
    pub fn mean_latency_us(&self) -> u64 {
        self.latency_sum_us.checked_div(self.operations).unwrap_or(0)
    }

    /// The upper bound of the bucket in which the quantile `q` lies, in microseconds; `None` before the
    /// first call or when it lies in the unbounded bucket.
    pub fn latency_quantile_us(&self, q: f64) -> Option<u64> {
        let total: u64 = self.latency_buckets.iter().sum();
        let rank = (q * total as f64).ceil() as u64;
        let mut seen = 0;
        for (count, bound) in self.latency_buckets.iter().zip(LATENCY_BOUNDS_US) {
            seen += count;
            if total > 0 && seen >= rank {
                return Some(bound);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_quantiles_come_from_the_counts() {
        let counters = Counters::default();
        assert!((counters.snapshot().success_rate() - 1.0).abs() < f64::EPSILON);
        assert_eq!(counters.snapshot().latency_quantile_us(0.95), None);
        for us in [4, 5, 6, 900] {
            counters.success(Duration::from_micros(us));
        }
        counters.failure(Duration::from_secs(9));
        let health = counters.snapshot();
        assert_eq!(health.consecutive_failures, 1);
        assert!((health.success_rate() - 0.8).abs() < 1e-9);
        assert_eq!(health.latency_quantile_us(0.4), Some(5));
        assert_eq!(health.latency_quantile_us(0.8), Some(1_000));
        assert_eq!(health.latency_quantile_us(1.0), None);
        counters.success(Duration::ZERO);
        assert_eq!(counters.snapshot().consecutive_failures, 0);
    }
}
