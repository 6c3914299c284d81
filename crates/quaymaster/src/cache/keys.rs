//! Binds the schema's key table to one call of a cache.

use crate::Result;
use crate::bound::{Bound, Key, KeyBinding};

/// The side key under which whoever loads an entry says so.
const LOAD: &str = "load";
/// The channel on which the end of a load is told.
const LOADED: &str = "loaded";

/// The key of the load's lease.
pub(super) fn load<'a>(bound: &'a Bound, key: Key<'a>) -> KeyBinding<'a> {
    bound.side(key, LOAD)
}

/// Where the end of a load is told.
pub(super) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, LOADED)
}
