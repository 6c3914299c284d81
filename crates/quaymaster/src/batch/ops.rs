//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::{BatchSpec, Order};
use quaymaster_store::{Invocation, Words, Workload};

use super::{Add, Batch, Target, keys};
use crate::bound::{Bound, Key};
use crate::{Result, scripts};

pub(super) const ADD: &str = "batch.add";
pub(super) const LIST: &str = "batch.list";
pub(super) const CLOSE: &str = "batch.close";
pub(super) const SWEEP: &str = "batch.sweep";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// When a batch that found its queue full is tried again.
const AGAIN_MS: i64 = 1000;

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Which batch is thought to be open, and the id of a new one.
#[derive(Debug, Clone)]
pub(crate) struct Guess {
    pub(crate) guess: String,
    pub(crate) fresh: String,
}

/// Appends the fourteen keys and eleven words of one add, as `lua/inc/batch.lua` takes them.
pub(crate) fn bind_add(
    op: &'static str,
    batch: &Batch,
    key: Key<'_>,
    add: &Add<'_>,
    guess: &Guess,
    keys: &mut Words,
    args: &mut Words,
) -> Result<()> {
    let (bound, spec) = (&batch.bound, &batch.spec);
    bound.bind(op, key, 0, keys)?;
    keys::bind_open(op, bound, keys)?;
    keys::bind_own(op, bound, &guess.guess, keys)?;
    keys::bind_own(op, bound, &guess.fresh, keys)?;
    args.push(&guess.guess);
    args.push(&guess.fresh);
    args.push(batch.by(op, key)?);
    args.push(add.item.trim_ascii());
    args.push(add.id.unwrap_or_default());
    args.push_int(millis(spec.window));
    args.push_int(millis(spec.idle));
    args.push_int(spec.max_items.and_then(|most| i64::try_from(most).ok()).unwrap_or(0));
    args.push_int(super::MAX_LIST_BYTES as i64);
    args.push_int(millis(spec.ttl));
    args.push_int(super::MAX_OPEN as i64);
    Ok(())
}

/// Sent again only with a `request_id`: an item's id may find another batch open by then.
pub(super) fn add(batch: &Batch, key: Key<'_>, add: &Add<'_>, guess: &Guess) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_ADD.script, Workload::Queue);
    call.args.push_int(KEEP_MS);
    bind_add(ADD, batch, key, add, guess, &mut call.keys, &mut call.args)?;
    if let Some(id) = add.request_id {
        keys::bind_request(ADD, &batch.bound, id, &mut call.keys)?;
        call = call.repeat_safe();
    }
    Ok(call)
}

pub(super) fn adopt(
    batch: &Batch,
    by: &str,
    id: &str,
    read: usize,
    list: &str,
    count: usize,
) -> Result<Invocation> {
    let Batch { bound, spec, .. } = batch;
    let mut call = Invocation::new(&scripts::BATCH_ADOPT.script, Workload::Queue).compound().repeat_safe();
    keys::bind_open(ADD, bound, &mut call.keys)?;
    for role in ["items", "started_at", "size", "by"] {
        keys::bind_of(ADD, bound, role, id, &mut call.keys)?;
    }
    call.args.push(id);
    call.args.push_int(read as i64);
    call.args.push(list);
    call.args.push_int(count as i64);
    call.args.push_int(millis(spec.window));
    call.args.push_int(millis(spec.idle));
    call.args.push_int(millis(spec.ttl));
    call.args.push(by);
    Ok(call)
}

/// Sealing twice would seal the next batch too: sent again only with a `request_id`.
pub(super) fn seal(bound: &Bound, key: Key<'_>, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_SEAL.script, Workload::Queue);
    bound.bind(CLOSE, key, 0, &mut call.keys)?;
    keys::bind_open(CLOSE, bound, &mut call.keys)?;
    if let Some(id) = request_id {
        keys::bind_request(CLOSE, bound, id, &mut call.keys)?;
        call = call.repeat_safe();
    }
    call.args.push_int(KEEP_MS);
    Ok(call)
}

pub(super) fn read(op: &'static str, bound: &Bound, id: &str) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_READ.script, Workload::Queue).compound();
    for role in ["by", "items", "started_at"] {
        keys::bind_of(op, bound, role, id, &mut call.keys)?;
    }
    Ok(call)
}

/// Closing twice is closing once: the second finds it gone.
pub(super) fn close(
    op: &'static str,
    batch: &Batch,
    by: &str,
    id: &str,
    read: usize,
    item: &[u8],
) -> Result<Invocation> {
    let Batch { bound, spec, to: Target { resource, spec: queue }, .. } = batch;
    let mut call = Invocation::new(&scripts::BATCH_CLOSE.script, Workload::Queue).compound().repeat_safe();
    keys::bind_open(op, bound, &mut call.keys)?;
    if bound.bind(op, &[(&spec.by, by)], 0, &mut call.keys).is_err() {
        // Nobody knows whose it is, so it is nobody's current one; a key of its own stands in that place.
        keys::bind_of(op, bound, "by", id, &mut call.keys)?;
    }
    keys::bind_own(op, bound, id, &mut call.keys)?;
    keys::bind_queue(op, bound, resource, &mut call.keys)?;
    call.args.push(id);
    call.args.push_int(read as i64);
    call.args.push_int(millis(spec.ttl));
    call.args.push_int(AGAIN_MS);
    call.args.push_int(far_ms(spec));
    call.args.push(match queue.order {
        Order::Fifo => "fifo",
        Order::Priority => "priority",
    });
    call.args.push_int(queue.max_size.and_then(|most| i64::try_from(most).ok()).unwrap_or(0));
    call.args.push(queue.overflow.name());
    for word in ["0", "0", "1"] {
        call.args.push(word);
    }
    call.args.push(item);
    Ok(call)
}

pub(super) fn forget(op: &'static str, bound: &Bound, id: &str) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_FORGET.script, Workload::Queue).repeat_safe();
    keys::bind_open(op, bound, &mut call.keys)?;
    keys::bind_of(op, bound, "items", id, &mut call.keys)?;
    call.args.push(id);
    Ok(call)
}

/// No deadline that a script of ours gives is further away.
fn far_ms(spec: &BatchSpec) -> i64 {
    millis(spec.window).max(millis(spec.idle)).max(AGAIN_MS)
}

pub(super) fn due(batch: &Batch, count: usize, skip: usize) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_DUE.script, Workload::Queue).compound();
    keys::bind_open(SWEEP, &batch.bound, &mut call.keys)?;
    call.args.push_int(count as i64);
    call.args.push_int(skip as i64);
    call.args.push_int(far_ms(&batch.spec));
    Ok(call)
}

pub(super) fn list(bound: &Bound, offset: u64, count: u64) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_LIST.script, Workload::Queue).compound();
    keys::bind_open(LIST, bound, &mut call.keys)?;
    call.args.push_int(i64::try_from(offset).unwrap_or(i64::MAX / 2));
    call.args.push_int(i64::try_from(count).unwrap_or(i64::MAX / 2));
    Ok(call)
}

pub(super) fn show(bound: &Bound, id: &str) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::BATCH_SHOW.script, Workload::Queue);
    for role in ["by", "started_at", "last_activity", "size"] {
        keys::bind_of(LIST, bound, role, id, &mut call.keys)?;
    }
    Ok(call)
}
