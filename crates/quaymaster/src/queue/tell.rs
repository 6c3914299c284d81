//! What the scripts said: replies read into what they mean. No I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

use super::answer::{Pushed, Totals};
use crate::{Code, Error, Result};

/// An item that was handed out.
#[derive(Debug, Clone)]
pub(super) struct Handed {
    pub(super) id: u64,
    pub(super) attempt: u32,
    /// Its attempts are used up: it is to be buried, not to be tried.
    pub(super) dying: bool,
    /// 0 when it never failed.
    pub(super) first_failed_ms: i64,
    /// When the lease before this one ended; 0 when it did not.
    pub(super) ended_ms: i64,
    pub(super) worker: Option<String>,
    pub(super) left: Duration,
    pub(super) score: f64,
    pub(super) item: Bytes,
}

/// What a claim was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) paused: bool,
    /// A request that came before was told again: under it there is nothing to wait for.
    pub(super) again: bool,
    /// Until something is due or a lease ends; `None` when nothing will by itself.
    pub(super) next: Option<Duration>,
    pub(super) handed: Vec<Handed>,
}

pub(super) fn unknown(op: &'static str, word: &[u8]) -> Error {
    if word == b"conflict" {
        let detail = "request_id was already used for another verb on this queue";
        return Error::new(op, Code::RequestInvalid, detail);
    }
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}

pub(super) fn count(parts: &mut Parts) -> Result<u64> {
    Ok(u64::try_from(parts.int()?).unwrap_or(0))
}

/// `Ok(Err(now_us))` when the dedupe's bucket is over.
pub(super) fn pushed(op: &'static str, queue: &str, reply: Reply) -> Result<Result<Pushed, i64>> {
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    if &word[..] == b"stale" {
        return Ok(Err(parts.int()? * 1000));
    }
    if !matches!(&word[..], b"pushed" | b"duplicate" | b"full") {
        return Err(unknown(op, &word));
    }
    let pushed = Pushed {
        accepted: count(&mut parts)?,
        queue_length: count(&mut parts)?,
        moved_to_dlq: count(&mut parts)?,
        dropped: count(&mut parts)?,
        duplicate: &word[..] == b"duplicate",
    };
    if &word[..] == b"full" {
        return Err(full(op, queue, Some(pushed.queue_length)));
    }
    Ok(Ok(pushed))
}

pub(super) fn full(op: &'static str, queue: &str, waiting: Option<u64>) -> Error {
    let detail = match waiting {
        Some(waiting) => format!("queue {queue:?} has {waiting} jobs waiting and no room for these"),
        None => format!("queue {queue:?} has no room"),
    };
    Error::new(op, Code::QueueFull, detail)
}

/// What follows in a reply of a claim.
pub(super) fn handed(op: &'static str, parts: &mut Parts, lease: Duration, ordered: bool) -> Result<Told> {
    let word = parts.bytes()?;
    if !matches!(&word[..], b"jobs" | b"paused") {
        return Err(unknown(op, &word));
    }
    let next = parts.int()?;
    let again = parts.int()?;
    let mut told = Told {
        paused: &word[..] == b"paused",
        again: next == -2,
        next: u64::try_from(next).ok().map(Duration::from_millis),
        handed: Vec::new(),
    };
    for _ in 0..again {
        told.handed.push(Handed {
            id: count(parts)?,
            attempt: u32::try_from(parts.int()?).unwrap_or(u32::MAX),
            dying: parts.int()? == 1,
            first_failed_ms: parts.int()?,
            ended_ms: parts.int()?,
            worker: worker(parts)?,
            left: Duration::from_millis(count(parts)?),
            score: score(parts)?,
            item: parts.bytes()?,
        });
    }
    let (fresh, first) = (count(parts)?, count(parts)?);
    told.handed.reserve(fresh as usize);
    for id in first..first + fresh {
        let score = if ordered { score(parts)? } else { 0.0 };
        told.handed.push(Handed {
            id,
            attempt: 1,
            dying: false,
            first_failed_ms: 0,
            ended_ms: 0,
            worker: None,
            left: lease,
            score,
            item: parts.bytes()?,
        });
    }
    if ordered {
        told.handed.sort_by(|one, two| two.score.total_cmp(&one.score));
    }
    Ok(told)
}

/// What a sweep found: how many wait again, and the dying.
pub(super) fn swept(op: &'static str, reply: Reply) -> Result<(u64, Vec<Handed>)> {
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    if &word[..] != b"swept" {
        return Err(unknown(op, &word));
    }
    let returned = count(&mut parts)?;
    let mut dying = Vec::new();
    while let Some(id) = parts.any() {
        let id = match id {
            Reply::Bytes(text) => std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        dying.push(Handed {
            id: id.ok_or_else(|| unknown(op, b"an id"))?,
            attempt: u32::try_from(parts.int()?).unwrap_or(u32::MAX),
            dying: true,
            first_failed_ms: parts.int()?,
            ended_ms: parts.int()?,
            worker: worker(&mut parts)?,
            left: Duration::from_millis(count(&mut parts)?),
            score: score(&mut parts)?,
            item: parts.bytes()?,
        });
    }
    Ok((returned, dying))
}

fn worker(parts: &mut Parts) -> Result<Option<String>> {
    let worker = parts.bytes()?;
    Ok((&worker[..] != b"-").then(|| String::from_utf8_lossy(&worker).into_owned()))
}

pub(super) fn score(parts: &mut Parts) -> Result<f64> {
    let text = parts.bytes()?;
    let score = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    Ok(score.unwrap_or(0.0))
}

/// The ids that follow.
pub(super) fn ids(op: &'static str, word: &[u8], reply: Reply) -> Result<Vec<u64>> {
    let mut parts = reply.parts(op)?;
    let said = parts.bytes()?;
    if &said[..] != word {
        return Err(unknown(op, &said));
    }
    let mut ids = Vec::new();
    while let Some(id) = parts.any() {
        if let Reply::Bytes(text) = &id
            && let Some(id) = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
        {
            ids.push(id);
        } else {
            return Err(unknown(op, b"an id"));
        }
    }
    Ok(ids)
}

/// The strings that follow.
pub(super) fn strings(parts: &mut Parts) -> Result<Vec<Bytes>> {
    let mut strings = Vec::new();
    while let Some(part) = parts.any() {
        match part {
            Reply::Bytes(bytes) => strings.push(bytes),
            other => {
                let detail = format!("expected a string, got {other:?}");
                return Err(Error::new("queue", Code::StoreReply, detail));
            }
        }
    }
    Ok(strings)
}

/// The reply's word must be this; the rest follows.
pub(super) fn after(op: &'static str, word: &[u8], reply: Reply) -> Result<Parts> {
    let mut parts = reply.parts(op)?;
    let said = parts.bytes()?;
    if &said[..] == word { Ok(parts) } else { Err(unknown(op, &said)) }
}

pub(super) fn totals(parts: &mut Parts) -> Result<Totals> {
    Ok(Totals {
        pushed: count(parts)?,
        acked: count(parts)?,
        retried: count(parts)?,
        expired: count(parts)?,
        dead: count(parts)?,
        redriven: count(parts)?,
        overflowed: count(parts)?,
        dropped: count(parts)?,
    })
}
