//! Claims in batches, acks in batches, and the next claim in the ack's own step.
//!
//! A job is *in hand* from the moment it is asked for until its handler has ended. As many are in hand as there are
//! lanes, and a few more where handlers are so quick that lanes would wait for the store: what is handled in
//! [`AHEAD`], and never more than there are lanes. What lies unbegun for longer than [`STALE`] is given back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster_store::backoff::Backoff;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::counts::Counts;
use super::held::{Held, Lost};
use crate::queue::{Ack, Claim, ClaimNext, Extended, Job, Lease, Queue};
use crate::{Error, Retry};

/// One call claims or acks at most so many.
const BATCH: usize = 1000;
/// How long one claim waits; the next one follows at once.
const WAIT: Duration = Duration::from_secs(10);
/// Jobs are claimed ahead for so much work.
const AHEAD: Duration = Duration::from_millis(10);
/// A claimed job that no lane takes up within this goes back to the others.
const STALE: Duration = Duration::from_secs(1);
/// A job in a lane's hands.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: u64,
    pub(super) job: Job,
    pub(super) lost: Lost,
    came: Instant,
}

/// What lanes, claims, acks and renewals share.
#[derive(Debug)]
pub(super) struct Pump {
    pub(super) queue: Queue,
    pub(super) lease: Duration,
    pub(super) counts: Arc<Counts>,
    pub(super) held: Held,
    pub(super) stop: CancellationToken,
    /// Between attempts while the store is away.
    away: Backoff,
    name: Option<String>,
    lanes: usize,
    /// Claimed, and taken up by no lane yet.
    buffer: Mutex<VecDeque<Slot>>,
    /// One permit for each of them.
    ready: Semaphore,
    /// Handled, and not acked yet.
    finished: Mutex<Vec<u64>>,
    finish: Notify,
    /// Whether an ack is on its way; it claims what there is room for, and nobody else needs to.
    acking: AtomicBool,
    in_hand: AtomicUsize,
    ahead: AtomicUsize,
    room: Notify,
    closed: AtomicBool,
}

impl Pump {
    pub(super) fn new(worker: &Worker, stop: CancellationToken) -> Self {
        Self {
            queue: worker.queue.clone(),
            lease: worker.lease.unwrap_or(worker.queue.spec().lease),
            counts: worker.counts.clone(),
            held: Held::default(),
            stop,
            away: worker.away,
            name: worker.name.clone(),
            lanes: worker.concurrency,
            buffer: Mutex::default(),
            ready: Semaphore::new(0),
            finished: Mutex::default(),
            finish: Notify::new(),
            acking: AtomicBool::new(false),
            in_hand: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            room: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// The next job for a lane; `None` after a stop.
    pub(super) async fn next(&self) -> Option<Slot> {
        loop {
            self.ready.acquire().await.ok()?.forget();
            if self.stop.is_cancelled() {
                return None;
            }
            // Those given back leave their permits behind.
            let slot = self.buffer.lock().pop_front();
            let Some(slot) = slot else { continue };
            if self.is_timely(&slot) {
                return Some(slot);
            }
            self.late(slot).await;
        }
    }

    /// Whether enough of its lease is left to begin it.
    fn is_timely(&self, slot: &Slot) -> bool {
        !slot.lost.is_lost() && slot.lost.left() >= self.lease / 3
    }

    /// Jobs whose claim was answered late, or two of whose renewals failed: somebody else may have them already, and
    /// only the store knows. What it renews is begun after all; the rest is not.
    async fn late(&self, first: Slot) {
        let mut late = vec![first];
        {
            let mut buffer = self.buffer.lock();
            let (timely, others) =
                buffer.drain(..).partition::<VecDeque<Slot>, _>(|slot| self.is_timely(slot));
            *buffer = timely;
            late.extend(others);
        }
        let keys: Vec<u64> = late.iter().map(|slot| slot.key).collect();
        let leases: Vec<Lease> = late.iter().map(|slot| slot.job.lease.clone()).collect();
        let queue = self.queue.name();
        tracing::warn!(queue, jobs = keys.len(), "jobs came when their leases were all but over");
        let sent = Instant::now();
        // So that a third is left of what is renewed.
        let call = tokio::time::timeout(self.lease * 2 / 3, self.queue.extend_all(&leases, Some(self.lease)));
        let Ok(Ok(told)) = call.await else {
            self.give_back(&keys, self.lease / 3).await;
            // They come again at once, and would be as late again.
            self.stop.run_until_cancelled(tokio::time::sleep(self.pause(1))).await;
            return;
        };
        // As if they were claimed now: that one is lost may have been told before.
        self.held.remove(&keys);
        let mut ours = Vec::with_capacity(late.len());
        for (slot, told) in late.into_iter().zip(told) {
            if let Extended::Ours { expires_in } = told {
                ours.push(Job { lease_expires_in: expires_in, ..slot.job });
            }
        }
        let lost = keys.len() - ours.len();
        self.hold(ours, sent);
        Counts::add(&self.counts.lost, lost);
        self.freed(lost);
    }

    /// Claims while there is room and no ack does.
    pub(super) async fn fetch(self: Arc<Self>) {
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let wanted = if self.acking.load(SeqCst) { 0 } else { self.reserve() };
            if wanted == 0 {
                self.stop.run_until_cancelled(self.room.notified()).await;
                continue;
            }
            let claim = Claim {
                count: wanted,
                lease: Some(self.lease),
                wait: WAIT,
                worker: self.name.clone(),
                request_id: None,
            };
            match self.queue.claim_asked(claim, &self.stop).await {
                Ok((jobs, sent)) => {
                    if failures > 0 {
                        tracing::info!(queue = self.queue.name(), "the store answers again");
                    }
                    failures = 0;
                    self.deliver(jobs, sent, wanted);
                }
                Err(error) => {
                    self.freed(wanted);
                    failures += 1;
                    self.away("claimed", &error, failures);
                    self.stop.run_until_cancelled(tokio::time::sleep(self.away.delay(failures))).await;
                }
            }
        }
    }

    /// Acks what lanes finish, until closed and done.
    pub(super) async fn ack(self: Arc<Self>) {
        let mut pace = Pace::default();
        loop {
            let batch = {
                let mut finished = self.finished.lock();
                let some = finished.len().min(BATCH);
                finished.drain(..some).collect::<Vec<u64>>()
            };
            if batch.is_empty() {
                self.acking.store(false, SeqCst);
                self.room.notify_one();
                if self.closed.load(SeqCst) {
                    return;
                }
                self.finish.notified().await;
                self.acking.store(true, SeqCst);
                continue;
            }
            self.ahead.store(pace.ahead(batch.len()).min(self.lanes), SeqCst);
            self.ack_batch(&batch).await;
        }
    }

    async fn ack_batch(&self, batch: &[u64]) {
        let mut failures = 0;
        loop {
            let wanted = if self.stop.is_cancelled() { 0 } else { self.reserve() };
            let sent = Instant::now();
            let ack = Ack {
                leases: self.held.leases(batch),
                claim: (wanted > 0).then(|| ClaimNext {
                    count: wanted,
                    lease: Some(self.lease),
                    worker: self.name.clone(),
                }),
                ..Ack::default()
            };
            match self.queue.ack(ack).await {
                Ok(told) => {
                    self.held.remove(batch);
                    Counts::add(&self.counts.acked, told.acked as usize);
                    Counts::add(&self.counts.lost, told.lost as usize);
                    self.deliver(told.jobs, sent, wanted);
                    return;
                }
                Err(error) => {
                    self.freed(wanted);
                    failures += 1;
                    self.away("acked", &error, failures);
                    if error.code.retry() == Retry::Useless {
                        tracing::error!(queue = self.queue.name(), %error, "acks are refused; the jobs come again");
                        Counts::add(&self.counts.lost, batch.len());
                        return self.held.remove(batch);
                    }
                    tokio::time::sleep(self.pause(failures)).await;
                }
            }
        }
    }

    /// How many may be claimed now; they are in hand from here on.
    fn reserve(&self) -> usize {
        let target = self.lanes + self.ahead.load(SeqCst);
        let mut in_hand = self.in_hand.load(SeqCst);
        loop {
            let wanted = target.saturating_sub(in_hand).min(BATCH);
            if wanted == 0 {
                return 0;
            }
            match self.in_hand.compare_exchange(in_hand, in_hand + wanted, SeqCst, SeqCst) {
                Ok(_) => return wanted,
                Err(now) => in_hand = now,
            }
        }
    }

    /// So many are not in hand any more.
    pub(super) fn freed(&self, count: usize) {
        self.in_hand.fetch_sub(count, SeqCst);
        self.room.notify_one();
    }

    /// Takes the answer to a claim of `wanted` jobs in, which was sent then.
    fn deliver(&self, jobs: Vec<Job>, sent: Instant, wanted: usize) {
        let count = jobs.len();
        if wanted > count {
            self.in_hand.fetch_sub(wanted - count, SeqCst);
        }
        if count == 0 {
            return;
        }
        Counts::add(&self.counts.claimed, count);
        self.hold(jobs, sent);
    }

    /// Puts jobs where lanes find them. Their leases began no earlier than `sent`.
    fn hold(&self, jobs: Vec<Job>, sent: Instant) {
        let count = jobs.len();
        let leases = jobs.iter().map(|job| (job.lease.clone(), job.lease_expires_in)).collect();
        let known = self.held.add(leases, sent);
        let now = Instant::now();
        let slots = jobs.into_iter().zip(known).map(|(job, (key, lost))| Slot { key, job, lost, came: now });
        self.buffer.lock().extend(slots);
        self.ready.add_permits(count);
    }

    /// A plain yes: acked with the next batch.
    pub(super) fn finished(&self, key: u64) {
        self.in_hand.fetch_sub(1, SeqCst);
        let first = {
            let mut finished = self.finished.lock();
            finished.push(key);
            finished.len() == 1
        };
        if first {
            self.finish.notify_one();
        }
    }

    /// Gives back what no lane has taken up for a while: the handlers have become slower than they were.
    pub(super) async fn give_back_idle(&self) {
        let stale = self.buffer.lock().front().is_some_and(|slot| slot.came.elapsed() > STALE);
        if stale {
            self.ahead.store(0, SeqCst);
            // Leases are renewed by whoever asks this, and must not wait for it.
            self.give_back_unbegun(self.lease / 3).await;
        }
    }

    /// Gives back everything no lane has taken up, each call `within` so long; how many that were.
    pub(super) async fn give_back_unbegun(&self, within: Duration) -> u64 {
        let slots = std::mem::take(&mut *self.buffer.lock());
        let keys: Vec<u64> = slots.iter().map(|slot| slot.key).collect();
        for keys in keys.chunks(BATCH) {
            self.give_back(keys, within).await;
        }
        keys.len() as u64
    }

    /// Gives claimed jobs back as if they had not been claimed. What the store cannot be told comes back when its
    /// lease ends, as a failed attempt.
    pub(super) async fn give_back(&self, keys: &[u64], within: Duration) {
        let leases = self.held.leases(keys);
        match tokio::time::timeout(within, self.queue.release(&leases)).await {
            Ok(Ok(released)) => {
                let released = usize::try_from(released).unwrap_or(usize::MAX).min(keys.len());
                Counts::add(&self.counts.given_back, released);
                Counts::add(&self.counts.lost, keys.len() - released);
            }
            Ok(Err(error)) => self.away("given back", &error, 1),
            Err(_) => Counts::add(&self.counts.errors, 1),
        }
        self.held.remove(keys);
        self.freed(keys.len());
    }

    /// No lane finishes anything from here on.
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.finish.notify_one();
    }

    /// No lane begins anything from here on.
    pub(super) fn shut(&self) {
        self.ready.close();
    }

    /// How long an attempt waits that is about a job in hand: no longer than its lease bears.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        self.away.delay(failures).min(self.lease / 4)
    }

    pub(super) fn away(&self, what: &str, error: &Error, failures: u32) {
        Counts::add(&self.counts.errors, 1);
        if failures == 1 {
            tracing::warn!(queue = self.queue.name(), %error, "jobs cannot be {what}; trying again");
        }
    }
}

/// How quickly handlers finish.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
    per_second: f64,
}

impl Pace {
    /// What is finished within [`AHEAD`] at this pace, after another `finished`.
    fn ahead(&mut self, finished: usize) -> usize {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let seconds = now.saturating_duration_since(last).as_secs_f64().max(1e-6);
            self.per_second += 0.2 * (finished as f64 / seconds - self.per_second);
        }
        (self.per_second * AHEAD.as_secs_f64()) as usize
    }
}
