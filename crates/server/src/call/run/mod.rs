//! `run`: what its calls share.

pub(crate) mod failures;
pub(crate) mod state;
pub(crate) mod work;

use std::collections::BTreeMap;

use quaymaster::Code;
use quaymaster::run::{RunState, moment};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::millis;
use crate::http::problem::{Problem, excerpt};
use crate::request::read::id;
use crate::request::{Holds, KEY_PART, Spec};

/// An id of a run or of a task.
const ID: Spec = Spec::text_of(1, 512).also(KEY_PART);

/// Which run a call is about.
const RUN_ID: Spec = ID.required("").about("The run's id.");

/// Whether a run is answered with what it has processed.
const ITEMS: Spec = Spec::of(Holds::Truth)
    .default("true")
    .about("`false` leaves the list of what is processed out of the answer.");

/// Where a list goes on.
const CURSOR: Spec = Spec::text_of(1, usize::MAX).about("The `next` of the page before.");

/// A run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunShown {
    /// The run's id.
    #[schemars(extend("examples" = ["manual_2026-11-16T06:22:01.123456+00:00"]))]
    run_id: String,
    /// What it is doing: `running` or what callers have set, `stale` while it gives no sign of life.
    #[schemars(extend("examples" = ["running"]))]
    status: String,
    /// Whether it has given no sign of life for `stale_after` and is not finished.
    stale: bool,
    /// When it started, UTC, as the documented hash has it.
    #[schemars(extend("examples" = ["2026-11-16T06:22:01.123456"]))]
    start_time: String,
    /// The hour it counts in, UTC.
    #[schemars(extend("examples" = ["2026-11-16_06"]))]
    current_hour: String,
    /// The calls that its limit has counted in that hour; the hash calls them as the schema's `calls_field` says.
    calls_this_hour: u64,
    /// The most calls that its limit has counted in an hour, as far as calls about the run saw it.
    peak_calls: u64,
    /// That hour, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["2026-11-16_06"]))]
    peak_hour: Option<String>,
    /// What it has processed, in that order; the hash's list is the schema's `processed_field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    processed: Option<Box<RawValue>>,
    /// `false` when the list is longer than what is listed; the count is right all the same.
    items_complete: bool,
    /// How many items it has processed.
    processed_count: u64,
    /// How many items have failed and were not processed since.
    failed_count: u64,
    /// Its tasks, the last started first; a thousand at most.
    tasks: Vec<RunTask>,
    /// How many tasks it has.
    tasks_total: u64,
    /// Fields that callers set beside the documented ones.
    fields: BTreeMap<String, String>,
    /// When it last gave a sign of life.
    #[schemars(extend("examples" = ["2026-11-16T06:23:01.000042Z"]))]
    last_activity: String,
    /// When it was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    finished_at: Option<String>,
}

/// A task of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunTask {
    /// The task's id.
    task_id: String,
    /// When it started.
    #[schemars(extend("examples" = ["2026-11-16T06:22:05.000001Z"]))]
    started_at: String,
    /// How long it took; not there while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    duration_ms: Option<u64>,
}

fn shown(run: RunState) -> RunShown {
    let tasks = run.tasks.into_iter().map(|task| RunTask {
        task_id: task.task_id,
        started_at: moment(task.started_us),
        duration_ms: task.duration.map(millis),
    });
    RunShown {
        run_id: run.run_id,
        status: run.status,
        stale: run.stale,
        start_time: run.start_time,
        current_hour: run.current_hour,
        calls_this_hour: run.calls_this_hour,
        peak_calls: run.peak_calls,
        peak_hour: run.peak_hour,
        processed: run.items.and_then(|list| RawValue::from_string(list.as_json().to_owned()).ok()),
        items_complete: run.items_complete,
        processed_count: run.processed_count,
        failed_count: run.failed_count,
        tasks: tasks.collect(),
        tasks_total: run.tasks_total,
        fields: run.fields.into_iter().collect(),
        last_activity: moment(run.last_activity_us),
        finished_at: run.finished_us.map(moment),
    }
}

/// A text or an integer, which is how other programs write ids.
fn text_of(field: &str, value: &RawValue) -> Result<String, Problem> {
    id(value.get()).map(std::borrow::Cow::into_owned).ok_or_else(|| {
        let detail = format!("{field} must be a string or an integer, got {}", excerpt(value.get()));
        Problem::new(Code::RequestInvalid, detail).field(field.to_owned())
    })
}

/// A list of them.
fn texts_of(field: &str, values: &[&RawValue]) -> Result<Vec<String>, Problem> {
    let text = |(at, value): (usize, &&RawValue)| text_of(&format!("{field}[{at}]"), value);
    values.iter().enumerate().map(text).collect()
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
