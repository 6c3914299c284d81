//! Binds the schema's key table to one call of a lock.

use crate::Result;
use crate::bound::{Bound, Key, KeyBinding};
use crate::scripts::LockKeys;

/// All keys of a lock.
pub(crate) fn all<'a>(bound: &'a Bound, key: Key<'a>) -> LockKeys<'a> {
    let [queue, alive] = waiters(bound, key);
    LockKeys { lock: bound.key(key, 0), fence: bound.side(key, "fence"), queue, alive }
}

/// Who waits, and until when each must have asked again.
pub(crate) fn waiters<'a>(bound: &'a Bound, key: Key<'a>) -> [KeyBinding<'a>; 2] {
    ["queue", "alive"].map(|suffix| bound.side(key, suffix))
}

/// Where waiters listen for their turn.
pub(crate) fn channel(op: &'static str, bound: &Bound, key: Key<'_>) -> Result<Vec<u8>> {
    bound.channel(op, key, "wake")
}
