//! One function per operation: the call it becomes. No policy.

use quaymaster_store::{Invocation, Workload};

use super::Pair;
use crate::scripts;

pub(super) const RENAME: &str = "respell.rename";
pub(super) const NOTE: &str = "respell.note";
pub(super) const NOTED: &str = "respell.noted";

/// The pairs of one call; on a cluster all of one slot. A repetition finds what was renamed and changes nothing.
pub(super) fn rename(pairs: &[Pair]) -> Invocation {
    let mut call = Invocation::new(&scripts::RESPELL_RENAME.script, Workload::Default);
    for pair in pairs {
        call.keys.push(&pair.old);
        call.keys.push(&pair.new);
    }
    call.repeat_safe()
}

pub(super) fn note(key: &str, names: &str) -> Invocation {
    let mut call = Invocation::new(&scripts::RESPELL_NOTE.script, Workload::Default);
    call.keys.push(key);
    call.args.push(names);
    call.repeat_safe()
}

pub(super) fn noted(key: &str) -> Invocation {
    let mut call = Invocation::new(&scripts::RESPELL_NOTED.script, Workload::Default);
    call.keys.push(key);
    call
}
