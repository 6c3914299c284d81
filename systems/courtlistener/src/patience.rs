//! Waiting for a store that is away, as long as the document says.

use std::time::Duration;

use quaymaster::store::backoff::Backoff;
use quaymaster::{Error, Retry};
use tokio_util::sync::CancellationToken;

/// Longer and longer pauses that a stop ends.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    stop: &'a CancellationToken,
    failures: u32,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(stop: &'a CancellationToken) -> Self {
        Self { stop, failures: 0 }
    }

    /// Waits after an error that may pass; false when told to stop. An error that will not pass comes back.
    pub(crate) async fn after(&mut self, error: Error) -> Result<bool, Error> {
        if error.code.retry() == Retry::Useless {
            return Err(error);
        }
        if self.failures == 0 {
            tracing::warn!(code = %error.code, detail = error.detail, "the store does not answer; waiting for it");
        }
        self.failures = self.failures.saturating_add(1);
        Ok(self.pause(Backoff::default().delay(self.failures)).await)
    }

    /// Waits; false when told to stop.
    pub(crate) async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}
