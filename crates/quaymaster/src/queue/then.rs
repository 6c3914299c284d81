//! What follows from an ack, in its step.

use std::time::Duration;

use quaymaster_store::{Parts, Reply, Workload};

use super::answer::Acked;
use super::ask::{Ack, Then};
use super::keys::Role;
use super::ops::{self, Part, Terms};
use super::{MAX_THEN, Queue, delay, lease, pack, sort, tell, tell_dropped};
use crate::batch::{self, Batch};
use crate::scripts::{self, queue_ack_then};
use crate::{Code, Error, Result};

/// How often an ack asks again because another batch was open.
const TRIES: usize = 16;

pub(super) async fn ack(queue: &Queue, ack: &Ack, terms: Option<Terms>) -> Result<Acked> {
    const OP: &str = ops::ACK;
    if ack.leases.is_empty() {
        return Err(Error::new(OP, Code::RequestInvalid, "then: nothing follows from an ack without leases")
            .field("then"));
    }
    if ack.then.len() > MAX_THEN {
        let detail = format!("then: at most {MAX_THEN}, got {}", ack.then.len());
        return Err(Error::new(OP, Code::RequestInvalid, detail).field("then"));
    }
    let request_id = ack.request_id.as_deref();
    let claims = terms.is_some();
    let terms = terms.unwrap_or_else(|| Terms {
        count: 0,
        lease: Duration::from_secs(1),
        token: lease::token(queue.name(), request_id),
        worker: None,
    });
    for _ in 0..TRIES {
        let bound = |(at, then)| part(queue, then).map_err(|error| error.within(&format!("then[{at}]")));
        let parts = ack.then.iter().enumerate().map(bound).collect::<Result<Vec<_>>>()?;
        let call = ops::ack_then(&queue.place, &ack.leases, &parts, &terms, request_id)?;
        let reply = queue.place.bound.run(OP, call).await?;
        let (acked, count, mut claim) = match queue_ack_then::Reply::read(OP, reply)? {
            queue_ack_then::Reply::Acked { acked, given, tales, claim } => {
                (tell::of_leases(acked, given), tales, claim)
            }
            queue_ack_then::Reply::Lost { lost, tales, claim } => {
                (Acked { lost: tell::counted(lost), ..Acked::default() }, tales, claim)
            }
            queue_ack_then::Reply::Refused { part, why, said } => {
                refused(queue, ack, part, &why, said).await?;
                continue;
            }
            queue_ack_then::Reply::Conflict => return Err(tell::conflict(OP)),
        };
        let tales = tales(count, &mut claim)?;
        let mut jobs = Vec::new();
        if claims {
            let told = tell::handed(OP, claim, terms.lease, !queue.place.is_fifo())?;
            jobs = sort::sort(queue, told.handed, &terms.token, None).await.jobs;
        }
        if acked.acked > 0 {
            settle(queue, ack, &tales).await;
        }
        return Ok(Acked { jobs, ..acked });
    }
    let detail = format!("then: another batch was open {TRIES} times in a row");
    Err(Error::new(OP, Code::StoreContended, detail).field("then"))
}

/// What came of a part.
enum Tale {
    /// It went into this batch, which may take no more.
    Added { sealed: bool, id: String },
    /// A full queue dropped so many items for it.
    Dropped(u64),
}

fn tales(count: i64, reply: &mut Parts) -> Result<Vec<(usize, Tale)>> {
    let mut tales = Vec::new();
    for _ in 0..count {
        let (part, number, id) = (tell::count(reply)?, reply.int()?, reply.bytes()?);
        let tale = match id.strip_prefix(b"=") {
            Some(id) => Tale::Added { sealed: number == 1, id: String::from_utf8_lossy(id).into_owned() },
            None => Tale::Dropped(tell::counted(number)),
        };
        tales.push(((part as usize).wrapping_sub(1), tale));
    }
    Ok(tales)
}

/// A part could not be done, and nothing was: an error, or something to be put right before it is asked again.
async fn refused(queue: &Queue, ack: &Ack, part: i64, why: &[u8], said: Option<Reply>) -> Result<()> {
    const OP: &str = ops::ACK;
    let part = usize::try_from(part).unwrap_or(0).wrapping_sub(1);
    match (ack.then.get(part), why) {
        (Some(Then::Push { name, .. }), b"full") => Err(tell::full(OP, name, None)),
        (Some(Then::BatchAdd { name, .. }), b"full") => {
            let detail = format!("then: too many batches of {name:?} are open: is nobody sweeping them?");
            Err(Error::new(OP, Code::QueueFull, detail).field("then"))
        }
        (Some(Then::BatchAdd { name, key, .. }), word) => {
            let batch = queue.around.batches.get(name).ok_or_else(|| unknown("batch", name))?;
            let id = match said {
                Some(Reply::Bytes(id)) => String::from_utf8_lossy(&id).into_owned(),
                _ => String::new(),
            };
            match word {
                b"elsewhere" => {
                    let pairs = pairs(key);
                    let by = batch.by(OP, &pairs)?;
                    batch.check_id(OP, by, &id)?;
                    batch.remember(by, Some(&id));
                    Ok(())
                }
                b"foreign" => {
                    let by = pairs(key);
                    batch.adopt(batch.by(OP, &by)?, &id).await.map_err(|error| error.during(OP))
                }
                b"malformed" => Err(crate::batch::answer::malformed(OP, &id)),
                other => Err(scripts::unknown(OP, other)),
            }
        }
        (_, other) => Err(scripts::unknown(OP, other)),
    }
}

/// What is better done at once, though somebody else would do it later; and what is to be known.
async fn settle(queue: &Queue, ack: &Ack, tales: &[(usize, Tale)]) {
    for then in &ack.then {
        if let Then::Push { name, .. } = then
            && let Some(target) = queue.around.queues.get(name)
        {
            target.nudge.notify_waiters();
        }
    }
    for (part, tale) in tales {
        match (ack.then.get(*part), tale) {
            (Some(Then::BatchAdd { name, key, .. }), Tale::Added { sealed, id }) => {
                let Some(batch) = queue.around.batches.get(name) else { continue };
                if let Ok(by) = batch.by(ops::ACK, &pairs(key)) {
                    batch.remember(by, (!sealed).then_some(id));
                }
                if *sealed {
                    // Whatever keeps it from being queued now, a sweep tries again.
                    batch.close_now(id).await;
                }
            }
            (Some(Then::Push { name, .. }), Tale::Dropped(dropped)) => {
                if let Some(target) = queue.around.queues.get(name) {
                    tell_dropped(&target.dropped, name, *dropped);
                }
            }
            _ => {}
        }
    }
}

fn pairs(key: &[(String, String)]) -> Vec<(&str, &str)> {
    key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::new(ops::ACK, Code::ResourceUnknown, format!("then: there is no {kind} {name:?}")).field("name")
}

fn part(queue: &Queue, then: &Then) -> Result<Part> {
    const OP: &str = ops::ACK;
    let mut part = Part::default();
    match then {
        Then::Push { name, payload, priority, delay: asked } => {
            let target = queue.around.queues.get(name).ok_or_else(|| unknown("queue", name))?;
            queue.place.check_near(OP, "name", &format!("queue {name:?}"), target.key(Role::Items))?;
            let items = target.items(OP, std::slice::from_ref(payload))?;
            part.kind = "push";
            let at = target.bound.at(OP, Workload::Queue);
            target.add_keys().put(&mut at.keys(&mut part.keys))?;
            ops::add(target, &items, target.priority(OP, *priority)?, delay(OP, *asked)?, &mut part.words);
        }
        Then::Publish { name, data } => {
            let channel = queue.around.events.get(name).ok_or_else(|| unknown("event", name))?;
            pack::check_json(OP, "data", data)?;
            part.kind = "publish";
            part.words.push(channel);
            part.words.push(data);
        }
        Then::BatchAdd { name, key, item, id } => {
            let batch = queue.around.batches.get(name).ok_or_else(|| unknown("batch", name))?;
            let add = batch::Add { item, id: id.as_deref(), request_id: None };
            part.kind = "batch";
            bind_batch(batch, &pairs(key), &add, &mut part)?;
            let current = part.keys.word(0).unwrap_or_default();
            queue.place.check_near(OP, "name", &format!("batch {name:?}"), current)?;
        }
    }
    Ok(part)
}

fn bind_batch(batch: &Batch, key: &[(&str, &str)], add: &batch::Add<'_>, part: &mut Part) -> Result<()> {
    const OP: &str = ops::ACK;
    Batch::check(OP, add)?;
    let guess = batch.guess(batch.by(OP, key)?);
    let at = batch.bound.at(OP, Workload::Queue);
    batch::ops::add_keys(OP, &batch.bound, key, &guess.ids())?.put(&mut at.keys(&mut part.keys))?;
    batch::ops::add_args(OP, batch, key, add, &guess)?.put(&mut part.words);
    Ok(())
}
