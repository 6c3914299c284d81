//! What a guard answered so far in this process, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Entered, Left, Settled};
use crate::Result;
use crate::lock::Released;

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident)*) => {
        /// Answers given so far by this process.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counts {
            $($(#[$meta])* pub fn $name(&self) -> u64 {
                self.$name.load(Relaxed)
            })*
        }
    };
}

counts! {
    /// Calls of `enter` that may go ahead.
    entered
    /// Calls of `enter` that a limit refused.
    limited
    /// Calls of `enter` that found somebody else running the operation.
    in_progress
    /// Calls of `enter` that were told what the operation answered.
    replayed
    /// Calls of `enter` with another request under the same key.
    mismatch
    /// Calls of `enter` that found the lock held.
    held
    /// Calls of `enter` that failed.
    enter_errors
    /// Calls of `leave` in which every part was still ours.
    left
    /// Calls of `leave` in which a part was lost.
    left_lost
    /// Calls of `leave` that failed.
    leave_errors
    /// Keys rendered again because the store's time was in another bucket.
    stale
    /// Steps of `enter` given back because a later one said no.
    given_back
    /// Steps that could not be given back: their leases end by themselves, their quota with its window.
    not_given_back
}

impl Counts {
    pub(super) fn note_enter(&self, answer: &Result<Entered>) {
        let count = match answer {
            Ok(Entered::Entered(_)) => &self.entered,
            Ok(Entered::Limited(_)) => &self.limited,
            Ok(Entered::InProgress { .. }) => &self.in_progress,
            Ok(Entered::Finished(_)) => &self.replayed,
            Ok(Entered::Mismatch) => &self.mismatch,
            Ok(Entered::Held { .. }) => &self.held,
            Err(_) => &self.enter_errors,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn note_leave(&self, answer: &Result<Left>) {
        let count = match answer {
            Ok(left) if left.idempotency == Some(Settled::Lost) || left.lock == Some(Released::Lost) => {
                &self.left_lost
            }
            Ok(_) => &self.left,
            Err(_) => &self.leave_errors,
        };
        count.fetch_add(1, Relaxed);
    }
}
