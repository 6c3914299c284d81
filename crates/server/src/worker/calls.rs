//! Calls to a service, counted for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx, with a response that could be used.
    Success,
    /// 2xx, with a response that could not be handed on.
    BadResponse,
    /// 3xx.
    Redirect,
    /// 4xx.
    Refused,
    /// 5xx and all else.
    Failed,
    /// No answer in time.
    Timeout,
    /// No answer at all.
    Unreachable,
    /// Broken off because the job's lease was lost.
    Lost,
}

impl Outcome {
    pub(crate) const ALL: [(Self, &'static str); 8] = [
        (Self::Success, "success"),
        (Self::BadResponse, "bad_response"),
        (Self::Redirect, "redirect"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Timeout, "timeout"),
        (Self::Unreachable, "unreachable"),
        (Self::Lost, "lost"),
    ];
}

/// Upper bounds of the duration's buckets, in microseconds; the last bucket has none.
pub(crate) const BOUNDS_US: [u64; 12] = [
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 10_000_000,
    60_000_000,
];

/// Counts of one queue's calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Calls {
    pub(super) fn observe(&self, outcome: Outcome, took: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// Counts per bucket of [`BOUNDS_US`], and the sum in microseconds.
    pub(crate) fn durations(&self) -> (Vec<u64>, u64) {
        (self.buckets.iter().map(|count| count.load(Relaxed)).collect(), self.sum_us.load(Relaxed))
    }
}
