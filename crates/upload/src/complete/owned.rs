//! Uploads whose end this process works on, each with what makes it stop: whoever has to go before it is done gives them
//! back, and the next one has them at once.

use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Fence, Moved};
use crate::uploads::Uploads;

#[derive(Debug, Default)]
pub(crate) struct Owned(Mutex<Vec<(Fence, CancellationToken)>>);

/// One of them, for as long as it is worked on, however that ends.
pub(super) struct Mine<'a> {
    owned: &'a Owned,
    fence: Fence,
    given_back: CancellationToken,
}

impl Owned {
    pub(super) fn begin(&self, fence: &Fence) -> Mine<'_> {
        let given_back = CancellationToken::new();
        self.0.lock().push((fence.clone(), given_back.clone()));
        Mine { owned: self, fence: fence.clone(), given_back }
    }
}

impl Mine<'_> {
    pub(super) async fn given_back(&self) {
        self.given_back.cancelled().await;
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.owned.0.lock().retain(|(fence, _)| *fence != self.fence);
    }
}

impl Uploads {
    /// Stops work on the completions and ends that this process owns and gives them back, wherever they stand; how many
    /// there were. The next owner begins with a look at the object, as after a crash.
    pub async fn give_completions_back(&self) -> u64 {
        let owned: Vec<(Fence, CancellationToken)> = self.inner.owned.0.lock().drain(..).collect();
        for (_, stop) in &owned {
            stop.cancel();
        }
        let given = owned.iter().map(async |(fence, _)| {
            match self.inner.ledger.release(fence, Duration::ZERO, "").await {
                Ok(Moved::Moved(_)) => 1,
                Ok(Moved::Lost(_) | Moved::Unknown) => 0,
                Err(error) => {
                    tracing::debug!(upload_id = fence.upload_id(), %error, "a completion's lease is left to end");
                    0
                }
            }
        });
        join_all(given).await.into_iter().sum()
    }
}
