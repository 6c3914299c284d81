//! One function per operation: the call it becomes. No policy.

use quaymaster_schema::RedisType;
use quaymaster_store::{Invocation, Workload};

use crate::scripts;

pub(super) const REMOVE: &str = "clean.remove";
pub(super) const HEAL: &str = "clean.heal";
pub(super) const MEMBERS: &str = "clean.members";
pub(super) const PRUNE: &str = "clean.prune";

/// Each change judges anew what it finds, so that one sent twice does nothing the second time.
pub(super) fn remove(key: &[u8], holds: RedisType, over_ms: i64) -> Invocation {
    let mut call = Invocation::new(&scripts::CLEAN_REMOVE.script, Workload::Default).compound();
    call.keys.push(key);
    call.args.push(holds.name());
    call.args.push_int(over_ms);
    call.repeat_safe()
}

pub(super) fn heal(key: &[u8], holds: RedisType, ttl_ms: i64) -> Invocation {
    let mut call = Invocation::new(&scripts::CLEAN_HEAL.script, Workload::Default);
    call.keys.push(key);
    call.args.push(holds.name());
    call.args.push_int(ttl_ms);
    call.repeat_safe()
}

pub(super) fn members(index: &[u8], offset: u64, count: u64) -> Invocation {
    let mut call = Invocation::new(&scripts::CLEAN_MEMBERS.script, Workload::Default).compound();
    call.keys.push(index);
    call.args.push_int(i64::try_from(offset).unwrap_or(i64::MAX));
    call.args.push_int(i64::try_from(count).unwrap_or(i64::MAX));
    call
}

/// The members with the scores they were read with.
pub(super) fn prune<'a>(index: &[u8], gone: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Invocation {
    let mut call = Invocation::new(&scripts::CLEAN_PRUNE.script, Workload::Default).compound();
    call.keys.push(index);
    for (member, score) in gone {
        call.args.push(member);
        call.args.push(score);
    }
    call.repeat_safe()
}
