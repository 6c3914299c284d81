//! One function per operation: the call it becomes, and what its reply means. No policy.

use bytes::Bytes;
use quaymaster_schema::RedisType;
use quaymaster_store::{Invocation, Reply};

use super::{Mode, judge::Number};
use crate::Result;
use crate::bound::KeyBinding::Spelled;
use crate::scripts::{At, clean_heal, clean_members, clean_prune, clean_remove, clean_reset};

pub(super) const REMOVE: &str = "clean.remove";
pub(super) const HEAL: &str = "clean.heal";
pub(super) const RESET: &str = "clean.reset";
pub(super) const MEMBERS: &str = "clean.members";
pub(super) const PRUNE: &str = "clean.prune";

/// Each change judges anew what it finds, so that one sent twice does nothing the second time.
pub(super) fn remove(key: &[u8], holds: RedisType, over_ms: i64) -> Result<Invocation> {
    let call = clean_remove::Call { key: Spelled(key), holds: holds.name(), over_ms };
    Ok(call.on(At::spelled(REMOVE))?.compound().repeat_safe())
}

/// Whether the key was removed.
pub(super) fn removed(reply: Reply) -> Result<bool> {
    Ok(match clean_remove::Reply::read(REMOVE, reply)? {
        clean_remove::Reply::Done => true,
        clean_remove::Reply::Kept => false,
    })
}

pub(super) fn heal(key: &[u8], holds: RedisType, ttl_ms: i64) -> Result<Invocation> {
    let call = clean_heal::Call { key: Spelled(key), holds: holds.name(), ttl_ms };
    Ok(call.on(At::spelled(HEAL))?.repeat_safe())
}

/// Whether the key has its life again.
pub(super) fn healed(reply: Reply) -> Result<bool> {
    Ok(match clean_heal::Reply::read(HEAL, reply)? {
        clean_heal::Reply::Done => true,
        clean_heal::Reply::Kept => false,
    })
}

pub(super) fn reset(key: &[u8], number: Number, mode: Mode) -> Result<Invocation> {
    let mode = match mode {
        Mode::Look => "look",
        Mode::Apply => "apply",
    };
    let call = clean_reset::Call { key: Spelled(key), field: number.field().unwrap_or("-"), mode };
    Ok(call.on(At::spelled(RESET))?.repeat_safe())
}

/// Whether the number was taken away; `None` when it can be used.
pub(super) fn numbered(reply: Reply) -> Result<Option<bool>> {
    Ok(match clean_reset::Reply::read(RESET, reply)? {
        clean_reset::Reply::Sound => None,
        clean_reset::Reply::Found => Some(false),
        clean_reset::Reply::Done => Some(true),
    })
}

pub(super) fn members(index: &[u8], offset: u64, count: u64) -> Result<Invocation> {
    let call = clean_members::Call {
        index: Spelled(index),
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        count: i64::try_from(count).unwrap_or(i64::MAX),
    };
    Ok(call.on(At::spelled(MEMBERS))?.compound())
}

/// The members of a page with their scores.
pub(super) fn listed(reply: Reply) -> Result<Vec<(Bytes, Bytes)>> {
    let clean_members::Reply::Members { members } = clean_members::Reply::read(MEMBERS, reply)?;
    Ok(members.into_iter().map(|row| (row.member, row.score)).collect())
}

/// The members with the scores they were read with.
pub(super) fn prune(index: &[u8], gone: &[(Bytes, Bytes, String)]) -> Result<Invocation> {
    let call = clean_prune::Call {
        index: Spelled(index),
        members: &|args| {
            for (member, score, _) in gone {
                args.put(clean_prune::MembersRow { member, score });
            }
        },
    };
    Ok(call.on(At::spelled(PRUNE))?.compound().repeat_safe())
}

/// How many were dropped.
pub(super) fn pruned(reply: Reply) -> Result<u64> {
    let clean_prune::Reply::Pruned { count } = clean_prune::Reply::read(PRUNE, reply)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
