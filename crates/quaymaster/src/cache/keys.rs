//! Binds the schema's key table to one call of a cache.

use quaymaster_store::Words;

use crate::Result;
use crate::bound::{Bound, Key};

/// The side key under which whoever loads an entry says so.
const LOAD: &str = "load";
/// The channel on which the end of a load is told.
const LOADED: &str = "loaded";

/// Appends the entry's key.
pub(super) fn entry(
    op: &'static str,
    bound: &Bound,
    key: Key<'_>,
    now_us: i64,
    keys: &mut Words,
) -> Result<()> {
    bound.bind(op, key, now_us, keys).map(drop)
}

/// Appends the key of the load's lease.
pub(super) fn load(op: &'static str, bound: &Bound, key: Key<'_>, keys: &mut Words) -> Result<()> {
    bound.bind_side(op, key, LOAD, keys)
}

/// Where the end of a load is told.
pub(super) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, LOADED)
}
