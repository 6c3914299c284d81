//! One function per operation: the call it becomes. No policy.
//!
//! Every call may be sent again: a step that has been made answers as it did, or finds nothing left to do.

use std::ops::Range;
use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::answer::Lease;
use super::ask::{Known, Last, Metadata, New, Next, Offer, Reopen, Resend, Source};
use super::{MAX_CHUNKS, Upload};
use crate::scripts::{
    At, upload_accept, upload_admit, upload_adopt, upload_arrive, upload_back, upload_call, upload_claim,
    upload_create, upload_delist, upload_drop, upload_due, upload_enlist, upload_extend, upload_failed,
    upload_flight, upload_foreign, upload_forget, upload_hold, upload_keep, upload_lapsed, upload_lengths,
    upload_look, upload_mend, upload_metadata, upload_missing, upload_move, upload_note, upload_page,
    upload_pick, upload_recount, upload_rekey, upload_release, upload_renew, upload_reopen, upload_rest,
    upload_restore, upload_shipped, upload_shorten, upload_status, upload_unstage, upload_verify,
};
use crate::{Result, Token};

pub(super) const CREATE: &str = "upload.create";
pub(super) const ADOPT: &str = "upload.adopt";
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
pub(super) const REKEY: &str = "upload.rekey";
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

fn at(upload: &Upload, op: &'static str) -> At {
    upload.bound.at(op, Workload::Queue)
}

/// Every call but the smallest does the work of several, and may be sent again.
fn sent(call: Invocation) -> Invocation {
    call.repeat_safe().compound()
}

/// How long the state lives from now on.
fn ttl_ms(upload: &Upload) -> i64 {
    millis(upload.spec.state_ttl)
}

fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}

pub(super) fn create(upload: &Upload, id: &str, new: &New<'_>) -> Result<Invocation> {
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
    let named = upload.named(id);
    let call = upload_create::Call {
        own: upload.own(CREATE, &named)?,
        ttl_ms: ttl_ms(upload),
        left_ms: millis(new.time_left),
        sized: flag(new.expected_size.is_some()),
        node_id: new.node_id,
        count: state.iter().filter(|(_, value)| !value.is_empty()).count() as i64 * 2,
        fields: &|args| {
            let said = state.iter().chain(&metadata).filter(|(_, value)| !value.is_empty());
            for (name, value) in said {
                args.put(upload_create::FieldsRow { name, value });
            }
        },
    };
    Ok(sent(call.on(at(upload, CREATE))?))
}

pub(super) fn accept(upload: &Upload, id: &str, offer: &Offer<'_>, attempt: &str) -> Result<Invocation> {
    let (named, mut digits) = (upload.named(id), itoa::Buffer::new());
    let chunk = upload.chunk_named(id, digits.format(offer.number));
    let (staged, place) = match offer.source {
        Source::Staged(stage) if offer.size > 0 => {
            (Some(upload.staging_named(ACCEPT, id, stage.as_str())?), "store")
        }
        Source::Elsewhere(place) if offer.size > 0 => (None, place),
        _ => (None, "store"),
    };
    let call = upload_accept::Call {
        own: upload.own(ACCEPT, &named)?,
        chunk: upload.bound.role(ACCEPT, "chunk", &chunk)?,
        staging: staged.as_ref().map(|named| upload.bound.role(ACCEPT, "staging", named)).transpose()?,
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(ACCEPT, id)?,
        arrival: &upload.arrival_channel(ACCEPT)?,
        id,
        number: offer.number.into(),
        size: int(offer.size),
        digest: &offer.digest.to_string(),
        last: flag(offer.last == Last::Yes),
        place,
        chunk_ttl_ms: millis(upload.spec.chunk_ttl),
        attempt,
    };
    Ok(sent(call.on(at(upload, ACCEPT))?))
}

pub(super) fn claim(
    upload: &Upload,
    id: &str,
    token: &Token,
    count: usize,
    lease: Duration,
) -> Result<Invocation> {
    let named = upload.named(id);
    let claim = [named[0], ("claim_id", token.as_str())];
    let call = upload_claim::Call {
        own: upload.own(CLAIM, &named)?,
        claim: upload.bound.role(CLAIM, "claim", &claim)?,
        ttl_ms: ttl_ms(upload),
        token: token.as_str(),
        count: count as i64,
        lease_ms: millis(lease),
    };
    Ok(sent(call.on(at(upload, CLAIM))?))
}

pub(super) fn extend(upload: &Upload, id: &str, leases: &[&Lease], lease: Duration) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_extend::Call {
        own: upload.own(EXTEND, &named)?,
        chunks: &|keys| upload.put_chunks(EXTEND, id, leases.iter().map(|lease| lease.number), keys),
        ttl_ms: ttl_ms(upload),
        lease_ms: millis(lease),
        chunk_ttl_ms: millis(upload.spec.chunk_ttl),
        leases: &|args| {
            for lease in leases {
                let (number, token) = (lease.number.into(), lease.token.as_str());
                args.put(upload_extend::LeasesRow { number, token });
            }
        },
    };
    Ok(sent(call.on(at(upload, EXTEND))?))
}

pub(super) fn release(upload: &Upload, lease: &Lease) -> Result<Invocation> {
    let named = upload.named(&lease.upload_id);
    let call = upload_release::Call {
        own: upload.own(RELEASE, &named)?,
        ttl_ms: ttl_ms(upload),
        number: lease.number.into(),
        token: lease.token.as_str(),
    };
    Ok(sent(call.on(at(upload, RELEASE))?))
}

pub(super) fn shipped(upload: &Upload, lease: &Lease, etag: &str) -> Result<Invocation> {
    let (named, mut digits) = (upload.named(&lease.upload_id), itoa::Buffer::new());
    let chunk = upload.chunk_named(&lease.upload_id, digits.format(lease.number));
    let call = upload_shipped::Call {
        own: upload.own(SHIPPED, &named)?,
        chunk: upload.bound.role(SHIPPED, "chunk", &chunk)?,
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(SHIPPED, &lease.upload_id)?,
        number: lease.number.into(),
        token: lease.token.as_str(),
        etag,
    };
    Ok(sent(call.on(at(upload, SHIPPED))?))
}

pub(super) fn failed(upload: &Upload, lease: &Lease, error: &str, next: Next) -> Result<Invocation> {
    let (named, mut digits) = (upload.named(&lease.upload_id), itoa::Buffer::new());
    let chunk = upload.chunk_named(&lease.upload_id, digits.format(lease.number));
    let call = upload_failed::Call {
        own: upload.own(FAILED, &named)?,
        chunk: upload.bound.role(FAILED, "chunk", &chunk)?,
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(FAILED, &lease.upload_id)?,
        number: lease.number.into(),
        token: lease.token.as_str(),
        delay_ms: match next {
            Next::Retry(delay) => millis(delay),
            Next::GiveUp => -1,
        },
        error,
        chunk_ttl_ms: millis(upload.spec.chunk_ttl),
    };
    Ok(sent(call.on(at(upload, FAILED))?))
}

pub(super) fn missing(upload: &Upload, lease: &Lease) -> Result<Invocation> {
    let (named, mut digits) = (upload.named(&lease.upload_id), itoa::Buffer::new());
    let chunk = upload.chunk_named(&lease.upload_id, digits.format(lease.number));
    let call = upload_missing::Call {
        own: upload.own(MISSING, &named)?,
        chunk: upload.bound.role(MISSING, "chunk", &chunk)?,
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(MISSING, &lease.upload_id)?,
        number: lease.number.into(),
        token: lease.token.as_str(),
    };
    Ok(sent(call.on(at(upload, MISSING))?))
}

/// What is read of an upload at once. Metadata may be long, and most who ask for the state do not need it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    State,
    Metadata,
}

pub(super) fn status(upload: &Upload, id: &str, with: With) -> Result<Invocation> {
    let named = upload.named(id);
    let call =
        upload_status::Call { own: upload.own(STATUS, &named)?, wanted: i64::from(with == With::Metadata) };
    Ok(sent(call.on(at(upload, STATUS))?))
}

pub(super) fn note(upload: &Upload, id: &str, reason: &str) -> Result<Invocation> {
    let named = upload.named(id);
    let progress = &upload.progress_channel(NOTE, id)?;
    let call = upload_note::Call { own: upload.own(NOTE, &named)?, progress, reason };
    Ok(sent(call.on(at(upload, NOTE))?))
}

pub(super) fn foreign(upload: &Upload, id: &str) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_foreign::Call { own: upload.own(ADOPT, &named)? };
    Ok(sent(call.on(at(upload, ADOPT))?))
}

pub(super) fn adopt(
    upload: &Upload,
    id: &str,
    node_id: &str,
    time_left: Duration,
    announced: bool,
) -> Result<Invocation> {
    let named = upload.named(id);
    let own = upload.own(ADOPT, &named)?;
    let (ttl_ms, left_ms, sized) = (ttl_ms(upload), millis(time_left), flag(announced));
    let call = upload_adopt::Call { own, ttl_ms, left_ms, sized, node_id };
    Ok(sent(call.on(at(upload, ADOPT))?))
}

pub(super) fn lengths(upload: &Upload, id: &str, numbers: Range<u32>) -> Result<Invocation> {
    let call = upload_lengths::Call { chunks: &|keys| upload.put_chunks(ADOPT, id, numbers.clone(), keys) };
    Ok(sent(call.on(at(upload, ADOPT))?))
}

pub(super) fn keep(upload: &Upload, id: &str, number: u32, size: u64) -> Result<Invocation> {
    super::keys::check_id(ADOPT, "upload_id", id)?;
    let mut digits = itoa::Buffer::new();
    let chunk = upload.chunk_named(id, digits.format(number));
    let chunk = upload.bound.role(ADOPT, "chunk", &chunk)?;
    let ttl_ms = millis(upload.spec.chunk_ttl);
    Ok(upload_keep::Call { chunk, size: int(size), ttl_ms }.on(at(upload, ADOPT))?.repeat_safe())
}

pub(super) fn rekey(upload: &Upload, id: &str, was: &str, key: &str) -> Result<Invocation> {
    super::keys::check_id(REKEY, "upload_id", id)?;
    let named = upload.named(id);
    let call = upload_rekey::Call { state: upload.bound.role(REKEY, "state", &named)?, was, key };
    Ok(call.on(at(upload, REKEY))?.repeat_safe())
}

pub(super) fn metadata(upload: &Upload, id: &str) -> Result<Invocation> {
    super::keys::check_id(METADATA, "upload_id", id)?;
    let named = upload.named(id);
    upload_metadata::Call { metadata: upload.bound.role(METADATA, "metadata", &named)? }
        .on(at(upload, METADATA))
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
    let named = upload.named(id);
    let call = upload_move::Call {
        own: upload.own(MOVE, &named)?,
        ttl_ms: millis(change.lives),
        progress: &upload.progress_channel(MOVE, id)?,
        to: change.to,
        from: change.from,
        needs: if change.all_durable { "all" } else { "-" },
        aborted: flag(change.aborted),
        fields: &|args| {
            for (name, value) in change.fields {
                args.put(upload_move::FieldsRow { name, value });
            }
        },
    };
    Ok(sent(call.on(at(upload, MOVE))?))
}

pub(super) fn reopen(upload: &Upload, id: &str, reopen: &Reopen<'_>) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_reopen::Call {
        own: upload.own(REOPEN, &named)?,
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(REOPEN, id)?,
        left_ms: reopen.time_left.map_or(-1, millis),
        multipart_id: reopen.multipart_id.unwrap_or_default(),
        all: flag(reopen.resend == Resend::All),
        numbers: &|args| {
            if let Resend::Chunks(numbers) = reopen.resend {
                let known = numbers.iter().filter(|number| **number < MAX_CHUNKS);
                known.for_each(|number| args.put((*number).into()));
            }
        },
    };
    Ok(sent(call.on(at(upload, REOPEN))?))
}

pub(super) fn shorten(
    upload: &Upload,
    id: &str,
    deadline_ms: i64,
    time_left: Duration,
) -> Result<Invocation> {
    super::keys::check_id(SWEEP, "upload_id", id)?;
    let named = upload.named(id);
    let work = upload.bound.role(SWEEP, "work", &named)?;
    let call = upload_shorten::Call { work, deadline_ms, left_ms: millis(time_left) };
    Ok(call.on(at(upload, SWEEP))?.repeat_safe())
}

pub(super) fn restore(upload: &Upload, id: &str, known: &Known<'_>) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_restore::Call {
        own: upload.own(RESTORE, &named)?,
        chunks: &|keys| upload.put_chunks(RESTORE, id, known.parts.iter().map(|part| part.number), keys),
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(RESTORE, id)?,
        total: known.total_chunks.unwrap_or(0).into(),
        status: known.status.map_or("", super::Status::name),
        error: known.error,
        final_etag: known.final_etag,
        final_size: &known.final_size.map(|size| size.to_string()).unwrap_or_default(),
        parts: &|args| {
            for part in known.parts {
                let (number, size, digest) = (part.number.into(), int(part.size), &*part.digest.to_string());
                args.put(upload_restore::PartsRow { number, size, digest, etag: &part.etag });
            }
        },
    };
    Ok(sent(call.on(at(upload, RESTORE))?))
}

pub(super) fn look(upload: &Upload, id: &str, offset: u64, count: usize) -> Result<Invocation> {
    let named = upload.named(id);
    let call =
        upload_look::Call { own: upload.own(SWEEP, &named)?, offset: int(offset), count: count as i64 };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn mend(upload: &Upload, id: &str) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_mend::Call { own: upload.own(SWEEP, &named)?, ttl_ms: ttl_ms(upload) };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn verify(upload: &Upload, id: &str, elsewhere: Elsewhere, numbers: &[u32]) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_verify::Call {
        own: upload.own(SWEEP, &named)?,
        chunks: &|keys| upload.put_chunks(SWEEP, id, numbers.iter().copied(), keys),
        ttl_ms: ttl_ms(upload),
        progress: &upload.progress_channel(SWEEP, id)?,
        lapsed: i64::from(elsewhere == Elsewhere::Lapses),
        numbers: &|args| numbers.iter().for_each(|number| args.put((*number).into())),
    };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn drop_bytes(upload: &Upload, id: &str, numbers: &[u32]) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_drop::Call {
        own: upload.own(SWEEP, &named)?,
        chunks: &|keys| upload.put_chunks(SWEEP, id, numbers.iter().copied(), keys),
        numbers: &|args| numbers.iter().for_each(|number| args.put((*number).into())),
    };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn forget(upload: &Upload, id: &str) -> Result<Invocation> {
    let named = upload.named(id);
    let call = upload_forget::Call { own: upload.own(FORGET, &named)? };
    Ok(sent(call.on(at(upload, FORGET))?))
}

pub(super) fn admit(upload: &Upload, name: &str, bytes: u64, lease: Duration) -> Result<Invocation> {
    let call = upload_admit::Call {
        flight: upload.flight(ADMIT)?,
        name,
        bytes: int(bytes),
        lease_ms: millis(lease),
        most: int(upload.spec.max_bytes_in_flight),
    };
    Ok(sent(call.on(at(upload, ADMIT))?))
}

pub(super) fn renew(
    upload: &Upload,
    op: &'static str,
    names: &[&str],
    mark: Mark,
    lease: Duration,
) -> Result<Invocation> {
    let call = upload_renew::Call {
        in_flight: upload.index(op, "in_flight")?,
        in_flight_until: upload.index(op, "in_flight_until")?,
        lease_ms: millis(lease),
        mark: mark.text(),
        names: &|args| names.iter().for_each(|name| args.put(name)),
    };
    Ok(sent(call.on(at(upload, op))?))
}

/// A chunk is taken: `name` counts for longer, `spare` is given back, and the upload has something to claim.
pub(super) fn arrive(upload: &Upload, id: &str, spare: &str, name: &str, size: u64) -> Result<Invocation> {
    let call = upload_arrive::Call {
        flight: upload.flight(ACCEPT)?,
        ready: upload.index(ACCEPT, "ready")?,
        id,
        back: spare,
        name,
        bytes: int(size),
        lease_ms: millis(upload.spec.chunk_ttl),
    };
    Ok(sent(call.on(at(upload, ACCEPT))?))
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
    let call = upload_hold::Call {
        flight: upload.flight(op)?,
        lease_ms: millis(lease),
        mark: mark.text(),
        names: &|args| {
            for (name, bytes) in names {
                args.put(upload_hold::NamesRow { name, bytes: int(*bytes) });
            }
        },
    };
    Ok(sent(call.on(at(upload, op))?))
}

pub(super) fn back(upload: &Upload, op: &'static str, names: &[&str]) -> Result<Invocation> {
    let call = upload_back::Call {
        flight: upload.flight(op)?,
        names: &|args| names.iter().for_each(|name| args.put(name)),
    };
    Ok(sent(call.on(at(upload, op))?))
}

pub(super) fn in_flight(upload: &Upload, offset: u64, count: usize) -> Result<Invocation> {
    let call =
        upload_flight::Call { flight: upload.flight(SWEEP)?, offset: int(offset), count: count as i64 };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn lapsed(upload: &Upload, count: usize, lease: Duration) -> Result<Invocation> {
    let call =
        upload_lapsed::Call { flight: upload.flight(SWEEP)?, count: count as i64, lease_ms: millis(lease) };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn recount(upload: &Upload, most: usize) -> Result<Invocation> {
    let call = upload_recount::Call {
        flight: upload.flight(SWEEP)?,
        most: most as i64,
        lease_ms: millis(upload.spec.chunk_ttl),
    };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn pick(upload: &Upload) -> Result<Invocation> {
    Ok(sent(upload_pick::Call { ready: upload.index(CLAIM, "ready")? }.on(at(upload, CLAIM))?))
}

pub(super) fn rest(upload: &Upload, id: &str, score: i64, next: Option<Duration>) -> Result<Invocation> {
    let next_ms = next.map_or(-1, millis);
    let call = upload_rest::Call { ready: upload.index(CLAIM, "ready")?, id, score, next_ms };
    Ok(sent(call.on(at(upload, CLAIM))?))
}

pub(super) fn call(upload: &Upload, op: &'static str, id: &str, delay: Duration) -> Result<Invocation> {
    let call = upload_call::Call { ready: upload.index(op, "ready")?, id, delay_ms: millis(delay) };
    Ok(sent(call.on(at(upload, op))?))
}

/// When the sweep is to look at it: at a moment, or so long from now.
pub(super) fn enlist(upload: &Upload, op: &'static str, id: &str, when: When) -> Result<Invocation> {
    let (at_ms, from_now) = match when {
        When::Moment(ms) => (ms, 0),
        When::In(duration) => (millis(duration), 1),
    };
    let call = upload_enlist::Call { uploads: upload.index(op, "uploads")?, id, at_ms, from_now };
    Ok(sent(call.on(at(upload, op))?))
}

/// A moment of the store's clock.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Moment(i64),
    In(Duration),
}

pub(super) fn delist(upload: &Upload, op: &'static str, id: &str) -> Result<Invocation> {
    let call =
        upload_delist::Call { uploads: upload.index(op, "uploads")?, ready: upload.index(op, "ready")?, id };
    Ok(sent(call.on(at(upload, op))?))
}

pub(super) fn due(upload: &Upload, count: usize, skip: usize) -> Result<Invocation> {
    let uploads = upload.index(SWEEP, "uploads")?;
    let call = upload_due::Call { uploads, count: count as i64, skip: skip as i64 };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

pub(super) fn page(upload: &Upload, offset: u64, count: usize) -> Result<Invocation> {
    let uploads = upload.index(SWEEP, "uploads")?;
    let call = upload_page::Call { uploads, offset: int(offset), count: count as i64 };
    Ok(sent(call.on(at(upload, SWEEP))?))
}

/// Removes a chunk's bytes from under its documented key.
pub(super) fn remove(upload: &Upload, id: &str, number: u32) -> Result<Invocation> {
    super::keys::check_id(STAGE, "upload_id", id)?;
    let mut digits = itoa::Buffer::new();
    let chunk = upload.chunk_named(id, digits.format(number));
    let staging = upload.bound.role(STAGE, "chunk", &chunk)?;
    Ok(upload_unstage::Call { staging }.on(at(upload, STAGE))?.repeat_safe())
}

pub(super) fn unstage(upload: &Upload, id: &str, stage: &str) -> Result<Invocation> {
    let named = upload.staging_named(STAGE, id, stage)?;
    let staging = upload.bound.role(STAGE, "staging", &named)?;
    Ok(upload_unstage::Call { staging }.on(at(upload, STAGE))?.repeat_safe())
}
