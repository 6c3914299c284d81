//! What a batch answers, and the item that a closed one becomes. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

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

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ids come with `=` in front, so that none is taken for a number on its way.
fn id(parts: &mut Parts) -> Result<String> {
    let told = text(&parts.bytes()?);
    Ok(told.strip_prefix('=').map_or(told.clone(), str::to_owned))
}

fn count(parts: &mut Parts) -> Result<u64> {
    Ok(u64::try_from(parts.int()?).unwrap_or(0))
}

pub(super) fn added(op: &'static str, reply: Reply) -> Result<Told> {
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    match &word[..] {
        b"added" | b"duplicate" => {
            let (size, sealed) = (count(&mut parts)?, parts.int()? == 1);
            Ok(Told::Added { id: id(&mut parts)?, size, sealed, duplicate: &word[..] == b"duplicate" })
        }
        b"elsewhere" => Ok(Told::Elsewhere(text(&parts.bytes()?))),
        b"foreign" => Ok(Told::Foreign(text(&parts.bytes()?))),
        b"malformed" => Err(malformed(op, &text(&parts.bytes()?))),
        b"full" => {
            let detail =
                format!("{} batches are open, which is the most: is nobody sweeping them?", super::MAX_OPEN);
            Err(Error::new(op, Code::QueueFull, detail))
        }
        b"conflict" => Err(conflict(op)),
        other => Err(unknown(op, other)),
    }
}

pub(super) fn sealed(op: &'static str, reply: Reply) -> Result<Option<String>> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"sealed" => id(&mut parts).map(Some),
        b"none" => Ok(None),
        b"malformed" => Err(malformed(op, &text(&parts.bytes()?))),
        b"conflict" => Err(conflict(op)),
        other => Err(unknown(op, other)),
    }
}

pub(super) fn held(op: &'static str, reply: Reply) -> Result<Option<Held>> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"read" => {
            let now_us = parts.int()?;
            let (by, items) = (text(&parts.bytes()?), parts.bytes()?);
            let started_us = moment::from_seconds(&parts.bytes()?).unwrap_or(now_us);
            Ok(Some(Held { now_us, by, items, started_us }))
        }
        b"none" => Ok(None),
        other => Err(unknown(op, other)),
    }
}

pub(super) fn shown(op: &'static str, reply: Reply, id: &str, closes_in: Duration) -> Result<Option<Open>> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"shown" => {
            let by = text(&parts.bytes()?);
            let (started, last) = (parts.bytes()?, parts.bytes()?);
            let started_us = moment::from_seconds(&started).unwrap_or(0);
            let last_us = moment::from_seconds(&last).unwrap_or(started_us);
            let size = count(&mut parts)?;
            Ok(Some(Open { batch_id: id.to_owned(), by, size, started_us, last_us, closes_in }))
        }
        b"none" => Ok(None),
        b"malformed" => Err(malformed(op, &text(&parts.bytes()?))),
        other => Err(unknown(op, other)),
    }
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
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"adopted" | b"changed" => Ok(()),
        b"malformed" => Err(malformed(op, &text(&parts.bytes()?))),
        other => Err(unknown(op, other)),
    }
}

pub(crate) fn malformed(op: &'static str, key: &str) -> Error {
    let detail = format!("{key} does not hold what a batch keeps there: inspect it, or remove it");
    Error::new(op, Code::KeyMalformed, detail)
}

fn conflict(op: &'static str) -> Error {
    Error::new(op, Code::RequestInvalid, "request_id was already used for another verb on this batch")
}

pub(super) fn unknown(op: &'static str, word: &[u8]) -> Error {
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}
