//! What a limit says in the log: at level debug each take that was allowed; takes that were refused, together and once a second, and that its window has turned.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::Limit;
use super::answer::Quota;
use crate::moment;
use crate::throttle::Throttle;

/// The turn of a shorter window is nothing to tell everybody.
const TOLD_FROM: Duration = Duration::from_secs(3600);

/// What was said so far by this process.
#[derive(Debug, Default)]
pub(super) struct Said {
    refused: Throttle,
    /// When the newest bucket that was seen ends, in microseconds; 0 before the first.
    ends_us: AtomicI64,
}

impl Limit {
    /// A take was allowed. Where nobody listens at this level it costs a look at one number.
    pub(super) fn say_allowed(&self, quota: &Quota) {
        tracing::debug!(limit = self.name(), used = quota.used, of = quota.limit, "a take was allowed");
    }

    /// A take was refused: a line at most every second, whatever comes.
    pub(super) fn say_refused(&self, quota: &Quota, retry_after: Option<Duration>) {
        if let Some(refused) = self.said.refused.note(1, Instant::now()) {
            tracing::info!(
                limit = self.name(),
                refused,
                used = quota.used,
                of = quota.limit,
                retry_after_ms = retry_after.map(|wait| wait.as_millis()),
                "takes were refused"
            );
        }
    }

    /// The store counts in the bucket of `now_us`: a line when that is a new one.
    pub(super) fn say_turn(&self, now_us: i64) {
        let known_us = self.said.ends_us.load(Relaxed);
        if now_us < known_us {
            return;
        }
        let (start_ms, end_ms) = self.bound.bucket_ms(now_us);
        // A key without a bucket never turns.
        let ends_us = if end_ms == 0 { i64::MAX } else { end_ms.saturating_mul(1000) };
        let first = self.said.ends_us.compare_exchange(known_us, ends_us, Relaxed, Relaxed);
        if known_us == 0 || first.is_err() {
            return;
        }
        let begins = moment::document_text(start_ms.saturating_mul(1000)) + "Z";
        if self.spec.window >= TOLD_FROM {
            tracing::info!(limit = self.name(), begins, "a new window has begun; its count starts at 0");
        } else {
            tracing::debug!(limit = self.name(), begins, "a new window has begun; its count starts at 0");
        }
    }
}
