//! A chunk on its way in: admitted, staged, compared, taken. Whatever breaks off on the way gives back what it had.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use quaymaster::Code;
use quaymaster::upload::{
    Accepted, Admitted, Held, Last, MAX_PIECE, Offer, Receipt, Refusal, Reservation, Stage, State, Status,
    Upload,
};
use tokio::time::Instant;

use super::GIVEN_UP;
use super::anew::Anew;
use super::callers::Share;
use super::room::{FIRST, Room};
use crate::bytes::{Buffer, Staging, Wanted};
use crate::digest::{Digested, Digesting};
use crate::effect::Effect;
use crate::ledger::Total;
use crate::uploads::Uploads;
use crate::{Digest, Error, Result, Sha256, Trouble};

const OP: &str = "upload.chunk";

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
    /// What had come of it is of no use any more: all of it is to be sent again. Only [`Uploads::receive`] tells it from
    /// [`Took::Busy`].
    Anew {
        /// Why.
        why: Anew,
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
    /// Takes a chunk, as [`Uploads::receive`] does, for whoever only wants to know when to come back.
    pub async fn chunk<S, E>(&self, id: &str, incoming: &Incoming, body: S) -> Result<Took>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        Ok(match self.receive(id, incoming, body).await? {
            Took::Anew { retry_after, .. } => Took::Busy { retry_after },
            took => took,
        })
    }

    /// Takes a chunk, as [`Uploads::receive_from`] does, from a caller that needs not be told from others.
    pub async fn receive<S, E>(&self, id: &str, incoming: &Incoming, body: S) -> Result<Took>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        self.receive_from(None, id, incoming, body).await
    }

    /// Takes a chunk. The body is not read before there is room for its first bytes, and never more than a few pieces
    /// ahead. `caller` names who sends it: while others wait for room, one caller has at most a quarter of it.
    pub async fn receive_from<S, E>(
        &self,
        caller: Option<&str>,
        id: &str,
        incoming: &Incoming,
        body: S,
    ) -> Result<Took>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        let store = &self.inner.store;
        Upload::check_id(OP, id)?;
        // One that does not say its size is no smaller than it must be, until it has come.
        let size = |announced| incoming.size.unwrap_or(store.chunk_min(announced).max(1));
        if let Some(refusal) = store.check(incoming.number, size(None), incoming.last, None) {
            return Ok(Took::Refused(refusal));
        }
        let Some(state) = self.state(id).await? else { return Ok(Took::Unknown) };
        if let Some(closed) = closed(&state, incoming.number) {
            return Ok(closed);
        }
        // What has come before was judged then, also if it is asked for again.
        let asked_again = state.resend().iter().any(|range| range.contains(&incoming.number));
        let announced = state.expected_size.filter(|_| !state.has(incoming.number) && !asked_again);
        if let Some(refusal) = store.check(incoming.number, size(announced), incoming.last, announced) {
            return Ok(Took::Refused(refusal));
        }
        let mut holding = Holding { uploads: self.clone(), staging: None, reservation: None };
        let mut share = self.inner.callers.share(caller);
        let whole = incoming.size.unwrap_or(store.spec().chunk_max);
        if whole > 0
            && let Some(retry_after) =
                self.let_in(&mut holding, &mut share, Reservation::fresh(id, incoming.number), whole).await?
        {
            holding.give_back().await;
            return Ok(Took::Busy { retry_after });
        }
        // Named after the reservation: when that is given up, so are the bytes.
        let stage = holding.reservation.as_ref().map_or_else(Stage::fresh, Reservation::stage);
        let digesting = Digesting::new(self.inner.objects.algorithm(), incoming.sha256.is_some());
        let wanted = Wanted { size: incoming.size, digesting, sending: Arc::clone(&self.inner.sending) };
        holding.staging = Some(self.inner.bytes.stage(store, id, stage, wanted).await?);
        match self.staged(&mut holding, &mut share, incoming, announced, body).await {
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

    /// Reserves room for the first bytes of a chunk of `whole` bytes; when to come back if there is none. A chunk that
    /// would not fit as things are is sent away before it sends anything.
    async fn let_in(
        &self,
        holding: &mut Holding,
        share: &mut Share,
        name: Reservation,
        whole: u64,
    ) -> Result<Option<Duration>> {
        let (store, lease) = (&self.inner.store, self.inner.options.reservation);
        if !share.may_have(whole) {
            return Ok(Some(GIVEN_UP));
        }
        let most = store.spec().max_bytes_in_flight;
        // One that can never fit is refused as that.
        let mut first = if whole > most { whole } else { whole.min(FIRST) };
        let mut admitted = Effect::IngestAdmit.of(store.admit(&name, first, lease)).await?;
        if let Admitted::Admitted { in_flight } = admitted {
            if in_flight.saturating_sub(first).saturating_add(whole) > most {
                first = whole;
                admitted = store.admit(&name, first, lease).await?;
            }
            holding.reservation = Some(name);
        }
        match admitted {
            Admitted::Admitted { .. } => {
                share.has(first);
                Ok(None)
            }
            Admitted::Busy { retry_after, .. } => {
                share.waits();
                Ok(Some(retry_after))
            }
        }
    }

    /// Reads the body to its end.
    async fn staged<S, E>(
        &self,
        holding: &mut Holding,
        share: &mut Share,
        incoming: &Incoming,
        announced: Option<u64>,
        body: S,
    ) -> Result<Staged>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        let Holding { staging: Some(staging), reservation, .. } = holding else {
            return Ok(Staged::Not(Took::Unknown));
        };
        let most = incoming.size.unwrap_or(self.inner.store.spec().chunk_max);
        let (store, lease) = (&self.inner.store, self.inner.options.reservation);
        let mut room = reservation.as_ref().map(|name| Room::new(store, name, lease, share, most));
        let parts = Parts { staging, reservation: reservation.as_ref(), room: room.as_mut() };
        let staged = self.read(parts, incoming, announced, body).await;
        // What was asked for ahead and is not needed any more may fail.
        if let Some(room) = &mut room
            && let Err(error) = room.settle().await
        {
            tracing::debug!(%error, "room for a chunk's bytes was not granted");
        }
        staged
    }

    async fn read<S, E>(
        &self,
        parts: Parts<'_, '_>,
        incoming: &Incoming,
        announced: Option<u64>,
        body: S,
    ) -> Result<Staged>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Display,
    {
        let Parts { staging, reservation, mut room } = parts;
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
                if !self.is_held(reservation).await? {
                    return Ok(Staged::Not(Anew::Lapsed.took()));
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
            if let Some(room) = &mut room {
                let before = room.held();
                if let Some(retry_after) = room.hold(came).await? {
                    return Ok(Staged::Not(Took::Anew { why: Anew::Crowded, retry_after }));
                }
                if room.held() > before {
                    staging.expect(room.held());
                }
            }
            let as_it_comes = || if piece.is_some() { reader.is_one_of_many() } else { reader.is_crowded() };
            if (ENOUGH..=MAX_PIECE).contains(&bytes.len()) && as_it_comes() {
                // What was collected goes first, however little it is: many who hold little hold much.
                if let Some(piece) = piece.take() {
                    Effect::IngestStage.of(staging.write(piece.freeze())).await?;
                }
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
        if let Some(refusal) = self.inner.store.check(incoming.number, came, incoming.last, announced) {
            return Ok(Staged::Not(Took::Refused(refusal)));
        }
        let Digested { digest, sha256 } = Effect::IngestSync.of(staging.finish()).await?;
        // Whoever stood still for so long may find that its bytes were given up, and removed.
        if renewed.elapsed() >= lease / 2 && !self.is_held(reservation).await? {
            return Ok(Staged::Not(Anew::Lapsed.took()));
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
        let took = match self.offered(id, &offer).await? {
            Err(took) => took,
            Ok(Accepted::Taken { receipt, status }) => {
                let kept = async {
                    Effect::IngestKeep.of(staging.keep()).await?;
                    self.learn_total(id, incoming, &receipt).await
                };
                kept.await.map_err(Error::after_a_change)?;
                return Ok(Took::Received { receipt, status, durable: false });
            }
            Ok(Accepted::Known { receipt, status, durable }) => {
                staging.discard().await;
                self.learn_total(id, incoming, &receipt).await?;
                return Ok(Took::Received { receipt, status, durable });
            }
            Ok(Accepted::Conflict) => Took::Conflict,
            Ok(Accepted::Refused(Refusal::Unstaged { .. })) => Anew::Lost.took(),
            Ok(Accepted::Refused(refusal)) => Took::Refused(refusal),
            Ok(Accepted::Closed { status, error }) => Took::Closed { status, error },
            Ok(Accepted::Busy { retry_after }) => Took::Anew { why: Anew::Lapsed, retry_after },
            Ok(Accepted::Unknown) => Took::Unknown,
        };
        self.give_back(Some(staging), reservation).await;
        Ok(took)
    }

    /// Offers a chunk, once more where the store has forgotten its upload; or why that cannot be.
    async fn offered(&self, id: &str, offer: &Offer<'_>) -> Result<Result<Accepted, Took>> {
        let store = &self.inner.store;
        let accepted = Effect::IngestAccept.of(store.accept(id, offer)).await?;
        if accepted != Accepted::Unknown || !self.restore(id).await? {
            return Ok(Ok(accepted));
        }
        // With what it forgot it gave the reservation back.
        if let Some(name) = offer.reservation
            && let Admitted::Busy { retry_after, .. } =
                store.admit(name, offer.size.max(1), self.inner.options.reservation).await?
        {
            return Ok(Err(Took::Busy { retry_after }));
        }
        Ok(match store.accept(id, offer).await? {
            // It has forgotten once more.
            Accepted::Unknown => Err(Anew::Lost.took()),
            accepted => Ok(accepted),
        })
    }

    /// The ledger learns how many chunks there are before the last one is acknowledged, so that this is known even if
    /// the store forgets everything.
    async fn learn_total(&self, id: &str, incoming: &Incoming, receipt: &Receipt) -> Result<()> {
        let Some(total) = receipt.total_chunks.filter(|_| incoming.last == Last::Yes) else {
            return Ok(());
        };
        // Errors and not refusals, which say that nothing of the chunk was kept.
        let wrong = |code, why: String| Err(Error::new(OP, Trouble::Never, why).coded(code));
        match Effect::IngestTotal.of(self.inner.ledger.learn_total(id, total)).await? {
            Total::Known { all } => {
                if all {
                    self.inner.whole.notify_one();
                }
                Ok(())
            }
            Total::Differs { total } => {
                let other = Refusal::OtherLast { last: total.saturating_sub(1) };
                wrong(Code::UploadRefused, other.to_string())
            }
            Total::Closed(_) => Ok(()),
            Total::Unknown => wrong(Code::UploadUnknown, format!("the upload {id} was forgotten meanwhile")),
        }
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

/// What a body is read with.
struct Parts<'a, 'r> {
    staging: &'a mut Staging,
    reservation: Option<&'a Reservation>,
    room: Option<&'a mut Room<'r>>,
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
