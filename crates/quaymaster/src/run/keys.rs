//! Binds the schema's key table to one call of a run.

use quaymaster_schema::Bucket;
use quaymaster_store::Words;

use crate::bound::{self, Bound, Key};
use crate::{Code, Error, Result};

/// A run's own keys, in the order every script and include takes them.
const OWN: [&str; 9] =
    ["state", "meta", "processed", "list", "failures", "failed_at", "retry_at", "tasks", "tasks_at"];

/// Appends the key that plays `role`; answers the bucket in it.
pub(super) fn bind(
    op: &'static str,
    bound: &Bound,
    role: &str,
    values: Key<'_>,
    now_us: i64,
    keys: &mut Words,
) -> Result<Option<Bucket>> {
    let row = bound.resource.key(role).ok_or_else(|| {
        Error::new(op, Code::Internal, format!("run.{} has no key {role:?}", bound.resource.name))
    })?;
    bound::bind(op, &row.pattern, values, now_us, bound.engine.topology(), keys)
}

/// Appends one of the run's own keys.
pub(super) fn bind_of(
    op: &'static str,
    bound: &Bound,
    role: &str,
    run: Key<'_>,
    keys: &mut Words,
) -> Result<()> {
    bind(op, bound, role, run, 0, keys).map(drop)
}

/// Appends all of the run's own keys.
pub(super) fn bind_own(op: &'static str, bound: &Bound, run: Key<'_>, keys: &mut Words) -> Result<()> {
    OWN.iter().try_for_each(|role| bind_of(op, bound, role, run, keys))
}

/// Appends the record of a `request_id`.
pub(super) fn bind_request(
    op: &'static str,
    bound: &Bound,
    run: (&str, &str),
    id: &str,
    keys: &mut Words,
) -> Result<()> {
    bound::check_request_id(op, id)?;
    bind_of(op, bound, "request", &[run, ("request_id", id)], keys)
}

/// Appends the two indexes of runs: all that are known, and those at work.
pub(super) fn bind_index(op: &'static str, bound: &Bound, keys: &mut Words) -> Result<()> {
    ["runs", "live"].iter().try_for_each(|role| bind_of(op, bound, role, &[], keys))
}

/// One key as text.
pub(super) fn text(
    op: &'static str,
    bound: &Bound,
    role: &str,
    values: Key<'_>,
    now_us: i64,
) -> Result<String> {
    let mut words = Words::default();
    bind(op, bound, role, values, now_us, &mut words)?;
    Ok(String::from_utf8_lossy(words.word(0).unwrap_or_default()).into_owned())
}
