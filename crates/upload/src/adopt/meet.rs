//! How uploads of other programs are met: by their announcements, and by a walk over the store's keys for those that
//! were missed.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use quaymaster::Code;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Store, is_open};
use crate::Result;
use crate::uploads::Uploads;

/// Keys of the store that one call walks over.
const KEYS: usize = 1000;

/// Ids of uploads that are ours, so that the announcements of their chunks cost nothing.
const OURS: usize = 4096;

/// Before a subscription that ended is made again.
const AWAY: Duration = Duration::from_secs(1);

/// How often the store is walked over before its uploads are opened, and how long one walk takes at most.
const WALK: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_secs(2);

/// Waits until the store has an upload that another program began; its id. Needs no ledger, and changes nothing.
pub async fn until_begun(store: &Store) -> String {
    if !store.meets_others() {
        return std::future::pending().await;
    }
    let (mut at, mut walked) = (None, None::<Instant>);
    loop {
        // Whatever comes while the walk goes on is heard.
        let arrivals = store.arrivals().await;
        if walked.is_none_or(|walked| walked.elapsed() >= WALK) {
            match walk(store, &mut at).await {
                Ok(Some(id)) => return id,
                Ok(None) => walked = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "other programs' uploads are not looked for"),
            }
        }
        let Ok(arrivals) = arrivals else {
            tokio::time::sleep(AWAY).await;
            continue;
        };
        let mut others = pin!(arrivals.filter(|id| is_begun(store, id.clone())));
        match timeout(WALK, others.next()).await {
            Ok(Some(id)) => return id,
            // The subscription ended.
            Ok(None) => tokio::time::sleep(AWAY).await,
            Err(_) => {}
        }
    }
}

/// Looks at the states that the store has from `at` on, for a turn.
async fn walk(store: &Store, at: &mut Option<Vec<u8>>) -> quaymaster::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        let page = store.states(KEYS, at.take()).await?;
        for id in page.ids {
            if is_begun(store, id.clone()).await {
                return Ok(Some(id));
            }
        }
        *at = page.next;
        if at.is_none() || begun.elapsed() >= TURN {
            return Ok(None);
        }
    }
}

/// Whether another program began it, and it goes on. One that cannot be read keeps no other.
async fn is_begun(store: &Store, id: String) -> bool {
    let Ok(Some(foreign)) = store.foreign(&id).await else { return false };
    is_open(&foreign)
}

impl Uploads {
    /// Listens for chunks of other programs until it is told to stop. What is missed here the sweep finds.
    pub(crate) async fn meet(self, stop: CancellationToken) {
        let mut ours = HashSet::new();
        while self.inner.store.meets_others() && !stop.is_cancelled() {
            match stop.run_until_cancelled(self.inner.store.arrivals()).await {
                None => return,
                Some(Ok(arrivals)) => {
                    let mut arrivals = pin!(arrivals);
                    while let Some(Some(id)) = stop.run_until_cancelled(arrivals.next()).await {
                        if ours.contains(&id) {
                            continue;
                        }
                        match self.met(&id).await {
                            Ok(Met::Ours) if ours.len() < OURS => drop(ours.insert(id)),
                            Ok(Met::Ours) => ours.clear(),
                            Ok(Met::Others) => {}
                            Err(error) => {
                                tracing::warn!(upload_id = id, %error, "an upload is not gone on with");
                            }
                        }
                    }
                }
                Some(Err(error)) => tracing::debug!(%error, "other programs' chunks are not heard of"),
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(AWAY)).await;
        }
    }

    /// Takes what another program has put there, if it is one's.
    pub(crate) async fn met(&self, id: &str) -> Result<Met> {
        match self.of_ours(id).await? {
            Some(upload) if !upload.is_adopted() => Ok(Met::Ours),
            // Begun here, or the other half of its state is still to be written.
            Some(upload) => {
                if !self.adopt(id).await? {
                    self.gather(&upload).await?;
                }
                Ok(Met::Others)
            }
            None => self.adopt(id).await.map(|_| Met::Others),
        }
    }

    /// Walks over some keys of the store, from `at` on, and takes over what can be; how many uploads. `at` is where to go
    /// on.
    pub async fn adopt_some(&self, at: &mut Option<Vec<u8>>) -> Result<u32> {
        if !self.inner.store.meets_others() {
            return Ok(0);
        }
        let page = self.inner.store.states(KEYS, at.take()).await?;
        *at = page.next;
        let mut adopted = 0;
        for id in &page.ids {
            match self.adopt(id).await {
                Ok(true) => adopted += 1,
                Ok(false) => {}
                Err(error) if error.code() == Some(Code::UploadForeign) => {
                    tracing::debug!(upload_id = id, %error, "an upload stays another program's");
                }
                // One that cannot be read keeps no other.
                Err(error) if !error.trouble().may_pass() => {
                    tracing::debug!(upload_id = id, %error, "an upload cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(adopted)
    }
}

/// Whose upload it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// Begun here: others put nothing there.
    Ours,
    /// Another program's, or nobody's.
    Others,
}
