//! What follows from an ack, in its step.

use std::time::Duration;

use super::answer::Acked;
use super::ask::{Ack, Then};
use super::keys::Role;
use super::ops::{self, Part, Terms};
use super::{Queue, acks, delay, lease, pack, sort, tell};
use crate::{Code, Error, Result};

/// The most parts of one ack.
const MAX_PARTS: usize = 100;

pub(super) async fn ack(queue: &Queue, ack: &Ack, terms: Option<Terms>) -> Result<Acked> {
    const OP: &str = ops::ACK;
    if ack.leases.is_empty() {
        return Err(Error::new(OP, Code::RequestInvalid, "then: nothing follows from an ack without leases"));
    }
    if ack.then.len() > MAX_PARTS {
        let detail = format!("then: at most {MAX_PARTS}, got {}", ack.then.len());
        return Err(Error::new(OP, Code::RequestInvalid, detail));
    }
    let parts = ack.then.iter().map(|then| part(queue, then)).collect::<Result<Vec<_>>>()?;
    let request_id = ack.request_id.as_deref();
    let claims = terms.is_some();
    let terms = terms.unwrap_or_else(|| Terms {
        count: 0,
        lease: Duration::from_secs(1),
        token: lease::token(queue.name(), request_id),
        worker: None,
    });
    let call = ops::ack_then(&queue.place, &ack.leases, &parts, &terms, request_id)?;
    let mut reply = queue.place.bound.run(OP, call).await?.parts(OP)?;
    let word = reply.bytes()?;
    let acked = match &word[..] {
        b"acked" => acks(&mut reply)?,
        b"lost" => {
            reply.int()?;
            Acked { acked: 0, lost: tell::count(&mut reply)?, jobs: Vec::new() }
        }
        b"full" => {
            let number = usize::try_from(reply.int()?).unwrap_or(0);
            return Err(tell::full(OP, ack.then.get(number.wrapping_sub(1)).map_or("", Then::name), None));
        }
        other => return Err(tell::unknown(OP, other)),
    };
    if acked.acked > 0 {
        for then in &ack.then {
            if let Then::Push { name, .. } = then
                && let Some(target) = queue.around.queues.get(name)
            {
                target.nudge.notify_waiters();
            }
        }
    }
    if !claims {
        return Ok(acked);
    }
    let told = tell::handed(OP, &mut reply, terms.lease, !queue.place.is_fifo())?;
    Ok(Acked { jobs: sort::sort(queue, told.handed, &terms.token).await.jobs, ..acked })
}

impl Then {
    fn name(&self) -> &str {
        match self {
            Self::BatchAdd { name, .. } | Self::Publish { name, .. } | Self::Push { name, .. } => name,
        }
    }
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::new(ops::ACK, Code::ResourceUnknown, format!("then: there is no {kind} {name:?}"))
}

fn part(queue: &Queue, then: &Then) -> Result<Part> {
    const OP: &str = ops::ACK;
    let mut part = Part::default();
    match then {
        Then::Push { name, payload, priority, delay: asked } => {
            let target = queue.around.queues.get(name).ok_or_else(|| unknown("queue", name))?;
            queue.place.check_near(OP, &format!("queue {name:?}"), target.key(Role::Items))?;
            let items = target.items(OP, std::slice::from_ref(payload))?;
            part.kind = "push";
            target.bind_add(&mut part.keys);
            ops::add(target, &items, target.priority(OP, *priority)?, delay(OP, *asked)?, &mut part.words);
        }
        Then::Publish { name, data } => {
            let channel = queue.around.events.get(name).ok_or_else(|| unknown("event", name))?;
            pack::check_json(data)
                .map_err(|why| Error::new(OP, Code::RequestInvalid, format!("data: {why}")))?;
            part.kind = "publish";
            part.words.push(channel);
            part.words.push(data);
        }
        Then::BatchAdd { name, .. } => return Err(unknown("batch", name)),
    }
    Ok(part)
}
