//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::BatchSpec;
use quaymaster_store::{Invocation, Words, Workload};

use super::{Add, Batch, Target, keys};
use crate::Result;
use crate::bound::{Bound, Key};
use crate::scripts::{
    At, BatchArgs, BatchKeys, QueueArgs, batch_add, batch_adopt, batch_close, batch_due, batch_forget,
    batch_list, batch_read, batch_seal, batch_show,
};

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

impl Guess {
    /// What names the two batches in their keys.
    pub(crate) fn ids(&self) -> [[(&str, &str); 1]; 2] {
        [[("batch_id", &self.guess)], [("batch_id", &self.fresh)]]
    }
}

fn at(bound: &Bound, op: &'static str) -> At {
    bound.at(op, Workload::Queue)
}

/// The keys of one add; `ids` are [`Guess::ids`].
pub(crate) fn add_keys<'a>(
    op: &'static str,
    bound: &'a Bound,
    key: Key<'a>,
    [guess, fresh]: &'a [[(&'a str, &'a str); 1]; 2],
) -> Result<BatchKeys<'a>> {
    let [guess_by, guess_items, guess_started_at, guess_last_activity, guess_size, guess_ids] =
        keys::own(op, bound, guess)?;
    let [fresh_by, fresh_items, fresh_started_at, fresh_last_activity, fresh_size, fresh_ids] =
        keys::own(op, bound, fresh)?;
    Ok(BatchKeys {
        current: bound.key(key, 0),
        open: keys::open(op, bound)?,
        guess_by,
        guess_items,
        guess_started_at,
        guess_last_activity,
        guess_size,
        guess_ids,
        fresh_by,
        fresh_items,
        fresh_started_at,
        fresh_last_activity,
        fresh_size,
        fresh_ids,
    })
}

/// The words of one add.
pub(crate) fn add_args<'a>(
    op: &'static str,
    batch: &Batch,
    key: Key<'a>,
    add: &Add<'a>,
    guess: &'a Guess,
) -> Result<BatchArgs<'a>> {
    let spec = &batch.spec;
    Ok(BatchArgs {
        guess: &guess.guess,
        fresh: &guess.fresh,
        by: batch.by(op, key)?,
        item: add.item.trim_ascii(),
        item_id: add.id.unwrap_or_default(),
        window_ms: millis(spec.window),
        idle_ms: millis(spec.idle),
        max_items: spec.max_items.and_then(|most| i64::try_from(most).ok()).unwrap_or(0),
        max_bytes: super::MAX_LIST_BYTES as i64,
        ttl_ms: millis(spec.ttl),
        max_open: super::MAX_OPEN as i64,
    })
}

/// Sent again only with a `request_id`: an item's id may find another batch open by then.
pub(super) fn add(batch: &Batch, key: Key<'_>, add: &Add<'_>, guess: &Guess) -> Result<Invocation> {
    let (ids, request) = (guess.ids(), add.request_id.map(|id| ("request_id", id)));
    let call = batch_add::Call {
        batch: add_keys(ADD, &batch.bound, key, &ids)?,
        request: keys::request(ADD, &batch.bound, request.as_slice())?,
        keep_ms: KEEP_MS,
        add: add_args(ADD, batch, key, add, guess)?,
    };
    let call = call.on(at(&batch.bound, ADD))?;
    Ok(if request.is_some() { call.repeat_safe() } else { call })
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
    let named = [("batch_id", id)];
    let of = |role| keys::of(ADD, bound, role, &named);
    let call = batch_adopt::Call {
        open: keys::open(ADD, bound)?,
        items: of("items")?,
        started_at: of("started_at")?,
        size: of("size")?,
        by: of("by")?,
        id,
        length: read as i64,
        list,
        count: count as i64,
        window_ms: millis(spec.window),
        idle_ms: millis(spec.idle),
        ttl_ms: millis(spec.ttl),
        of: by,
    };
    Ok(call.on(at(bound, ADD))?.compound().repeat_safe())
}

/// Sealing twice would seal the next batch too: sent again only with a `request_id`.
pub(super) fn seal(bound: &Bound, key: Key<'_>, request_id: Option<&str>) -> Result<Invocation> {
    let request = request_id.map(|id| ("request_id", id));
    let call = batch_seal::Call {
        current: bound.key(key, 0),
        open: keys::open(CLOSE, bound)?,
        request: keys::request(CLOSE, bound, request.as_slice())?,
        keep_ms: KEEP_MS,
    };
    let call = call.on(at(bound, CLOSE))?;
    Ok(if request.is_some() { call.repeat_safe() } else { call })
}

pub(super) fn read(op: &'static str, bound: &Bound, id: &str) -> Result<Invocation> {
    let named = [("batch_id", id)];
    let of = |role| keys::of(op, bound, role, &named);
    let call = batch_read::Call { by: of("by")?, items: of("items")?, started_at: of("started_at")? };
    Ok(call.on(at(bound, op))?.compound())
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
    let (named, group) = ([("batch_id", id)], [(&*spec.by, by)]);
    let [own_by, items, started_at, last_activity, size, ids] = keys::own(op, bound, &named)?;
    let current = bound.key(&group, 0);
    let known = current.spell(op, bound.engine.topology(), &mut Words::default()).is_ok();
    let call = batch_close::Call {
        open: keys::open(op, bound)?,
        // Where nobody knows whose it is, it is nobody's current one; a key of its own stands in that place.
        current: if known { current } else { own_by },
        by: own_by,
        items,
        started_at,
        last_activity,
        size,
        ids,
        queue: keys::queue(op, resource)?,
        id,
        length: read as i64,
        ttl_ms: millis(spec.ttl),
        again_ms: AGAIN_MS,
        far_ms: far_ms(spec),
        add: QueueArgs {
            order: queue.order.name(),
            max_size: queue.max_size.and_then(|most| i64::try_from(most).ok()).unwrap_or(0),
            policy: queue.overflow.name(),
            delay_ms: 0,
            score: "0",
            count: 1,
            payloads: &|args| args.put(item),
        },
    };
    Ok(call.on(at(bound, op))?.compound().repeat_safe())
}

pub(super) fn forget(op: &'static str, bound: &Bound, id: &str) -> Result<Invocation> {
    let named = [("batch_id", id)];
    let call =
        batch_forget::Call { open: keys::open(op, bound)?, items: keys::of(op, bound, "items", &named)?, id };
    Ok(call.on(at(bound, op))?.repeat_safe())
}

/// No deadline that a script of ours gives is further away.
fn far_ms(spec: &BatchSpec) -> i64 {
    millis(spec.window).max(millis(spec.idle)).max(AGAIN_MS)
}

pub(super) fn due(batch: &Batch, count: usize, skip: usize) -> Result<Invocation> {
    let call = batch_due::Call {
        open: keys::open(SWEEP, &batch.bound)?,
        count: count as i64,
        skip: skip as i64,
        far_ms: far_ms(&batch.spec),
    };
    Ok(call.on(at(&batch.bound, SWEEP))?.compound())
}

pub(super) fn list(bound: &Bound, offset: u64, count: u64) -> Result<Invocation> {
    let call = batch_list::Call {
        open: keys::open(LIST, bound)?,
        offset: i64::try_from(offset).unwrap_or(i64::MAX / 2),
        count: i64::try_from(count).unwrap_or(i64::MAX / 2),
    };
    Ok(call.on(at(bound, LIST))?.compound())
}

pub(super) fn show(bound: &Bound, id: &str) -> Result<Invocation> {
    let named = [("batch_id", id)];
    let of = |role| keys::of(LIST, bound, role, &named);
    let call = batch_show::Call {
        by: of("by")?,
        started_at: of("started_at")?,
        last_activity: of("last_activity")?,
        size: of("size")?,
    };
    call.on(at(bound, LIST))
}
