//! The sweep as it runs by itself, and its slow part: every upload looked at in turn.

use std::time::Duration;

use quaymaster::upload::Status;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PAGE, Round};
use crate::Result;
use crate::ledger::Step;
use crate::uploads::Uploads;

/// Without a bell, due uploads are looked for so often.
const TICK: Duration = Duration::from_secs(1);

/// What was given up on its way in is looked for once in this share of a lease, after which it is anybody's.
const RECLAIM_SHARE: u32 = 6;

/// Every upload is looked at so often, if that takes no longer than a turn; else those that come first, and the others
/// in the next turns.
const SLOW: Duration = Duration::from_secs(30);

/// What is due waits no longer for those that are only looked at.
const TURN: Duration = Duration::from_secs(2);

/// Events looked at in one call.
const EVENTS: u32 = 1000;

/// Where the slow part stands.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    upload_id: String,
    in_store: u64,
    states: Option<Vec<u8>>,
    in_flight: u64,
    event: i64,
}

impl Uploads {
    /// Completes and sweeps until it is told to stop. Any number of nodes may do so at once.
    pub async fn tend(&self, stop: CancellationToken) {
        let mut cursor = Cursor::default();
        let (mut slow, mut hurried) = (Instant::now(), false);
        let mut reclaimed: Option<Instant> = None;
        while !stop.is_cancelled() {
            match self.run_due().await {
                // The store is to hear soon of deadlines that were moved.
                Ok(round) => hurried |= round.moved > 0,
                Err(error) => tracing::warn!(%error, "due uploads cannot be looked for"),
            }
            if reclaimed.is_none_or(|at| at.elapsed() >= self.inner.options.lease / RECLAIM_SHARE) {
                reclaimed = Some(Instant::now());
                if let Err(error) = self.reclaim().await {
                    tracing::warn!(%error, "what was given up on its way in cannot be removed");
                }
            }
            if hurried || slow.elapsed() >= SLOW {
                hurried = false;
                slow = Instant::now();
                // Page after page: with many uploads one at a time would take days to come round.
                loop {
                    if let Err(error) = self.sweep(&mut cursor).await {
                        tracing::warn!(%error, "the sweep broke off");
                        break;
                    }
                    if cursor.upload_id.is_empty() || slow.elapsed() >= TURN || stop.is_cancelled() {
                        break;
                    }
                }
                if let Err(error) = self.prune(&mut cursor).await {
                    tracing::warn!(%error, "events that were kept long enough cannot be removed");
                }
            }
            let rest = tokio::time::timeout(TICK, self.inner.whole.notified());
            let _ = stop.run_until_cancelled(rest).await;
        }
    }

    /// Removes what was staged by requests that ended without a word: their node died, or stood still for longer than
    /// its reservation. How many there were.
    ///
    /// The reservation is given up first, so whoever is still there offers nothing of it; see
    /// [`quaymaster::upload::Upload::lapsed`].
    pub async fn reclaim(&self) -> Result<u64> {
        let mut reclaimed = 0;
        loop {
            let lapsed = self.inner.store.lapsed(PAGE as usize, self.inner.options.lease).await?;
            for reservation in &lapsed {
                self.inner.bytes.reclaim(&self.inner.store, reservation).await?;
                self.inner.store.give_back(reservation).await?;
                reclaimed += 1;
            }
            if lapsed.len() < PAGE as usize {
                return Ok(reclaimed);
            }
        }
    }

    /// Removes events that were kept as long as they are to be; how many. Goes on while there are some, at most for a
    /// turn; the next one looks behind those that stay.
    pub async fn prune(&self, cursor: &mut Cursor) -> Result<u64> {
        let Some(keep) = self.inner.options.keep_events else { return Ok(0) };
        let (began, topic, mut removed) = (Instant::now(), self.inner.announcer.topic(), 0);
        loop {
            let pruned = self.inner.ledger.prune_events(topic, keep, cursor.event, EVENTS).await?;
            cursor.event = pruned.next;
            removed += pruned.removed;
            if pruned.removed == 0 || pruned.next == 0 || began.elapsed() >= TURN {
                return Ok(removed);
            }
        }
    }

    /// Looks at the next page of uploads: what ledger and store say of them, chunks that nobody is told of, bytes in
    /// flight that are nobody's, files that are left in the spool.
    pub async fn sweep(&self, cursor: &mut Cursor) -> Result<Round> {
        let mut round = Round::default();
        let page = self.inner.ledger.page(&cursor.upload_id, PAGE).await?;
        for upload in page.iter().filter(|upload| upload.resource == self.inner.store.name()) {
            match self.reconcile(upload).await {
                Ok(mended) => round.mended += u64::from(mended),
                Err(error) => round.trouble(&upload.upload_id, &error),
            }
            if matches!(upload.step, Step::Open | Step::Failed)
                && let Err(error) = self.inner.store.tend(&upload.upload_id).await
            {
                round.trouble(&upload.upload_id, &error.into());
            }
            if upload.step == Step::Open
                && upload.is_adopted()
                && let Err(error) = self.met(&upload.upload_id).await
            {
                round.trouble(&upload.upload_id, &error);
            }
            if upload.step == Step::Failed
                && let Err(error) = self.lapse(&upload.upload_id).await
            {
                round.trouble(&upload.upload_id, &error);
            }
        }
        cursor.upload_id = match page.last() {
            Some(last) if page.len() == PAGE as usize => last.upload_id.clone(),
            _ => String::new(),
        };
        self.sweep_store(cursor, &mut round).await?;
        // A store that lets nobody walk over its keys keeps the rest from nothing.
        match self.adopt_some(&mut cursor.states).await {
            Ok(adopted) => round.adopted += u64::from(adopted),
            Err(error) => tracing::debug!(%error, "other programs' uploads are not looked for"),
        }
        round.reclaimed += self.reclaim().await?;
        let audited = self.inner.store.audit(cursor.in_flight, PAGE as usize).await?;
        cursor.in_flight =
            if audited.looked < u64::from(PAGE) { 0 } else { cursor.in_flight + audited.looked };
        if cursor.upload_id.is_empty() {
            self.sweep_spool(&mut round).await?;
        }
        Ok(round)
    }

    /// Bytes of what has FAILED are kept for as long as a chunk's may wait, and count as in flight for that long. In a
    /// store they end by themselves; elsewhere they would lie there until the deadline, and others be let in beside them.
    async fn lapse(&self, id: &str) -> Result<()> {
        let store = &self.inner.store;
        let Some(state) = store.status(id).await? else { return Ok(()) };
        let waited = u64::try_from(state.now_ms - state.updated_ms).unwrap_or(0);
        if state.status != Status::Failed || Duration::from_millis(waited) < store.spec().chunk_ttl {
            return Ok(());
        }
        // None of them is named again, so one that cannot be removed keeps no other.
        let mut removed = Ok(());
        for chunk in store.lapse(id).await? {
            removed = removed.and(self.inner.bytes.remove(id, &chunk.place).await);
        }
        removed
    }

    /// Uploads that the store has and the ledger does not know: forgotten ones whose keys were left, and what another
    /// program wrote. They have no future; their keys expire, and their bytes go.
    async fn sweep_store(&self, cursor: &mut Cursor, round: &mut Round) -> Result<()> {
        let ids = self.inner.store.page(cursor.in_store, PAGE as usize).await?;
        cursor.in_store = if ids.len() < PAGE as usize { 0 } else { cursor.in_store + ids.len() as u64 };
        for id in &ids {
            if self.inner.ledger.find(id).await?.is_some() {
                continue;
            }
            // One that goes on may be another ledger's: this node was given the wrong database, or that one's was put
            // back to an older day. What was acknowledged is not thrown away for it before its own deadline.
            let state = self.inner.store.status(id).await?;
            if state.is_some_and(|state| !state.is_ended() && state.deadline_ms > state.now_ms) {
                tracing::warn!(upload_id = id, "the store has an upload that the database does not know");
                continue;
            }
            let _ = self.inner.store.expire(id).await?;
            self.clear(id).await?;
            if let quaymaster::upload::Forgotten::Forgotten = self.inner.store.forget(id).await? {
                round.forgotten += 1;
            }
        }
        Ok(())
    }

    async fn sweep_spool(&self, round: &mut Round) -> Result<()> {
        let kept = self.inner.store.spec().state_ttl;
        for (id, untouched) in self.inner.bytes.sweep(&self.inner.store).await?.uploads {
            // As in the store: one that is not known may be another ledger's.
            let found = self.inner.ledger.find(&id).await?;
            let over = found.map_or(untouched >= kept, |upload| upload.step.is_over());
            if over && let Err(error) = self.inner.bytes.remove_all(&id, &[]).await {
                round.trouble(&id, &error);
            }
        }
        Ok(())
    }
}
