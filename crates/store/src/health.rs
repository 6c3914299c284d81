//! Counters of a store: attempts, failures, success rate, consecutive failures, operations, latency.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::Code;
use crate::latency::{Class, Latencies, Recent};

/// Upper bounds of the latency buckets since the start, in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 17] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// Counts as they happen; cheap enough for the hot path.
#[derive(Debug)]
pub struct Counters {
    connect_attempts: AtomicU64,
    connect_failures: AtomicU64,
    operations: AtomicU64,
    failures: AtomicU64,
    consecutive_failures: AtomicU64,
    retries: AtomicU64,
    latency_sum_us: AtomicU64,
    latency_buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    latencies: Latencies,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            connect_attempts: AtomicU64::default(),
            connect_failures: AtomicU64::default(),
            operations: AtomicU64::default(),
            failures: AtomicU64::default(),
            consecutive_failures: AtomicU64::default(),
            retries: AtomicU64::default(),
            latency_sum_us: AtomicU64::default(),
            latency_buckets: Default::default(),
            latencies: Latencies::new(Instant::now()),
        }
    }
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
    /// Sum of the latencies of all calls that were sent.
    pub latency_sum_us: u64,
    /// Calls that were sent, per bucket of [`LATENCY_BOUNDS_US`], not cumulative, the unbounded one last.
    pub latency_buckets: Vec<u64>,
    /// The calls of the last minute, per class in the order of [`Class::ALL`].
    pub recent: Vec<Recent>,
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

    /// A call that began at `started` was answered now, whatever the answer.
    pub fn success(&self, class: Class, started: Instant) {
        self.observe(class, started, Instant::now());
        if self.consecutive_failures.load(Relaxed) != 0 {
            self.consecutive_failures.store(0, Relaxed);
        }
    }

    /// A call that began at `started` failed now because of the store. One that was never sent, held back by the breaker
    /// or without a connection, says nothing of how fast the store is.
    pub fn failure(&self, class: Class, code: Code, started: Instant) {
        if matches!(code, Code::StoreBreaker | Code::StoreRefused) {
            self.operations.fetch_add(1, Relaxed);
        } else {
            self.observe(class, started, Instant::now());
        }
        self.failures.fetch_add(1, Relaxed);
        self.consecutive_failures.fetch_add(1, Relaxed);
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u64 {
        self.consecutive_failures.load(Relaxed)
    }

    fn observe(&self, class: Class, started: Instant, now: Instant) {
        let us = u64::try_from(now.saturating_duration_since(started).as_micros()).unwrap_or(u64::MAX);
        self.operations.fetch_add(1, Relaxed);
        self.latency_sum_us.fetch_add(us, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.latency_buckets[bucket].fetch_add(1, Relaxed);
        self.latencies.observe(class, us, now);
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
            recent: self.latencies.recent(Instant::now()),
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

    /// Connections that did not fail, of all that were tried; 1 before the first.
    pub fn connect_success_rate(&self) -> f64 {
        if self.connect_attempts == 0 {
            return 1.0;
        }
        let failures = self.connect_failures.min(self.connect_attempts);
        (self.connect_attempts - failures) as f64 / self.connect_attempts as f64
    }

    /// Mean latency of the calls that were sent, in microseconds; 0 before the first.
    pub fn mean_latency_us(&self) -> u64 {
        self.latency_sum_us.checked_div(self.latency_buckets.iter().sum()).unwrap_or(0)
    }

    /// The calls of one class in the last minute.
    pub fn recent(&self, class: Class) -> Recent {
        self.recent.get(class as usize).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_and_buckets_come_from_the_counts() {
        let (counters, now) = (Counters::default(), Instant::now());
        let ago = |duration: Duration| now.checked_sub(duration).unwrap();
        assert!((counters.snapshot().success_rate() - 1.0).abs() < f64::EPSILON);
        for us in [4, 5, 6, 900] {
            counters.observe(Class::Single, ago(Duration::from_micros(us)), now);
        }
        counters.failure(Class::Compound, Code::StoreTimedOut, ago(Duration::from_secs(9)));
        let health = counters.snapshot();
        assert_eq!(health.consecutive_failures, 1);
        assert!((health.success_rate() - 0.8).abs() < 1e-9);
        assert_eq!(health.latency_buckets[..9], [2, 1, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(health.latency_buckets[16..], [1, 0]);
        assert_eq!(health.recent(Class::Single).calls(), 4);
        assert!(health.recent(Class::Compound).quantile(0.95).unwrap().at_least_us() > 8_000_000);
        counters.success(Class::Single, now);
        assert_eq!(counters.snapshot().consecutive_failures, 0);
    }

    #[test]
    fn calls_that_never_left_do_not_hide_slow_ones() {
        let (counters, now) = (Counters::default(), Instant::now());
        for _ in 0..50 {
            counters.observe(Class::Single, now.checked_sub(Duration::from_millis(80)).unwrap(), now);
        }
        for _ in 0..1_000 {
            counters.failure(Class::Single, Code::StoreBreaker, now);
        }
        let health = counters.snapshot();
        assert_eq!((health.operations, health.failures, health.consecutive_failures), (1_050, 1_000, 1_000));
        assert_eq!((health.recent(Class::Single).calls(), health.mean_latency_us()), (50, 80_000));
        assert!(health.recent(Class::Single).quantile(0.95).unwrap().at_least_us() > 70_000);
    }

    #[test]
    fn connections_have_a_success_rate_of_their_own() {
        let counters = Counters::default();
        assert!((counters.snapshot().connect_success_rate() - 1.0).abs() < f64::EPSILON);
        for _ in 0..4 {
            counters.connect_attempt();
        }
        counters.connect_failure();
        let health = counters.snapshot();
        assert!((health.connect_success_rate() - 0.75).abs() < 1e-9);
        assert!((health.success_rate() - 1.0).abs() < f64::EPSILON, "no call failed");
    }
}
