//! What a cache answered so far in this process, and how it did lately.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

/// Seconds of one slot of the recent past, and how many slots are kept.
const SLOT_SECS: u64 = 60;
const SLOTS: usize = 5;

/// Hits and misses of one slot.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    number: u64,
    reads: Reads,
}

/// Reads, and how many of them hit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
}

impl Reads {
    /// All of them.
    pub fn total(self) -> u64 {
        self.hits + self.misses
    }

    /// The share that hit; `None` without reads.
    pub fn hit_ratio(self) -> Option<f64> {
        (self.total() > 0).then(|| self.hits as f64 / self.total() as f64)
    }
}

/// Answers given so far by this process.
#[derive(Debug)]
pub struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    errors: AtomicU64,
    loaded: AtomicU64,
    load_failures: AtomicU64,
    load_lost: AtomicU64,
    joined: AtomicU64,
    born: Instant,
    recent: Mutex<[Slot; SLOTS]>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            load_failures: AtomicU64::new(0),
            load_lost: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            born: Instant::now(),
            recent: Mutex::new([Slot::default(); SLOTS]),
        }
    }
}

/// How a load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Kept,
    Failed,
    Lost,
}

impl Counts {
    /// Reads since the process started.
    pub fn reads(&self) -> Reads {
        Reads { hits: self.hits.load(Relaxed), misses: self.misses.load(Relaxed) }
    }

    /// Reads of the last minutes, at most five.
    pub fn recent(&self) -> Reads {
        let now = self.slot();
        let mut sum = Reads::default();
        for slot in self.recent.lock().iter().filter(|slot| slot.number + SLOTS as u64 > now) {
            sum.hits += slot.reads.hits;
            sum.misses += slot.reads.misses;
        }
        sum
    }

    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Loads whose value was kept.
    pub fn loaded(&self) -> u64 {
        self.loaded.load(Relaxed)
    }

    /// Loads that failed, panicked or took too long.
    pub fn load_failures(&self) -> u64 {
        self.load_failures.load(Relaxed)
    }

    /// Loads whose value was not kept: the entry was put or deleted meanwhile, or the store was away.
    pub fn load_lost(&self) -> u64 {
        self.load_lost.load(Relaxed)
    }

    /// Callers that waited for a load of this process instead of starting one.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
        self.note(|reads| reads.hits += 1);
    }

    pub(super) fn miss(&self) {
        self.misses.fetch_add(1, Relaxed);
        self.note(|reads| reads.misses += 1);
    }

    pub(super) fn error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub(super) fn join(&self) {
        self.joined.fetch_add(1, Relaxed);
    }

    pub(super) fn load(&self, ended: Ended) {
        match ended {
            Ended::Kept => &self.loaded,
            Ended::Failed => &self.load_failures,
            Ended::Lost => &self.load_lost,
        }
        .fetch_add(1, Relaxed);
    }

    /// Numbered from 1, so that a slot never written is not taken for the first.
    fn slot(&self) -> u64 {
        self.born.elapsed().as_secs() / SLOT_SECS + SLOTS as u64
    }

    fn note(&self, count: impl FnOnce(&mut Reads)) {
        let now = self.slot();
        let slot = &mut self.recent.lock()[now as usize % SLOTS];
        if slot.number != now {
            *slot = Slot { number: now, reads: Reads::default() };
        }
        count(&mut slot.reads);
    }
}
