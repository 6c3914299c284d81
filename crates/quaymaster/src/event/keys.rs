//! Binds the schema's key table to one call of an event.

use crate::bound::{Bound, Key, KeyBinding, unspellable};
use crate::{Code, Error, Result};

/// The channel, spelled alike on every topology.
pub(crate) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    let row = bound.resource.channel("messages").ok_or_else(|| undeclared(op, bound))?;
    row.pattern
        .render(key, 0, quaymaster_schema::Spelling::Single, &mut name)
        .map_err(|error| unspellable(op, error))?;
    Ok(name)
}

/// The key that plays `role`.
pub(super) fn role<'a>(
    op: &'static str,
    bound: &'a Bound,
    role: &str,
    values: Key<'a>,
) -> Result<KeyBinding<'a>> {
    let row = bound.resource.key(role).ok_or_else(|| undeclared(op, bound))?;
    Ok(KeyBinding::Row { pattern: &row.pattern, values, now_us: 0 })
}

pub(super) fn undeclared(op: &'static str, bound: &Bound) -> Error {
    let detail = format!("event {:?} has no such key: its schema declares no `status`", bound.resource.name);
    Error::new(op, Code::RequestInvalid, detail)
}
