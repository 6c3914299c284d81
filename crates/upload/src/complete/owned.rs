//! Uploads whose end this process works on, each with what makes it stop: whoever has to go before it is done gives them
//! back, and the next one has them at once.

use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Fence, Moved};
use crate::uploads::Uploads;

#[derive(Debug, Default)]
pub(crate) struct Owned(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    owned: Vec<(Fence, CancellationToken)>,
    /// Whether all were given back: then nothing more is begun.
    closed: bool,
}

/// One of them, for as long as it is worked on, however that ends.
pub(super) struct Mine<'a> {
    owned: &'a Owned,
    fence: Fence,
    given_back: CancellationToken,
}

impl Owned {
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// `None` when all were given back while this one was claimed.
    pub(super) fn begin(&self, fence: &Fence) -> Option<Mine<'_>> {
        let mut held = self.0.lock();
        if held.closed {
            return None;
        }
        let given_back = CancellationToken::new();
        held.owned.push((fence.clone(), given_back.clone()));
        Some(Mine { owned: self, fence: fence.clone(), given_back })
    }
}

impl Mine<'_> {
    pub(super) async fn given_back(&self) {
        self.given_back.cancelled().await;
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.owned.0.lock().owned.retain(|(fence, _)| *fence != self.fence);
    }
}

impl Uploads {
    /// Stops work on the completions and ends that this process owns and gives them back, wherever they stand; how many
    /// there were. The next owner begins with a look at the object, as after a crash. Nothing more is begun here.
    pub async fn give_completions_back(&self) -> u64 {
        let owned: Vec<(Fence, CancellationToken)> = {
            let mut held = self.inner.owned.0.lock();
            held.closed = true;
            held.owned.drain(..).collect()
        };
        for (_, stop) in &owned {
            stop.cancel();
        }
        let given = join_all(owned.iter().map(|(fence, _)| self.give_completion_back(fence))).await;
        given.into_iter().map(u64::from).sum()
    }

    /// Whether it was ours.
    pub(super) async fn give_completion_back(&self, fence: &Fence) -> bool {
        match self.inner.ledger.release(fence, Duration::ZERO, "").await {
            Ok(Moved::Moved(_)) => true,
            Ok(Moved::Lost(_) | Moved::Unknown) => false,
            Err(error) => {
                tracing::debug!(upload_id = fence.upload_id(), %error, "a completion's lease is left to end");
                false
            }
        }
    }
}
