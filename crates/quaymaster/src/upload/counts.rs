//! What happened so far in this process, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What happened so far in this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) taken: AtomicU64,
    pub(super) taken_bytes: AtomicU64,
    pub(super) known: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) shipped: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) missing: AtomicU64,
}

impl Counts {
    /// Chunks received.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
    /// Their bytes.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Relaxed)
    }
    /// Chunks that had come before.
    pub fn known(&self) -> u64 {
        self.known.load(Relaxed)
    }
    /// Chunks that were not taken: other bytes, no chunk of their upload, or it takes no more.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
    /// Times that bytes did not fit.
    pub fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }
    /// Chunks shipped.
    pub fn shipped(&self) -> u64 {
        self.shipped.load(Relaxed)
    }
    /// Attempts to ship one that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
    /// Chunks whose bytes were gone.
    pub fn missing(&self) -> u64 {
        self.missing.load(Relaxed)
    }
}
