//! How long things took in this process, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds: from a small chunk in memory to an upload that took hours.
pub const BOUNDS_US: [u64; 14] = [
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    300_000_000,
    3_600_000_000,
    21_600_000_000,
];

/// Counts per bucket, the unbounded one last.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// One took so long.
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Counts per bucket of [`BOUNDS_US`], the unbounded one last, and the sum of all in microseconds.
    pub fn read(&self) -> (Vec<u64>, u64) {
        (self.buckets.iter().map(|count| count.load(Relaxed)).collect(), self.sum_us.load(Relaxed))
    }
}

/// What is measured of one upload resource. Nothing here knows of other nodes.
#[derive(Debug, Default)]
pub struct Figures {
    /// From a chunk's head to its acknowledgement, as whoever takes requests measured it.
    pub acknowledged: Histogram,
    /// From the first look at a claimed chunk's bytes to the object store's answer.
    pub shipped: Histogram,
    /// From an upload's first chunk until it was done.
    pub completed: Histogram,
}
