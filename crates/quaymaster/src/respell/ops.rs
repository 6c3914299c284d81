//! One function per operation: the call it becomes, and what its reply means. No policy.

use bytes::Bytes;
use quaymaster_store::{Invocation, Reply};

use super::Pair;
use crate::Result;
use crate::bound::KeyBinding::Spelled;
use crate::scripts::{At, one_each, respell_note, respell_noted, respell_rename};

pub(super) const RENAME: &str = "respell.rename";
pub(super) const NOTE: &str = "respell.note";
pub(super) const NOTED: &str = "respell.noted";

/// The pairs of one call; on a cluster all of one slot. A repetition finds what was renamed and changes nothing.
pub(super) fn rename(pairs: &[Pair]) -> Result<Invocation> {
    let call = respell_rename::Call {
        names: &|keys| {
            pairs.iter().try_for_each(|pair| {
                keys.put(respell_rename::NamesRow { old: Spelled(&pair.old), new: Spelled(&pair.new) })
            })
        },
    };
    Ok(call.on(At::spelled(RENAME))?.repeat_safe())
}

/// What became of each of so many pairs.
pub(super) fn renamed(reply: Reply, pairs: usize) -> Result<Vec<i64>> {
    let respell_rename::Reply::Renamed { outcomes } = respell_rename::Reply::read(RENAME, reply)?;
    one_each(RENAME, outcomes, pairs)
}

pub(super) fn note(key: &str, names: &str) -> Result<Invocation> {
    let call = respell_note::Call { note: Spelled(key.as_bytes()), names };
    Ok(call.on(At::spelled(NOTE))?.repeat_safe())
}

/// Refuses what is no reply to a note.
pub(super) fn was_noted(reply: Reply) -> Result<()> {
    respell_note::Reply::read(NOTE, reply).map(drop)
}

pub(super) fn noted(key: &str) -> Result<Invocation> {
    respell_noted::Call { note: Spelled(key.as_bytes()) }.on(At::spelled(NOTED))
}

/// The digest that was noted.
pub(super) fn digest(reply: Reply) -> Result<Bytes> {
    let respell_noted::Reply::Noted { digest } = respell_noted::Reply::read(NOTED, reply)?;
    Ok(digest)
}
