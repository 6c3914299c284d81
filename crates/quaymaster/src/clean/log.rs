//! What the log says of keys that a clean-up deletes: a line a second, and the rest at its end.

use std::time::Instant;

use super::{Finding, What};
use crate::throttle::Throttle;

/// Deletions of one clean-up.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    throttle: Throttle,
    resource: String,
}

impl Deletions {
    /// Notes a finding, which may be a key that was deleted.
    pub(super) fn note(&mut self, finding: &Finding) {
        if finding.what != What::Stale || !finding.done {
            return;
        }
        self.resource.clone_from(&finding.resource);
        if let Some(deleted) = self.throttle.note(1, Instant::now()) {
            self.tell(deleted);
        }
    }

    /// Keys are left out: they may hold what only the report's reader may see.
    fn tell(&self, deleted: u64) {
        tracing::info!(deleted, resource = self.resource, "keys that were over are deleted");
    }
}

impl Drop for Deletions {
    fn drop(&mut self) {
        let untold = self.throttle.rest();
        if untold > 0 {
            self.tell(untold);
        }
    }
}
