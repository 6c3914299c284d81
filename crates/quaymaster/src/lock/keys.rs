//! Binds the schema's key table to one call of a lock.

use quaymaster_store::Words;

use crate::Result;
use crate::bound::{Bound, Key};

/// Appends lock, fence, queue and alive, in the order every script and include takes them.
pub(crate) fn bind(op: &'static str, bound: &Bound, key: Key<'_>, keys: &mut Words) -> Result<()> {
    bound.bind(op, key, 0, keys)?;
    for suffix in ["fence", "queue", "alive"] {
        bound.bind_side(op, key, suffix, keys)?;
    }
    Ok(())
}

/// Appends lock, queue and alive: what a waiter that goes away needs.
pub(crate) fn bind_queue(op: &'static str, bound: &Bound, key: Key<'_>, keys: &mut Words) -> Result<()> {
    bound.bind(op, key, 0, keys)?;
    for suffix in ["queue", "alive"] {
        bound.bind_side(op, key, suffix, keys)?;
    }
    Ok(())
}

/// Where waiters listen for their turn.
pub(crate) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, "wake")
}
