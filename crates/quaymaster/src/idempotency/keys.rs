//! Binds the schema's key table to one call of an idempotency.

use quaymaster_schema::Spelling;
use quaymaster_store::Words;

use crate::bound::{Bound, Key};
use crate::{Error, Result};

/// The suffix of the channel that says when a record's claim has ended.
const WAKE: &str = "done";

/// The record's key.
pub(super) fn record(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Words> {
    let mut words = Words::default();
    // A pattern with a time bucket is refused by the loader, so no clock is asked.
    bound.bind(op, key, 0, &mut words)?;
    Ok(words)
}

/// Where those who wait for the record listen.
pub(super) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, WAKE)
}

/// The record's key as one keyspace spells it, whatever the store: what a sealed value is bound to and what a
/// token is derived from stay the same when data moves to a cluster.
pub(super) fn place(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    bound
        .pattern()
        .render(key, 0, Spelling::Single, &mut out)
        .map_err(|error| Error::new(op, error.code, error.detail))?;
    Ok(out)
}
