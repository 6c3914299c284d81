//! How far an upload has come, going on with one that failed, and its content; also what the store says again when it
//! has forgotten.

use std::ops::{Range, RangeInclusive};

use futures_util::{StreamExt as _, stream};
use quaymaster::upload::{Kept, Resend, State, Status};
use quaymaster::{Code, upload as store};

use super::create::{Strays, in_store};
use crate::complete::parts_are_lost;
use crate::effect::Effect;
use crate::ledger::{Moved, Reopen, Step, Upload};
use crate::objects::Pieces;
use crate::uploads::Uploads;
use crate::{Error, Result, Trouble};

/// How often a store is told an upload that it has forgotten, before somebody else is to ask again.
const RESTORES: usize = 3;

/// All a client is told of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: State,
    /// What it was created with, as far as the store knows it.
    pub said: Kept,
    /// Chunks to be sent again, or still to be sent of those that are known to exist.
    pub resend: Vec<RangeInclusive<u32>>,
}

/// The answer of `resume`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Resumed {
    /// It goes on.
    Open(Box<Standing>),
    /// It has ended, or is being completed.
    Ended(Status),
    /// There is no such upload.
    Unknown,
}

/// The content of an upload.
#[must_use]
pub enum Content {
    /// Its bytes.
    Pieces {
        /// Of the whole object.
        size: u64,
        /// The MIME type.
        mime_type: String,
        /// The object's ETag.
        etag: String,
        /// What the file is called, where that is still known.
        name: Option<String>,
        /// The bytes asked for.
        pieces: Pieces,
    },
    /// The object is not there yet, or never will be.
    Not(Step),
    /// There is no such upload.
    Unknown,
}

impl Uploads {
    /// How far an upload has come; `None` when there is none.
    pub async fn standing(&self, id: &str) -> Result<Option<Standing>> {
        let ask = || self.inner.store.described(id);
        let described = self.known(id, ask, |(state, _): &(State, Kept)| state.is_half()).await?;
        let Some((state, said)) = described else { return Ok(None) };
        let asked = resend(&state);
        // A store that went back in time may not know what is durable by now: that is asked for from nobody.
        if !asked.is_empty()
            && let Some(upload) = self.of_ours(id).await?
        {
            // Whether there was something to tell, or somebody else was quicker to tell it.
            self.reconcile(&upload).await?;
            if let Some(state) = self.inner.store.status(id).await? {
                let resend = resend(&state);
                return Ok(Some(Standing { state, said, resend }));
            }
        }
        Ok(Some(Standing { state, said, resend: asked }))
    }

    /// The state, from the ledger if the store has forgotten it.
    pub(crate) async fn state(&self, id: &str) -> Result<Option<State>> {
        self.known(id, || self.inner.store.status(id), State::is_half).await
    }

    /// What the store answers of an upload, once it was told what it has forgotten, and once it was taken over if another
    /// program began it.
    async fn known<T, F>(
        &self,
        id: &str,
        ask: impl Fn() -> F,
        is_half: impl Fn(&T) -> bool,
    ) -> Result<Option<T>>
    where
        F: Future<Output = quaymaster::Result<Option<T>>>,
    {
        // A store that is being restarted may forget once more what it was just told.
        for _ in 0..RESTORES {
            let spoiled = |error: &quaymaster::Error| error.code == Code::KeyMalformed;
            match ask().await {
                Ok(Some(known)) if is_half(&known) => {
                    if !self.adopt(id).await? {
                        return Ok(Some(known));
                    }
                }
                Ok(Some(known)) => return Ok(Some(known)),
                Ok(None) => {
                    if !self.restore(id).await? && !self.adopt(id).await? {
                        return Ok(None);
                    }
                }
                // Another program's words are told as its own.
                Err(error) if spoiled(&error) => {
                    if !self.adopt(id).await? {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        match ask().await? {
            None if self.of_ours(id).await?.is_some_and(|upload| !upload.step.is_over()) => {
                let detail = "the store forgets what it is told: is it being restarted?";
                Err(Error::new("upload.state", Trouble::Passing, detail))
            }
            known => Ok(known),
        }
    }

    /// Makes the store say what the ledger knows; false when that is nothing.
    pub(crate) async fn restore(&self, id: &str) -> Result<bool> {
        let Some(upload) = self.of_ours(id).await? else { return Ok(false) };
        self.restore_from(&upload).await?;
        Ok(true)
    }

    /// An upload of this resource, as the ledger has it: several resources may share a database.
    pub async fn of_ours(&self, id: &str) -> Result<Option<Upload>> {
        // No database is asked for what no upload can be called.
        if store::Upload::check_id("upload.find", id).is_err() {
            return Ok(None);
        }
        let found = self.inner.ledger.find(id).await?;
        Ok(found.filter(|upload| upload.resource == self.inner.store.name()))
    }

    pub(crate) async fn restore_from(&self, upload: &Upload) -> Result<()> {
        let node = self.node_of(upload).await?;
        let parts = self.parts_in_store(&upload.upload_id).await?;
        let status = match upload.step {
            // Whether it is PENDING or UPLOADING follows from its parts.
            Step::Created | Step::Open => None,
            step => Status::parse(step.status()),
        };
        // What a completion waited for is over with it.
        let error = upload.error.as_deref().filter(|_| status != Some(Status::Completed));
        let known = store::Known {
            parts: &parts,
            total_chunks: upload.total_chunks,
            status,
            error: error.unwrap_or_default(),
            final_etag: upload.final_etag.as_deref().unwrap_or_default(),
            final_size: upload.final_size,
        };
        let time_left = self.inner.ledger.time_left(upload).await?;
        let new = in_store(upload, &node, time_left);
        self.inner.store.restore(&upload.upload_id, &new, &known).await?;
        tracing::info!(upload_id = upload.upload_id, step = %upload.step, "the store's state was restored");
        Ok(())
    }

    pub(crate) async fn parts_in_store(&self, id: &str) -> Result<Vec<store::Part>> {
        let parts = self.inner.ledger.parts(id).await?;
        let part = |part: crate::ledger::Part| store::Part {
            number: part.number - 1,
            size: part.size,
            digest: part.digest,
            etag: part.etag,
        };
        Ok(parts.into_iter().filter(|part| part.number > 0).map(part).collect())
    }

    /// Goes on with an upload that has FAILED: with what is durable, or, where the object store has lost the parts,
    /// from the beginning.
    pub async fn resume(&self, id: &str) -> Result<Resumed> {
        let Some(upload) = self.ours_by_now(id).await? else { return Ok(Resumed::Unknown) };
        let how = match upload.error.as_deref() {
            Some(error) if parts_are_lost(error) => Reopen::Afresh,
            _ => Reopen::Keep,
        };
        let reopen = self.inner.ledger.reopen(id, how, self.time_limit());
        let upload = match Effect::ResumeReopen.of(reopen).await? {
            Moved::Moved(upload) => *upload,
            Moved::Lost(upload) => {
                let status = Status::parse(upload.step.status()).unwrap_or(Status::Failed);
                return Ok(Resumed::Ended(status));
            }
            Moved::Unknown => return Ok(Resumed::Unknown),
        };
        // The ledger says by now that it goes on.
        self.show_resumed(upload).await.map_err(Error::after_a_change)
    }

    async fn show_resumed(&self, upload: Upload) -> Result<Resumed> {
        let upload = self.open_multipart(upload, Strays::Cut).await?;
        Effect::ResumeShown.of(self.reopen_in_store(&upload)).await?;
        self.inner.whole.notify_one();
        Ok(match self.standing(&upload.upload_id).await? {
            Some(standing) => Resumed::Open(Box::new(standing)),
            None => Resumed::Unknown,
        })
    }

    /// The store takes and hands out chunks again. What it believes durable and the ledger does not know is asked for
    /// again.
    pub(crate) async fn reopen_in_store(&self, upload: &Upload) -> Result<()> {
        let id = &upload.upload_id;
        let Some(state) = self.inner.store.status(id).await? else {
            return self.restore_from(upload).await;
        };
        let parts = self.parts_in_store(id).await?;
        let lost: Vec<u32> = state
            .durable()
            .into_iter()
            .flatten()
            .filter(|number| parts.binary_search_by_key(number, |part| part.number).is_err())
            .collect();
        let reopen = store::Reopen {
            multipart_id: upload.multipart_id.as_deref(),
            time_left: Some(self.inner.ledger.time_left(upload).await?),
            resend: if lost.is_empty() { Resend::None } else { Resend::Chunks(&lost) },
        };
        let _ = self.inner.store.reopen(id, &reopen).await?;
        if parts.len() > state.receipt.durable_chunks as usize - lost.len() {
            self.restore_from(upload).await?;
        }
        Ok(())
    }

    /// The bytes of an upload whose object is there, all or some.
    pub async fn content(&self, id: &str, range: Option<Range<u64>>) -> Result<Content> {
        let Some(upload) = self.ours_by_now(id).await? else { return Ok(Content::Unknown) };
        let (Some(size), Some(etag)) = (upload.final_size, upload.final_etag.clone()) else {
            return Ok(Content::Not(upload.step));
        };
        let (objects, key) = (&self.inner.objects, upload.object_key.clone());
        // Of an object in files the description is read first: a part that is not there is missing among others.
        let signs: &[&str] = if objects.repeats() { &["damaged"] } else { &["damaged", "NotFound"] };
        let told = move |error: Error| damaged(error, &key, signs);
        let Some(mut pieces) = objects.read(&upload.object_key, range).await.map_err(&told)? else {
            // It was looked at before the upload got where it is: somebody else has removed it since.
            let detail = format!("the object {:?} is no longer in the object store", upload.object_key);
            return Err(Error::new("upload.content", Trouble::Never, detail).coded(Code::UploadGone));
        };
        // Read before anybody is told that content follows: an object that is damaged at its beginning is told as that.
        let first = pieces.next().await.transpose().map_err(&told)?;
        let rest = pieces.map(move |piece| piece.map_err(&told));
        let pieces = stream::iter(first.map(Ok)).chain(rest).boxed();
        let name = self.node_of(&upload).await?.name;
        Ok(Content::Pieces { size, mime_type: upload.mime_type, etag, name, pieces })
    }
}

/// An object that is not what was put there, in words for whoever asked for its bytes. An error whose code is no sign of
/// that is left alone.
fn damaged(error: Error, key: &str, signs: &[&str]) -> Error {
    if !error.said().is_some_and(|code| signs.contains(&code)) {
        return error;
    }
    let detail = format!(
        "the object {key:?} is damaged: {}; restore it as it was, or upload the file again",
        error.detail()
    );
    Error::new("upload.content", Trouble::Never, detail).coded(Code::UploadDamaged).because(error)
}

/// What was lost, and, once it is known how many there are, what has not come.
fn resend(state: &State) -> Vec<RangeInclusive<u32>> {
    let Some(total) = state.receipt.total_chunks.filter(|_| !state.is_ended()) else { return state.resend() };
    let mut found: Vec<RangeInclusive<u32>> = Vec::new();
    for number in (0..total).filter(|number| !state.has(*number)) {
        match found.last_mut() {
            Some(last) if last.end() + 1 == number => *last = *last.start()..=number,
            _ => found.push(number..=number),
        }
    }
    found
}
