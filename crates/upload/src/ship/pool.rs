//! Workers: one claim for all that are free, and leases renewed by a task that no part in transit can starve.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use quaymaster::upload::{Claim, Held, Lease};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::effect::Effect;
use crate::uploads::Uploads;

/// Leases that are being worked on, each with what ends the work when the lease is lost.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    next: u64,
    held: HashMap<u64, (Lease, CancellationToken)>,
}

/// A lease that is renewed for as long as somebody works on its chunk, however that ends.
struct Renewed {
    leases: Arc<Mutex<Leases>>,
    at: u64,
}

impl Renewed {
    fn begin(leases: Arc<Mutex<Leases>>, lease: &Lease, lost: &CancellationToken) -> Self {
        let at = {
            let mut leases = leases.lock();
            leases.next += 1;
            let at = leases.next;
            leases.held.insert(at, (lease.clone(), lost.clone()));
            at
        };
        Self { leases, at }
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        self.leases.lock().held.remove(&self.at);
    }
}

impl Uploads {
    /// Ships chunks, `workers` at once, until it is told to stop; then ends what it has begun.
    ///
    /// Whoever cannot wait for that calls [`Uploads::give_chunks_back`] and drops this then.
    pub async fn ship(&self, workers: usize, stop: CancellationToken) {
        let leases = Arc::clone(&self.inner.leases);
        let done = CancellationToken::new();
        // Ended with this: leases that nobody works on are not renewed.
        let _renewing = done.clone().drop_guard();
        let renewing = tokio::spawn(self.clone().renew_leases(Arc::clone(&leases), done.clone()));
        let meeting = tokio::spawn(self.clone().meet(done.clone()));
        let places = Arc::new(Semaphore::new(workers.max(1)));
        let mut working = JoinSet::new();
        let mut failures: u32 = 0;
        while !stop.is_cancelled() {
            let Some(Ok(first)) = stop.run_until_cancelled(Arc::clone(&places).acquire_owned()).await else {
                break;
            };
            let mut free = vec![first];
            while let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                free.push(place);
            }
            let claim =
                Claim { count: free.len(), lease: self.inner.options.lease, wait: self.inner.options.wait };
            // Not dropped when told to stop: it may have claimed something.
            let claimed = match Effect::ShipClaim.of(self.inner.store.claim(claim)).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(%error, "chunks cannot be claimed");
                    drop(free);
                    failures = failures.saturating_add(1);
                    let pause = self.inner.options.away.delay(failures);
                    let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    continue;
                }
            };
            failures = 0;
            for (chunk, place) in claimed.chunks.into_iter().zip(free) {
                let (uploads, leases) = (self.clone(), Arc::clone(&leases));
                let lost = CancellationToken::new();
                let renewed = Renewed::begin(leases, &chunk.lease, &lost);
                working.spawn(async move {
                    if lost.run_until_cancelled(Box::pin(uploads.ship_chunk(&chunk))).await.is_none() {
                        tracing::debug!(upload_id = chunk.lease.upload_id(), "a chunk's lease was lost");
                    }
                    drop((renewed, place));
                });
            }
            while working.try_join_next().is_some() {}
        }
        while working.join_next().await.is_some() {}
        done.cancel();
        let _ = (renewing.await, meeting.await);
    }

    /// Stops work on the chunks that this process ships, while [`Uploads::ship`] still runs, and gives them back: the
    /// next one has them at once, and the attempt does not count. How many there were.
    ///
    /// A part that the object store gets nevertheless is the same part with the same bytes.
    pub async fn give_chunks_back(&self) -> u64 {
        let held: Vec<(Lease, CancellationToken)> =
            self.inner.leases.lock().held.drain().map(|(_, held)| held).collect();
        let mut given = 0;
        for (lease, lost) in held {
            lost.cancel();
            match self.inner.store.release(&lease).await {
                Ok(Held::Ours) => given += 1,
                Ok(Held::Lost) => {}
                Err(error) => {
                    tracing::debug!(upload_id = lease.upload_id(), %error, "a chunk's lease is left to end");
                }
            }
        }
        given
    }

    async fn renew_leases(self, leases: Arc<Mutex<Leases>>, done: CancellationToken) {
        let lease = self.inner.options.lease;
        while done.run_until_cancelled(tokio::time::sleep(lease / 3)).await.is_some() {
            let held: Vec<(Lease, CancellationToken)> = leases.lock().held.values().cloned().collect();
            let names: Vec<&Lease> = held.iter().map(|(lease, _)| lease).collect();
            if names.is_empty() {
                continue;
            }
            match self.inner.store.extend(&names, lease).await {
                Ok(answers) => {
                    for ((_, lost), answer) in held.iter().zip(answers) {
                        if answer == Held::Lost {
                            lost.cancel();
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "leases of chunks cannot be renewed"),
            }
        }
    }
}
