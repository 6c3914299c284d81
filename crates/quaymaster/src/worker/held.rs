//! What is claimed and not settled, and the task that keeps its leases.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::counts::Counts;
use super::pump::Pump;
use crate::queue::{Extended, Lease};

/// Leases renewed in one call.
const BATCH: usize = 1000;

/// Tells a handler that the lease of its job is lost. Cheap to clone.
///
/// Lost is told when the store says so, or when the lease would have ended by this process's clock, counted from
/// before the last renewal that was confirmed was sent: so also while the store cannot be reached.
#[derive(Debug, Clone)]
pub struct Lost(Arc<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    /// When the lease ends by our clock, in microseconds after `began`.
    ends_us: AtomicU64,
    told: CancellationToken,
}

impl Lost {
    fn new(base: Instant, lease: Duration) -> Self {
        let state =
            State { began: base, ends_us: AtomicU64::new(micros(lease)), told: CancellationToken::new() };
        Self(Arc::new(state))
    }

    fn confirm(&self, sent: Instant, lease: Duration) {
        let ends = sent.saturating_duration_since(self.0.began) + lease;
        self.0.ends_us.store(micros(ends), SeqCst);
    }

    fn ends(&self) -> Instant {
        self.0.began + Duration::from_micros(self.0.ends_us.load(SeqCst))
    }

    /// How much of the lease is left, as far as can be known here.
    pub(super) fn left(&self) -> Duration {
        self.ends().saturating_duration_since(Instant::now())
    }

    /// Whether the lease has ended, as far as can be known here. It looks at the clock itself, and so is right in
    /// the first line that runs after a pause.
    pub fn is_lost(&self) -> bool {
        self.0.told.is_cancelled() || Instant::now() >= self.ends()
    }

    /// Ends when the lease is lost; for a `select!` beside the work.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.told.clone().cancelled_owned()
    }

    /// The signal itself, for what takes one.
    pub fn token(&self) -> &CancellationToken {
        &self.0.told
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Entry {
    lease: Lease,
    lost: Lost,
    /// When the lease was last confirmed, or asked to be.
    renewed: Instant,
}

/// Everything claimed and not settled, by a number of our own.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

impl Held {
    /// Takes leases over that began no earlier than `base`; answers what each is known by.
    pub(super) fn add(&self, leases: Vec<(Lease, Duration)>, base: Instant) -> Vec<(u64, Lost)> {
        let first = self.next.fetch_add(leases.len() as u64, SeqCst);
        let mut entries = self.entries.lock();
        let mut added = Vec::with_capacity(leases.len());
        for (key, (lease, lasts)) in (first..).zip(leases) {
            let lost = Lost::new(base, lasts);
            entries.insert(key, Entry { lease, lost: lost.clone(), renewed: base });
            added.push((key, lost));
        }
        added
    }

    pub(super) fn lease(&self, key: u64) -> Option<Lease> {
        self.entries.lock().get(&key).map(|entry| entry.lease.clone())
    }

    pub(super) fn leases(&self, keys: &[u64]) -> Vec<Lease> {
        let entries = self.entries.lock();
        keys.iter().filter_map(|key| entries.get(key).map(|entry| entry.lease.clone())).collect()
    }

    pub(super) fn remove(&self, keys: &[u64]) {
        let mut entries = self.entries.lock();
        for key in keys {
            entries.remove(key);
        }
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.entries.lock().keys().copied().collect()
    }

    /// What is due to be renewed; tells those that ended meanwhile.
    fn due(&self, lease: Duration) -> Vec<(u64, Lease)> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (key, entry) in self.entries.lock().iter_mut() {
            if now >= entry.lost.ends() {
                entry.lost.0.told.cancel();
            }
            if now.saturating_duration_since(entry.renewed) >= lease / 3 {
                due.push((*key, entry.lease.clone()));
            }
        }
        due
    }

    /// Takes the store's word for a lease in; whether it is still ours.
    pub(super) fn confirm(&self, key: u64, told: &Extended, sent: Instant) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&key) else { return true };
        match told {
            Extended::Ours { expires_in } => {
                entry.lost.confirm(sent, *expires_in);
                entry.renewed = sent;
                true
            }
            Extended::Lost => {
                entry.lost.0.told.cancel();
                // Nothing to renew any more; the handler may take its time to end.
                entry.renewed = sent + Duration::from_secs(86_400 * 365);
                false
            }
        }
    }
}

/// Renews every lease before it ends, a third of it after the last time, in as few calls as there are thousands.
pub(super) async fn renew(pump: Arc<Pump>) {
    let lease = pump.lease;
    // Short enough that a renewal that failed is tried twice more before the lease ends.
    let tick = (lease / 9).clamp(Duration::from_millis(5), Duration::from_secs(1));
    loop {
        tokio::time::sleep(tick).await;
        let due = pump.held.due(lease);
        for batch in due.chunks(BATCH) {
            let leases: Vec<Lease> = batch.iter().map(|(_, lease)| lease.clone()).collect();
            let sent = Instant::now();
            // A call may not outlast what it is for.
            let call = tokio::time::timeout(lease / 3, pump.queue.extend_all(&leases, Some(lease)));
            match call.await {
                Ok(Ok(told)) => {
                    for ((key, _), told) in batch.iter().zip(&told) {
                        if !pump.held.confirm(*key, told, sent) {
                            tracing::warn!(
                                queue = pump.queue.name(),
                                "a lease was lost while its job was at work"
                            );
                        }
                    }
                }
                Ok(Err(error)) => {
                    Counts::add(&pump.counts.errors, 1);
                    tracing::debug!(queue = pump.queue.name(), %error, "leases could not be renewed; trying again");
                }
                Err(_) => Counts::add(&pump.counts.errors, 1),
            }
        }
        pump.give_back_idle().await;
    }
}
