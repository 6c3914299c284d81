//! Which part takes which value of a guard's key, and which parts one script may take together.

use quaymaster_store::Topology;

use super::Guard;
use crate::bound::{Key, key_field};
use crate::{Code, Error, Result};

/// Parts that one script enters: all of them on one keyspace, those under one hash tag on a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) record: bool,
    pub(super) lock: bool,
    /// Places in the guard's list.
    pub(super) limits: Vec<usize>,
}

/// The steps of a guard. Which ones are walked is known when the store is.
#[derive(Debug)]
pub(super) struct Plan {
    single: Vec<Step>,
    cluster: Vec<Step>,
}

impl Plan {
    /// `tags` are those of the idempotency, the lock and the limits: in this order they are entered, and parts
    /// that share a tag go with the first of them.
    pub(super) fn new(record: Option<&str>, lock: Option<&str>, limits: &[String]) -> Self {
        let whole =
            Step { record: record.is_some(), lock: lock.is_some(), limits: (0..limits.len()).collect() };
        let mut cluster: Vec<(&str, Step)> = Vec::new();
        if let Some(tag) = record {
            step(&mut cluster, tag).record = true;
        }
        if let Some(tag) = lock {
            step(&mut cluster, tag).lock = true;
        }
        for (place, tag) in limits.iter().enumerate() {
            step(&mut cluster, tag).limits.push(place);
        }
        Self { single: vec![whole], cluster: cluster.into_iter().map(|(_, step)| step).collect() }
    }

    pub(super) fn steps(&self, topology: Topology) -> &[Step] {
        match topology {
            Topology::Single => &self.single,
            Topology::Cluster => &self.cluster,
        }
    }
}

fn step<'s, 't>(steps: &'s mut Vec<(&'t str, Step)>, tag: &'t str) -> &'s mut Step {
    let at = steps.iter().position(|(known, _)| *known == tag).unwrap_or_else(|| {
        steps.push((tag, Step::default()));
        steps.len() - 1
    });
    &mut steps[at].1
}

/// The values of one part's placeholders.
pub(super) type PartKey<'a> = Vec<(&'a str, &'a str)>;

/// A guard's key, taken apart.
#[derive(Debug)]
pub(super) struct PartKeys<'a> {
    pub(super) record: PartKey<'a>,
    pub(super) lock: PartKey<'a>,
    pub(super) limits: Vec<PartKey<'a>>,
}

/// Gives every part the values its pattern names. What no part names is refused; what is missing, the part's own
/// pattern says.
pub(super) fn split<'a>(op: &'static str, guard: &Guard, key: Key<'a>) -> Result<PartKeys<'a>> {
    for (index, (name, _)) in key.iter().enumerate() {
        let detail = if !guard.names.iter().any(|known| known == name) {
            format!("there is no placeholder `{name}`")
        } else if key[..index].iter().any(|(before, _)| before == name) {
            format!("`{name}` has two values")
        } else {
            continue;
        };
        let has: Vec<String> = guard.names.iter().map(|name| format!("`{name}`")).collect();
        let has = if has.is_empty() { "no placeholders".to_owned() } else { has.join(", ") };
        let detail = format!("{detail}; the parts of guard.{} have {has}", guard.name());
        return Err(Error::new(op, Code::KeyUnknown, detail).field(key_field(name)));
    }
    let of = |bound: &crate::bound::Bound| -> PartKey<'a> {
        let pattern = bound.pattern();
        key.iter().filter(|(name, _)| pattern.placeholders().any(|known| known == *name)).copied().collect()
    };
    Ok(PartKeys {
        record: guard.idempotency.as_ref().map(|part| of(&part.bound)).unwrap_or_default(),
        lock: guard.lock.as_ref().map(|part| of(&part.bound)).unwrap_or_default(),
        limits: guard.limits.iter().map(|part| of(&part.bound)).collect(),
    })
}
