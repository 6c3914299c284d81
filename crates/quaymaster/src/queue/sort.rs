//! What was handed out is sorted: jobs for the caller; letters for what cannot be delivered or has used up its
//! attempts; and back with what would take too much memory at once. A letter is made here, between two steps that
//! both compare the lease: who dies in between leaves the lease to end, and the job comes again.

use std::sync::Arc;

use bytes::Bytes;

use super::answer::{Item, Job, Nacked};
use super::ask::Nack;
use super::letter::{Corpse, Death};
use super::ops::Request;
use super::pack::Unpacked;
use super::tell::Handed;
use super::{CLAIM_BYTES, ERROR_MAX, Lease, Queue, ops, pack, tell};
use crate::scripts::{queue_bury, queue_dying};
use crate::{Code, Error, Result};

/// Under this name each dead letter is logged.
const DEAD_LETTERS: &str = "quaymaster::dead_letters";

/// No more is unfolded for one claim, whatever it hands out.
const UNPACK_BYTES: usize = 64 << 20;

/// What became of what was handed out.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) jobs: Vec<Job>,
    pub(super) buried: u64,
    /// Something was handed out that is no job for the caller: there may be more behind it.
    pub(super) others: bool,
}

/// `claim` is the request of a claim, which is forgotten if there is no job in what it got.
pub(super) async fn sort(
    queue: &Queue,
    handed: Vec<Handed>,
    token: &Arc<str>,
    claim: Option<&str>,
) -> Sorted {
    let most = queue.place.bounds().unpacked();
    let mut sorted = Sorted { jobs: Vec::with_capacity(handed.len()), ..Sorted::default() };
    let (mut letters, mut back) = (Vec::new(), Vec::new());
    let mut unpacked = 0;
    for handed in handed {
        let lease = Lease::new(handed.id, handed.attempt, token.clone());
        let packed = pack::is_packed(&handed.item);
        // What comes behind one that goes back goes back as well: in the next claim they keep their order.
        if (packed && unpacked >= UNPACK_BYTES) || (!back.is_empty() && !handed.dying) {
            // What is dying comes again as such when this lease has ended; back with an attempt it would be tried.
            if !handed.dying {
                back.push(lease);
            }
            continue;
        }
        let payload = pack::unpack(&handed.item, most);
        if packed {
            // A bomb costs as much as may be unfolded before it is known for one.
            unpacked += payload.as_ref().map_or(most, |payload| payload.json.len());
        }
        match payload {
            Ok(payload) if !handed.dying => sorted.jobs.push(Job {
                id: handed.id.to_string(),
                payload: payload.json,
                attempt: handed.attempt,
                lease,
                lease_expires_in: handed.left,
            }),
            payload => {
                let now_us = queue.place.bound.engine.now_us();
                let error = match &payload {
                    Err(reason) => format!("the item cannot be delivered: {reason}"),
                    Ok(_) => ended(&handed),
                };
                let last_failed_us = if handed.ended_ms > 0 { handed.ended_ms * 1000 } else { now_us };
                let death = Death {
                    queue: queue.name(),
                    job: corpse(payload.as_ref().ok(), &handed.item),
                    error: &error,
                    attempts: handed.attempt,
                    first_failed_us: first_failed_us(handed.first_failed_ms, last_failed_us),
                    last_failed_us,
                    priority: (!queue.place.is_fifo()).then_some(handed.score),
                };
                match death.letter() {
                    Ok(letter) => letters.push((lease, letter)),
                    // The lease ends and it comes again; nothing is lost by a letter that cannot be written.
                    Err(error) => tracing::error!(queue = queue.name(), %error, "no dead letter can be made"),
                }
            }
        }
    }
    sorted.others = !letters.is_empty() || !back.is_empty();
    if !letters.is_empty() {
        let request = match claim {
            Some(id) if sorted.jobs.is_empty() => Request::Forget(id),
            _ => Request::Without,
        };
        for letters in pieces(&letters) {
            match bury(queue, letters, request).await {
                Ok(buried) => sorted.buried += buried.len() as u64,
                Err(error) => {
                    tracing::warn!(queue = queue.name(), %error, "jobs are buried when their lease has ended");
                }
            }
        }
        queue.counts.buried(sorted.buried);
    }
    if !back.is_empty()
        && let Err(error) = queue.release(&back).await
    {
        tracing::warn!(queue = queue.name(), %error, "jobs come again when their lease has ended");
    }
    sorted
}

/// Letters for one script each.
fn pieces(letters: &[(Lease, Vec<u8>)]) -> impl Iterator<Item = &[(Lease, Vec<u8>)]> {
    let mut bytes = 0;
    letters.chunk_by(move |_, (_, next)| {
        bytes += next.len();
        if bytes > CLAIM_BYTES {
            bytes = 0;
        }
        bytes > 0
    })
}

fn ended(handed: &Handed) -> String {
    let by = handed.worker.as_ref().map_or(String::new(), |worker| format!(" (worker {worker})"));
    match handed.ended_ms {
        0 => format!("no attempt is left after {}{by}", handed.attempt),
        _ => format!("attempt {} ended without an answer: its lease ran out{by}", handed.attempt),
    }
}

fn corpse<'a>(payload: Option<&'a Unpacked>, item: &'a Bytes) -> Corpse<'a> {
    match payload.map(|payload| (&payload.text, std::str::from_utf8(&payload.json))) {
        Some((None, Ok(json))) => Corpse::Json(json),
        Some((Some(text), _)) => Corpse::Raw(text),
        Some((None, Err(_))) | None => Corpse::Raw(item),
    }
}

fn first_failed_us(first_failed_ms: i64, last_failed_us: i64) -> i64 {
    if first_failed_ms > 0 { first_failed_ms * 1000 } else { last_failed_us }
}

async fn bury(queue: &Queue, letters: &[(Lease, Vec<u8>)], request: Request<'_>) -> Result<Vec<u64>> {
    let call = ops::bury(&queue.place, letters, request)?;
    let reply = queue.place.bound.run(ops::NACK, call).await?;
    let queue_bury::Reply::Buried { ids } = queue_bury::Reply::read(ops::NACK, reply)?;
    let buried = tell::ids(&ids);
    for (lease, letter) in letters.iter().filter(|(lease, _)| buried.contains(&lease.id())) {
        told(queue.name(), lease, letter);
    }
    Ok(buried)
}

/// One line for each dead letter, under a name of its own: whoever buries one by hand knows it.
fn told(queue: &str, lease: &Lease, letter: &[u8]) {
    let letter: serde_json::Value = serde_json::from_slice(letter).unwrap_or_default();
    let (job, attempts, error) = (lease.id(), lease.attempt(), letter["error"].as_str());
    tracing::warn!(target: DEAD_LETTERS, queue, job, attempts, error, "a job is a dead letter now");
}

/// The last failure of a job: it becomes a dead letter with its error.
pub(super) async fn bury_failed(queue: &Queue, nack: &Nack) -> Result<Nacked> {
    const OP: &str = ops::NACK;
    let (attempt, request_id) = (nack.lease.attempt(), nack.request_id.as_deref());
    let call = ops::dying(&queue.place, &nack.lease, request_id)?;
    let reply = queue.place.bound.run(OP, call).await?;
    let (last_failed_us, first_failed_ms, score, item) = match queue_dying::Reply::read(OP, reply)? {
        queue_dying::Reply::Dying { now_us, first_failed_ms, score, payload } => {
            (now_us, first_failed_ms, tell::priority(&score), payload)
        }
        queue_dying::Reply::Dead => return Ok(Nacked::Dead { attempt }),
        queue_dying::Reply::Retry { delay_ms } => {
            let retry_in = std::time::Duration::from_millis(tell::counted(delay_ms));
            return Ok(Nacked::Retry { attempt, retry_in });
        }
        queue_dying::Reply::Lost => return Ok(Nacked::Lost),
        queue_dying::Reply::Conflict => return Err(tell::conflict(OP)),
    };
    let payload = pack::unpack(&item, queue.place.bounds().unpacked()).ok();
    let death = Death {
        queue: queue.name(),
        job: corpse(payload.as_ref(), &item),
        error: cut(&nack.error),
        attempts: attempt,
        first_failed_us: first_failed_us(first_failed_ms, last_failed_us),
        last_failed_us,
        priority: (!queue.place.is_fifo()).then_some(score),
    };
    let letter = death
        .letter()
        .map_err(|error| Error::new(OP, Code::Internal, "the dead letter cannot be made").because(error))?;
    let request = request_id.map_or(Request::Without, Request::Keep);
    let buried = bury(queue, &[(nack.lease.clone(), letter)], request).await?;
    Ok(if buried.is_empty() { Nacked::Lost } else { Nacked::Dead { attempt } })
}

/// As much of an error as is kept.
fn cut(error: &str) -> &str {
    let mut end = error.len().min(ERROR_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}

/// An item to be shown; `left` is what may still be unfolded.
pub(super) fn item(item: Bytes, left: &mut usize) -> Item {
    match pack::unpack(&item, *left) {
        Ok(payload) => {
            if pack::is_packed(&item) {
                *left = left.saturating_sub(payload.json.len());
            }
            Item::Json(payload.json)
        }
        Err(why) => Item::Raw { bytes: item, reason: why.to_string() },
    }
}
