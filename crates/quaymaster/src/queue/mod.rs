//! `queue`: jobs for workers, each in exactly one place at every moment.
//!
//! A FIFO queue is the documented list, item for item as other programs push and pop it; a priority queue is the
//! documented zset. A claim moves items out of it into a lease. What is not acked within the lease, and what failed,
//! waits beside the list and is claimed first; after the declared attempts it becomes a dead letter. Crashes count as
//! attempts. Every answer to a lease compares its token in the store, so a worker that comes too late changes nothing.

mod answer;
mod ask;
mod counts;
mod dead;
mod join;
pub(crate) mod keys;
mod lease;
mod letter;
mod ops;
pub(crate) mod pack;
mod scores;
mod sort;
mod tell;
#[cfg(test)]
mod tests;
mod then;
mod wait;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quaymaster_schema::QueueSpec;
use tokio_util::sync::CancellationToken;

pub use answer::{
    Acked, DeadPage, Extended, Item, Job, Nacked, Pressure, Pushed, RangePage, Redriven, Swept, Totals,
};
pub use ask::{Ack, Claim, ClaimNext, Nack, Purge, Push, PushDedupe, Redrive, Scores, Then, Trim};
pub use counts::Counts;
pub use lease::Lease;

use crate::bound::{check_request_id, spelling, unspellable};
use crate::cache::value::Cover;
use crate::scripts::{queue_extend, queue_pause, queue_peek, queue_pressure, queue_release};
use crate::throttle::Throttle;
use crate::wrote::in_steps;
use crate::{Code, Error, Result};
use keys::{Around, Place};
use ops::{First, Marks, Terms};

/// The most jobs of one claim and the most leases of one call.
pub const MAX_COUNT: usize = 1000;

/// The most that follows from one ack.
pub const MAX_THEN: usize = 100;

/// The most items of one push.
pub const MAX_PUSH: usize = 10_000;

/// The most bytes of all items of one push, or as many as one payload may have.
pub const MAX_PUSH_BYTES: usize = 16 << 20;

/// The longest wait of one claim.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(86_400);

/// The longest delay of a job.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The longest name of a worker.
pub const WORKER_MAX: usize = 64;

/// How much of an error is kept with a dead letter.
pub const ERROR_MAX: usize = 4096;

/// A claim hands out no more once its items have so many bytes.
const CLAIM_BYTES: usize = 8 << 20;

/// How often a dedupe's key is rendered again because the store's time moved past its bucket.
const STALE_TRIES: usize = 4;

/// How large what a queue carries may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The largest payload that is pushed.
    pub payload_bytes: usize,
    /// What a compressed item may unfold to; one that would be larger is a dead letter.
    pub unpacked_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { payload_bytes: 1 << 20, unpacked_bytes: 16 << 20 }
    }
}

impl Bounds {
    /// An item larger than this is not delivered: no push of ours could have made it.
    fn largest_item(self) -> usize {
        self.payload_bytes.max(32 << 20)
    }

    fn unpacked(self) -> usize {
        self.unpacked_bytes.max(self.payload_bytes)
    }
}

/// A queue of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue {
    place: Arc<Place>,
    around: Arc<Around>,
    counts: Arc<Counts>,
    join: Arc<join::Join>,
}

/// Warns of what a full queue has dropped, at most once a second.
pub(crate) fn tell_dropped(throttle: &Throttle, queue: &str, dropped: u64) {
    if dropped == 0 {
        return;
    }
    if let Some(dropped) = throttle.note(dropped, Instant::now()) {
        tracing::warn!(
            queue,
            dropped,
            "the queue is full: its oldest items were dropped, as drop_oldest says"
        );
    }
}

impl Queue {
    pub(crate) fn new(name: &str, around: &Arc<Around>) -> Option<Self> {
        let place = around.queues.get(name)?.clone();
        Some(Self {
            place,
            around: around.clone(),
            counts: Arc::default(),
            join: Arc::new(join::Join::here()),
        })
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// What the schema declares.
    pub fn spec(&self) -> &QueueSpec {
        &self.place.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Adds jobs, all or none. A full queue that rejects is an error, `queue.full`, and nothing was added.
    pub async fn push(&self, push: Push) -> Result<Pushed> {
        let pushed = self.pushed(push).await;
        match &pushed {
            Ok(pushed) => {
                self.counts.pushed(pushed);
                tell_dropped(&self.place.dropped, self.name(), pushed.dropped);
            }
            Err(error) => self.counts.failed(error),
        }
        pushed
    }

    async fn pushed(&self, push: Push) -> Result<Pushed> {
        const OP: &str = ops::PUSH;
        let items = self.place.items(OP, &push.payloads)?;
        let priority = self.place.priority(OP, push.priority)?;
        if join::may_join(&self.place, &push) {
            return join::push(&self.join, &self.place, items[0].clone()).await;
        }
        let delay = delay(OP, push.delay)?;
        let mut now_us = self.place.bound.engine.now_us();
        for _ in 0..STALE_TRIES {
            let first = push.dedupe.as_ref().map(|dedupe| self.first(dedupe, now_us)).transpose();
            let first = first.map_err(|error| error.within("dedupe"))?;
            let marks = Marks { id: push.id.as_deref(), first, request_id: push.request_id.as_deref() };
            let call = ops::push(&self.place, &items, priority, delay, marks)?;
            match tell::pushed(OP, self.name(), self.place.bound.run(OP, call).await?)? {
                Ok(pushed) => {
                    if !delay.is_zero() || !self.place.is_fifo() {
                        self.place.nudge.notify_waiters();
                    }
                    return Ok(pushed);
                }
                Err(now) => now_us = now,
            }
        }
        Err(Error::new(OP, Code::StoreClock, format!("the bucket changed {STALE_TRIES} times in a row")))
    }

    /// What a push asks of a dedupe.
    fn first(&self, dedupe: &PushDedupe, now_us: i64) -> Result<First> {
        const OP: &str = ops::PUSH;
        let Some((bound, spec)) = self.around.dedupes.get(&dedupe.name) else {
            let detail = format!("dedupe: there is no dedupe {:?}", dedupe.name);
            return Err(Error::new(OP, Code::ResourceUnknown, detail).field("dedupe"));
        };
        let values: Vec<(&str, &str)> =
            dedupe.key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let value = dedupe.value.clone().unwrap_or(Bytes::from_static(b"1"));
        if value.len() > crate::dedupe::MAX_BYTES {
            let detail = format!("dedupe: its value has more than {} bytes", crate::dedupe::MAX_BYTES);
            return Err(Error::new(OP, Code::RequestTooLarge, detail).field("dedupe"));
        }
        let mut key = Vec::new();
        let bucket = bound
            .pattern()
            .render(&values, now_us, spelling(bound.engine.topology()), &mut key)
            .map_err(|error| unspellable(OP, error))?;
        self.place.check_near(OP, "dedupe", &format!("dedupe {:?}", dedupe.name), &key)?;
        let value = Cover::of(OP, bound, &values, now_us)?.close(OP, b"", &value)?;
        let bucket_ms = bucket.map_or((0, 0), |bucket| (bucket.start_ms, bucket.end_ms));
        Ok(First { key, value, ttl: spec.ttl, bucket_ms })
    }

    /// Takes jobs under a lease, waiting for them as long as `how` says.
    pub async fn claim(&self, how: Claim) -> Result<Vec<Job>> {
        self.claim_until(how, &CancellationToken::new()).await
    }

    /// The same, and stops waiting when `over` is cancelled: with what a claim under way brings, or nothing. Nothing is
    /// claimed after it.
    pub async fn claim_until(&self, how: Claim, over: &CancellationToken) -> Result<Vec<Job>> {
        self.claim_asked(how, over).await.map(|(jobs, _)| jobs)
    }

    /// The same, and when they were asked for: their leases began no earlier.
    pub(crate) async fn claim_asked(
        &self,
        how: Claim,
        over: &CancellationToken,
    ) -> Result<(Vec<Job>, Instant)> {
        let claimed = in_steps(wait::claim(self, how, over)).await;
        match &claimed {
            Ok((jobs, _)) => self.counts.claimed(jobs.len()),
            Err(error) => self.counts.failed(error),
        }
        claimed
    }

    /// Jobs are done; what `then` says follows, and the next jobs come, in the same step.
    pub async fn ack(&self, ack: Ack) -> Result<Acked> {
        let acked = in_steps(self.acked(&ack)).await;
        match &acked {
            Ok(acked) => self.counts.acked(acked),
            Err(error) => self.counts.failed(error),
        }
        acked
    }

    async fn acked(&self, ack: &Ack) -> Result<Acked> {
        const OP: &str = ops::ACK;
        at_most(OP, "leases", ack.leases.len())?;
        let request_id = ack.request_id.as_deref();
        let terms = match &ack.claim {
            None => None,
            Some(next) => {
                let (count, worker) = (next.count, next.worker.as_deref());
                let terms = self.terms(OP, count, next.lease, worker, request_id);
                let own = |error: &Error| error.field.as_deref() == Some("request_id");
                Some(terms.map_err(|error| if own(&error) { error } else { error.within("claim") })?)
            }
        };
        if !ack.then.is_empty() {
            return then::ack(self, ack, terms).await;
        }
        let Some(terms) = terms else {
            if ack.leases.is_empty() {
                return Ok(Acked::default());
            }
            let call = ops::ack(&self.place, &ack.leases, request_id)?;
            let reply = self.place.bound.run(OP, call).await?;
            return tell::acked(OP, reply);
        };
        let call = ops::ack_claim(&self.place, &ack.leases, &terms, request_id)?;
        let reply = self.place.bound.run(OP, call).await?;
        let (acked, claim) = tell::acked_and_claimed(OP, reply)?;
        let told = tell::handed(OP, claim, terms.lease, !self.place.is_fifo())?;
        Ok(Acked { jobs: sort::sort(self, told.handed, &terms.token, None).await.jobs, ..acked })
    }

    /// A job failed: it comes again after the declared backoff, or is a dead letter after its last attempt.
    pub async fn nack(&self, nack: Nack) -> Result<Nacked> {
        let nacked = in_steps(self.nacked(&nack)).await;
        match &nacked {
            Ok(nacked) => self.counts.nacked(nacked),
            Err(error) => self.counts.failed(error),
        }
        nacked
    }

    async fn nacked(&self, nack: &Nack) -> Result<Nacked> {
        const OP: &str = ops::NACK;
        let (attempt, request_id) = (nack.lease.attempt(), nack.request_id.as_deref());
        let delay = delay(OP, nack.delay)?;
        if nack.dead || attempt >= self.place.spec.retry.max_attempts {
            return sort::bury_failed(self, nack).await;
        }
        let delay = if nack.delay.is_some() { delay } else { self.backoff(attempt) };
        let call = ops::nack(&self.place, &nack.lease, delay, request_id)?;
        let nacked = tell::nacked(OP, self.place.bound.run(OP, call).await?, attempt)?;
        if matches!(nacked, Nacked::Retry { .. }) {
            self.place.nudge.notify_waiters();
        }
        Ok(nacked)
    }

    /// `base × 2^(n-1)` up to `max`, and up to `jitter` of it more.
    fn backoff(&self, attempt: u32) -> Duration {
        let retry = &self.place.spec.retry;
        let doubled =
            retry.base.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(retry.max).mul_f64(1.0 + retry.jitter * fastrand::f64())
    }

    /// The lease begins anew if it is still held; the declared one unless given.
    pub async fn extend(&self, lease: &Lease, by: Option<Duration>) -> Result<Extended> {
        let mut all = self.extend_all(std::slice::from_ref(lease), by).await?;
        Ok(all.pop().unwrap_or(Extended::Lost))
    }

    /// The same for many leases, in their order.
    pub async fn extend_all(&self, leases: &[Lease], by: Option<Duration>) -> Result<Vec<Extended>> {
        in_steps(self.extended(leases, by)).await
    }

    async fn extended(&self, leases: &[Lease], by: Option<Duration>) -> Result<Vec<Extended>> {
        const OP: &str = ops::EXTEND;
        let expires_in = self.lease(OP, by)?;
        let mut all = vec![Extended::Lost; leases.len()];
        let mut left: Vec<usize> = (0..leases.len()).collect();
        while !left.is_empty() {
            // The store answers by jobs: of two leases of one job each is asked for by itself.
            let mut jobs = HashSet::new();
            let (now, later) = left
                .into_iter()
                .partition::<Vec<_>, _>(|at| jobs.len() < MAX_COUNT && jobs.insert(leases[*at].id()));
            let asked: Vec<Lease> = now.iter().map(|at| leases[*at].clone()).collect();
            let reply = self.place.bound.run(OP, ops::extend(&self.place, &asked, expires_in)?).await?;
            let queue_extend::Reply::Extended { ids } = queue_extend::Reply::read(OP, reply)?;
            let held: HashSet<u64> = ids.into_iter().map(tell::counted).collect();
            for at in now.into_iter().filter(|at| held.contains(&leases[*at].id())) {
                all[at] = Extended::Ours { expires_in };
            }
            left = later;
        }
        Ok(all)
    }

    /// Gives jobs back that nobody has tried: they are the next to be claimed, and the attempt does not count.
    /// Answers how many were still held.
    pub async fn release(&self, leases: &[Lease]) -> Result<u64> {
        const OP: &str = ops::RELEASE;
        let mut released = 0;
        for leases in leases.chunks(MAX_COUNT) {
            let reply = self.place.bound.run(OP, ops::release(&self.place, leases)?).await?;
            let queue_release::Reply::Released { count } = queue_release::Reply::read(OP, reply)?;
            released += tell::counted(count);
        }
        self.place.nudge.notify_waiters();
        Ok(released)
    }

    /// How full the queue is, and what it has done; a few reads whatever its length.
    pub async fn pressure(&self) -> Result<Pressure> {
        const OP: &str = ops::PRESSURE;
        let reply = self.place.bound.run(OP, ops::pressure(&self.place)?).await?;
        let queue_pressure::Reply::Pressure {
            length,
            leased,
            delayed,
            dead,
            overflow,
            oldest_ms,
            paused,
            pushed,
            acked,
            retried,
            expired,
            buried,
            redriven,
            overflowed,
            dropped,
        } = queue_pressure::Reply::read(OP, reply)?;
        let spec = self.spec();
        let current_length = tell::counted(length);
        let fill_ratio = spec.max_size.map_or(0.0, |most| current_length as f64 / most as f64);
        Ok(Pressure {
            current_length,
            max_size: spec.max_size,
            fill_ratio,
            is_at_pressure_threshold: spec.max_size.is_some() && fill_ratio >= spec.pressure_at,
            is_full: spec.max_size.is_some_and(|most| current_length >= most),
            overflow_policy: spec.overflow,
            leased: tell::counted(leased),
            delayed: tell::counted(delayed),
            dead: tell::counted(dead),
            overflowed: tell::counted(overflow),
            oldest_age: u64::try_from(oldest_ms).ok().map(Duration::from_millis),
            paused: paused == 1,
            totals: Totals {
                pushed: tell::counted(pushed),
                acked: tell::counted(acked),
                retried: tell::counted(retried),
                expired: tell::counted(expired),
                dead: tell::counted(buried),
                redriven: tell::counted(redriven),
                overflowed: tell::counted(overflowed),
                dropped: tell::counted(dropped),
            },
        })
    }

    /// Claims get nothing until [`Queue::resume`]; pushes, acks and nacks go on.
    pub async fn pause(&self) -> Result<()> {
        self.switch(ops::PAUSE, true).await
    }

    /// Claims get jobs again.
    pub async fn resume(&self) -> Result<()> {
        self.switch(ops::RESUME, false).await
    }

    async fn switch(&self, op: &'static str, paused: bool) -> Result<()> {
        let reply = self.place.bound.run(op, ops::pause(&self.place, op, paused)?).await?;
        queue_pause::Reply::read(op, reply)?;
        self.place.nudge.notify_waiters();
        Ok(())
    }

    /// The items that wait, the next first; fewer than `count` where they are large.
    pub async fn peek(&self, count: usize) -> Result<Vec<Item>> {
        const OP: &str = ops::PEEK;
        counted(OP, count)?;
        let reply = self.place.bound.run(OP, ops::peek(&self.place, count)?).await?;
        let queue_peek::Reply::Items { items } = queue_peek::Reply::read(OP, reply)?;
        let mut left = self.place.bounds().unpacked();
        Ok(items.into_iter().map(|item| sort::item(item, &mut left)).collect())
    }

    /// Items of a priority queue that wait, by their score, the lowest first; fewer than `count` where they are large.
    pub async fn range(&self, scores: Scores, count: usize, offset: u64) -> Result<RangePage> {
        scores::range(self, scores, count, offset).await
    }

    /// Items of a priority queue that wait are removed by their score; answers how many. They count as dropped.
    /// `progress` hears how many so far.
    pub async fn trim(&self, which: Trim, progress: impl FnMut(u64) + Send) -> Result<u64> {
        in_steps(scores::trim(self, which, progress)).await
    }

    /// A page of dead letters, the oldest first; fewer than `count` where they are large.
    pub async fn dead(&self, count: usize, offset: u64) -> Result<DeadPage> {
        dead::page(self, count, offset).await
    }

    /// Dead letters, or overflow items, become jobs again, as long as there is room. `progress` hears how many so far.
    pub async fn redrive(&self, which: Redrive, progress: impl FnMut(u64) + Send) -> Result<Redriven> {
        in_steps(dead::redrive(self, which, progress)).await
    }

    /// Dead letters are removed, the oldest first; answers how many. `progress` hears how many so far.
    pub async fn purge(&self, which: Purge, progress: impl FnMut(u64) + Send) -> Result<u64> {
        in_steps(dead::purge(self, which, progress)).await
    }

    /// Jobs whose lease has ended wait again, or are buried when their attempts are used up: what claims do as well,
    /// for queues that nobody claims from. At most a thousand a call.
    pub async fn sweep(&self) -> Result<Swept> {
        const OP: &str = ops::SWEEP;
        let token = lease::token(self.name(), None);
        let reply = self.place.bound.run(OP, ops::sweep(&self.place, MAX_COUNT, &token)?).await?;
        let (returned, dying) = tell::swept(OP, reply)?;
        if returned > 0 {
            self.place.nudge.notify_waiters();
        }
        let buried = sort::sort(self, dying, &token, None).await.buried;
        Ok(Swept { returned, buried })
    }

    fn terms(
        &self,
        op: &'static str,
        count: usize,
        lease: Option<Duration>,
        worker: Option<&str>,
        request_id: Option<&str>,
    ) -> Result<Terms> {
        counted(op, count)?;
        if let Some(id) = request_id {
            check_request_id(op, id)?;
        }
        let fine = |name: &str| {
            !name.is_empty() && name.len() <= WORKER_MAX && name.bytes().all(|c| c.is_ascii_graphic())
        };
        if let Some(name) = worker
            && (!fine(name) || name == "-")
        {
            let detail = format!("worker: 1 to {WORKER_MAX} visible ASCII characters, and not `-`");
            return Err(Error::new(op, Code::RequestInvalid, detail).field("worker"));
        }
        let token = lease::token(self.name(), request_id);
        Ok(Terms { count, lease: self.lease(op, lease)?, token, worker: worker.map(str::to_owned) })
    }

    fn lease(&self, op: &'static str, asked: Option<Duration>) -> Result<Duration> {
        let lease = asked.unwrap_or(self.place.spec.lease);
        if lease < Duration::from_millis(1) || lease > LEASE_MAX {
            let detail = format!("lease_ms: 1 to {}, got {}", LEASE_MAX.as_millis(), lease.as_millis());
            return Err(Error::new(op, Code::RequestInvalid, detail).field("lease_ms"));
        }
        Ok(lease)
    }
}

fn counted(op: &'static str, count: usize) -> Result<()> {
    if count == 0 {
        return Err(
            Error::new(op, Code::RequestInvalid, format!("count: 1 to {MAX_COUNT}, got 0")).field("count")
        );
    }
    at_most(op, "count", count)
}

fn at_most(op: &'static str, what: &'static str, count: usize) -> Result<()> {
    if count > MAX_COUNT {
        let detail = format!("{what}: at most {MAX_COUNT}, got {count}");
        return Err(Error::new(op, Code::RequestInvalid, detail).field(what));
    }
    Ok(())
}

fn delay(op: &'static str, asked: Option<Duration>) -> Result<Duration> {
    let delay = asked.unwrap_or_default();
    if delay > DELAY_MAX {
        let detail = format!("delay_ms: at most {}, got {}", DELAY_MAX.as_millis(), delay.as_millis());
        return Err(Error::new(op, Code::RequestInvalid, detail).field("delay_ms"));
    }
    Ok(delay)
}

impl Place {
    /// The items for payloads, checked and packed.
    fn items(&self, op: &'static str, payloads: &[Bytes]) -> Result<Vec<Bytes>> {
        if payloads.is_empty() {
            return Err(Error::new(op, Code::RequestInvalid, "payloads: there is none").field("payloads"));
        }
        if payloads.len() > MAX_PUSH {
            let detail = format!("payloads: at most {MAX_PUSH}, got {}", payloads.len());
            return Err(Error::new(op, Code::RequestTooLarge, detail).field("payloads"));
        }
        let most = self.bounds().payload_bytes;
        let mut bytes = 0;
        let mut items = Vec::with_capacity(payloads.len());
        for payload in payloads {
            if payload.len() > most {
                let detail = format!("payload: at most {most} bytes, got {}", payload.len());
                return Err(Error::new(op, Code::RequestTooLarge, detail).field("payload"));
            }
            pack::check_json(op, "payload", payload)?;
            let item = pack::pack(payload, self.spec.compress_over);
            bytes += item.len();
            items.push(item);
        }
        let most = most.max(MAX_PUSH_BYTES);
        if bytes > most {
            let detail = format!("payloads: at most {most} bytes in one push, got {bytes}");
            return Err(Error::new(op, Code::RequestTooLarge, detail).field("payloads"));
        }
        Ok(items)
    }

    fn priority(&self, op: &'static str, asked: Option<f64>) -> Result<f64> {
        let wrong = |code, detail: &str| Err(Error::new(op, code, detail).field("priority"));
        match asked {
            Some(_) if self.is_fifo() => {
                wrong(Code::ResourceMismatch, "priority: this queue's order is fifo")
            }
            Some(priority) if !priority.is_finite() => {
                wrong(Code::RequestInvalid, "priority: a finite number")
            }
            // A negative zero would be spelled otherwise than zero.
            asked => Ok(asked.unwrap_or(0.0) + 0.0),
        }
    }
}
