//! What a run answers. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

use super::list::ItemList;
use crate::scripts::{
    run_failed, run_finish, run_processed, run_retry, run_show, run_start, run_task_finish, run_task_start,
    run_update,
};
use crate::{Code, Error, Result};

/// Whether a start began the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was none.
    Started,
    /// There was one, and it goes on: nothing of it was changed but that it is at work again.
    Resumed,
}

/// The answer of `start`.
#[must_use = "a run may have been gone on with"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Whether it is new.
    pub outcome: Outcome,
    /// The run, without its list of items.
    pub run: RunState,
}

/// One task of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub task_id: String,
    /// When it started, in microseconds since the epoch.
    pub started_us: i64,
    /// How long it took; `None` while it runs.
    pub duration: Option<Duration>,
}

/// A run as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    /// Its id.
    pub run_id: String,
    /// What it is doing; `stale` while it gives no sign of life.
    pub status: String,
    /// Whether it has given no sign of life for `stale_after` and is not finished.
    pub stale: bool,
    /// Whether nothing more is expected of it.
    pub over: bool,
    /// When it started, as the documented hash has it: UTC, microseconds, no zone.
    pub start_time: String,
    /// The same in microseconds since the epoch.
    pub started_us: i64,
    /// The hour it counts in, `2024-09-17_14`.
    pub current_hour: String,
    /// The calls that its limit has counted in that hour.
    pub calls_this_hour: u64,
    /// The most calls that the limit has counted in an hour of this run, as far as its calls saw it.
    pub peak_calls: u64,
    /// That hour; `None` before the first.
    pub peak_hour: Option<String>,
    /// The documented `redis_keys`, a JSON object.
    pub redis_keys: String,
    /// What it has processed, in that order; `None` where it was not asked for.
    pub items: Option<ItemList>,
    /// Whether the list holds all that was processed: it is bounded in bytes, the count is not.
    pub items_complete: bool,
    /// How many items it has processed.
    pub processed_count: u64,
    /// How many items have failed and were not processed since.
    pub failed_count: u64,
    /// Its tasks, the last started first; a thousand at most.
    pub tasks: Vec<Task>,
    /// How many tasks it has.
    pub tasks_total: u64,
    /// Fields that callers set beside the documented ones.
    pub fields: Vec<(String, String)>,
    /// When it last gave a sign of life, in microseconds since the epoch.
    pub last_activity_us: i64,
    /// When it was finished.
    pub finished_us: Option<i64>,
    /// Bytes of the list, to read it.
    pub(super) bytes: u64,
}

/// The answer of `processed`.
#[must_use = "the counts tell whether the items were new"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processed {
    /// Items that were not processed before.
    pub added: u64,
    /// Items processed in this run.
    pub processed_count: u64,
    /// Items that have failed and were not processed since.
    pub failed_count: u64,
}

/// The answer of `failed`.
#[must_use = "an item that is processed does not fail any more"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Whether it is listed now; `false` when it is processed, and nothing was changed.
    pub listed: bool,
    /// How often it failed.
    pub attempts: u64,
    /// Items processed in this run.
    pub processed_count: u64,
    /// Items that have failed and were not processed since.
    pub failed_count: u64,
}

/// An item that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The item.
    pub item: String,
    /// Why; cut to 4 KiB.
    pub error: String,
    /// Whether the error was longer.
    pub error_cut: bool,
    /// How often it failed.
    pub attempts: u64,
    /// When it last failed, in microseconds since the epoch.
    pub last_failed_us: i64,
    /// The run it failed in.
    pub run_id: String,
}

/// The answer of `task_start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskStarted {
    /// When it started, in microseconds since the epoch; the first time if it runs already.
    pub started_us: i64,
}

/// The answer of `task_finish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskFinished {
    /// How long it took, by the store's clock.
    pub duration: Duration,
}

/// What one sweep did.
#[must_use = "it tells whether runs were found stale"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Runs found to give no sign of life.
    pub stale: u64,
    /// Runs forgotten, since their state has expired.
    pub forgotten: u64,
    /// Runs that are known.
    pub known: u64,
    /// Those of them that were thought to be at work before.
    pub at_work: u64,
}

pub(super) fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn counted(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn count(parts: &mut Parts) -> Result<u64> {
    parts.int().map(counted)
}

/// The words of `run.show` behind the first.
pub(super) fn view(mut told: Parts, run_id: &str) -> Result<RunState> {
    let parts = &mut told;
    parts.int()?;
    let (started_us, last_activity_us, finished_us) = (parts.int()?, parts.int()?, parts.int()?);
    let (over, stale) = (parts.int()? == 1, parts.int()? == 1);
    let status = text(&parts.bytes()?);
    let (start_time, current_hour) = (text(&parts.bytes()?), text(&parts.bytes()?));
    let calls_this_hour = text(&parts.bytes()?).parse().unwrap_or(0);
    let redis_keys = text(&parts.bytes()?);
    let peak_calls = text(&parts.bytes()?).parse().unwrap_or(0);
    let peak_hour = Some(text(&parts.bytes()?)).filter(|hour| !hour.is_empty());
    let (processed_count, failed_count, bytes) = (count(parts)?, count(parts)?, count(parts)?);
    let (items_complete, tasks_total) = (parts.int()? == 0, count(parts)?);
    let mut fields = Vec::new();
    for _ in 0..count(parts)? {
        fields.push((text(&parts.bytes()?), text(&parts.bytes()?)));
    }
    let mut tasks = Vec::new();
    while let Some(id) = parts.next_bytes()? {
        tasks.push(task(text(&id), &parts.bytes()?));
    }
    let stale = stale && !over;
    Ok(RunState {
        run_id: run_id.to_owned(),
        status: if stale { "stale".to_owned() } else { status },
        stale,
        over,
        start_time,
        started_us,
        current_hour,
        calls_this_hour,
        peak_calls,
        peak_hour,
        redis_keys,
        items: None,
        items_complete,
        processed_count,
        failed_count,
        tasks,
        tasks_total,
        fields,
        last_activity_us,
        finished_us: (finished_us > 0).then_some(finished_us),
        bytes,
    })
}

/// `start_us duration_us`, with `-` for a task that runs.
fn task(task_id: String, times: &Bytes) -> Task {
    let times = String::from_utf8_lossy(times);
    let (start, took) = times.split_once(' ').unwrap_or((&times, "-"));
    Task {
        task_id,
        started_us: start.parse().unwrap_or(0),
        duration: took.parse().ok().map(Duration::from_micros),
    }
}

/// What a run's script told: an answer of its own, or what every one of them may tell.
#[derive(Debug)]
pub(super) enum Said<T> {
    Answer(T),
    Stale { now_ms: i64 },
    Pulse,
    Foreign,
    Missing,
    Malformed { key: Bytes },
    Full,
    Conflict,
}

/// What `run.start` told.
#[derive(Debug)]
pub(super) enum Begun {
    There(Outcome, Parts),
    Exists,
    /// Another program has begun it, and lists these items.
    Foreign(Bytes),
}

pub(super) fn begun(op: &'static str, reply: Reply) -> Result<Said<Begun>> {
    use run_start::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Started { view } => Said::Answer(Begun::There(Outcome::Started, view)),
        Told::Resumed { view } => Said::Answer(Begun::There(Outcome::Resumed, view)),
        Told::Exists => Said::Answer(Begun::Exists),
        Told::Foreign { list } => Said::Answer(Begun::Foreign(list)),
        Told::Malformed { key } => Said::Malformed { key },
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// What a change of the status told.
#[derive(Debug)]
pub(super) enum Changed {
    Done(Parts),
    /// It is finished, with this status.
    Ended(Bytes),
}

pub(super) fn finished(op: &'static str, reply: Reply) -> Result<Said<Changed>> {
    use run_finish::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Finished { view } => Said::Answer(Changed::Done(view)),
        Told::Ended { status } => Said::Answer(Changed::Ended(status)),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

pub(super) fn updated(op: &'static str, reply: Reply) -> Result<Said<Changed>> {
    use run_update::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Updated { view } => Said::Answer(Changed::Done(view)),
        Told::Ended { status } => Said::Answer(Changed::Ended(status)),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Full => Said::Full,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

pub(super) fn shown(op: &'static str, reply: Reply) -> Result<Said<Parts>> {
    use run_show::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Shown { view } => Said::Answer(view),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Stale { now_ms } => Said::Stale { now_ms },
    })
}

/// The counts, and what the index is to say.
pub(super) fn processed(op: &'static str, reply: Reply) -> Result<Said<(Processed, i64)>> {
    use run_processed::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Processed { added, processed_count, failed_count, beat } => {
            let [added, processed_count, failed_count] = [added, processed_count, failed_count].map(counted);
            Said::Answer((Processed { added, processed_count, failed_count }, beat))
        }
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Full => Said::Full,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// The counts, what the index is to say, and whether the answer is one that was kept.
pub(super) fn failed(op: &'static str, reply: Reply) -> Result<Said<(Failed, i64, bool)>> {
    use run_failed::Reply as Told;
    let counts = |listed, numbers: [i64; 3]| {
        let [attempts, processed_count, failed_count] = numbers.map(counted);
        Failed { listed, attempts, processed_count, failed_count }
    };
    Ok(match Told::read(op, reply)? {
        Told::Failed { attempts, processed_count, failed_count, beat, again } => {
            Said::Answer((counts(true, [attempts, processed_count, failed_count]), beat, again == 1))
        }
        Told::Processed { processed_count, failed_count } => {
            Said::Answer((counts(false, [0, processed_count, failed_count]), 0, false))
        }
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Full => Said::Full,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// When the task started, and what the index is to say.
pub(super) fn task_started(op: &'static str, reply: Reply) -> Result<Said<(TaskStarted, i64)>> {
    use run_task_start::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Started { start_us, beat } => Said::Answer((TaskStarted { started_us: start_us }, beat)),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Full => Said::Full,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// What `run.task_finish` told.
#[derive(Debug)]
pub(super) enum TaskEnd {
    Finished(TaskFinished, i64),
    /// It was started by another program, at this moment.
    Elsewhere(Bytes),
    Untimed,
}

pub(super) fn task_ended(op: &'static str, reply: Reply) -> Result<Said<TaskEnd>> {
    use run_task_finish::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Finished { duration_us, beat } => {
            let duration = Duration::from_micros(counted(duration_us));
            Said::Answer(TaskEnd::Finished(TaskFinished { duration }, beat))
        }
        Told::Elsewhere { text } => Said::Answer(TaskEnd::Elsewhere(text)),
        Told::Untimed => Said::Answer(TaskEnd::Untimed),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// What the index is to say, and the items that were handed out.
pub(super) fn retried(op: &'static str, reply: Reply) -> Result<Said<(i64, Vec<run_retry::ItemsRow>)>> {
    use run_retry::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Retry { beat, items } => Said::Answer((beat, items)),
        Told::Missing => Said::Missing,
        Told::Malformed { key } => Said::Malformed { key },
        Told::Foreign => Said::Foreign,
        Told::Pulse => Said::Pulse,
        Told::Stale { now_ms } => Said::Stale { now_ms },
        Told::Conflict => Said::Conflict,
    })
}

/// `attempts last_us cut error`.
pub(super) fn failure(run_id: &str, item: &Bytes, record: &Bytes) -> Failure {
    let record = String::from_utf8_lossy(record);
    let mut words = record.splitn(4, ' ');
    let attempts = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let last_failed_us = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let error_cut = words.next() == Some("1");
    let error = words.next().unwrap_or_default().to_owned();
    Failure { item: text(item), error, error_cut, attempts, last_failed_us, run_id: run_id.to_owned() }
}

/// A key that a script found to hold something else than it keeps there.
pub(super) fn malformed(op: &'static str, key: &Bytes) -> Error {
    let detail = format!("{} does not hold what a run keeps there: inspect it, or remove it", text(key));
    Error::new(op, Code::KeyMalformed, detail)
}
