//! `run`: what its calls share.

pub(crate) mod failures;
pub(crate) mod state;
pub(crate) mod work;

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use quaymaster::Code;
use quaymaster::run::{RunState, moment};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(super) use failures::{FAILURES, RETRY};
pub(super) use state::{FINISH, LIST, SHOW, START, SWEEP, UPDATE};
pub(super) use work::{FAILED, PROCESSED, REMAINING, TASK_FINISH, TASK_START};

use super::{Arg, ArgType};
use crate::http::problem::{Problem, excerpt};

const RUN_ID: Arg = Arg { name: "run_id", holds: ArgType::Text, required: true, help: "The run's id" };

const ITEMS: Arg = Arg {
    name: "items",
    holds: ArgType::Json,
    required: false,
    help: "`false` leaves the list of what is processed out of the answer",
};

/// A run.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunShown {
    /// `started`, or `resumed` when there was one; only from `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[schema(example = "manual_2026-11-16T06:22:01.123456+00:00")]
    run_id: String,
    /// What it is doing: `running` or what callers have set, `stale` while it gives no sign of life.
    #[schema(example = "running")]
    status: String,
    /// Whether it has given no sign of life for `stale_after` and is not finished.
    stale: bool,
    /// When it started, UTC, as the documented hash has it.
    #[schema(example = "2026-11-16T06:22:01.123456")]
    start_time: String,
    /// The hour it counts in, UTC.
    #[schema(example = "2026-11-16_06")]
    current_hour: String,
    /// The calls that its limit has counted in that hour.
    api_calls_this_hour: u64,
    /// What it has processed, in that order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    dockets_processed: Option<Box<RawValue>>,
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
    #[schema(example = "2026-11-16T06:23:01.000042Z")]
    last_activity: String,
    /// When it was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
}

/// A task of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunTask {
    task_id: String,
    /// When it started.
    #[schema(example = "2026-11-16T06:22:05.000001Z")]
    started_at: String,
    /// How long it took; not there while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

fn shown(run: RunState, outcome: Option<&'static str>) -> RunShown {
    let tasks = run.tasks.into_iter().map(|task| RunTask {
        task_id: task.task_id,
        started_at: moment(task.started_us),
        duration_ms: task.duration.map(millis),
    });
    RunShown {
        outcome,
        run_id: run.run_id,
        status: run.status,
        stale: run.stale,
        start_time: run.start_time,
        current_hour: run.current_hour,
        api_calls_this_hour: run.api_calls_this_hour,
        dockets_processed: run.items.and_then(|list| RawValue::from_string(list.as_json().to_owned()).ok()),
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

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn written(answer: &impl Serialize) -> Bytes {
    // A struct of texts, numbers and JSON cannot fail to be written into memory.
    Bytes::from(serde_json::to_vec(answer).unwrap_or_default())
}

fn required<'a>(field: &'static str, value: Option<Cow<'a, str>>) -> Result<Cow<'a, str>, Problem> {
    value.ok_or_else(|| Problem::new(Code::RequestInvalid, format!("{field} is missing")).field(field))
}

/// A text or an integer, which is how other programs write ids.
fn text_of(field: &str, value: &RawValue) -> Result<String, Problem> {
    let wrong = |got: &str| {
        let detail = format!("{field} must be a string or an integer, got {}", excerpt(got));
        Problem::new(Code::RequestInvalid, detail).field(field.to_owned())
    };
    match serde_json::from_str(value.get()).map_err(|_| wrong(value.get()))? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        _ => Err(wrong(value.get())),
    }
}

/// A list of them.
fn texts_of(field: &str, values: &[&RawValue]) -> Result<Vec<String>, Problem> {
    let text = |(at, value): (usize, &&RawValue)| text_of(&format!("{field}[{at}]"), value);
    values.iter().enumerate().map(text).collect()
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// An integer parameter of a query.
fn number(text: Option<&str>, field: &'static str, default: u64) -> Result<u64, Problem> {
    let Some(text) = text else { return Ok(default) };
    text.parse().map_err(|_| {
        let detail = format!("{field} must be an integer of at least 0, got {}", excerpt(text));
        Problem::new(Code::RequestInvalid, detail).field(field)
    })
}

/// A truth in a query.
fn truth(text: Option<&str>, field: &'static str, default: bool) -> Result<bool, Problem> {
    match text {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => {
            let detail = format!("{field} must be true or false, got {}", excerpt(other));
            Err(Problem::new(Code::RequestInvalid, detail).field(field))
        }
    }
}
