//! Binds the schema's key table to one call of a run.

use quaymaster_schema::Bucket;
use quaymaster_store::Words;

use crate::bound::{self, Bound, Key, KeyBinding};
use crate::scripts::{RunIndexKeys, RunKeys};
use crate::{Code, Error, Result};

/// A run's own keys.
pub(super) fn own<'a>(op: &'static str, bound: &'a Bound, run: Key<'a>) -> Result<RunKeys<'a>> {
    let of = |role| bound.role(op, role, run);
    Ok(RunKeys {
        state: of("state")?,
        meta: of("meta")?,
        processed: of("processed")?,
        list: of("list")?,
        failures: of("failures")?,
        failed_at: of("failed_at")?,
        retry_at: of("retry_at")?,
        tasks: of("tasks")?,
        tasks_at: of("tasks_at")?,
    })
}

/// The record of a `request_id`; `values` are the run's and it.
pub(super) fn request<'a>(op: &'static str, bound: &'a Bound, values: Key<'a>) -> Result<KeyBinding<'a>> {
    bound::check_request_id(op, values.last().map_or("", |(_, id)| id))?;
    bound.role(op, "request", values)
}

/// The indexes of runs: all that are known, those at work, those with a time of their own.
pub(super) fn index<'a>(op: &'static str, bound: &'a Bound) -> Result<RunIndexKeys<'a>> {
    let of = |role| bound.role(op, role, &[]);
    Ok(RunIndexKeys { runs: of("runs")?, live: of("live")?, kept: of("kept")? })
}

/// The list of what failed in the hour of `now_us`, and that hour.
pub(super) fn hour<'a>(op: &'static str, bound: &'a Bound, now_us: i64) -> Result<(KeyBinding<'a>, Bucket)> {
    let row = bound.resource.key("failed");
    let pattern = row.map(|row| &row.pattern);
    match pattern.and_then(|pattern| Some((pattern, pattern.bucket_at(now_us)?))) {
        Some((pattern, bucket)) => Ok((KeyBinding::Row { pattern, values: &[], now_us }, bucket)),
        None => Err(Error::new(op, Code::Internal, "the key of failures has no hour")),
    }
}

/// What is known of the list of the hour of `now_us`.
pub(super) fn known<'a>(op: &'static str, bound: &'a Bound, now_us: i64) -> Result<KeyBinding<'a>> {
    let row = bound.resource.key("known");
    let row = row.ok_or_else(|| Error::new(op, Code::Internal, "the hour's list has no key beside it"))?;
    Ok(KeyBinding::Row { pattern: &row.pattern, values: &[], now_us })
}

/// A key as text.
pub(super) fn text(op: &'static str, bound: &Bound, key: KeyBinding<'_>) -> Result<String> {
    let mut words = Words::default();
    key.spell(op, bound.engine.topology(), &mut words)?;
    Ok(String::from_utf8_lossy(words.word(0).unwrap_or_default()).into_owned())
}
