//! Out of the store: chunks become parts of an object. A part is sent, then recorded in the ledger, and only then are its
//! bytes removed; whoever dies in between leaves a chunk whose lease ends, and the next one begins where the ledger says.

mod pool;

pub(crate) use pool::Leases;

use std::time::Instant;

use quaymaster::upload::{Chunk, Claim, Failed, Held, Next, Shipped};

use crate::effect::Effect;
use crate::ledger::{Moved, Part, RecordPart, Sending, Total};
use crate::objects::{MultipartId, PartBody};
use crate::uploads::Uploads;
use crate::{Error, Result, Trouble};

/// Attempts beyond those that failed by the object store's word, before a chunk is believed to kill whoever ships it.
const SPARE: u32 = 20;

/// The ETag of a part without bytes, which no object store is asked to keep.
const EMPTY: &str = "\"empty\"";

/// What became of a claimed chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is durable.
    Durable,
    /// Its bytes are gone; the client is asked for them.
    Missing,
    /// It comes again.
    Again,
    /// Its upload has FAILED.
    GivenUp,
    /// It is somebody else's, or its upload goes another way.
    Elsewhere,
}

/// Why a chunk did not become durable.
enum Unshipped {
    /// The object store did not take the part.
    Refused(Error),
    /// Anything else: it comes again.
    Other(Error),
}

impl<E: Into<Error>> From<E> for Unshipped {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

impl Uploads {
    /// Claims up to `count` chunks that wait and ships them one after the other; what became of each.
    pub async fn ship_once(&self, count: usize) -> Result<Vec<Sent>> {
        let lease = self.inner.options.lease;
        let claim = Claim { count, lease, wait: std::time::Duration::ZERO };
        let claimed = Effect::ShipClaim.of(self.inner.store.claim(claim)).await?;
        let mut sent = Vec::new();
        for chunk in &claimed.chunks {
            sent.push(self.ship_chunk(chunk).await);
        }
        Ok(sent)
    }

    pub(crate) async fn ship_chunk(&self, chunk: &Chunk) -> Sent {
        let (id, number) = (chunk.lease.upload_id(), chunk.lease.number());
        let attempts = self.inner.options.attempts;
        let sent = if chunk.attempt > attempts + SPARE {
            let reason =
                format!("chunk {number} was tried {} times, and no attempt ended", chunk.attempt - 1);
            self.give_up(chunk, &reason).await
        } else {
            match self.try_ship(chunk).await {
                Ok(sent) => return sent,
                Err(unshipped) => {
                    let (Unshipped::Refused(error) | Unshipped::Other(error)) = &unshipped;
                    tracing::warn!(upload_id = id, number, attempt = chunk.attempt, %error, "a chunk was not shipped");
                    match &unshipped {
                        Unshipped::Refused(error) => self.refused(chunk, error).await,
                        Unshipped::Other(error) => self.again(chunk, &error.to_string()).await,
                    }
                }
            }
        };
        sent.unwrap_or_else(|error| {
            // Its lease ends, and it is claimed again.
            tracing::warn!(upload_id = id, number, %error, "the store did not hear what became of a chunk");
            Sent::Again
        })
    }

    async fn try_ship(&self, chunk: &Chunk) -> Result<Sent, Unshipped> {
        let (id, number) = (chunk.lease.upload_id(), chunk.lease.number() + 1);
        let digest = chunk.digest;
        // Whoever had it before may have come as far as the ledger.
        let Sending { adopted, part } = self.inner.ledger.sending(id, number).await?;
        match part {
            Some(part) if part.digest == digest => return Ok(self.durable(chunk, &part.etag).await?),
            Some(_) => return Ok(self.catch_up(id).await?),
            None => {}
        }
        let started = Instant::now();
        let etag = if chunk.size == 0 {
            EMPTY.to_owned()
        } else {
            let Some(opened) = self.inner.bytes.open(&self.inner.store, chunk, &self.inner.fetching).await?
            else {
                return Ok(self.missing(chunk).await?);
            };
            let (source, lent) = opened.take();
            let body = PartBody { size: chunk.size, digest, source };
            let begun = &*chunk.multipart_id;
            let multipart = if adopted { MultipartId::of_others(begun) } else { MultipartId::new(begun) };
            let part = self.inner.objects.part(&chunk.key, &multipart, number, body);
            match Effect::ShipPart.of(part).await {
                Ok(etag) => {
                    self.inner.figures.shipped.observe(started.elapsed());
                    etag
                }
                Err(_) if lent.was_cut() => return Ok(self.missing(chunk).await?),
                Err(error) if other_bytes(&error) && !self.is_whole(chunk).await? => {
                    return Ok(self.missing(chunk).await?);
                }
                Err(error) => return Err(Unshipped::Refused(error)),
            }
        };
        let part = Part { number, etag, size: chunk.size, digest };
        let recorded = self.inner.ledger.record_part(id, &chunk.multipart_id, &part);
        match Effect::ShipRecord.of(recorded).await? {
            RecordPart::Durable { .. } => Ok(self.durable(chunk, &part.etag).await?),
            RecordPart::Differs(_) | RecordPart::Closed(_) => Ok(self.catch_up(id).await?),
            RecordPart::Unknown => {
                let reason = "the ledger does not know this upload";
                let _ = self.inner.store.failed(&chunk.lease, reason, Next::GiveUp).await?;
                Ok(Sent::GivenUp)
            }
        }
    }

    /// Whether its bytes are still the ones that were received.
    async fn is_whole(&self, chunk: &Chunk) -> Result<bool> {
        self.inner.bytes.verify(&self.inner.store, chunk, &self.inner.fetching).await
    }

    /// The part is in the ledger: its bytes go.
    async fn durable(&self, chunk: &Chunk, etag: &str) -> Result<Sent> {
        let (uploads, chunk, etag) = (self.clone(), chunk.clone(), etag.to_owned());
        to_its_end(async move { uploads.tell_durable(&chunk, &etag).await }).await
    }

    async fn tell_durable(&self, chunk: &Chunk, etag: &str) -> Result<Sent> {
        let id = chunk.lease.upload_id();
        Effect::ShipRemove.of(self.inner.bytes.remove(id, &chunk.place)).await?;
        match Effect::ShipShown.of(self.inner.store.shipped(&chunk.lease, etag)).await? {
            Shipped::Durable(receipt) => {
                if let Some(total) = receipt.total_chunks.filter(|_| receipt.complete) {
                    // The request that brought the last chunk may have died before the ledger knew.
                    let learned = Effect::ShipTotal.of(self.inner.ledger.learn_total(id, total)).await?;
                    if learned == (Total::Known { all: true }) {
                        self.inner.whole.notify_one();
                    }
                }
                Ok(Sent::Durable)
            }
            Shipped::Lost => Ok(Sent::Elsewhere),
            Shipped::Unknown => {
                self.restore(id).await?;
                Ok(Sent::Durable)
            }
        }
    }

    async fn missing(&self, chunk: &Chunk) -> Result<Sent> {
        let (uploads, chunk) = (self.clone(), chunk.clone());
        to_its_end(async move { uploads.tell_missing(&chunk).await }).await
    }

    async fn tell_missing(&self, chunk: &Chunk) -> Result<Sent> {
        let (upload_id, number) = (chunk.lease.upload_id(), chunk.lease.number());
        tracing::warn!(
            upload_id,
            number,
            "the bytes of a chunk are gone; the client is asked for them again"
        );
        match Effect::ShipMissing.of(self.inner.store.missing(&chunk.lease)).await? {
            Held::Ours => {
                // What is left of them, or came in their place; it goes with the upload's end or its own time in any case.
                if let Err(error) = self.inner.bytes.remove(upload_id, &chunk.place).await {
                    tracing::debug!(upload_id, number, %error, "the remains of a chunk stay for now");
                }
                Ok(Sent::Missing)
            }
            Held::Lost => Ok(Sent::Elsewhere),
        }
    }

    /// The ledger knows better than the store where this upload stands.
    async fn catch_up(&self, id: &str) -> Result<Sent> {
        if let Some(upload) = self.of_ours(id).await? {
            self.reconcile(&upload).await?;
        }
        Ok(Sent::Elsewhere)
    }

    async fn refused(&self, chunk: &Chunk, error: &Error) -> Result<Sent> {
        let number = chunk.lease.number();
        if error.said() == Some("NoSuchUpload") {
            let reason = crate::complete::Flaw::PartsLost.reason(&error.to_string());
            return self.give_up(chunk, &reason).await;
        }
        let last = chunk.attempt >= self.inner.options.attempts || !error.trouble().may_pass();
        if last {
            let reason = format!("chunk {number}, attempt {}: {error}", chunk.attempt);
            return self.give_up(chunk, &reason).await;
        }
        self.again(chunk, &error.to_string()).await
    }

    async fn again(&self, chunk: &Chunk, error: &str) -> Result<Sent> {
        let delay = self.inner.options.backoff.delay(chunk.attempt);
        let failed = self.inner.store.failed(&chunk.lease, error, Next::Retry(delay));
        Ok(match Effect::ShipAgain.of(failed).await? {
            Failed::Retry { .. } => Sent::Again,
            Failed::GivenUp { .. } => Sent::GivenUp,
            Failed::Lost => Sent::Elsewhere,
        })
    }

    /// The upload has FAILED, in the ledger first.
    async fn give_up(&self, chunk: &Chunk, reason: &str) -> Result<Sent> {
        let id = chunk.lease.upload_id();
        let part = chunk.lease.number() + 1;
        let fail = self.inner.ledger.fail_part(id, &chunk.multipart_id, part, reason);
        match Effect::ShipFail.of(fail).await {
            Ok(Moved::Moved(_) | Moved::Unknown) => {
                let failed = self.inner.store.failed(&chunk.lease, reason, Next::GiveUp);
                let _ = Effect::ShipFailShown.of(failed).await?;
                Ok(Sent::GivenUp)
            }
            Ok(Moved::Lost(upload)) => {
                self.reconcile(&upload).await?;
                Ok(Sent::Elsewhere)
            }
            Err(error) => self.again(chunk, &error.to_string()).await,
        }
    }
}

/// With the store's word for how a chunk ended its lease is over, and whoever asks for renewal just then hears that it is
/// lost, and drops its work: this goes on in any case, or bytes stay in the account until they are swept.
async fn to_its_end(end: impl Future<Output = Result<Sent>> + Send + 'static) -> Result<Sent> {
    tokio::spawn(end).await.unwrap_or_else(|error| {
        let detail = format!("a chunk's end broke off: {error}");
        Err(Error::new("upload.ship", Trouble::Passing, detail).because(error))
    })
}

/// Whether the object store got other bytes than it was told to expect.
fn other_bytes(error: &Error) -> bool {
    matches!(
        error.said(),
        Some(
            "BadDigest"
                | "XAmzContentChecksumMismatch"
                | "XAmzContentSHA256Mismatch"
                | "IncompleteBody"
                | "InvalidInput"
        )
    )
}
