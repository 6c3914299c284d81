//! What the scripts said: replies read into what they mean. No I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

use super::answer::{Acked, Nacked, Pushed};
use crate::scripts::{queue_ack, queue_ack_claim, queue_claim, queue_nack, queue_push, queue_sweep};
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

pub(super) fn conflict(op: &'static str) -> Error {
    let detail = "request_id was already used for another verb on this queue";
    Error::new(op, Code::RequestReused, detail).field("request_id")
}

/// The next part as a count.
pub(super) fn count(parts: &mut Parts) -> Result<u64> {
    parts.int().map(counted)
}

pub(super) fn counted(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// `Ok(Err(now_us))` when the dedupe's bucket is over.
pub(super) fn pushed(op: &'static str, queue: &str, reply: Reply) -> Result<Result<Pushed, i64>> {
    match queue_push::Reply::read(op, reply)? {
        queue_push::Reply::Pushed { accepted, length, moved, dropped } => Ok(Ok(Pushed {
            accepted: counted(accepted),
            queue_length: counted(length),
            moved_to_dlq: counted(moved),
            dropped: counted(dropped),
            duplicate: false,
        })),
        queue_push::Reply::Duplicate { length } => Ok(Ok(Pushed {
            accepted: 0,
            queue_length: counted(length),
            moved_to_dlq: 0,
            dropped: 0,
            duplicate: true,
        })),
        queue_push::Reply::Full { length } => Err(full(op, queue, Some(counted(length)))),
        queue_push::Reply::Stale { now_ms } => Ok(Err(now_ms * 1000)),
        queue_push::Reply::Conflict => Err(conflict(op)),
    }
}

/// How many of the leases given were held.
pub(super) fn of_leases(acked: i64, given: i64) -> Acked {
    let (acked, given) = (counted(acked), counted(given));
    Acked { acked, lost: given.saturating_sub(acked), jobs: Vec::new() }
}

pub(super) fn acked(op: &'static str, reply: Reply) -> Result<Acked> {
    match queue_ack::Reply::read(op, reply)? {
        queue_ack::Reply::Acked { acked, given } => Ok(of_leases(acked, given)),
        queue_ack::Reply::Conflict => Err(conflict(op)),
    }
}

/// What was acked, and what the claim behind it was told.
pub(super) fn acked_and_claimed(op: &'static str, reply: Reply) -> Result<(Acked, Parts)> {
    match queue_ack_claim::Reply::read(op, reply)? {
        queue_ack_claim::Reply::Acked { acked, given, claim } => Ok((of_leases(acked, given), claim)),
        queue_ack_claim::Reply::Conflict => Err(conflict(op)),
    }
}

pub(super) fn nacked(op: &'static str, reply: Reply, attempt: u32) -> Result<Nacked> {
    match queue_nack::Reply::read(op, reply)? {
        queue_nack::Reply::Retry { delay_ms } => {
            Ok(Nacked::Retry { attempt, retry_in: Duration::from_millis(counted(delay_ms)) })
        }
        queue_nack::Reply::Dead => Ok(Nacked::Dead { attempt }),
        queue_nack::Reply::Lost => Ok(Nacked::Lost),
        queue_nack::Reply::Conflict => Err(conflict(op)),
    }
}

pub(super) fn full(op: &'static str, queue: &str, waiting: Option<u64>) -> Error {
    let detail = match waiting {
        Some(waiting) => format!("queue {queue:?} has {waiting} jobs waiting and no room for these"),
        None => format!("queue {queue:?} has no room"),
    };
    Error::new(op, Code::QueueFull, detail)
}

/// What a claim was told: all of its reply, or what follows in that of an ack.
pub(super) fn handed(op: &'static str, reply: Parts, lease: Duration, ordered: bool) -> Result<Told> {
    let (paused, next_ms, again, mut rows) = match queue_claim::Reply::of(op, reply)? {
        queue_claim::Reply::Jobs { next_ms, again, rows } => (false, next_ms, again, rows),
        queue_claim::Reply::Paused { next_ms, again, rows } => (true, next_ms, again, rows),
        queue_claim::Reply::Conflict => return Err(conflict(op)),
    };
    let parts = &mut rows;
    let mut told = Told {
        paused,
        again: next_ms == -2,
        next: u64::try_from(next_ms).ok().map(Duration::from_millis),
        handed: Vec::new(),
    };
    for _ in 0..again {
        told.handed.push(Handed {
            id: count(parts)?,
            attempt: u32::try_from(parts.int()?).unwrap_or(u32::MAX),
            dying: parts.int()? == 1,
            first_failed_ms: parts.int()?,
            ended_ms: parts.int()?,
            worker: worker(&parts.bytes()?),
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
    let queue_sweep::Reply::Swept { returned, dying } = queue_sweep::Reply::read(op, reply)?;
    let dying = dying.into_iter().map(|row| Handed {
        id: counted(row.id),
        attempt: u32::try_from(row.attempt).unwrap_or(u32::MAX),
        dying: true,
        first_failed_ms: row.first_failed_ms,
        ended_ms: row.ended_ms,
        worker: worker(&row.worker),
        left: Duration::from_millis(counted(row.left_ms)),
        score: priority(&row.score),
        item: row.payload,
    });
    Ok((counted(returned), dying.collect()))
}

/// `-` stands for none.
fn worker(name: &[u8]) -> Option<String> {
    (name != b"-").then(|| String::from_utf8_lossy(name).into_owned())
}

fn score(parts: &mut Parts) -> Result<f64> {
    Ok(priority(&parts.bytes()?))
}

/// A priority as the store writes it.
pub(super) fn priority(text: &[u8]) -> f64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Ids of jobs as a script names them.
pub(super) fn ids(told: &[i64]) -> Vec<u64> {
    told.iter().copied().map(counted).collect()
}
