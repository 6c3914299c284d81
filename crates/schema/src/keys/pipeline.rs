//! Batches and runs.

use super::{RowDraft, never, request, row, side};
use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::{BatchSpec, RunSpec};

/// `key` is `…:{by}:current`; the batch's own keys have `{batch_id}` in its place and another last segment.
///
/// `None` when `key` does not have that shape.
pub(crate) fn batch_rows(key: Template, spec: &BatchSpec) -> Option<Vec<RowDraft>> {
    let ttl = || Ttl::For(spec.ttl);
    let of_batch = key.renamed(&spec.by, "batch_id");
    let field = |role, last: &str, holds, purpose: &str| {
        Some(row(role, of_batch.sibling(last)?, holds, ttl(), purpose).class("batch_id", Class::Narrow))
    };
    let open = Template::of_text(&key.literal_head());
    Some(vec![
        row("current", key.clone(), RedisType::String, ttl(), format!("The open batch of a {}", spec.by))
            .format("the batch's id"),
        field("by", &spec.by, RedisType::String, "What the batch is grouped by")?,
        field("items", &spec.items, RedisType::String, "The batch's items")?.format("a JSON list"),
        field("started_at", "started_at", RedisType::String, "When the first item came")?
            .format("seconds since the epoch, a decimal fraction"),
        field("last_activity", "last_activity", RedisType::String, "When the last item came")?
            .format("seconds since the epoch, a decimal fraction"),
        field("size", "size", RedisType::String, "How many items the batch has")?,
        field("ids", "ids", RedisType::Set, "Ids of the items that carried one")?,
        side(
            "open",
            &open,
            "open",
            None,
            RedisType::Zset,
            never("one member per open batch"),
            "Open batches by the moment they close",
        )
        .format("member: batch id; score: closes at, in milliseconds"),
        request(&open),
    ])
}

pub(crate) fn run_rows(key: Template, task: Template, failed: Template, spec: &RunSpec) -> Vec<RowDraft> {
    let state = || Ttl::For(spec.state_ttl);
    let id = spec.id.as_str();
    let index = Template::of_text(&key.literal_head());
    let (tag, primary) = (key.clone(), key);
    vec![
        row("state", primary, RedisType::Hash, state(), "The state of a run").fields(&[
            (id, "the run's id"),
            ("start_time", "when it started, ISO 8601 with microseconds"),
            ("current_hour", "the hour it counts in, YYYY-MM-DD_HH"),
            ("api_calls_this_hour", "calls in that hour, rendered from the limit's counter"),
            ("status", "what it is doing"),
            ("dockets_processed", "what it has processed, a JSON list rendered from the side set"),
            ("redis_keys", "the keys it uses, a JSON object"),
        ]),
        row("task", task, RedisType::String, state(), "When a task started")
            .format("ISO 8601 with microseconds")
            .class("task_id", Class::Narrow),
        row(
            "failed",
            failed,
            RedisType::List,
            Ttl::For(spec.hour_ttl),
            "What failed in an hour, newest first",
        )
        .format("one id per failure")
        .apart(),
        side(
            "processed",
            &tag,
            "processed",
            None,
            RedisType::Set,
            state(),
            "What the run has processed; the truth behind its field",
        ),
        side(
            "failures",
            &tag,
            "failures",
            None,
            RedisType::Hash,
            state(),
            "What failed in this run: error and attempts by item",
        )
        .format("field: item; value: JSON with error, attempts, last_failed_at"),
        side(
            "tasks",
            &tag,
            "tasks",
            None,
            RedisType::Hash,
            state(),
            "Tasks of the run and how long they took",
        )
        .format("field: task id; value: JSON with started_at, duration_ms"),
        side(
            "runs",
            &index,
            "runs",
            None,
            RedisType::Zset,
            never("members leave when their state has expired"),
            "Runs by last activity",
        )
        .format("member: run id; score: milliseconds")
        .apart(),
    ]
}
