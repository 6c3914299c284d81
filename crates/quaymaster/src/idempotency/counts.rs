//! What an idempotency answered so far in this process, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Abandoned, Begun, Finished};
use crate::Result;

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
    /// Claims given.
    started
    /// Begins that found somebody else running the operation.
    in_progress
    /// Begins that were told what the operation answered.
    replayed
    /// Begins with another request under the same key.
    mismatch
    /// Begins that failed.
    begin_errors
    /// Begins that waited for another's claim to end.
    waited
    /// Claims finished.
    finished
    /// Finishes whose response was not kept, although one was given.
    not_kept
    /// Claims given back.
    abandoned
    /// Finishes and abandons of a claim that was not theirs any more.
    lost
    /// Finishes and abandons that failed.
    settle_errors
}

impl Counts {
    pub(super) fn begun(&self, answer: &Result<Begun>) {
        let count = match answer {
            Ok(Begun::Started(_)) => &self.started,
            Ok(Begun::InProgress { .. }) => &self.in_progress,
            Ok(Begun::Finished(_)) => &self.replayed,
            Ok(Begun::Mismatch) => &self.mismatch,
            Err(_) => &self.begin_errors,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn finished_with(&self, answer: &Result<Finished>, response: Option<&[u8]>) {
        let count = match answer {
            Ok(Finished::Finished { kept, .. }) => {
                if !kept && response.is_some() {
                    self.not_kept.fetch_add(1, Relaxed);
                }
                &self.finished
            }
            Ok(Finished::Lost) => &self.lost,
            Err(_) => &self.settle_errors,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn abandoned_with(&self, answer: &Result<Abandoned>) {
        let count = match answer {
            Ok(Abandoned::Abandoned | Abandoned::Away(_)) => &self.abandoned,
            Ok(Abandoned::Lost) => &self.lost,
            Err(_) => &self.settle_errors,
        };
        count.fetch_add(1, Relaxed);
    }
}
