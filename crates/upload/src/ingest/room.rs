//! Room for a chunk's bytes among those in flight. It grows with the bytes that came, not with those that were announced:
//! a sender that takes its time holds little of it.

use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quaymaster::upload::{Admitted, Reservation, Upload};

use super::callers::Share;
use crate::Result;

/// What a chunk begins with.
pub(super) const FIRST: u64 = 16 << 10;

/// So many times what has come is reserved. Large, because every growth is a call of the store.
const AHEAD: u64 = 32;

/// What one chunk has reserved.
pub(super) struct Room<'a> {
    store: &'a Upload,
    name: &'a Reservation,
    lease: Duration,
    share: &'a mut Share,
    /// The most that the chunk can need.
    most: u64,
    /// More of it, asked for before it is needed.
    asking: Option<(u64, BoxFuture<'a, quaymaster::Result<Admitted>>)>,
    /// It was asked for too early: it is asked for again when it is needed.
    refused: bool,
}

impl<'a> Room<'a> {
    pub(super) fn new(
        store: &'a Upload,
        name: &'a Reservation,
        lease: Duration,
        share: &'a mut Share,
        most: u64,
    ) -> Self {
        Self { store, name, lease, share, most, asking: None, refused: false }
    }

    /// So many bytes of the chunk have room.
    pub(super) fn held(&self) -> u64 {
        self.share.held()
    }

    /// Makes sure that there is room for the `came` bytes of the chunk that are here; when to come back if there is none.
    pub(super) async fn hold(&mut self, came: u64) -> Result<Option<Duration>> {
        let held = self.share.held();
        if came <= held {
            if came > held / 2 && held < self.most && self.asking.is_none() && !self.refused {
                self.refused = !self.ask(came);
            }
            // A call that was begun goes on by itself; it is only looked at here.
            if let Some((wanted, mut asking)) = self.asking.take() {
                match futures_util::poll!(asking.as_mut()) {
                    Poll::Pending => self.asking = Some((wanted, asking)),
                    Poll::Ready(Ok(answer)) => self.refused = self.heard(wanted, answer).is_some(),
                    // It is not needed yet.
                    Poll::Ready(Err(_)) => self.refused = true,
                }
            }
            return Ok(None);
        }
        self.settle().await?;
        if came <= self.share.held() {
            return Ok(None);
        }
        if !self.ask(came) {
            return Ok(Some(super::GIVEN_UP));
        }
        self.settle().await
    }

    /// Waits for what was asked for. Nothing may be decided about the reservation while that is on its way.
    pub(super) async fn settle(&mut self) -> Result<Option<Duration>> {
        let Some((wanted, asking)) = self.asking.take() else { return Ok(None) };
        let answer = asking.await?;
        Ok(self.heard(wanted, answer))
    }

    /// Asks for more; `false` if its caller may not have it.
    fn ask(&mut self, came: u64) -> bool {
        let wanted = came.saturating_mul(AHEAD).min(self.most).max(came);
        if !self.share.may_have(wanted) {
            return false;
        }
        let (store, name, lease) = (self.store, self.name, self.lease);
        self.asking = Some((wanted, Box::pin(store.admit(name, wanted, lease))));
        true
    }

    fn heard(&mut self, wanted: u64, answer: Admitted) -> Option<Duration> {
        match answer {
            Admitted::Admitted { .. } => {
                self.share.has(wanted);
                self.refused = false;
                None
            }
            Admitted::Busy { retry_after, .. } => {
                self.share.waits();
                Some(retry_after)
            }
        }
    }
}
