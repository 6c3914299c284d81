//! A chunk on its way in: admitted, staged, compared, taken. Whatever breaks off on the way gives back what it had.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use quaymaster::upload::{
    Accepted, Admitted, Held, Last, MAX_PIECE, Offer, Receipt, Refusal, Reservation, Stage, State, Status,
    Upload,
};
use tokio::time::Instant;

use crate::bytes::{Buffer, Staging, Wanted};
use crate::digest::{Digested, Digesting};
use crate::effect::Effect;
use crate::ledger::Total;
use crate::uploads::Uploads;
use crate::{Digest, Error, Result, Sha256, Trouble};

const OP: &str = "upload.chunk";

/// When to come back whose reservation was given up while it stood still.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// What is worth being written by itself.
const ENOUGH: usize = 6 * 1024;

/// What is said of a chunk before its bytes come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming {
    /// Its number, from 0.
    pub number: u32,
    /// Whether it is the last one.
    pub last: Last,
    /// How many bytes it has, if that is said.
    pub size: Option<u64>,
    /// Their digest, if that is said.
    pub sha256: Option<Sha256>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "only what was received is acknowledged"]
pub enum Took {
    /// It is received, by this call or an earlier one.
    Received {
        /// How far the upload has come.
        receipt: Receipt,
        /// Its status.
        status: Status,
        /// Whether the chunk is durable already.
        durable: bool,
    },
    /// Too many bytes are in flight.
    Busy {
        /// When to come back.
        retry_after: Duration,
    },
    /// Other bytes have come under this number.
    Conflict,
    /// It cannot be a chunk of this upload.
    Refused(Refusal),
    /// The upload takes no more.
    Closed {
        /// Its status.
        status: Status,
        /// Why, when it failed.
        error: String,
    },
    /// The bytes are not those that were announced.
    Digest {
        /// What came.
        sha256: Sha256,
    },
    /// The bytes are not as many as announced.
    Length {
        /// So many came.
        size: u64,
    },
    /// The client broke off.
    Broken(String),
    /// There is no such upload.
    Unknown,
}

/// What a request holds until its chunk is taken. Dropped early, it gives everything back.
struct Holding {
    uploads: Uploads,
    staging: Option<Staging>,
    reservation: Option<Reservation>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let (staging, reservation) = (self.staging.take(), self.reservation.take());
        if staging.is_none() && reservation.is_none() {
            return;
        }
        let uploads = self.uploads.clone();
        // Without a runtime the process is on its way out, and all of it expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { uploads.give_back(staging, reservation).await });
        }
    }
}

impl Holding {
    async fn give_back(mut self) {
        let (staging, reservation) = (self.staging.take(), self.reservation.take());
        self.uploads.give_back(staging, reservation).await;
    }
}

impl Uploads {
    /// Takes a chunk. The body is not read before its bytes are admitted, and never more than a few pieces ahead.
    pub async fn chunk<S, E>(&self, id: &str, incoming: &Incoming, body: S) -> Result<Took>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        let store = &self.inner.store;
        Upload::check_id(OP, id)?;
        let spec = store.spec();
        let least = incoming.size.unwrap_or(spec.chunk_min.max(1));
        if let Some(refusal) = store.check(incoming.number, least, incoming.last) {
            return Ok(Took::Refused(refusal));
        }
        let Some(state) = self.state(id).await? else { return Ok(Took::Unknown) };
        if let Some(closed) = closed(&state, incoming.number) {
            return Ok(closed);
        }
        let mut holding = Holding { uploads: self.clone(), staging: None, reservation: None };
        let reserve = incoming.size.unwrap_or(spec.chunk_max);
        if reserve > 0 {
            let name = Reservation::fresh(id, incoming.number);
            let lease = self.inner.options.reservation;
            let admitted = Effect::IngestAdmit.of(store.admit(&name, reserve, lease)).await?;
            if let Admitted::Busy { retry_after, .. } = admitted {
                return Ok(Took::Busy { retry_after });
            }
            holding.reservation = Some(name);
        }
        // Named after the reservation: when that is given up, so are the bytes.
        let stage = holding.reservation.as_ref().map_or_else(Stage::fresh, Reservation::stage);
        let digesting = Digesting::new(self.inner.objects.algorithm(), incoming.sha256.is_some());
        let wanted = Wanted { size: incoming.size, digesting, sending: Arc::clone(&self.inner.sending) };
        holding.staging = Some(self.inner.bytes.stage(store, id, stage, wanted).await?);
        match self.staged(&mut holding, incoming, body).await {
            Ok(Staged::Whole(digest)) => self.offer(id, holding, incoming, &digest).await,
            Ok(Staged::Not(took)) => {
                holding.give_back().await;
                Ok(took)
            }
            Err(error) => {
                holding.give_back().await;
                // Whoever ended the upload meanwhile has removed what these bytes were staged in.
                let state = self.state(id).await.ok().flatten();
                state.and_then(|state| closed(&state, incoming.number)).ok_or(error)
            }
        }
    }

    /// Reads the body to its end.
    async fn staged<S, E>(&self, holding: &mut Holding, incoming: &Incoming, body: S) -> Result<Staged>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        let Holding { staging: Some(staging), reservation, .. } = holding else {
            return Ok(Staged::Not(Took::Unknown));
        };
        let most = incoming.size.unwrap_or(self.inner.store.spec().chunk_max);
        let lease = self.inner.options.reservation;
        let (mut body, mut renewed) = (pin!(body), Instant::now());
        let mut reader = self.inner.pool.reader();
        let mut piece: Option<Buffer> = None;
        let mut came = 0u64;
        loop {
            // A client that is slow keeps its reservation for as long as it sends.
            if renewed.elapsed() >= lease / 3 {
                let asked = Instant::now();
                if !self.is_held(reservation.as_ref()).await? {
                    return Ok(Staged::Not(Took::Busy { retry_after: GIVEN_UP }));
                }
                renewed = asked;
                // What is staged ends by itself when nothing more comes: a client that sends a piece in an hour would
                // find the ones before it gone.
                if let Some(piece) = piece.take() {
                    Effect::IngestStage.of(staging.write(piece.freeze())).await?;
                }
            }
            let Ok(next) = tokio::time::timeout(lease / 3, body.next()).await else { continue };
            let mut bytes = match next {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => return Ok(Staged::Not(Took::Broken(error.to_string()))),
                None => break,
            };
            came += bytes.len() as u64;
            if came > most {
                let longer = Took::Refused(Refusal::TooLarge { most });
                return Ok(Staged::Not(if incoming.size.is_some() {
                    Took::Length { size: came }
                } else {
                    longer
                }));
            }
            if piece.is_none() && (ENOUGH..=MAX_PIECE).contains(&bytes.len()) && reader.is_crowded() {
                // While this one waits for the disk, others come.
                Effect::IngestStage.of(staging.pass(bytes)).await?;
                continue;
            }
            while !bytes.is_empty() {
                let left = most - (came - bytes.len() as u64);
                let filled = piece.get_or_insert_with(|| reader.buffer(left));
                filled.fill(&mut bytes);
                if let Some(piece) = piece.take_if(|piece| piece.is_full()) {
                    Effect::IngestStage.of(staging.write(piece.freeze())).await?;
                }
            }
        }
        if let Some(piece) = piece {
            Effect::IngestStage.of(staging.write(piece.freeze())).await?;
        }
        if incoming.size.is_some_and(|size| size != came) {
            return Ok(Staged::Not(Took::Length { size: came }));
        }
        let Digested { digest, sha256 } = Effect::IngestSync.of(staging.finish()).await?;
        // Whoever stood still for so long may find that its bytes were given up, and removed.
        if renewed.elapsed() >= lease / 2 && !self.is_held(reservation.as_ref()).await? {
            return Ok(Staged::Not(Took::Busy { retry_after: GIVEN_UP }));
        }
        match (incoming.sha256, sha256) {
            (None, _) => Ok(Staged::Whole(digest)),
            (Some(announced), Some(came)) if came == announced => Ok(Staged::Whole(digest)),
            (Some(_), Some(sha256)) => Ok(Staged::Not(Took::Digest { sha256 })),
            // Asked for when the staging began.
            (Some(_), None) => Err(Error::new(OP, Trouble::Never, "the announced digest was not computed")),
        }
    }

    /// Whether a reservation, if there is one, is still ours; from now on for as long as at its beginning.
    async fn is_held(&self, reservation: Option<&Reservation>) -> Result<bool> {
        let Some(name) = reservation else { return Ok(true) };
        let held = self.inner.store.renew(&[name], self.inner.options.reservation).await?;
        Ok(held == [Held::Ours])
    }

    async fn offer(
        &self,
        id: &str,
        mut holding: Holding,
        incoming: &Incoming,
        digest: &Digest,
    ) -> Result<Took> {
        // From here on nobody knows whether the bytes are a chunk's until there is an answer: without one they stay,
        // and what nobody needs expires.
        let (staging, reservation) = (holding.staging.take(), holding.reservation.take());
        let Some(staging) = staging else { return Ok(Took::Unknown) };
        let offer = Offer {
            number: incoming.number,
            size: staging.size(),
            digest,
            last: incoming.last,
            source: staging.source(),
            reservation: reservation.as_ref(),
        };
        let mut accepted = Effect::IngestAccept.of(self.inner.store.accept(id, &offer)).await?;
        if accepted == Accepted::Unknown && self.restore(id).await? {
            accepted = match self.offer_again(id, &offer).await? {
                // It has forgotten once more: to be sent anew.
                Accepted::Unknown => Accepted::Busy { retry_after: GIVEN_UP },
                accepted => accepted,
            };
        }
        let took = match accepted {
            Accepted::Taken { receipt, status } => {
                Effect::IngestKeep.of(staging.keep()).await?;
                let total = self.learn_total(id, incoming, &receipt).await?;
                return Ok(total.unwrap_or(Took::Received { receipt, status, durable: false }));
            }
            Accepted::Known { receipt, status, durable } => {
                staging.discard().await;
                let total = self.learn_total(id, incoming, &receipt).await?;
                return Ok(total.unwrap_or(Took::Received { receipt, status, durable }));
            }
            Accepted::Conflict => Took::Conflict,
            // The store lost them on the way: to be sent anew.
            Accepted::Refused(Refusal::Unstaged { .. }) => Took::Busy { retry_after: GIVEN_UP },
            Accepted::Refused(refusal) => Took::Refused(refusal),
            Accepted::Closed { status, error } => Took::Closed { status, error },
            Accepted::Busy { retry_after } => Took::Busy { retry_after },
            Accepted::Unknown => Took::Unknown,
        };
        self.give_back(Some(staging), reservation).await;
        Ok(took)
    }

    /// Offers a chunk whose upload the store had forgotten, and gave its reservation back.
    async fn offer_again(&self, id: &str, offer: &Offer<'_>) -> Result<Accepted> {
        if let Some(name) = offer.reservation
            && let Admitted::Busy { retry_after, .. } =
                self.inner.store.admit(name, offer.size.max(1), self.inner.options.reservation).await?
        {
            return Ok(Accepted::Busy { retry_after });
        }
        Ok(self.inner.store.accept(id, offer).await?)
    }

    /// The ledger learns how many chunks there are before the last one is acknowledged, so that this is known even if
    /// the store forgets everything.
    async fn learn_total(&self, id: &str, incoming: &Incoming, receipt: &Receipt) -> Result<Option<Took>> {
        let Some(total) = receipt.total_chunks.filter(|_| incoming.last == Last::Yes) else {
            return Ok(None);
        };
        Ok(match Effect::IngestTotal.of(self.inner.ledger.learn_total(id, total)).await? {
            Total::Known { all } => {
                if all {
                    self.inner.whole.notify_one();
                }
                None
            }
            Total::Differs { total } => {
                Some(Took::Refused(Refusal::OtherLast { last: total.saturating_sub(1) }))
            }
            Total::Closed(_) => None,
            Total::Unknown => Some(Took::Unknown),
        })
    }

    async fn give_back(&self, staging: Option<Staging>, reservation: Option<Reservation>) {
        if let Some(staging) = staging {
            staging.discard().await;
        }
        if let Some(name) = reservation
            && let Err(error) = self.inner.store.give_back(&name).await
        {
            tracing::debug!(%error, "a reservation is left to lapse");
        }
    }
}

enum Staged {
    Whole(Digest),
    Not(Took),
}

/// Why a chunk that has not come yet cannot come any more.
fn closed(state: &State, number: u32) -> Option<Took> {
    let open = matches!(state.status, Status::Pending | Status::Uploading);
    // The same bytes again get the same answer, also when their object is long there.
    let known = state.has(number) && matches!(state.status, Status::Completing | Status::Completed);
    (!open && !known)
        .then(|| Took::Closed { status: state.status, error: state.error.clone().unwrap_or_default() })
}
