//! `upload`: numbered chunks on their way into an object; the store's side of it.
//!
//! The store holds what was received and is not yet durable: the chunks, who ships which, how many bytes are in flight,
//! and the documented view of how far the upload has come. What is durable is recorded elsewhere, in a ledger; when the
//! store forgets, [`Upload::restore`] makes it say again what the ledger knows, and what was received and is lost is
//! asked for again.
//!
//! # The way of a chunk
//! 1. [`Upload::admit`] reserves its bytes, or tells when to come back.
//! 2. [`Upload::write`] stages them by pieces, or the caller puts them elsewhere.
//! 3. [`Upload::accept`] takes the chunk, once: staged bytes are renamed, never copied. From here on it is *received*.
//! 4. [`Upload::claim`] hands it to somebody under a lease, who reads it ([`Upload::read`]), ships it, records it in the
//!    ledger, and then says [`Upload::shipped`]: it is *durable*, and its bytes are removed.
//! 5. What did not work comes again ([`Upload::failed`]); bytes that are gone are asked for again
//!    ([`Upload::missing`]).
//!
//! When every chunk is durable ([`Receipt::complete`]) the status goes COMPLETING, COMPLETED; it may become FAILED and
//! be reopened, EXPIRED, or be aborted by the client.
//!
//! # Steps
//! The keys of one upload share a slot, and every operation on them is one script. The indexes over all uploads (when
//! the sweep is to act, who has chunks to claim, bytes in flight) are other keys, changed by steps of their own after
//! it. A process that dies between the two leaves an index behind its upload; [`Upload::tend`] and [`Upload::audit`],
//! which the sweep calls, put it right. No answer is given that depends on an index being right, but one: bytes in
//! flight may be counted for longer than they are there.

mod answer;
mod ask;
mod bytes;
mod chunk;
mod counts;
mod digest;
mod flight;
mod foreign;
mod keys;
mod ops;
mod progress;
mod ship;
mod state;
mod sweep;
mod tell;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use quaymaster_schema::{UploadSpec, is_longer};

pub use answer::{
    Accepted, Admitted, Audited, Chunk, Claimed, Created, Dropped, Due, Failed, Forgotten, Held, InFlight,
    Lease, Moved, Noted, Place, Receipt, Refusal, Reopened, Shipped, Status, Tended,
};
pub use ask::{
    Claim, Known, Last, Metadata, New, Next, Offer, Part, Reopen, Resend, Reservation, Source, Stage,
};
pub use counts::Counts;
pub use digest::{Digest, NotADigest};
pub use foreign::{Adopted, Foreign, States};
pub use progress::Progress;
pub use quaymaster_store::MAX_PIECE;
pub use state::{Kept, State};

use crate::bound::Bound;
use crate::scripts::{
    upload_back, upload_call, upload_create, upload_enlist, upload_rekey, upload_restore, upload_shorten,
};
use crate::{Code, Error, Result};
use ops::{Change, When, With};

/// How many chunks an upload may have: object stores take so many parts.
pub const MAX_CHUNKS: u32 = 10_000;

/// The longest lease of a chunk or a reservation.
pub const LEASE_MAX: Duration = Duration::from_secs(900);

/// How much of an error is kept.
pub const ERROR_MAX: usize = 4096;

/// The longest ETag, multipart id, key and other text of the state.
const TEXT_MAX: usize = 4096;

/// The longest metadata, field by field.
const METADATA_MAX: usize = 64 << 10;

/// Parts restored in one step.
const RESTORE_PAGE: usize = 200;

/// The statuses of an upload that goes on.
const OPEN: &str = ",PENDING,UPLOADING,";

/// An upload of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upload {
    bound: Bound,
    spec: UploadSpec,
    /// The placeholder of the upload's id.
    id_name: String,
    counts: Arc<Counts>,
}

impl Upload {
    pub(crate) fn new(bound: Bound, spec: UploadSpec) -> Self {
        let id_name = bound.pattern().placeholders().next().unwrap_or("upload_id").to_owned();
        Self { bound, spec, id_name, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &UploadSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// None of its store's calls takes longer.
    pub fn deadline(&self) -> std::time::Duration {
        self.bound.engine.deadline()
    }

    /// Refuses an id that could not be an upload's: 1 to 64 letters, digits, `-` and `_`.
    pub fn check_id(op: &'static str, id: &str) -> Result<()> {
        keys::check_id(op, "upload_id", id)
    }

    /// Refuses what the state of a new upload cannot hold; to be asked before anything is made for it.
    pub fn check_new(op: &'static str, new: &New<'_>) -> Result<()> {
        check_new(op, new)
    }

    /// How long an upload may take: so long that its state outlives it for as long as an ended one is kept.
    pub fn time_limit(&self) -> Duration {
        let (whole, keep) = (self.spec.state_ttl, self.spec.keep_after_done);
        whole.saturating_sub(keep).max(whole / 2)
    }

    /// Writes state and metadata of a new upload, PENDING, and has the sweep look at its deadline. Again with the same
    /// node it changes nothing.
    pub async fn create(&self, id: &str, new: &New<'_>) -> Result<Created> {
        const OP: &str = ops::CREATE;
        check_new(OP, new)?;
        let reply = self.bound.run(OP, ops::create(self, id, new)?).await?;
        let (created, deadline_ms) = match upload_create::Reply::read(OP, reply)? {
            upload_create::Reply::Created { deadline_ms } => (Created::New, deadline_ms),
            upload_create::Reply::Existing { deadline_ms, status } => {
                (Created::Existing(tell::status(OP, &status)?), deadline_ms)
            }
            upload_create::Reply::Taken => {
                let detail = format!("upload {id} belongs to another node");
                return Err(Error::new(OP, Code::RequestInvalid, detail));
            }
        };
        if matches!(created, Created::New | Created::Existing(Status::Pending | Status::Uploading)) {
            upload_enlist::Reply::read(
                OP,
                self.bound.run(OP, ops::enlist(self, OP, id, When::Moment(deadline_ms))?).await?,
            )?;
        }
        Ok(created)
    }

    /// All there is to know of an upload but its metadata; `None` when the store has no state of it.
    pub async fn status(&self, id: &str) -> Result<Option<State>> {
        let call = ops::status(self, id, With::State)?;
        tell::state(ops::STATUS, self.bound.run(ops::STATUS, call).await?, id)
    }

    /// The same with what the client said about the file, in one step.
    pub async fn described(&self, id: &str) -> Result<Option<(State, Kept)>> {
        let call = ops::status(self, id, With::Metadata)?;
        tell::described(ops::STATUS, self.bound.run(ops::STATUS, call).await?, id)
    }

    /// What the client said about the file.
    pub async fn metadata(&self, id: &str) -> Result<Option<Kept>> {
        tell::kept(ops::METADATA, self.bound.run(ops::METADATA, ops::metadata(self, id)?).await?)
    }

    /// Every chunk is durable and the object is being made: COMPLETING. Nothing is claimed or taken any more.
    pub async fn completing(&self, id: &str) -> Result<Moved> {
        self.change(id, Status::Completing, OPEN, &[]).await
    }

    /// Shows why the completion waits, to whoever looks or follows, until it is over; how long the keys live stays as it
    /// is. Without a reason what is shown stays.
    pub async fn note(&self, id: &str, reason: &str) -> Result<Noted> {
        const OP: &str = ops::NOTE;
        tell::noted(OP, self.bound.run(OP, ops::note(self, id, shortened(reason))?).await?)
    }

    /// Names the object of an upload by `key` from now on, where its state still has `was`.
    pub async fn rekey(&self, id: &str, was: &str, key: &str) -> Result<()> {
        const OP: &str = ops::REKEY;
        check_text(OP, "key", key, TEXT_MAX)?;
        upload_rekey::Reply::read(OP, self.bound.run(OP, ops::rekey(self, id, was, key)?).await?).map(drop)
    }

    /// The object is there, proved: COMPLETED. The keys are kept for as long as the schema says.
    pub async fn completed(&self, id: &str, etag: &str, size: u64) -> Result<Moved> {
        check_text(ops::MOVE, "etag", etag, TEXT_MAX)?;
        let size = size.to_string();
        let fields = [("final_etag", etag), ("final_size", size.as_str())];
        self.change(id, Status::Completed, ",PENDING,UPLOADING,COMPLETING,FAILED,", &fields).await
    }

    /// It cannot go on by itself: FAILED. [`Upload::reopen`] goes on.
    pub async fn fail(&self, id: &str, reason: &str) -> Result<Moved> {
        let fields = [("error_message", shortened(reason))];
        self.change(id, Status::Failed, ",PENDING,UPLOADING,COMPLETING,", &fields).await
    }

    /// Its deadline passed: EXPIRED. An upload that is completing is not expired; its ledger knows how it ends.
    pub async fn expire(&self, id: &str) -> Result<Moved> {
        self.change(id, Status::Expired, ",PENDING,UPLOADING,FAILED,", &[]).await
    }

    /// The client gave it up: FAILED for good.
    pub async fn abort(&self, id: &str, reason: &str) -> Result<Moved> {
        let fields = [("error_message", shortened(reason))];
        let change = Change {
            to: Status::Failed.name(),
            from: ",PENDING,UPLOADING,FAILED,",
            all_durable: false,
            aborted: true,
            lives: self.spec.keep_after_done,
            fields: &fields,
        };
        self.changed(id, &change, Some(When::In(self.spec.keep_after_done))).await
    }

    async fn change(
        &self,
        id: &str,
        to: Status,
        from: &'static str,
        fields: &[(&str, &str)],
    ) -> Result<Moved> {
        let ended = matches!(to, Status::Completed | Status::Expired);
        let lives = if ended { self.spec.keep_after_done } else { self.spec.state_ttl };
        let all_durable = to == Status::Completing;
        let change = Change { to: to.name(), from, all_durable, aborted: false, lives, fields };
        self.changed(id, &change, ended.then_some(When::In(lives))).await
    }

    /// Changes the status; one that ended is looked at again when its time is over.
    async fn changed(&self, id: &str, change: &Change<'_>, again: Option<When>) -> Result<Moved> {
        const OP: &str = ops::MOVE;
        let moved = tell::moved(OP, self.bound.run(OP, ops::change(self, id, change)?).await?)?;
        if let (Some(at), Moved::Moved { .. } | Moved::Already) = (again, &moved) {
            upload_enlist::Reply::read(OP, self.bound.run(OP, ops::enlist(self, OP, id, at)?).await?)?;
        }
        Ok(moved)
    }

    /// Goes on with an upload that failed, or that could not be completed. Every attempt begins anew, and whoever holds
    /// a chunk has lost it.
    pub async fn reopen(&self, id: &str, reopen: &Reopen<'_>) -> Result<Reopened> {
        const OP: &str = ops::REOPEN;
        check_text(OP, "multipart_id", reopen.multipart_id.unwrap_or_default(), TEXT_MAX)?;
        let call = ops::reopen(self, id, reopen)?;
        let (reopened, deadline_ms) = tell::reopened(OP, self.bound.run(OP, call).await?)?;
        if let Reopened::Open { waiting, .. } = reopened {
            upload_enlist::Reply::read(
                OP,
                self.bound.run(OP, ops::enlist(self, OP, id, When::Moment(deadline_ms))?).await?,
            )?;
            if waiting > 0 {
                upload_call::Reply::read(
                    OP,
                    self.bound.run(OP, ops::call(self, OP, id, Duration::ZERO)?).await?,
                )?;
            }
        }
        Ok(reopened)
    }

    /// Lets an upload that was seen with the deadline `deadline_ms` expire so long from now. One that has another by now
    /// keeps that.
    pub async fn shorten(&self, id: &str, deadline_ms: i64, time_left: Duration) -> Result<()> {
        const OP: &str = ops::SWEEP;
        let reply = self.bound.run(OP, ops::shorten(self, id, deadline_ms, time_left)?).await?;
        if let upload_shorten::Reply::Shortened { deadline_ms } = upload_shorten::Reply::read(OP, reply)? {
            upload_enlist::Reply::read(
                OP,
                self.bound.run(OP, ops::enlist(self, OP, id, When::Moment(deadline_ms))?).await?,
            )?;
        }
        Ok(())
    }

    /// Makes the store say what the ledger knows: of an upload whose state is lost, or is older than the ledger. What
    /// is durable stays durable; what was only received and is not here any more has to come again.
    pub async fn restore(&self, id: &str, new: &New<'_>, known: &Known<'_>) -> Result<Receipt> {
        const OP: &str = ops::RESTORE;
        if let Some(part) = known.parts.iter().find(|part| part.number >= MAX_CHUNKS) {
            let detail = format!("part of chunk {}: an upload has at most {MAX_CHUNKS}", part.number);
            return Err(Error::new(OP, Code::RequestInvalid, detail));
        }
        let _ = self.create(id, new).await?;
        let mut receipt = None;
        let mut pages: Vec<Known<'_>> =
            known.parts.chunks(RESTORE_PAGE).map(|parts| Known { parts, ..Known::default() }).collect();
        // The status comes last: what it says must be true by then.
        pages.push(Known { parts: &[], ..*known });
        for page in pages {
            let reply = self.bound.run(OP, ops::restore(self, id, &page)?).await?;
            let mut names = Vec::new();
            receipt = match upload_restore::Reply::read(OP, reply)? {
                upload_restore::Reply::Restored { received, durable, total, complete, waited } => {
                    for row in waited {
                        let number = u32::try_from(row.number).unwrap_or(MAX_CHUNKS);
                        names.push(keys::flight_name(id, number, &tell::text_of(&row.attempt)));
                    }
                    Some(tell::receipt(received, durable, total, complete))
                }
                upload_restore::Reply::Unknown => None,
            };
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                upload_back::Reply::read(OP, self.bound.run(OP, ops::back(self, OP, &names)?).await?)?;
            }
        }
        upload_call::Reply::read(OP, self.bound.run(OP, ops::call(self, OP, id, Duration::ZERO)?).await?)?;
        receipt.ok_or_else(|| Error::new(OP, Code::StoreContended, format!("upload {id} vanished meanwhile")))
    }
}

fn check_new(op: &'static str, new: &New<'_>) -> Result<()> {
    if new.node_id.is_empty() {
        return Err(Error::new(op, Code::RequestInvalid, "node_id is empty").field("node_id"));
    }
    let New { node_id, key, multipart_id, drive, mime_type, metadata, .. } = new;
    for (name, text) in [
        ("node_id", node_id),
        ("key", key),
        ("multipart_id", multipart_id),
        ("drive", drive),
        ("mime_type", mime_type),
    ] {
        check_text(op, name, text, TEXT_MAX)?;
    }
    let Metadata { name, connector_id, parent_id, path, custom_metadata, client_node_id } = metadata;
    for (field, text) in [
        ("name", name),
        ("connector_id", connector_id),
        ("parent_id", parent_id),
        ("path", path),
        ("custom_metadata", custom_metadata),
        ("client_node_id", client_node_id),
    ] {
        check_text(op, field, text, METADATA_MAX)?;
    }
    Ok(())
}

fn check_text(op: &'static str, name: &'static str, text: &str, most: usize) -> Result<()> {
    if is_longer(text, most) {
        let detail = format!("{name} has {} characters; the most is {most}", text.chars().count());
        return Err(Error::new(op, Code::RequestTooLarge, detail).field(name));
    }
    // PostgreSQL keeps no text with one.
    if text.contains('\0') {
        return Err(Error::new(op, Code::RequestInvalid, format!("{name}: must not contain NUL")).field(name));
    }
    Ok(())
}

/// The beginning of an error, if all of it is too long.
fn shortened(error: &str) -> &str {
    let mut end = error.len().min(ERROR_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}
