//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Script, Words, Workload};

use super::pulse::Pulse;
use super::{Run, keys};
use crate::bound::Key;
use crate::{Result, json, scripts};

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

impl Frame<'_> {
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.run.spec.id, self.id)
    }

    /// Where the first key behind the run's own and the request's stands.
    fn next_key(&self) -> i64 {
        10 + i64::from(self.request_id.is_some())
    }

    /// The call of `script`; `more` are its own keys and `own` its own words.
    fn call(self, script: &'static Script, more: &Words, own: &Words) -> Result<Invocation> {
        let Self { op, run, request_id, pulse, .. } = self;
        let mut call = Invocation::new(script, Workload::Default);
        keys::bind_own(op, &run.bound, &[self.key()], &mut call.keys)?;
        if let Some(id) = request_id {
            keys::bind_request(op, &run.bound, self.key(), id, &mut call.keys)?;
            call = call.repeat_safe();
        }
        more.iter().for_each(|key| call.keys.push(key));
        let beat = PULSE.min(run.spec.state_ttl / 4).min(run.spec.stale_after / 4);
        for word in
            [millis(run.spec.state_ttl), KEEP_MS, millis(beat), if request_id.is_some() { 10 } else { 0 }]
        {
            call.args.push_int(word);
        }
        call.args.push_int(pulse.map_or(0, |_| 6 + own.len() as i64));
        own.iter().for_each(|word| call.args.push(word));
        if let Some(pulse) = pulse {
            self.push_pulse(pulse, &mut call)?;
        }
        Ok(call)
    }

    fn push_pulse(self, pulse: &Pulse, call: &mut Invocation) -> Result<()> {
        let Self { op, run, id, .. } = self;
        call.args.push(&pulse.hour);
        call.args.push_int(pulse.bucket.start_ms);
        call.args.push_int(pulse.bucket.end_ms);
        call.args.push(&pulse.keys);
        call.args.push(pulse.calls.map_or_else(String::new, |calls| calls.to_string()));
        if run.is_whole() {
            call.args.push_int(call.keys.len() as i64 + 1);
            keys::bind_index(op, &run.bound, &mut call.keys)?;
        } else {
            call.args.push_int(0);
        }
        match &pulse.counter {
            Some(counter) => {
                call.args.push_int(call.keys.len() as i64 + 1);
                counter.iter().for_each(|key| call.keys.push(key));
            }
            None => call.args.push_int(0),
        }
        call.args.push(id);
        Ok(())
    }
}

/// Repeated, it goes on with what it began.
pub(super) fn start(frame: Frame<'_>, fresh: bool, read: Option<usize>) -> Result<Invocation> {
    let mut own = Words::default();
    own.push(&frame.run.spec.id);
    own.push(frame.id);
    own.push_int(i64::from(fresh));
    own.push_int(read.map_or(-1, |length| length as i64));
    own.push_int(millis(frame.run.spec.stale_after));
    let call = frame.call(&scripts::RUN_START.script, &Words::default(), &own)?;
    // One that must be the first would find itself there.
    Ok(if fresh { call } else { call.repeat_safe() })
}

fn push_items(own: &mut Words, items: &[&str]) {
    own.push_int(items.len() as i64);
    let mut json = String::new();
    for item in items {
        json.clear();
        json::push_text(&mut json, item);
        own.push(item);
        // Most need no more than quotes.
        own.push(if json.len() == item.len() + 2 { "" } else { &json });
    }
}

/// The set makes it safe to be repeated: what is in it is not added again.
pub(super) fn adopt(frame: Frame<'_>, items: &[&str]) -> Result<Invocation> {
    let mut own = Words::default();
    own.push_int(super::MAX_LIST_BYTES as i64);
    push_items(&mut own, items);
    Ok(frame.call(&scripts::RUN_ADOPT.script, &Words::default(), &own)?.repeat_safe())
}

/// Safe to be repeated like [`adopt`]; without a `request_id` the repetition says that nothing was new.
pub(super) fn processed(frame: Frame<'_>, items: &[&str]) -> Result<Invocation> {
    let mut own = Words::default();
    own.push_int(super::MAX_LIST_BYTES as i64);
    own.push_int(super::MAX_PROCESSED as i64);
    push_items(&mut own, items);
    Ok(frame.call(&scripts::RUN_PROCESSED.script, &Words::default(), &own)?.repeat_safe())
}

/// Counts an attempt: sent again only with a `request_id`.
pub(super) fn failed(
    frame: Frame<'_>,
    item: &str,
    error: &str,
    cut: bool,
    now_us: i64,
) -> Result<Invocation> {
    let (mut own, mut more) = (Words::default(), Words::default());
    own.push(item);
    own.push(error);
    own.push_int(i64::from(cut));
    own.push_int(super::MAX_FAILURES as i64);
    if frame.run.is_whole() {
        own.push_int(frame.next_key());
        keys::bind(frame.op, &frame.run.bound, "failed", &[], now_us, &mut more)?;
    } else {
        own.push_int(0);
    }
    own.push_int(millis(frame.run.spec.hour_ttl));
    own.push_int(super::MAX_HOUR as i64);
    frame.call(&scripts::RUN_FAILED.script, &more, &own)
}

/// Ending twice is ending once.
pub(super) fn finish(frame: Frame<'_>, status: &str) -> Result<Invocation> {
    let mut own = Words::default();
    own.push(status);
    own.push_int(millis(frame.run.spec.stale_after));
    Ok(frame.call(&scripts::RUN_FINISH.script, &Words::default(), &own)?.repeat_safe())
}

pub(super) fn show(frame: Frame<'_>, render: bool) -> Result<Invocation> {
    let mut own = Words::default();
    own.push_int(millis(frame.run.spec.stale_after));
    own.push_int(i64::from(render));
    Ok(frame.call(&scripts::RUN_SHOW.script, &Words::default(), &own)?.repeat_safe())
}

pub(super) fn items(run: &Run, key: Key<'_>, from: u64, to: u64) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_ITEMS.script, Workload::Default).compound();
    keys::bind_of(SHOW, &run.bound, "list", key, &mut call.keys)?;
    call.args.push_int(i64::try_from(from).unwrap_or(i64::MAX));
    call.args.push_int(i64::try_from(to).unwrap_or(i64::MAX));
    Ok(call)
}

pub(super) fn remaining(run: &Run, key: Key<'_>, items: &[&str]) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_REMAINING.script, Workload::Default).compound();
    for role in ["state", "meta", "processed"] {
        keys::bind_of(REMAINING, &run.bound, role, key, &mut call.keys)?;
    }
    for item in items {
        call.args.push(item);
    }
    Ok(call)
}

pub(super) fn failures(
    run: &Run,
    key: Key<'_>,
    from_ms: i64,
    to_ms: Option<i64>,
    count: u64,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_FAILURES.script, Workload::Default).compound();
    for role in ["meta", "failures", "failed_at"] {
        keys::bind_of(FAILURES, &run.bound, role, key, &mut call.keys)?;
    }
    call.args.push_int(from_ms);
    call.args.push(to_ms.map_or_else(|| "+inf".to_owned(), |to| to.to_string()));
    call.args.push_int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(call)
}

pub(super) fn index(op: &'static str, run: &Run, id: &str, over: bool) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_INDEX.script, Workload::Default).repeat_safe();
    keys::bind_index(op, &run.bound, &mut call.keys)?;
    call.args.push(id);
    call.args.push_int(i64::from(over));
    Ok(call)
}

/// The id for a start that named none: the first that asks decides.
pub(super) fn name(run: &Run, request_id: &str, id: &str, taken: &str) -> Result<Invocation> {
    crate::bound::check_request_id(START, request_id)?;
    let mut call = Invocation::new(&scripts::RUN_NAME.script, Workload::Default).repeat_safe();
    keys::bind_of(START, &run.bound, "started", &[("request_id", request_id)], &mut call.keys)?;
    call.args.push(id);
    call.args.push(taken);
    call.args.push_int(KEEP_MS);
    Ok(call)
}

pub(super) fn update(frame: Frame<'_>, pairs: &[(&str, &str)]) -> Result<Invocation> {
    let mut own = Words::default();
    own.push_int(millis(frame.run.spec.stale_after));
    own.push_int(super::MAX_OWN_FIELDS as i64);
    own.push_int(pairs.len() as i64);
    for (name, value) in pairs {
        own.push(name);
        own.push(value);
    }
    frame.call(&scripts::RUN_UPDATE.script, &Words::default(), &own)
}

fn task(frame: Frame<'_>, script: &'static Script, task: &str, last: &str) -> Result<Invocation> {
    let (mut own, mut more) = (Words::default(), Words::default());
    own.push(task);
    own.push_int(frame.next_key());
    own.push(last);
    keys::bind_of(frame.op, &frame.run.bound, "task", &[frame.key(), ("task_id", task)], &mut more)?;
    frame.call(script, &more, &own)
}

/// Repeated while the task runs it answers the same.
pub(super) fn task_start(frame: Frame<'_>, id: &str) -> Result<Invocation> {
    task(frame, &scripts::RUN_TASK_START.script, id, &super::MAX_TASKS.to_string())
}

/// Ending twice is ending once.
pub(super) fn task_finish(frame: Frame<'_>, id: &str, given_us: Option<i64>) -> Result<Invocation> {
    let given = given_us.map_or_else(String::new, |us| us.to_string());
    Ok(task(frame, &scripts::RUN_TASK_FINISH.script, id, &given)?.repeat_safe())
}

/// Hands out: sent again only with a `request_id`.
pub(super) fn retry(frame: Frame<'_>, count: u64, lease: Duration) -> Result<Invocation> {
    let mut own = Words::default();
    own.push_int(i64::try_from(count).unwrap_or(i64::MAX));
    own.push_int(millis(lease));
    frame.call(&scripts::RUN_RETRY.script, &Words::default(), &own)
}

/// The hour's list of failures, where the run's own script cannot reach it.
pub(super) fn hour(run: &Run, item: &str, again: bool, now_us: i64) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_HOUR.script, Workload::Default);
    let bucket = keys::bind(FAILED, &run.bound, "failed", &[], now_us, &mut call.keys)?;
    call.args.push(item);
    call.args.push_int(bucket.map_or(0, |bucket| bucket.start_ms));
    call.args.push_int(bucket.map_or(0, |bucket| bucket.end_ms));
    call.args.push_int(millis(run.spec.hour_ttl));
    call.args.push_int(super::MAX_HOUR as i64);
    call.args.push_int(i64::from(again));
    Ok(call)
}

pub(super) fn list(
    op: &'static str,
    run: &Run,
    from: &str,
    since_ms: i64,
    skip: u64,
    count: u64,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_LIST.script, Workload::Default).compound();
    keys::bind_of(op, &run.bound, "runs", &[], &mut call.keys)?;
    call.args.push(from);
    call.args.push_int(since_ms);
    call.args.push_int(i64::try_from(skip).unwrap_or(i64::MAX));
    call.args.push_int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(call)
}

pub(super) fn due(run: &Run, count: usize) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_DUE.script, Workload::Default).compound().repeat_safe();
    keys::bind_index(SWEEP, &run.bound, &mut call.keys)?;
    call.args.push_int(millis(run.spec.stale_after));
    // The index may be behind a run's last activity by a pulse.
    call.args.push_int(millis(run.spec.state_ttl).saturating_add(60_000));
    call.args.push_int(count as i64);
    Ok(call)
}

pub(super) fn sweep(run: &Run, id: &str) -> Result<Invocation> {
    let frame = Frame { op: SWEEP, run, id, request_id: None, pulse: None };
    let (mut own, mut more) = (Words::default(), Words::default());
    own.push_int(millis(run.spec.stale_after));
    own.push(id);
    if run.is_whole() {
        own.push_int(frame.next_key());
        keys::bind_index(SWEEP, &run.bound, &mut more)?;
    } else {
        own.push_int(0);
    }
    Ok(frame.call(&scripts::RUN_SWEEP.script, &more, &own)?.repeat_safe())
}

pub(super) fn settle(
    op: &'static str,
    run: &Run,
    id: &str,
    seen_ms: i64,
    word: &str,
    active_ms: i64,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::RUN_SETTLE.script, Workload::Default).repeat_safe();
    keys::bind_index(op, &run.bound, &mut call.keys)?;
    call.args.push(id);
    call.args.push_int(seen_ms);
    call.args.push(word);
    call.args.push_int(active_ms);
    Ok(call)
}
