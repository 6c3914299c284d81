//! Binds the schema's key table to one call of an idempotency.

use quaymaster_schema::Spelling;

use crate::Result;
use crate::bound::{Bound, Key, KeyBinding, unspellable};

/// The suffix of the channel that says when a record's claim has ended.
const WAKE: &str = "done";

/// The record's key. A pattern with a time bucket is refused by the loader, so no clock is asked.
pub(super) fn record<'a>(bound: &'a Bound, key: Key<'a>) -> KeyBinding<'a> {
    bound.key(key, 0)
}

/// Where those who wait for the record listen.
pub(super) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, WAKE)
}

/// The record's key as one keyspace spells it, whatever the store: what a sealed value is bound to and what a
/// token is derived from stay the same when data moves to a cluster.
pub(super) fn place(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    bound.pattern().render(key, 0, Spelling::Single, &mut out).map_err(|error| unspellable(op, error))?;
    Ok(out)
}
