//! Binds the schema's key table to one call of a batch.

use quaymaster_schema::Resource;
use quaymaster_store::Words;

use crate::Result;
use crate::bound::{self, Bound, Key, KeyBinding};
use crate::scripts::QueueKeys;

/// The roles of a batch's own keys.
const OWN: [&str; 6] = ["by", "items", "started_at", "last_activity", "size", "ids"];

/// One key of the batch that `id` names: `[("batch_id", id)]`.
pub(super) fn of<'a>(op: &'static str, bound: &'a Bound, role: &str, id: Key<'a>) -> Result<KeyBinding<'a>> {
    bound.role(op, role, id)
}

/// A batch's own keys, in the order of [`OWN`].
pub(super) fn own<'a>(op: &'static str, bound: &'a Bound, id: Key<'a>) -> Result<[KeyBinding<'a>; 6]> {
    let of = |role| of(op, bound, role, id);
    let [by, items, started_at, last_activity, size, ids] = OWN;
    Ok([of(by)?, of(items)?, of(started_at)?, of(last_activity)?, of(size)?, of(ids)?])
}

/// Appends all keys of the batch `id`.
pub(super) fn bind_own(op: &'static str, bound: &Bound, id: &str, keys: &mut Words) -> Result<()> {
    let topology = bound.engine.topology();
    own(op, bound, &[("batch_id", id)])?.into_iter().try_for_each(|key| key.spell(op, topology, keys))
}

/// The index of open batches.
pub(super) fn open<'a>(op: &'static str, bound: &'a Bound) -> Result<KeyBinding<'a>> {
    bound.role(op, "open", &[])
}

/// The record of a `request_id`; `id` is `[("request_id", id)]`, empty for none.
pub(super) fn request<'a>(op: &'static str, bound: &'a Bound, id: Key<'a>) -> Result<Option<KeyBinding<'a>>> {
    let Some((_, text)) = id.first() else { return Ok(None) };
    bound::check_request_id(op, text)?;
    bound.role(op, "request", id).map(Some)
}

/// What adding to `queue` needs.
pub(super) fn queue<'a>(op: &'static str, queue: &'a Resource) -> Result<QueueKeys<'a>> {
    let of = |role| bound::role_of(op, queue, role, &[]);
    Ok(QueueKeys {
        items: of("items")?,
        meta: of("meta")?,
        stamps: of("stamps")?,
        overflow: of("overflow")?,
        jobs: of("jobs")?,
        held: of("held")?,
        delayed: of("delayed")?,
    })
}
