//! One function per operation: the call it becomes. No policy.
//!
//! Every call may be sent again: a step that has been made answers as it did, or finds nothing left to do.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::answer::Lease;
use super::ask::{Known, Last, Metadata, New, Next, Offer, Reopen, Resend, Source};
use super::{MAX_CHUNKS, Upload};
use crate::scripts::{self, Operation};
use crate::{Result, Token};

pub(super) const CREATE: &str = "upload.create";
pub(super) const ADMIT: &str = "upload.admit";
pub(super) const STAGE: &str = "upload.stage";
pub(super) const READ: &str = "upload.read";
pub(super) const ACCEPT: &str = "upload.accept";
pub(super) const CLAIM: &str = "upload.claim";
pub(super) const EXTEND: &str = "upload.extend";
pub(super) const RELEASE: &str = "upload.release";
pub(super) const SHIPPED: &str = "upload.shipped";
pub(super) const FAILED: &str = "upload.failed";
pub(super) const MISSING: &str = "upload.missing";
pub(super) const STATUS: &str = "upload.status";
pub(super) const METADATA: &str = "upload.metadata";
pub(super) const MOVE: &str = "upload.move";
pub(super) const NOTE: &str = "upload.note";
pub(super) const REOPEN: &str = "upload.reopen";
pub(super) const RESTORE: &str = "upload.restore";
pub(super) const SWEEP: &str = "upload.sweep";
pub(super) const FORGET: &str = "upload.forget";
pub(super) const PROGRESS: &str = "upload.progress";

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A call on the keys of one upload.
fn own(upload: &Upload, op: &'static str, operation: &'static Operation, id: &str) -> Result<Invocation> {
    let mut call = Invocation::new(&operation.script, Workload::Queue).repeat_safe().compound();
    upload.bind_own(op, id, &mut call.keys)?;
    Ok(call)
}

/// The same, of one that changes the state: how long it lives, and where progress is told.
fn told(upload: &Upload, op: &'static str, operation: &'static Operation, id: &str) -> Result<Invocation> {
    let mut call = own(upload, op, operation, id)?;
    call.args.push_int(millis(upload.spec.state_ttl));
    call.args.push(upload.progress_channel(op, id)?);
    Ok(call)
}

/// A call on keys that all uploads share.
fn index(
    upload: &Upload,
    op: &'static str,
    operation: &'static Operation,
    roles: &[&str],
) -> Result<Invocation> {
    let mut call = Invocation::new(&operation.script, Workload::Queue).repeat_safe().compound();
    roles.iter().try_for_each(|role| upload.bind_index(op, role, &mut call.keys))?;
    Ok(call)
}

/// A call on the account of bytes in flight.
fn flight(upload: &Upload, op: &'static str, operation: &'static Operation) -> Result<Invocation> {
    let mut call = Invocation::new(&operation.script, Workload::Queue).repeat_safe().compound();
    upload.bind_flight(op, &mut call.keys)?;
    Ok(call)
}

pub(super) fn create(upload: &Upload, id: &str, new: &New<'_>) -> Result<Invocation> {
    let mut call = own(upload, CREATE, &scripts::UPLOAD_CREATE, id)?;
    let size = new.expected_size.unwrap_or(0).to_string();
    let state = [
        ("s3_upload_id", new.multipart_id),
        ("s3_key", new.key),
        ("drive", new.drive),
        ("mime_type", new.mime_type),
        ("expected_size", &size),
    ];
    let Metadata { name, connector_id, parent_id, path, custom_metadata, client_node_id } = new.metadata;
    let metadata = [
        ("name", name),
        ("connector_id", connector_id),
        ("parent_id", parent_id),
        ("path", path),
        ("custom_metadata", custom_metadata),
        ("client_node_id", client_node_id),
    ];
    call.args.push_int(millis(upload.spec.state_ttl));
    call.args.push_int(new.deadline_ms);
    call.args.push(if new.expected_size.is_some() { "1" } else { "0" });
    call.args.push(new.node_id);
    let said = |fields: &[(&str, &str)]| fields.iter().filter(|(_, value)| !value.is_empty()).count();
    call.args.push_int(said(&state) as i64 * 2);
    for (name, value) in state.iter().chain(&metadata).filter(|(_, value)| !value.is_empty()) {
        call.args.push(name);
        call.args.push(value);
    }
    Ok(call)
}

pub(super) fn accept(upload: &Upload, id: &str, offer: &Offer<'_>, attempt: &str) -> Result<Invocation> {
    let mut call = told(upload, ACCEPT, &scripts::UPLOAD_ACCEPT, id)?;
    upload.bind_chunk(ACCEPT, id, offer.number, &mut call.keys)?;
    let place = match offer.source {
        Source::Staged(stage) if offer.size > 0 => {
            upload.bind_staging(ACCEPT, id, stage.as_str(), &mut call.keys)?;
            "store"
        }
        Source::Elsewhere(place) if offer.size > 0 => place,
        _ => "store",
    };
    call.args.push(upload.arrival_channel(ACCEPT)?);
    call.args.push(id);
    call.args.push_int(offer.number.into());
    call.args.push_int(int(offer.size));
    call.args.push(offer.digest.to_string());
    call.args.push(if offer.last == Last::Yes { "1" } else { "0" });
    call.args.push(place);
    call.args.push_int(millis(upload.spec.chunk_ttl));
    call.args.push(attempt);
    Ok(call)
}

pub(super) fn claim(
    upload: &Upload,
    id: &str,
    token: &Token,
    count: usize,
    lease: Duration,
) -> Result<Invocation> {
    let mut call = own(upload, CLAIM, &scripts::UPLOAD_CLAIM, id)?;
    upload.bind_claim(CLAIM, id, token.as_str(), &mut call.keys)?;
    call.args.push_int(millis(upload.spec.state_ttl));
    call.args.push(token.as_str());
    call.args.push_int(count as i64);
    call.args.push_int(millis(lease));
    Ok(call)
}

pub(super) fn extend(upload: &Upload, id: &str, leases: &[&Lease], lease: Duration) -> Result<Invocation> {
    let mut call = own(upload, EXTEND, &scripts::UPLOAD_EXTEND, id)?;
    call.args.push_int(millis(upload.spec.state_ttl));
    call.args.push_int(millis(lease));
    call.args.push_int(millis(upload.spec.chunk_ttl));
    for lease in leases {
        upload.bind_chunk(EXTEND, id, lease.number, &mut call.keys)?;
        call.args.push_int(lease.number.into());
        call.args.push(lease.token.as_str());
    }
    Ok(call)
}

pub(super) fn release(upload: &Upload, lease: &Lease) -> Result<Invocation> {
    let mut call = own(upload, RELEASE, &scripts::UPLOAD_RELEASE, &lease.upload_id)?;
    call.args.push_int(millis(upload.spec.state_ttl));
    call.args.push_int(lease.number.into());
    call.args.push(lease.token.as_str());
    Ok(call)
}

/// A call on a chunk that is held.
fn held(
    upload: &Upload,
    op: &'static str,
    operation: &'static Operation,
    lease: &Lease,
) -> Result<Invocation> {
    let mut call = told(upload, op, operation, &lease.upload_id)?;
    upload.bind_chunk(op, &lease.upload_id, lease.number, &mut call.keys)?;
    call.args.push_int(lease.number.into());
    call.args.push(lease.token.as_str());
    Ok(call)
}

pub(super) fn shipped(upload: &Upload, lease: &Lease, etag: &str) -> Result<Invocation> {
    let mut call = held(upload, SHIPPED, &scripts::UPLOAD_SHIPPED, lease)?;
    call.args.push(etag);
    Ok(call)
}

pub(super) fn failed(upload: &Upload, lease: &Lease, error: &str, next: Next) -> Result<Invocation> {
    let mut call = held(upload, FAILED, &scripts::UPLOAD_FAILED, lease)?;
    call.args.push_int(match next {
        Next::Retry(delay) => millis(delay),
        Next::GiveUp => -1,
    });
    call.args.push(error);
    call.args.push_int(millis(upload.spec.chunk_ttl));
    Ok(call)
}

pub(super) fn missing(upload: &Upload, lease: &Lease) -> Result<Invocation> {
    held(upload, MISSING, &scripts::UPLOAD_MISSING, lease)
}

/// What is read of an upload at once. Metadata may be long, and most who ask for the state do not need it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    State,
    Metadata,
}

pub(super) fn status(upload: &Upload, id: &str, with: With) -> Result<Invocation> {
    let mut call = own(upload, STATUS, &scripts::UPLOAD_STATUS, id)?;
    call.args.push(if with == With::Metadata { "1" } else { "0" });
    Ok(call)
}

pub(super) fn note(upload: &Upload, id: &str, reason: &str) -> Result<Invocation> {
    let mut call = own(upload, NOTE, &scripts::UPLOAD_NOTE, id)?;
    call.args.push(upload.progress_channel(NOTE, id)?);
    call.args.push(reason);
    Ok(call)
}

pub(super) fn metadata(upload: &Upload, id: &str) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::UPLOAD_METADATA.script, Workload::Queue);
    upload.bind_metadata(METADATA, id, &mut call.keys)?;
    Ok(call)
}

/// What a change of status needs: where it may come from, what it brings, and how long the keys live then.
pub(super) struct Change<'a> {
    pub(super) to: &'static str,
    /// Each between commas.
    pub(super) from: &'static str,
    pub(super) all_durable: bool,
    pub(super) aborted: bool,
    pub(super) lives: Duration,
    pub(super) fields: &'a [(&'a str, &'a str)],
}

pub(super) fn change(upload: &Upload, id: &str, change: &Change<'_>) -> Result<Invocation> {
    let mut call = own(upload, MOVE, &scripts::UPLOAD_MOVE, id)?;
    call.args.push_int(millis(change.lives));
    call.args.push(upload.progress_channel(MOVE, id)?);
    call.args.push(change.to);
    call.args.push(change.from);
    call.args.push(if change.all_durable { "all" } else { "-" });
    call.args.push(if change.aborted { "1" } else { "0" });
    for (name, value) in change.fields {
        call.args.push(name);
        call.args.push(value);
    }
    Ok(call)
}

pub(super) fn reopen(upload: &Upload, id: &str, reopen: &Reopen<'_>) -> Result<Invocation> {
    let mut call = told(upload, REOPEN, &scripts::UPLOAD_REOPEN, id)?;
    call.args.push_int(reopen.deadline_ms.unwrap_or(0));
    call.args.push(reopen.multipart_id.unwrap_or_default());
    call.args.push(if reopen.resend == Resend::All { "1" } else { "0" });
    if let Resend::Chunks(numbers) = reopen.resend {
        for number in numbers.iter().filter(|number| **number < MAX_CHUNKS) {
            call.args.push_int((*number).into());
        }
    }
    Ok(call)
}

pub(super) fn restore(upload: &Upload, id: &str, known: &Known<'_>) -> Result<Invocation> {
    let mut call = told(upload, RESTORE, &scripts::UPLOAD_RESTORE, id)?;
    call.args.push_int(known.total_chunks.unwrap_or(0).into());
    call.args.push(known.status.map_or("", super::Status::name));
    call.args.push(known.error);
    call.args.push(known.final_etag);
    call.args.push(known.final_size.map(|size| size.to_string()).unwrap_or_default());
    for part in known.parts {
        upload.bind_chunk(RESTORE, id, part.number, &mut call.keys)?;
        call.args.push_int(part.number.into());
        call.args.push_int(int(part.size));
        call.args.push(part.digest.to_string());
        call.args.push(&part.etag);
    }
    Ok(call)
}

pub(super) fn look(upload: &Upload, id: &str, offset: u64, count: usize) -> Result<Invocation> {
    let mut call = own(upload, SWEEP, &scripts::UPLOAD_LOOK, id)?;
    call.args.push_int(int(offset));
    call.args.push_int(count as i64);
    Ok(call)
}

pub(super) fn mend(upload: &Upload, id: &str) -> Result<Invocation> {
    let mut call = own(upload, SWEEP, &scripts::UPLOAD_MEND, id)?;
    call.args.push_int(millis(upload.spec.state_ttl));
    Ok(call)
}

pub(super) fn verify(upload: &Upload, id: &str, elsewhere: Elsewhere, numbers: &[u32]) -> Result<Invocation> {
    let mut call = told(upload, SWEEP, &scripts::UPLOAD_VERIFY, id)?;
    call.args.push_int(i64::from(elsewhere == Elsewhere::Lapses));
    for number in numbers {
        upload.bind_chunk(SWEEP, id, *number, &mut call.keys)?;
        call.args.push_int((*number).into());
    }
    Ok(call)
}

pub(super) fn drop_bytes(upload: &Upload, id: &str, numbers: &[u32]) -> Result<Invocation> {
    let mut call = own(upload, SWEEP, &scripts::UPLOAD_DROP, id)?;
    for number in numbers {
        upload.bind_chunk(SWEEP, id, *number, &mut call.keys)?;
        call.args.push_int((*number).into());
    }
    Ok(call)
}

pub(super) fn forget(upload: &Upload, id: &str) -> Result<Invocation> {
    own(upload, FORGET, &scripts::UPLOAD_FORGET, id)
}

pub(super) fn admit(upload: &Upload, name: &str, bytes: u64, lease: Duration) -> Result<Invocation> {
    let mut call = flight(upload, ADMIT, &scripts::UPLOAD_ADMIT)?;
    call.args.push(name);
    call.args.push_int(int(bytes));
    call.args.push_int(millis(lease));
    call.args.push_int(int(upload.spec.max_bytes_in_flight));
    Ok(call)
}

pub(super) fn renew(
    upload: &Upload,
    op: &'static str,
    names: &[&str],
    mark: Mark,
    lease: Duration,
) -> Result<Invocation> {
    let mut call = index(upload, op, &scripts::UPLOAD_RENEW, &["in_flight", "in_flight_until"])?;
    call.args.push_int(millis(lease));
    call.args.push(mark.text());
    for name in names {
        call.args.push(name);
    }
    Ok(call)
}

/// A chunk is taken: `name` counts for longer, `spare` is given back, and the upload has something to claim.
pub(super) fn arrive(upload: &Upload, id: &str, spare: &str, name: &str, size: u64) -> Result<Invocation> {
    let mut call = flight(upload, ACCEPT, &scripts::UPLOAD_ARRIVE)?;
    upload.bind_index(ACCEPT, "ready", &mut call.keys)?;
    call.args.push(id);
    call.args.push(spare);
    call.args.push(name);
    call.args.push_int(int(size));
    call.args.push_int(millis(upload.spec.chunk_ttl));
    Ok(call)
}

/// Whether what is held is a chunk that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Attempt,
    Chunk,
}

/// What becomes of waiting chunks whose bytes lie outside of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    Stays,
    Lapses,
}

impl Mark {
    fn text(self) -> &'static str {
        match self {
            Self::Attempt => "",
            Self::Chunk => " c",
        }
    }
}

pub(super) fn hold(
    upload: &Upload,
    op: &'static str,
    names: &[(String, u64)],
    mark: Mark,
    lease: Duration,
) -> Result<Invocation> {
    let mut call = flight(upload, op, &scripts::UPLOAD_HOLD)?;
    call.args.push_int(millis(lease));
    call.args.push(mark.text());
    for (name, bytes) in names {
        call.args.push(name);
        call.args.push_int(int(*bytes));
    }
    Ok(call)
}

pub(super) fn back<'a>(
    upload: &Upload,
    op: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<Invocation> {
    let mut call = flight(upload, op, &scripts::UPLOAD_BACK)?;
    names.for_each(|name| call.args.push(name));
    Ok(call)
}

pub(super) fn in_flight(upload: &Upload, offset: u64, count: usize) -> Result<Invocation> {
    let mut call = flight(upload, SWEEP, &scripts::UPLOAD_FLIGHT)?;
    call.args.push_int(int(offset));
    call.args.push_int(count as i64);
    Ok(call)
}

pub(super) fn lapsed(upload: &Upload, count: usize, lease: Duration) -> Result<Invocation> {
    let mut call = flight(upload, SWEEP, &scripts::UPLOAD_LAPSED)?;
    call.args.push_int(count as i64);
    call.args.push_int(millis(lease));
    Ok(call)
}

pub(super) fn recount(upload: &Upload, most: usize) -> Result<Invocation> {
    let mut call = flight(upload, SWEEP, &scripts::UPLOAD_RECOUNT)?;
    call.args.push_int(most as i64);
    call.args.push_int(millis(upload.spec.chunk_ttl));
    Ok(call)
}

pub(super) fn pick(upload: &Upload) -> Result<Invocation> {
    index(upload, CLAIM, &scripts::UPLOAD_PICK, &["ready"])
}

pub(super) fn rest(upload: &Upload, id: &str, score: i64, next: Option<Duration>) -> Result<Invocation> {
    let mut call = index(upload, CLAIM, &scripts::UPLOAD_REST, &["ready"])?;
    call.args.push(id);
    call.args.push_int(score);
    call.args.push_int(next.map_or(-1, millis));
    Ok(call)
}

pub(super) fn call(upload: &Upload, op: &'static str, id: &str, delay: Duration) -> Result<Invocation> {
    let mut call = index(upload, op, &scripts::UPLOAD_CALL, &["ready"])?;
    call.args.push(id);
    call.args.push_int(millis(delay));
    Ok(call)
}

/// When the sweep is to look at it: at a moment, or so long from now.
pub(super) fn enlist(upload: &Upload, op: &'static str, id: &str, at: At) -> Result<Invocation> {
    let mut call = index(upload, op, &scripts::UPLOAD_ENLIST, &["uploads"])?;
    call.args.push(id);
    let (ms, from_now) = match at {
        At::Moment(ms) => (ms, "0"),
        At::In(duration) => (millis(duration), "1"),
    };
    call.args.push_int(ms);
    call.args.push(from_now);
    Ok(call)
}

/// A moment of the store's clock.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Moment(i64),
    In(Duration),
}

pub(super) fn delist(upload: &Upload, op: &'static str, id: &str) -> Result<Invocation> {
    let mut call = index(upload, op, &scripts::UPLOAD_DELIST, &["uploads", "ready"])?;
    call.args.push(id);
    Ok(call)
}

pub(super) fn due(upload: &Upload, count: usize, skip: usize) -> Result<Invocation> {
    let mut call = index(upload, SWEEP, &scripts::UPLOAD_DUE, &["uploads"])?;
    call.args.push_int(count as i64);
    call.args.push_int(skip as i64);
    Ok(call)
}

pub(super) fn page(upload: &Upload, offset: u64, count: usize) -> Result<Invocation> {
    let mut call = index(upload, SWEEP, &scripts::UPLOAD_PAGE, &["uploads"])?;
    call.args.push_int(int(offset));
    call.args.push_int(count as i64);
    Ok(call)
}
