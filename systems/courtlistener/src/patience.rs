//! Waiting for a store that is away, or for room in it.

use std::time::Duration;

use quaymaster::{Error, Retry};
use tokio_util::sync::CancellationToken;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Longer and longer pauses that a stop ends.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    stop: &'a CancellationToken,
    pause: Duration,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(stop: &'a CancellationToken) -> Self {
        Self { stop, pause: FIRST }
    }

    /// Waits after an error that may pass; false when told to stop. An error that will not pass comes back.
    pub(crate) async fn after(&mut self, error: Error) -> Result<bool, Error> {
        if error.code.retry() == Retry::Useless {
            return Err(error);
        }
        if self.pause == FIRST {
            tracing::warn!(code = %error.code, detail = error.detail, "the store does not answer; waiting for it");
        }
        let pause = self.pause.mul_f64(0.75 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).min(LONGEST);
        Ok(self.pause(pause).await)
    }

    /// Waits; false when told to stop.
    pub(crate) async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}
