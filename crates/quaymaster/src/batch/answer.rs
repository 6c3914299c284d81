//! What a batch answers, and the item that a closed one becomes. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::Reply;

use crate::scripts::{
    batch_add, batch_adopt, batch_close, batch_due, batch_forget, batch_list, batch_read, batch_seal,
    batch_show,
};
use crate::{Code, Error, Result, json, moment};

/// The answer of `add`.
#[must_use = "the batch's id and size tell where the item went"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The batch the item is in.
    pub batch_id: String,
    /// How many items it has now.
    pub size: u64,
    /// The item's id was in the batch already; nothing was added.
    pub duplicate: bool,
    /// This item was the last one of it, and the batch is queued.
    pub closed: bool,
}

/// A batch that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its id.
    pub batch_id: String,
    /// What it is grouped by: a value of the placeholder.
    pub by: String,
    /// How many items it has.
    pub size: u64,
    /// When its first item came, in microseconds since the epoch.
    pub started_us: i64,
    /// When its last item came.
    pub last_us: i64,
    /// When it closes if nothing comes; zero for one that waits to be queued.
    pub closes_in: Duration,
}

/// The answer of `close`.
#[must_use = "there may have been nothing to close"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// It is queued, once, by whoever came first.
    Closed {
        /// Its id.
        batch_id: String,
    },
    /// No batch was open.
    None,
}

/// What one sweep did.
#[must_use = "a full queue keeps batches open"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Batches queued.
    pub closed: u64,
    /// Batches that found their queue full, and wait.
    pub waiting: u64,
    /// Batches whose keys had expired before anybody queued them: their items are lost.
    pub expired: u64,
    /// When the next batch is due, if one is open.
    pub next: Option<Duration>,
}

/// What `batch.add` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Added { id: String, size: u64, sealed: bool, duplicate: bool },
    Elsewhere(String),
    Foreign(String),
}

/// A batch as it was read to be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) now_us: i64,
    pub(super) by: String,
    pub(super) items: Bytes,
    pub(super) started_us: i64,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ids come with `=` in front, so that none is taken for a number on its way.
fn id(told: &Bytes) -> String {
    text(told.strip_prefix(b"=").unwrap_or(told))
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn added(op: &'static str, reply: Reply) -> Result<Told> {
    use batch_add::Reply as Said;
    match Said::read(op, reply)? {
        Said::Added { size, sealed, id: told } => {
            Ok(Told::Added { id: id(&told), size: count(size), sealed: sealed == 1, duplicate: false })
        }
        Said::Duplicate { size, id: told } => {
            Ok(Told::Added { id: id(&told), size: count(size), sealed: false, duplicate: true })
        }
        Said::Elsewhere { id } => Ok(Told::Elsewhere(text(&id))),
        Said::Foreign { id } => Ok(Told::Foreign(text(&id))),
        Said::Malformed { key } => Err(malformed(op, &text(&key))),
        Said::Full => {
            let detail =
                format!("{} batches are open, which is the most: is nobody sweeping them?", super::MAX_OPEN);
            Err(Error::new(op, Code::QueueFull, detail))
        }
        Said::Conflict => Err(conflict(op)),
    }
}

pub(super) fn sealed(op: &'static str, reply: Reply) -> Result<Option<String>> {
    match batch_seal::Reply::read(op, reply)? {
        batch_seal::Reply::Sealed { id: told } => Ok(Some(id(&told))),
        batch_seal::Reply::None => Ok(None),
        batch_seal::Reply::Malformed { key } => Err(malformed(op, &text(&key))),
        batch_seal::Reply::Conflict => Err(conflict(op)),
    }
}

pub(super) fn held(op: &'static str, reply: Reply) -> Result<Option<Held>> {
    Ok(match batch_read::Reply::read(op, reply)? {
        batch_read::Reply::Read { now_us, by, items, started_at } => {
            let started_us = moment::from_seconds(&started_at).unwrap_or(now_us);
            Some(Held { now_us, by: text(&by), items, started_us })
        }
        batch_read::Reply::None => None,
    })
}

pub(super) fn shown(op: &'static str, reply: Reply, id: &str, closes_in: Duration) -> Result<Option<Open>> {
    match batch_show::Reply::read(op, reply)? {
        batch_show::Reply::Shown { by, started_at, last_activity, size } => {
            let started_us = moment::from_seconds(&started_at).unwrap_or(0);
            let last_us = moment::from_seconds(&last_activity).unwrap_or(started_us);
            let (batch_id, size) = (id.to_owned(), count(size));
            Ok(Some(Open { batch_id, by: text(&by), size, started_us, last_us, closes_in }))
        }
        batch_show::Reply::None => Ok(None),
        batch_show::Reply::Malformed { key } => Err(malformed(op, &text(&key))),
    }
}

/// A page of open batches: each id, and when it closes.
pub(super) fn listed(op: &'static str, reply: Reply) -> Result<Vec<(String, Duration)>> {
    let batch_list::Reply::Open { now_us, batches } = batch_list::Reply::read(op, reply)?;
    let left = |closes_ms: i64| Duration::from_millis(count(closes_ms - now_us.div_euclid(1000)));
    Ok(batches.into_iter().map(|row| (text(&row.id), left(row.closes_ms))).collect())
}

/// Which batches are due, and when the next one is.
pub(super) fn due(op: &'static str, reply: Reply) -> Result<(Vec<String>, Option<Duration>)> {
    let batch_due::Reply::Due { next_ms, ids } = batch_due::Reply::read(op, reply)?;
    let due = ids.iter().map(|id| text(id)).collect();
    Ok((due, u64::try_from(next_ms).ok().map(Duration::from_millis)))
}

/// What `batch.close` told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    Closed {
        /// Items that its full queue dropped for it.
        dropped: u64,
    },
    /// Somebody else has, or it is not to be closed yet.
    Settled,
    /// What was read is not all of it any more.
    Changed,
    Full,
}

pub(super) fn closing(op: &'static str, reply: Reply) -> Result<Closing> {
    Ok(match batch_close::Reply::read(op, reply)? {
        batch_close::Reply::Closed { dropped, .. } => {
            Closing::Closed { dropped: u64::try_from(dropped).unwrap_or(0) }
        }
        batch_close::Reply::Gone | batch_close::Reply::Early { .. } => Closing::Settled,
        batch_close::Reply::Changed => Closing::Changed,
        batch_close::Reply::Full => Closing::Full,
    })
}

/// Whether a batch whose keys are gone was still in the index.
pub(super) fn forgotten(op: &'static str, reply: Reply) -> Result<bool> {
    Ok(match batch_forget::Reply::read(op, reply)? {
        batch_forget::Reply::Forgotten => true,
        batch_forget::Reply::Kept => false,
    })
}

/// The documented item of a closed batch.
pub(super) fn item(by: &str, items_as: &str, id: &str, held: &Held) -> String {
    let mut out = String::with_capacity(held.items.len() + 256);
    out.push_str("{\"batch_id\":");
    json::push_text(&mut out, id);
    out.push(',');
    json::push_text(&mut out, by);
    out.push(':');
    json::push_text(&mut out, &held.by);
    out.push(',');
    json::push_text(&mut out, items_as);
    out.push(':');
    out.push_str(String::from_utf8_lossy(&held.items).trim());
    out.push_str(",\"started_at\":");
    json::push_text(&mut out, &moment::document_text(held.started_us));
    out.push_str(",\"ended_at\":");
    json::push_text(&mut out, &moment::document_text(held.now_us));
    out.push('}');
    out
}

/// Whether a batch was taken over; not when it changed meanwhile.
pub(super) fn adopted(op: &'static str, reply: Reply) -> Result<()> {
    match batch_adopt::Reply::read(op, reply)? {
        batch_adopt::Reply::Adopted | batch_adopt::Reply::Changed => Ok(()),
        batch_adopt::Reply::Malformed { key } => Err(malformed(op, &text(&key))),
    }
}

pub(crate) fn malformed(op: &'static str, key: &str) -> Error {
    let detail = format!("{key} does not hold what a batch keeps there: inspect it, or remove it");
    Error::new(op, Code::KeyMalformed, detail)
}

fn conflict(op: &'static str) -> Error {
    Error::new(op, Code::RequestReused, "request_id was already used for another verb on this batch")
        .field("request_id")
}
