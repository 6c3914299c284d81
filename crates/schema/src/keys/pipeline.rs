//! Batches and runs.

use super::{REQUEST_TTL, RowDraft, never, request, row, side};
use crate::kind::{BucketUnit, RedisType};
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

/// What runs know of an hour's list, in the list's slot.
fn known(hours: &Template, spec: &RunSpec) -> RowDraft {
    let purpose = "What of an hour's list runs know: the rest was pushed by other programs";
    let mut draft = side("known", hours, "known", None, RedisType::Hash, Ttl::For(spec.hour_ttl), purpose);
    draft.template.push_text(":");
    draft.template.push_bucket(BucketUnit::Hour);
    draft.format("field: id; value: how often it is in the list because of us, or was taken over").apart()
}

pub(crate) fn run_rows(key: Template, task: Template, failed: Template, spec: &RunSpec) -> Vec<RowDraft> {
    let state = || Ttl::For(spec.state_ttl);
    let id = spec.id.as_str();
    let index = Template::of_text(&key.literal_head());
    let (tag, primary, hours) = (key.clone(), key, failed.without_bucket());
    let own = |role, holds, purpose: &str| side(role, &tag, role, None, holds, state(), purpose);
    vec![
        row("state", primary, RedisType::Hash, state(), "The state of a run").fields(&[
            (id, "the run's id"),
            ("start_time", "when it started, ISO 8601 with microseconds"),
            ("current_hour", "the hour it counts in, YYYY-MM-DD_HH"),
            (&spec.calls_field, "calls in that hour, rendered from the limit's counter"),
            ("status", "what it is doing"),
            (&spec.processed_field, "what it has processed, a JSON list rendered from the side set"),
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
        known(&hours, spec),
        own("processed", RedisType::Set, "What the run has processed; the truth behind its field"),
        own("list", RedisType::List, "The same in the order it came, to be rendered")
            .format("pieces of the JSON list's text, without its brackets"),
        own("meta", RedisType::Hash, "What the run needs to know beside its documented fields").format(
            "moments in microseconds, how much of the list is rendered, the status before `stale`, names of the \
             caller's own fields, how long it is kept, its busiest hour",
        ),
        own("failures", RedisType::Hash, "What failed in this run and was not processed since")
            .format("field: item; value: attempts, last failure in microseconds, 1 if the error was cut, error"),
        own("failed_at", RedisType::Zset, "The same by last failure").format("score: milliseconds"),
        own("retry_at", RedisType::Zset, "The same by when it may be handed out for another try")
            .format("score: milliseconds"),
        own("tasks", RedisType::Hash, "Tasks of the run and how long they took")
            .format("field: task id; value: start and duration in microseconds, `-` while it runs"),
        own("tasks_at", RedisType::Zset, "The same by start").format("score: microseconds"),
        request(&tag),
        side(
            "runs",
            &index,
            "runs",
            None,
            RedisType::Zset,
            never("members leave when their state has expired"),
            "Runs by last activity, a few seconds behind",
        )
        .format("member: run id; score: milliseconds")
        .apart(),
        side(
            "live",
            &index,
            "live",
            None,
            RedisType::Zset,
            never("members leave when their run is finished, stale or expired"),
            "Runs that are at work, by last activity, a few seconds behind",
        )
        .format("member: run id; score: milliseconds")
        .apart(),
        side(
            "kept",
            &index,
            "kept",
            None,
            RedisType::Zset,
            never("members leave when their state has expired"),
            "Runs whose start said how long they are kept",
        )
        .format("member: run id; score: for how long, in milliseconds")
        .apart(),
        side(
            "started",
            &index,
            "start",
            Some(("request_id", Class::Wide)),
            RedisType::String,
            Ttl::For(REQUEST_TTL),
            "The id made up for a start that named none",
        )
        .apart(),
    ]
}
