//! What a worker did so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counted since the worker was made.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counts {
            $($(#[$doc])* pub fn $name(&self) -> u64 {
                self.$name.load(Relaxed)
            })*
        }
    };
}

counts! {
    /// Jobs claimed.
    claimed
    /// Jobs acked.
    acked
    /// Attempts that failed and come again.
    retried
    /// Jobs dead-lettered by what their handlers said.
    dead
    /// Jobs whose lease was lost before they were settled.
    lost
    /// Jobs given back unbegun.
    given_back
    /// Handlers that panicked; counted under `retried` or `dead` as well.
    panicked
    /// Calls to the store that failed.
    errors
    /// Handlers running now.
    busy
    /// Workers running now: 1, or 0 before and after.
    running
}

impl Counts {
    pub(super) fn add(count: &AtomicU64, by: usize) {
        count.fetch_add(by as u64, Relaxed);
    }
}

/// Counts a running worker, however it ends.
pub(super) struct Running<'a>(&'a Counts);

impl<'a> Running<'a> {
    pub(super) fn begin(counts: &'a Counts) -> Self {
        counts.running.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}
