//! What nobody else does: uploads that wait for somebody, deadlines, ended ones that were kept long enough, and what a
//! crash left different in store and ledger. Each call does a bounded amount and tells what it did.

mod duty;

pub use duty::Cursor;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use quaymaster::upload::{Forgotten, State, Status};

use crate::Result;
use crate::complete::Ran;
use crate::effect::Effect;
use crate::ingest::Strays;
use crate::ledger::{Due, Errand, Moved, Step, Total, Upload};
use crate::uploads::Uploads;

/// Uploads looked at in one page.
const PAGE: u32 = 100;

/// Uploads worked on at once: an object store may take its time with one.
const AT_ONCE: usize = 8;

/// A deadline in the store may be so much further away than in the ledger: the two are read one after the other.
const APART: Duration = Duration::from_secs(10);

/// What one round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Uploads that were completed, expired or called off.
    pub ended: u64,
    /// Uploads that have FAILED.
    pub failed: u64,
    /// Uploads that wait for another try.
    pub waiting: u64,
    /// Uploads forgotten.
    pub forgotten: u64,
    /// Uploads whose state in the store was put right.
    pub mended: u64,
    /// Requests that ended without a word and whose staged bytes were removed.
    pub reclaimed: u64,
    /// Uploads that another program began and that are gone on with.
    pub adopted: u64,
    /// Rows that were written before the database's clock was set back, and whose moments were moved.
    pub moved: u64,
    /// Calls that did not work; the next round tries again.
    pub errors: u64,
}

impl Uploads {
    /// Does what is due by the ledger: completes, ends, forgets.
    pub async fn run_due(&self) -> Result<Round> {
        let mut round = Round::default();
        // What is due can be done meanwhile: whoever locks a row moves it, too.
        match self.inner.ledger.follow_clock(self.inner.store.name()).await {
            Ok(moved) => round.moved = moved,
            Err(error) => {
                tracing::warn!(%error, "uploads written before the clock was set back wait for the next round");
            }
        }
        let mut after = None;
        loop {
            let due = self.inner.ledger.due(after.as_ref(), PAGE).await?;
            let work: Vec<BoxFuture<'_, (&Due, Result<Ran>)>> =
                due.iter().map(|due| Box::pin(async move { (due, self.run_one(due).await) }) as _).collect();
            let mut done = stream::iter(work).buffer_unordered(AT_ONCE);
            while let Some((due, ran)) = done.next().await {
                match ran {
                    Ok(Ran::Ended(_)) if due.errand == Errand::Forget => round.forgotten += 1,
                    Ok(Ran::Ended(_)) => round.ended += 1,
                    Ok(Ran::Failed(_)) => round.failed += 1,
                    Ok(Ran::LetGo(_)) => round.waiting += 1,
                    Ok(Ran::NotYet | Ran::Taken | Ran::Elsewhere(_) | Ran::Unknown) => {}
                    Err(error) => round.trouble(&due.upload_id, &error),
                }
            }
            drop(done);
            if due.len() < PAGE as usize {
                return Ok(round);
            }
            after = due.into_iter().next_back();
        }
    }

    async fn run_one(&self, due: &Due) -> Result<Ran> {
        match due.errand {
            Errand::Complete => self.complete(&due.upload_id).await,
            Errand::End => self.end(&due.upload_id).await,
            Errand::Forget => self.forget(&due.upload_id).await,
        }
    }

    /// Ends an upload: one that is past its deadline, or whose end somebody began.
    async fn end(&self, id: &str) -> Result<Ran> {
        match self.expire(id).await? {
            // Its parts are all there: it is completed instead, however late.
            Ran::Elsewhere(Step::Open) => self.complete(id).await,
            ran => Ok(ran),
        }
    }

    /// Removes what is left of an upload that is over: from the store, the spool, and last from the ledger.
    async fn forget(&self, id: &str) -> Result<Ran> {
        let Some(upload) = self.of_ours(id).await? else { return Ok(Ran::Unknown) };
        if !upload.step.is_over() {
            return Ok(Ran::Elsewhere(upload.step));
        }
        Effect::ForgetStore.of(self.forget_in_store(&upload)).await?;
        Ok(match Effect::ForgetRow.of(self.inner.ledger.forget(id)).await? {
            Moved::Moved(upload) => Ran::Ended(upload.step),
            Moved::Lost(upload) => Ran::Elsewhere(upload.step),
            Moved::Unknown => Ran::Unknown,
        })
    }

    async fn forget_in_store(&self, upload: &Upload) -> Result<()> {
        let id = &upload.upload_id;
        self.reconcile(upload).await?;
        self.clear(id).await?;
        if let Forgotten::Bytes = self.inner.store.forget(id).await? {
            self.clear(id).await?;
            let _ = self.inner.store.forget(id).await?;
        }
        Ok(())
    }

    /// Makes the store say what the ledger says; whether it had said something else.
    pub(crate) async fn reconcile(&self, upload: &Upload) -> Result<bool> {
        let (id, store) = (&upload.upload_id, &self.inner.store);
        let state = store.status(id).await?;
        let learned = self.learn_total_from(upload, state.as_ref()).await?;
        if self.mend(upload, state.as_ref()).await? == Mend::Nothing {
            return Ok(learned);
        }
        // The row may have been read long before the state, and whoever goes by an old one undoes what was done since:
        // it would fail an upload that was resumed, or have it sent to a multipart upload that is gone.
        let Some(upload) = self.of_ours(id).await? else { return Ok(false) };
        match self.mend(&upload, state.as_ref()).await? {
            Mend::Nothing => return Ok(learned),
            Mend::Restore => self.restore_from(&upload).await?,
            Mend::Reopen => self.reopen_in_store(&upload).await?,
            Mend::Begin => {
                let upload = self.open_multipart(upload, Strays::Cut).await?;
                self.reopen_in_store(&upload).await?;
            }
            Mend::Shorten { deadline_ms, time_left } => store.shorten(id, deadline_ms, time_left).await?,
            Mend::Fail => drop(store.fail(id, upload.error.as_deref().unwrap_or_default()).await?),
            Mend::End => {
                self.restore_from(&upload).await?;
                self.clear(id).await?;
            }
            Mend::Abort => {
                let _ = store.abort(id, upload.error.as_deref().unwrap_or("aborted by the client")).await?;
                self.clear(id).await?;
            }
        }
        Ok(true)
    }

    /// Both who brought the last chunk and who shipped it may have died before the ledger knew how many there are; then
    /// the store alone knows, and nobody would complete what is durable. Whether it was told now.
    async fn learn_total_from(&self, upload: &Upload, state: Option<&State>) -> Result<bool> {
        let told = state.and_then(|state| state.receipt.total_chunks);
        let Some(total) = told.filter(|_| upload.step == Step::Open && upload.total_chunks.is_none()) else {
            return Ok(false);
        };
        let learned = self.inner.ledger.learn_total(&upload.upload_id, total).await?;
        if learned == (Total::Known { all: true }) {
            self.inner.whole.notify_one();
        }
        Ok(matches!(learned, Total::Known { .. }))
    }

    /// What the store has to be told of an upload.
    async fn mend(&self, upload: &Upload, state: Option<&State>) -> Result<Mend> {
        let Some(state) = state else {
            let nothing = upload.step.is_over() || upload.step == Step::Created;
            return Ok(if nothing { Mend::Nothing } else { Mend::Restore });
        };
        Ok(match upload.step {
            // It was to begin anew, and whoever resumed it died before there was a multipart upload: what comes for it
            // could never be sent.
            Step::Created => Mend::Begin,
            Step::Open => {
                let parts = self.parts_in_store(&upload.upload_id).await?;
                let durable = state.receipt.durable_chunks as usize;
                let open = matches!(state.status, Status::Pending | Status::Uploading);
                let same = upload.multipart_id.as_deref() == Some(&state.multipart_id);
                let unknown = |number: u32| parts.binary_search_by_key(&number, |part| part.number).is_err();
                if !open || !same || state.durable().into_iter().flatten().any(unknown) {
                    Mend::Reopen
                } else if parts.len() > durable || upload.total_chunks > state.receipt.total_chunks {
                    Mend::Restore
                } else {
                    let (deadline_ms, time_left) =
                        (state.deadline_ms, self.inner.ledger.time_left(upload).await?);
                    let lasts = u64::try_from(deadline_ms - state.now_ms).unwrap_or(0);
                    let far = Duration::from_millis(lasts) > time_left.saturating_add(APART);
                    if far { Mend::Shorten { deadline_ms, time_left } } else { Mend::Nothing }
                }
            }
            Step::Failed if state.status != Status::Failed => Mend::Fail,
            Step::Done if state.status != Status::Completed => Mend::End,
            Step::Expired if state.status != Status::Expired => Mend::End,
            Step::Aborted if !state.aborted => Mend::Abort,
            // Owned ones are shown by their owner.
            _ => Mend::Nothing,
        })
    }
}

/// What the store has to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mend {
    Nothing,
    Restore,
    Reopen,
    Begin,
    Shorten { deadline_ms: i64, time_left: Duration },
    Fail,
    End,
    Abort,
}

impl Round {
    fn trouble(&mut self, upload_id: &str, error: &crate::Error) {
        self.errors += 1;
        tracing::warn!(upload_id, %error, "the sweep goes on with the next upload");
    }
}
