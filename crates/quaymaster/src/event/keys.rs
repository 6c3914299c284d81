//! Binds the schema's key table to one call of an event.

use quaymaster_store::Words;

use crate::bound::{Bound, Key, check_request_id, spelling};
use crate::{Code, Error, Result};

/// The channel, spelled alike on every topology.
pub(crate) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    let row = bound.resource.channel("messages").ok_or_else(|| undeclared(op, bound))?;
    row.pattern
        .render(key, 0, quaymaster_schema::Spelling::Single, &mut name)
        .map_err(|error| Error::new(op, error.code, error.detail))?;
    Ok(name)
}

/// Appends the key that plays `role`.
pub(super) fn bind(
    op: &'static str,
    bound: &Bound,
    role: &str,
    values: Key<'_>,
    keys: &mut Words,
) -> Result<()> {
    let row = bound.resource.key(role).ok_or_else(|| undeclared(op, bound))?;
    crate::bound::bind(op, &row.pattern, values, 0, bound.engine.topology(), keys).map(drop)
}

/// Appends the key under which the answer to `id` is kept.
pub(super) fn bind_request(
    op: &'static str,
    bound: &Bound,
    key: Key<'_>,
    id: &str,
    keys: &mut Words,
) -> Result<()> {
    check_request_id(op, id)?;
    let mut values = key.to_vec();
    values.push(("publish_id", id));
    bind(op, bound, "request", &values, keys)
}

/// Appends the documented key of a queue.
pub(super) fn bind_queue(
    op: &'static str,
    bound: &Bound,
    queue: &quaymaster_schema::Resource,
    keys: &mut Words,
) -> Result<()> {
    let row = queue.primary().ok_or_else(|| undeclared(op, bound))?;
    keys.push_with(|out| row.pattern.render(&[], 0, spelling(bound.engine.topology()), out).map(drop))
        .map_err(|error| Error::new(op, error.code, error.detail))
}

fn undeclared(op: &'static str, bound: &Bound) -> Error {
    let detail = format!("event {:?} has no such key: its schema declares no `status`", bound.resource.name);
    Error::new(op, Code::RequestInvalid, detail)
}
