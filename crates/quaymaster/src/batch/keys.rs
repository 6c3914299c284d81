//! Binds the schema's key table to one call of a batch.

use quaymaster_schema::Resource;
use quaymaster_store::Words;

use crate::bound::{self, Bound, Key};
use crate::{Code, Error, Result};

/// A batch's own keys, in the order every script and include takes them.
pub(super) const OWN: [&str; 6] = ["by", "items", "started_at", "last_activity", "size", "ids"];

/// What adding to a queue needs of its keys, in the order of `queue_add`.
const QUEUE: [&str; 7] = ["items", "meta", "stamps", "overflow", "jobs", "held", "delayed"];

fn bind_role(
    op: &'static str,
    bound: &Bound,
    resource: &Resource,
    role: &str,
    values: Key<'_>,
    keys: &mut Words,
) -> Result<()> {
    let row = resource.key(role).ok_or_else(|| {
        Error::new(op, Code::Internal, format!("{}.{} has no key {role:?}", resource.kind, resource.name))
    })?;
    bound::bind(op, &row.pattern, values, 0, bound.engine.topology(), keys).map(drop)
}

/// Appends one key of the batch `id`.
pub(super) fn bind_of(op: &'static str, bound: &Bound, role: &str, id: &str, keys: &mut Words) -> Result<()> {
    bind_role(op, bound, &bound.resource, role, &[("batch_id", id)], keys)
}

/// Appends all keys of the batch `id`.
pub(super) fn bind_own(op: &'static str, bound: &Bound, id: &str, keys: &mut Words) -> Result<()> {
    OWN.iter().try_for_each(|role| bind_of(op, bound, role, id, keys))
}

/// Appends the index of open batches.
pub(super) fn bind_open(op: &'static str, bound: &Bound, keys: &mut Words) -> Result<()> {
    bind_role(op, bound, &bound.resource, "open", &[], keys)
}

/// Appends the record of a `request_id`.
pub(super) fn bind_request(op: &'static str, bound: &Bound, id: &str, keys: &mut Words) -> Result<()> {
    bound::check_request_id(op, id)?;
    bind_role(op, bound, &bound.resource, "request", &[("request_id", id)], keys)
}

/// Appends what adding to `queue` needs.
pub(super) fn bind_queue(op: &'static str, bound: &Bound, queue: &Resource, keys: &mut Words) -> Result<()> {
    QUEUE.iter().try_for_each(|role| bind_role(op, bound, queue, role, &[], keys))
}
