//! What happens to uploads by itself: chunks are shipped, objects completed, and what is over is swept.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use quaymaster_upload::Uploads;
use quaymaster_upload::adopt::until_begun;
use quaymaster_upload::ledger::MIGRATION;
use tokio_util::sync::CancellationToken;

use super::{Berth, Depot};

/// How often a database that is not there yet is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// How long giving back what is not done may take.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// After a panic.
const PAUSE: Duration = Duration::from_millis(500);

impl Depot {
    /// Ships, completes and sweeps until `stop`, then lets parts on their way end within `grace`. What is not done by
    /// then is given back, for somebody else to do at once.
    pub async fn work(&self, stop: &CancellationToken, grace: Duration) {
        let mut all = pin!(join_all(self.berths().iter().map(|berth| berth.work(stop))));
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            _ = &mut all => {}
            () = late => {
                tracing::warn!("the grace is over; what is not done is left to others");
                let at_hand = || self.berths().iter().filter_map(Berth::at_hand);
                let chunks = join_all(at_hand().map(Uploads::give_chunks_back));
                let completions = join_all(at_hand().map(Uploads::give_completions_back));
                let given = tokio::time::timeout(GIVE_BACK, futures_util::future::join(chunks, completions));
                let mut given = pin!(given);
                // Told to end, and polled meanwhile: what stood still might keep the database that it is given back in.
                let given = tokio::select! {
                    given = &mut given => given,
                    _ = &mut all => given.await,
                };
                if given.is_err() {
                    tracing::warn!("store or database do not answer; leases are left to end");
                }
            }
        }
    }
}

impl Berth {
    async fn work(&self, stop: &CancellationToken) {
        let Some((uploads, begun)) = self.when_open(stop).await else { return };
        let workers = self.store.spec().workers as usize;
        tracing::debug!(upload = self.store.name(), workers, "shipping");
        let shipping = kept_up("upload.ship", stop, || uploads.ship(workers, stop.clone()));
        let tending = kept_up("upload.tend", stop, || uploads.tend(stop.clone()));
        let adopting = async {
            if let Some(id) = begun
                && let Err(error) = uploads.adopt(&id).await
            {
                tracing::warn!(upload_id = id, %error, "an upload is not gone on with");
            }
        };
        tokio::join!(shipping, tending, adopting);
    }

    /// Waits until there is something to work on, which may be an upload that another program began: its id. `None` when
    /// told to stop before.
    async fn when_open(&self, stop: &CancellationToken) -> Option<(&Uploads, Option<String>)> {
        let begun = stop.run_until_cancelled(self.until_wanted()).await?;
        for attempt in 1.. {
            match stop.run_until_cancelled(self.opened_within(MIGRATION)).await? {
                Ok(uploads) => return Some((uploads, begun)),
                Err(error) => {
                    tracing::debug!(upload = self.store.name(), %error, "not open yet; will try again");
                }
            }
            let pause = self.settings.options.away.delay(attempt);
            stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
        }
        None
    }

    /// Waits until the database is there, a call opens it, or another program has begun an upload: its id.
    async fn until_wanted(&self) -> Option<String> {
        let mut begun = pin!(until_begun(&self.store));
        while self.opened.get().is_none() && !self.is_used() {
            tokio::select! {
                id = &mut begun => return Some(id),
                _ = tokio::time::timeout(LOOK, self.bell.notified()) => {}
            }
        }
        None
    }
}

/// Begins anew after a panic: a defect of one duty must not end the others, nor the server.
async fn kept_up<F: Future<Output = ()>>(duty: &str, stop: &CancellationToken, run: impl Fn() -> F) {
    while AssertUnwindSafe(run()).catch_unwind().await.is_err() {
        tracing::error!(duty, "a duty panicked; it begins anew");
        if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
            return;
        }
    }
}
