//! Shipping chunks: who has which, and what became of it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::{Chunk, Claimed, Failed, Held, Lease, Shipped};
use super::ask::{Claim, Next};
use super::flight::check_lease;
use super::ops::Mark;
use super::{TEXT_MAX, Upload, check_text, ops, shortened, tell};
use crate::scripts::{
    one_each, upload_extend, upload_failed, upload_missing, upload_pick, upload_release, upload_shipped,
};
use crate::wake::{Wake, Woken};
use crate::{Code, Error, Result, Retry, Token};

/// The most chunks of one claim.
pub(super) const MAX_COUNT: usize = 1000;

/// Uploads one look goes through: behind those that have nothing more there may be one that has.
const PICKS: usize = 64;

/// A waiting claim looks again at least so often: hints may be missed.
const SLICE: Duration = Duration::from_secs(1);

/// The hint comes with the chunk, and the index learns of it a step later: who looks between the two looks once more.
const NEXT_STEP: Duration = Duration::from_millis(5);

/// When an upload is looked at again whose chunks could not be claimed.
const SPOILED: Duration = Duration::from_secs(60);

/// Leases of one upload in one step.
const EXTEND_PAGE: usize = 500;

impl Upload {
    /// Claims chunks to ship, of the uploads in turn; waits for the first one as long as it is told.
    ///
    /// Whoever is dropped while it waits may have claimed something: that comes again when its lease has ended.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        const OP: &str = ops::CLAIM;
        check_lease(OP, claim.lease)?;
        if claim.count == 0 || claim.count > MAX_COUNT {
            let detail = format!("count: 1 to {MAX_COUNT}, got {}", claim.count);
            return Err(Error::new(OP, Code::RequestInvalid, detail).field("count"));
        }
        let until = Instant::now() + claim.wait;
        let mut claimed = self.look_for(&claim).await?;
        if !claimed.chunks.is_empty() || claim.wait.is_zero() {
            return Ok(claimed);
        }
        // Listening comes before the question, so that nothing in between is missed.
        let mut wake = Wake::on(&*self.bound.engine, &self.arrival_channel(OP)?).await?;
        let mut hinted = false;
        loop {
            claimed = self.look_for(&claim).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !claimed.chunks.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            let longest = if hinted { NEXT_STEP } else { SLICE };
            let nap = claimed.next.unwrap_or(longest).clamp(Duration::from_millis(1), longest);
            hinted = matches!(wake.wait(nap.min(left)).await, Woken::Hint(_));
        }
    }

    async fn look_for(&self, claim: &Claim) -> Result<Claimed> {
        const OP: &str = ops::CLAIM;
        let mut claimed = Claimed::default();
        for _ in 0..PICKS {
            match self.claim_once(OP, claim, &mut claimed).await {
                Ok(true) if claimed.chunks.len() < claim.count => {}
                Ok(_) => return Ok(claimed),
                // What was claimed before is ours nevertheless.
                Err(error) if !claimed.chunks.is_empty() => {
                    tracing::warn!(upload = self.name(), %error, "a claim broke off; going on with what it had");
                    return Ok(claimed);
                }
                Err(error) => return Err(error),
            }
        }
        claimed.next = Some(Duration::ZERO);
        Ok(claimed)
    }

    /// Looks at the upload whose turn it is; false when there is none.
    async fn claim_once(&self, op: &'static str, claim: &Claim, claimed: &mut Claimed) -> Result<bool> {
        let (id, score) = match upload_pick::Reply::read(op, self.bound.run(op, ops::pick(self)?).await?)? {
            upload_pick::Reply::Picked { id, score } => (tell::text_of(&id), score),
            upload_pick::Reply::None { next_ms } => {
                claimed.next = tell::wait(next_ms);
                return Ok(false);
            }
        };
        let token = Token::random();
        let count = claim.count - claimed.chunks.len();
        let next = match self.claim_of(op, &id, &token, count, claim.lease).await {
            Ok((chunks, next)) => {
                claimed.chunks.extend(chunks);
                next
            }
            // One that another program has spoiled must not keep the others; it is tried again after a while.
            Err(error) if error.code.retry() == Retry::Useless => {
                tracing::warn!(upload = self.name(), id, %error, "chunks of an upload cannot be claimed");
                Some(SPOILED)
            }
            Err(error) => return Err(error),
        };
        // An upload with more to claim keeps its place; the others rest until they have.
        if next != Some(Duration::ZERO)
            && let Err(error) = self.bound.run(op, ops::rest(self, &id, score, next)?).await
        {
            tracing::debug!(upload = self.name(), %error, "an upload is looked at again though it has nothing");
        }
        Ok(true)
    }

    async fn claim_of(
        &self,
        op: &'static str,
        id: &str,
        token: &Token,
        count: usize,
        lease: Duration,
    ) -> Result<(Vec<Chunk>, Option<Duration>)> {
        let call = ops::claim(self, id, token, count, lease)?;
        tell::chunks(op, self.bound.run(op, call).await?, id, token)
    }

    /// Lets leases begin anew; in their order, which of them are still held.
    pub async fn extend(&self, leases: &[&Lease], lease: Duration) -> Result<Vec<Held>> {
        const OP: &str = ops::EXTEND;
        check_lease(OP, lease)?;
        let mut by_upload: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, lease) in leases.iter().enumerate() {
            by_upload.entry(lease.upload_id()).or_default().push(at);
        }
        let mut held = vec![Held::Lost; leases.len()];
        let pages: Vec<(&str, &[usize])> =
            by_upload.iter().flat_map(|(id, all)| all.chunks(EXTEND_PAGE).map(|page| (*id, page))).collect();
        for (id, page) in pages {
            let ours: Vec<&Lease> = page.iter().map(|at| leases[*at]).collect();
            let reply = self.bound.run(OP, ops::extend(self, id, &ours, lease)?).await?;
            let upload_extend::Reply::Extended { held: told } = upload_extend::Reply::read(OP, reply)?;
            let told = one_each(OP, told, page.len())?;
            for (at, ours) in page.iter().zip(told) {
                if ours == 1 {
                    held[*at] = Held::Ours;
                }
            }
        }
        let ours = leases.iter().zip(&held).filter(|(_, held)| **held == Held::Ours);
        let names: Vec<String> = ours.map(|(lease, _)| lease.flight_name()).collect();
        self.keep_counting(OP, &names).await;
        Ok(held)
    }

    /// The bytes of these chunks are there for longer, and so they count for longer.
    async fn keep_counting(&self, op: &'static str, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Err(error) = self.renew_names(op, &names, Mark::Chunk, self.spec.chunk_ttl).await {
            tracing::debug!(upload = self.name(), %error, "bytes in flight are counted again by the sweep");
        }
    }

    /// Gives a chunk back unshipped, to be claimed at once; the attempt does not count.
    pub async fn release(&self, lease: &Lease) -> Result<Held> {
        const OP: &str = ops::RELEASE;
        let reply = self.bound.run(OP, ops::release(self, lease)?).await?;
        match upload_release::Reply::read(OP, reply)? {
            upload_release::Reply::Released => {
                self.call(OP, &lease.upload_id, Duration::ZERO).await;
                Ok(Held::Ours)
            }
            upload_release::Reply::Lost => Ok(Held::Lost),
        }
    }

    /// The upload may be claimed from again, now or later; the sweep says so as well.
    async fn call(&self, op: &'static str, id: &str, delay: Duration) {
        let called = match ops::call(self, op, id, delay) {
            Ok(call) => self.bound.run(op, call).await,
            Err(error) => Err(error),
        };
        if let Err(error) = called {
            tracing::debug!(upload = self.name(), %error, "the sweep finds what is to be claimed");
        }
    }

    /// The chunk is durable **and recorded in the ledger**: its bytes are removed. Said again it is the same.
    pub async fn shipped(&self, lease: &Lease, etag: &str) -> Result<Shipped> {
        const OP: &str = ops::SHIPPED;
        check_text(OP, "etag", etag, TEXT_MAX)?;
        let reply = self.bound.run(OP, ops::shipped(self, lease, etag)?).await?;
        let (anew, receipt) = match upload_shipped::Reply::read(OP, reply)? {
            upload_shipped::Reply::Shipped { received, durable, total, complete } => {
                (true, tell::receipt(received, durable, total, complete))
            }
            upload_shipped::Reply::Known { received, durable, total, complete } => {
                (false, tell::receipt(received, durable, total, complete))
            }
            upload_shipped::Reply::Lost => return Ok(Shipped::Lost),
            upload_shipped::Reply::Unknown => return Ok(Shipped::Unknown),
        };
        if anew {
            self.counts.shipped.fetch_add(1, Relaxed);
        }
        self.no_longer_in_flight(OP, lease).await;
        Ok(Shipped::Durable(receipt))
    }

    async fn no_longer_in_flight(&self, op: &'static str, lease: &Lease) {
        let name = lease.flight_name();
        let given = match ops::back(self, op, &[name.as_str()]) {
            Ok(call) => self.bound.run(op, call).await,
            Err(error) => Err(error),
        };
        if let Err(error) = given {
            tracing::debug!(upload = self.name(), %error, "bytes in flight are given back by the sweep");
        }
    }

    /// Shipping it did not work: it comes again after a while, or the upload has FAILED.
    pub async fn failed(&self, lease: &Lease, error: &str, next: Next) -> Result<Failed> {
        const OP: &str = ops::FAILED;
        let call = ops::failed(self, lease, shortened(error), next)?;
        let (attempts, delay) = match (upload_failed::Reply::read(OP, self.bound.run(OP, call).await?)?, next)
        {
            (upload_failed::Reply::Lost, _) => return Ok(Failed::Lost),
            (upload_failed::Reply::Retry { attempts }, Next::Retry(delay)) => (attempts, Some(delay)),
            (upload_failed::Reply::Failed { attempts }, _) => (attempts, None),
            (upload_failed::Reply::Retry { .. }, Next::GiveUp) => {
                return Err(crate::scripts::unknown(OP, b"retry"));
            }
        };
        self.counts.failed.fetch_add(1, Relaxed);
        let attempt = u32::try_from(attempts).unwrap_or(0);
        let Some(delay) = delay else { return Ok(Failed::GivenUp { attempt }) };
        self.keep_counting(OP, &[lease.flight_name()]).await;
        self.call(OP, &lease.upload_id, delay).await;
        Ok(Failed::Retry { attempt })
    }

    /// Its bytes are gone, or are not what was received: the client is asked for the chunk again.
    pub async fn missing(&self, lease: &Lease) -> Result<Held> {
        const OP: &str = ops::MISSING;
        let reply = self.bound.run(OP, ops::missing(self, lease)?).await?;
        match upload_missing::Reply::read(OP, reply)? {
            upload_missing::Reply::Missing => {
                self.counts.missing.fetch_add(1, Relaxed);
                self.no_longer_in_flight(OP, lease).await;
                Ok(Held::Ours)
            }
            upload_missing::Reply::Lost => Ok(Held::Lost),
        }
    }
}
