//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::pulse::Pulse;
use super::unclaimed::{Unclaimed, WHY};
use super::{Run, keys};
use crate::bound::{Key, KeyBinding};
use crate::scripts::{
    At, PulseArgs, RunArgs, RunIndexKeys, RunKeys, Word, run_adopt, run_due, run_failed, run_failures,
    run_finish, run_hour, run_index, run_items, run_known, run_list, run_name, run_processed, run_remaining,
    run_retry, run_settle, run_show, run_start, run_sweep, run_take_over, run_task_finish, run_task_start,
    run_unclaimed, run_update,
};
use crate::{Result, json};

pub(super) const START: &str = "run.start";
pub(super) const UPDATE: &str = "run.update";
pub(super) const FINISH: &str = "run.finish";
pub(super) const SHOW: &str = "run.show";
pub(super) const LIST: &str = "run.list";
pub(super) const PROCESSED: &str = "run.processed";
pub(super) const FAILED: &str = "run.failed";
pub(super) const FAILURES: &str = "run.failures";
pub(super) const RETRY: &str = "run.retry";
pub(super) const REMAINING: &str = "run.remaining";
pub(super) const TASK_START: &str = "run.task_start";
pub(super) const TASK_FINISH: &str = "run.task_finish";
pub(super) const SWEEP: &str = "run.sweep";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// A run is told of the hour, its life and its place in the index this often.
const PULSE: Duration = Duration::from_secs(5);

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// What every call of a run's script has: the run, a `request_id`, a pulse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) op: &'static str,
    pub(super) run: &'a Run,
    pub(super) id: &'a str,
    pub(super) request_id: Option<&'a str>,
    pub(super) pulse: Option<&'a Pulse>,
}

/// What names the keys of a call, and a number as text: what its parts borrow.
pub(super) struct Values<'a> {
    own: [(&'a str, &'a str); 1],
    asked: [(&'a str, &'a str); 2],
    calls: String,
}

/// What every call of a run's script has, ready to be put where its header wants it.
struct Parts<'a> {
    run: RunKeys<'a>,
    request: Option<KeyBinding<'a>>,
    index: Option<RunIndexKeys<'a>>,
    counter: Option<KeyBinding<'a>>,
    words: RunArgs,
    pulse: Option<PulseArgs<'a>>,
}

impl<'a> Frame<'a> {
    pub(super) fn key(&self) -> (&'a str, &'a str) {
        (&self.run.spec.id, self.id)
    }

    fn at(&self) -> At {
        at(self.run, self.op)
    }

    fn values(&self) -> Values<'a> {
        let calls = self.pulse.and_then(|pulse| pulse.calls);
        Values {
            own: [self.key()],
            asked: [self.key(), ("request_id", self.request_id.unwrap_or_default())],
            calls: calls.map_or_else(String::new, |calls| calls.to_string()),
        }
    }

    /// Where the first key behind the run's own and the request's stands.
    fn next_key(&self) -> i64 {
        10 + i64::from(self.request_id.is_some())
    }

    /// `more` keys and `own` words of the script's own stand between the others.
    fn parts(&self, values: &'a Values<'a>, more: i64, own: usize) -> Result<Parts<'a>> {
        let Self { op, run, request_id, pulse, .. } = *self;
        let beat = PULSE.min(run.spec.state_ttl / 4).min(run.spec.stale_after / 4);
        let words = RunArgs {
            ttl_ms: millis(run.spec.state_ttl),
            keep_ms: KEEP_MS,
            pulse_ms: millis(beat),
            request: if request_id.is_some() { 10 } else { 0 },
            pulse: pulse.map_or(0, |_| 6 + own as i64),
        };
        let asked = request_id.map(|_| keys::request(op, &run.bound, &values.asked)).transpose()?;
        let mut parts = Parts {
            run: keys::own(op, &run.bound, &values.own)?,
            request: asked,
            index: None,
            counter: None,
            words,
            pulse: None,
        };
        if let Some(pulse) = pulse {
            let mut next = self.next_key() + more;
            let mut place = |keys| {
                next += keys;
                next - keys
            };
            parts.index = if run.is_whole() { Some(keys::index(op, &run.bound)?) } else { None };
            parts.counter = pulse.counter.as_ref().and_then(|key| key.word(0)).map(KeyBinding::Spelled);
            parts.pulse = Some(PulseArgs {
                hour: &pulse.hour,
                start_ms: pulse.bucket.start_ms,
                end_ms: pulse.bucket.end_ms,
                keys: &pulse.keys,
                calls: &values.calls,
                index: parts.index.map_or(0, |_| place(3)),
                counter: parts.counter.map_or(0, |_| place(1)),
                id: self.id,
                calls_field: &run.spec.calls_field,
                list_field: &run.spec.processed_field,
            });
        }
        Ok(parts)
    }

    /// A request that comes again is recognised.
    fn asked(&self, call: Invocation) -> Invocation {
        if self.request_id.is_some() { call.repeat_safe() } else { call }
    }
}

fn at(run: &Run, op: &'static str) -> At {
    run.bound.at(op, Workload::Default)
}

/// Repeated, it goes on with what it began.
pub(super) fn start(
    frame: Frame<'_>,
    fresh: bool,
    read: Option<usize>,
    kept: Option<Duration>,
) -> Result<Invocation> {
    let values = frame.values();
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 0, 6)?;
    let call = run_start::Call {
        run,
        request,
        index,
        counter,
        frame: words,
        id_field: &frame.run.spec.id,
        id: frame.id,
        fresh: i64::from(fresh),
        read: read.map_or(-1, |length| length as i64),
        stale_ms: millis(frame.run.spec.stale_after),
        kept_ms: kept.map_or(0, millis),
        pulse,
    };
    let call = frame.asked(call.on(frame.at())?);
    // One that must be the first would find itself there.
    Ok(if fresh { call } else { call.repeat_safe() })
}

/// Each item with its JSON, which is empty where quotes are enough: most need no more.
fn each_item(items: &[&str], mut put: impl FnMut(&str, &str)) {
    let mut json = String::new();
    for item in items {
        json.clear();
        json::push_text(&mut json, item);
        put(item, if json.len() == item.len() + 2 { "" } else { &json });
    }
}

/// The set makes it safe to be repeated: what is in it is not added again.
pub(super) fn adopt(frame: Frame<'_>, items: &[&str]) -> Result<Invocation> {
    let values = frame.values();
    let Parts { run, words, .. } = frame.parts(&values, 0, 0)?;
    let call = run_adopt::Call {
        run,
        frame: words,
        max_bytes: super::MAX_LIST_BYTES as i64,
        count: items.len() as i64,
        items: &|args| each_item(items, |item, json| args.put(run_adopt::ItemsRow { item, json })),
    };
    Ok(call.on(frame.at())?.repeat_safe())
}

/// Safe to be repeated like [`adopt`]; without a `request_id` the repetition says that nothing was new.
pub(super) fn processed(frame: Frame<'_>, items: &[&str]) -> Result<Invocation> {
    let values = frame.values();
    let own = 3 + 2 * items.len();
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 0, own)?;
    let call = run_processed::Call {
        run,
        request,
        index,
        counter,
        frame: words,
        max_bytes: super::MAX_LIST_BYTES as i64,
        max_items: super::MAX_PROCESSED as i64,
        count: items.len() as i64,
        items: &|args| each_item(items, |item, json| args.put(run_processed::ItemsRow { item, json })),
        pulse,
    };
    Ok(call.on(frame.at())?.repeat_safe())
}

/// Counts an attempt: sent again only with a `request_id`.
pub(super) fn failed(
    frame: Frame<'_>,
    item: &str,
    error: &str,
    cut: bool,
    now_us: i64,
) -> Result<Invocation> {
    let (values, whole) = (frame.values(), frame.run.is_whole());
    let Parts { run, request, index, counter, words, pulse } =
        frame.parts(&values, 2 * i64::from(whole), 7)?;
    let (hour, known) = if whole {
        let bound = &frame.run.bound;
        (Some(keys::hour(frame.op, bound, now_us)?.0), Some(keys::known(frame.op, bound, now_us)?))
    } else {
        (None, None)
    };
    let call = run_failed::Call {
        run,
        request,
        hour_list: hour,
        known,
        index,
        counter,
        frame: words,
        item,
        error,
        cut: i64::from(cut),
        max_failures: super::MAX_FAILURES as i64,
        hour_at: hour.map_or(0, |_| frame.next_key()),
        hour_ttl_ms: millis(frame.run.spec.hour_ttl),
        hour_max: super::MAX_HOUR as i64,
        pulse,
    };
    Ok(frame.asked(call.on(frame.at())?))
}

/// Ending twice is ending once.
pub(super) fn finish(frame: Frame<'_>, status: &str) -> Result<Invocation> {
    let values = frame.values();
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 0, 2)?;
    let stale_ms = millis(frame.run.spec.stale_after);
    let call = run_finish::Call { run, request, index, counter, frame: words, status, stale_ms, pulse };
    Ok(call.on(frame.at())?.repeat_safe())
}

pub(super) fn show(frame: Frame<'_>, render: bool) -> Result<Invocation> {
    let values = frame.values();
    let Parts { run, index, counter, words, pulse, .. } = frame.parts(&values, 0, 2)?;
    let (stale_ms, items) = (millis(frame.run.spec.stale_after), i64::from(render));
    let call = run_show::Call { run, index, counter, frame: words, stale_ms, items, pulse };
    Ok(call.on(frame.at())?.repeat_safe())
}

pub(super) fn items(run: &Run, key: Key<'_>, from: u64, to: u64) -> Result<Invocation> {
    let call = run_items::Call {
        list: run.bound.role(SHOW, "list", key)?,
        from: i64::try_from(from).unwrap_or(i64::MAX),
        to: i64::try_from(to).unwrap_or(i64::MAX),
    };
    Ok(call.on(at(run, SHOW))?.compound())
}

pub(super) fn remaining(run: &Run, key: Key<'_>, items: &[&str]) -> Result<Invocation> {
    let of = |role| run.bound.role(REMAINING, role, key);
    let call = run_remaining::Call {
        state: of("state")?,
        meta: of("meta")?,
        processed: of("processed")?,
        items: &|args| items.iter().for_each(|item| args.put(item)),
    };
    Ok(call.on(at(run, REMAINING))?.compound())
}

pub(super) fn failures(
    run: &Run,
    key: Key<'_>,
    from_ms: i64,
    to_ms: Option<i64>,
    count: u64,
) -> Result<Invocation> {
    let of = |role| run.bound.role(FAILURES, role, key);
    let call = run_failures::Call {
        meta: of("meta")?,
        failures: of("failures")?,
        failed_at: of("failed_at")?,
        from_ms,
        to_ms: &to_ms.map_or_else(|| "+inf".to_owned(), |to| to.to_string()),
        count: i64::try_from(count).unwrap_or(i64::MAX),
    };
    Ok(call.on(at(run, FAILURES))?.compound())
}

/// `keep` is how long a start said it is kept: `None` from whoever does not know.
pub(super) fn index(
    op: &'static str,
    run: &Run,
    id: &str,
    over: bool,
    keep: Option<Duration>,
) -> Result<Invocation> {
    let RunIndexKeys { runs, live, kept } = keys::index(op, &run.bound)?;
    let (over, keep) = (i64::from(over), keep.map_or(-1, millis));
    Ok(run_index::Call { runs, live, kept, id, over, keep }.on(at(run, op))?.repeat_safe())
}

/// The id for a start that named none: the first that asks decides.
pub(super) fn name(run: &Run, request_id: &str, id: &str, taken: &str) -> Result<Invocation> {
    crate::bound::check_request_id(START, request_id)?;
    let asked = [("request_id", request_id)];
    let started = run.bound.role(START, "started", &asked)?;
    Ok(run_name::Call { started, id, taken, keep_ms: KEEP_MS }.on(at(run, START))?.repeat_safe())
}

pub(super) fn update(frame: Frame<'_>, pairs: &[(&str, &str)]) -> Result<Invocation> {
    let values = frame.values();
    let own = 3 + 2 * pairs.len();
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 0, own)?;
    let call = run_update::Call {
        run,
        request,
        index,
        counter,
        frame: words,
        stale_ms: millis(frame.run.spec.stale_after),
        max_fields: super::MAX_OWN_FIELDS as i64,
        count: pairs.len() as i64,
        fields: &|args| {
            for (name, value) in pairs {
                args.put(run_update::FieldsRow { name, value });
            }
        },
        pulse,
    };
    Ok(frame.asked(call.on(frame.at())?))
}

/// Repeated while the task runs it answers the same.
pub(super) fn task_start(frame: Frame<'_>, task: &str) -> Result<Invocation> {
    let (values, named) = (frame.values(), [frame.key(), ("task_id", task)]);
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 1, 3)?;
    let call = run_task_start::Call {
        run,
        request,
        started: frame.run.bound.role(frame.op, "task", &named)?,
        index,
        counter,
        frame: words,
        task,
        started_at: frame.next_key(),
        max_tasks: super::MAX_TASKS as i64,
        pulse,
    };
    Ok(frame.asked(call.on(frame.at())?))
}

/// Ending twice is ending once.
pub(super) fn task_finish(frame: Frame<'_>, task: &str, given_us: Option<i64>) -> Result<Invocation> {
    let (values, named) = (frame.values(), [frame.key(), ("task_id", task)]);
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 1, 3)?;
    let call = run_task_finish::Call {
        run,
        request,
        started: frame.run.bound.role(frame.op, "task", &named)?,
        index,
        counter,
        frame: words,
        task,
        started_at: frame.next_key(),
        given: &given_us.map_or_else(String::new, |us| us.to_string()),
        pulse,
    };
    Ok(call.on(frame.at())?.repeat_safe())
}

/// Hands out: sent again only with a `request_id`.
pub(super) fn retry(frame: Frame<'_>, count: u64, lease: Duration) -> Result<Invocation> {
    let values = frame.values();
    let Parts { run, request, index, counter, words, pulse } = frame.parts(&values, 0, 2)?;
    let (count, lease_ms) = (i64::try_from(count).unwrap_or(i64::MAX), millis(lease));
    let call = run_retry::Call { run, request, index, counter, frame: words, count, lease_ms, pulse };
    Ok(frame.asked(call.on(frame.at())?))
}

/// The hour's list of failures, where the run's own script cannot reach it.
pub(super) fn hour(run: &Run, item: &str, again: bool, now_us: i64) -> Result<Invocation> {
    let (failed, bucket) = keys::hour(FAILED, &run.bound, now_us)?;
    let call = run_hour::Call {
        failed,
        known: keys::known(FAILED, &run.bound, now_us)?,
        item,
        start_ms: bucket.start_ms,
        end_ms: bucket.end_ms,
        ttl_ms: millis(run.spec.hour_ttl),
        max: super::MAX_HOUR as i64,
        again: i64::from(again),
    };
    call.on(at(run, FAILED))
}

/// A page of an hour's list of failures, and what is known of its entries.
pub(super) fn unclaimed(op: &'static str, run: &Run, at_us: i64, from: u64, to: u64) -> Result<Invocation> {
    let call = run_unclaimed::Call {
        failed: keys::hour(op, &run.bound, at_us)?.0,
        known: keys::known(op, &run.bound, at_us)?,
        from: i64::try_from(from).unwrap_or(i64::MAX),
        to: i64::try_from(to).unwrap_or(i64::MAX),
    };
    Ok(call.on(at(run, op))?.compound())
}

/// Safe to be repeated: what a run lists already is not listed again.
pub(super) fn take_over(frame: Frame<'_>, at_us: i64, items: &[Unclaimed]) -> Result<Invocation> {
    let (values, bound) = (frame.values(), &frame.run.bound);
    let Parts { run, words, .. } = frame.parts(&values, 0, 0)?;
    let (_, bucket) = keys::hour(frame.op, bound, at_us)?;
    let known = if frame.run.is_whole() { Some(keys::known(frame.op, bound, at_us)?) } else { None };
    let call = run_take_over::Call {
        run,
        known,
        frame: words,
        max_failures: super::MAX_FAILURES as i64,
        failed_us: bucket.start_ms * 1000,
        failed_ms: bucket.start_ms,
        known_at: known.map_or(0, |_| frame.next_key()),
        known_ttl_ms: millis(frame.run.spec.hour_ttl),
        why: WHY,
        items: &|args| {
            for Unclaimed { item, seen, held } in items {
                let (seen, held) = (counted(*seen), counted(*held));
                args.put(run_take_over::ItemsRow { item, seen, held });
            }
        },
    };
    Ok(call.on(frame.at())?.repeat_safe())
}

/// Notes what was taken over, where the run's own script cannot.
pub(super) fn known(run: &Run, at_us: i64, items: &[Unclaimed]) -> Result<Invocation> {
    let call = run_known::Call {
        known: keys::known(RETRY, &run.bound, at_us)?,
        ttl_ms: millis(run.spec.hour_ttl),
        items: &|args| {
            for Unclaimed { item, seen, .. } in items {
                args.put(run_known::ItemsRow { item, seen: counted(*seen) });
            }
        },
    };
    Ok(call.on(at(run, RETRY))?.repeat_safe())
}

fn counted(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn list(
    op: &'static str,
    run: &Run,
    from: &str,
    since_ms: i64,
    skip: u64,
    count: u64,
) -> Result<Invocation> {
    let call = run_list::Call {
        runs: run.bound.role(op, "runs", &[])?,
        from_ms: from,
        to_ms: Word::Int(since_ms),
        skip: i64::try_from(skip).unwrap_or(i64::MAX),
        count: i64::try_from(count).unwrap_or(i64::MAX),
    };
    Ok(call.on(at(run, op))?.compound())
}

pub(super) fn due(run: &Run, count: usize, skip: i64) -> Result<Invocation> {
    let RunIndexKeys { runs, live, kept } = keys::index(SWEEP, &run.bound)?;
    let call = run_due::Call {
        runs,
        live,
        kept,
        stale_ms: millis(run.spec.stale_after),
        // The index may be behind a run's last activity by a pulse.
        expire_ms: millis(run.spec.state_ttl).saturating_add(60_000),
        count: count as i64,
        skip,
    };
    Ok(call.on(at(run, SWEEP))?.compound().repeat_safe())
}

pub(super) fn sweep(run: &Run, id: &str) -> Result<Invocation> {
    let frame = Frame { op: SWEEP, run, id, request_id: None, pulse: None };
    let values = frame.values();
    let Parts { run: own, words, .. } = frame.parts(&values, 0, 0)?;
    let index = if run.is_whole() { Some(keys::index(SWEEP, &run.bound)?) } else { None };
    let call = run_sweep::Call {
        run: own,
        index,
        frame: words,
        stale_ms: millis(run.spec.stale_after),
        id,
        index_at: index.map_or(0, |_| frame.next_key()),
        list_field: &run.spec.processed_field,
    };
    Ok(call.on(frame.at())?.repeat_safe())
}

pub(super) fn settle(
    op: &'static str,
    run: &Run,
    id: &str,
    seen_ms: i64,
    word: &str,
    active_ms: i64,
) -> Result<Invocation> {
    let RunIndexKeys { runs, live, kept } = keys::index(op, &run.bound)?;
    let call = run_settle::Call { runs, live, kept, id, seen: seen_ms, word, active_ms };
    Ok(call.on(at(run, op))?.repeat_safe())
}
