//! Answers given by this process, for metrics. What the queue has done in all is in [`super::Totals`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::answer::{Acked, Nacked, Pushed};
use crate::{Code, Error};

/// Answers given so far by this process.
#[derive(Debug, Default)]
pub struct Counts {
    pushed: AtomicU64,
    duplicates: AtomicU64,
    full: AtomicU64,
    claimed: AtomicU64,
    acked: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    pub(super) waiting: AtomicU64,
}

impl Counts {
    /// Jobs added.
    pub fn jobs_pushed(&self) -> u64 {
        self.pushed.load(Relaxed)
    }
    /// Pushes that their id or dedupe had been seen for.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Relaxed)
    }
    /// Calls refused because a queue was full.
    pub fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }
    /// Jobs handed out.
    pub fn jobs_claimed(&self) -> u64 {
        self.claimed.load(Relaxed)
    }
    /// Jobs done.
    pub fn jobs_acked(&self) -> u64 {
        self.acked.load(Relaxed)
    }
    /// Failures that come again.
    pub fn jobs_retried(&self) -> u64 {
        self.retried.load(Relaxed)
    }
    /// Failures that became dead letters.
    pub fn jobs_dead(&self) -> u64 {
        self.dead.load(Relaxed)
    }
    /// Acks and nacks of leases that were not held any more.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
    /// Calls that failed; those refused by a full queue are not among them.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
    /// Claims that wait now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub(super) fn pushed(&self, pushed: &Pushed) {
        self.pushed.fetch_add(pushed.accepted, Relaxed);
        self.duplicates.fetch_add(u64::from(pushed.duplicate), Relaxed);
    }

    pub(super) fn claimed(&self, jobs: usize) {
        self.claimed.fetch_add(jobs as u64, Relaxed);
    }

    pub(super) fn acked(&self, acked: &Acked) {
        self.acked.fetch_add(acked.acked, Relaxed);
        self.lost.fetch_add(acked.lost, Relaxed);
        self.claimed(acked.jobs.len());
    }

    pub(super) fn nacked(&self, nacked: &Nacked) {
        let count = match nacked {
            Nacked::Retry { .. } => &self.retried,
            Nacked::Dead { .. } => &self.dead,
            Nacked::Lost => &self.lost,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn buried(&self, jobs: u64) {
        self.dead.fetch_add(jobs, Relaxed);
    }

    pub(super) fn failed(&self, error: &Error) {
        let count = if error.code == Code::QueueFull { &self.full } else { &self.errors };
        count.fetch_add(1, Relaxed);
    }
}
