//! `run`: the state of a pipeline's run, whatever number of workers it has.
//!
//! The documented hash is what other programs read; the truth lies beside it. What is processed is a set, so that
//! adding an item costs the same in a run of a million and telling of it twice changes nothing; the hash's list is
//! rendered from it. The calls of the hour are the limit's own counter. What failed is listed with its error and its
//! attempts until it is processed. A run that gives no sign of life is stale, not running for ever.

mod answer;
mod keys;
mod list;
mod ops;
mod pulse;
mod steps;
mod sweep;
#[cfg(test)]
mod tests;
mod unclaimed;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use quaymaster_schema::{RunSpec, is_longer};
use quaymaster_store::{Invocation, Reply};

pub use answer::{
    Failed, Failure, Outcome, Processed, RunState, Started, Swept, Task, TaskFinished, TaskStarted,
};
pub use list::ItemList;
pub use steps::{Fields, MAX_FIELDS, MAX_OWN_FIELDS, MAX_VALUE_CHARS};
pub use walk::{FailuresAsk, FailuresPage, LEASE_MAX, PAGE_MAX, RetryAsk, RunsPage};

use crate::bound::Bound;
use crate::limit::{Limit, STALE_TRIES};
use crate::scripts::{run_adopt, run_hour, run_index, run_items, run_name, run_remaining};
use crate::wrote::in_steps;
use crate::{Code, Error, Result};
use answer::{Begun, Changed, Said};
use ops::Frame;

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/runs.md")]
struct Page;

/// The longest item.
pub const MAX_ITEM_CHARS: usize = 512;

/// The most items of one call.
pub const MAX_ITEMS: usize = 1000;

/// The longest text of the documented list; items beyond it are counted, not listed.
pub const MAX_LIST_BYTES: usize = 32 << 20;

/// The most items a run may process.
pub const MAX_PROCESSED: usize = 20_000_000;

/// The most failures a run may list.
pub const MAX_FAILURES: usize = 100_000;

/// The longest error that is kept; the rest is cut.
pub const MAX_ERROR_BYTES: usize = 4096;

/// The most ids an hour's list holds; the oldest leave.
pub const MAX_HOUR: usize = 100_000;

/// The most tasks of a run.
pub const MAX_TASKS: usize = 100_000;

/// The longest status.
pub const MAX_STATUS_CHARS: usize = 64;

/// The longest time of its own that a run may be kept for.
pub const MAX_KEPT: Duration = Duration::from_secs(3660 * 86_400);

/// Pieces of the list read at once: a mebibyte.
const PIECES: u64 = 64;

/// Questions on the way at once.
const AT_ONCE: usize = 8;

/// How often a call is made again because of the hour, a pulse that was wanted, or a run that was adopted.
const TRIES: usize = STALE_TRIES + 4;

/// Whether a run is shown with what it has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// With the list; the documented field is rendered too.
    With,
    /// Without it: the cost does not depend on how much the run has processed.
    Without,
}

/// How a run is begun, or gone on with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartAsk<'a> {
    /// Its id; made from the moment when there is none.
    pub run_id: Option<&'a str>,
    /// How long it is kept after its last sign of life; what its start before said, or the schema, when not given.
    pub kept: Option<Duration>,
    /// The same id again within ten minutes gets the same run.
    pub request_id: Option<&'a str>,
}

/// What happened so far in this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    started: AtomicU64,
    resumed: AtomicU64,
    finished: AtomicU64,
    processed: AtomicU64,
    failed: AtomicU64,
    errors: AtomicU64,
    stale: AtomicU64,
    known: AtomicU64,
    at_work: AtomicU64,
}

impl Counts {
    /// Runs begun.
    pub fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }
    /// Runs gone on with.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Relaxed)
    }
    /// Runs finished.
    pub fn finished(&self) -> u64 {
        self.finished.load(Relaxed)
    }
    /// Items that were new when they were told to be processed.
    pub fn processed(&self) -> u64 {
        self.processed.load(Relaxed)
    }
    /// Failures listed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
    /// Runs that this process found to give no sign of life.
    pub fn stale(&self) -> u64 {
        self.stale.load(Relaxed)
    }
    /// Runs that are known, as of the last sweep of this process.
    pub fn known(&self) -> u64 {
        self.known.load(Relaxed)
    }
    /// Runs at work, as of the last sweep of this process.
    pub fn at_work(&self) -> u64 {
        self.at_work.load(Relaxed)
    }
}

/// A run of the schema on a store: all its runs, by their ids. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Run {
    bound: Bound,
    spec: RunSpec,
    /// The limit whose calls it counts.
    limit: Option<Limit>,
    counts: Arc<Counts>,
}

impl Run {
    pub(crate) fn new(bound: Bound, spec: RunSpec, limit: Option<Limit>) -> Self {
        Self { bound, spec, limit, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Begins the run `id`, or one whose id is made up; goes on with one that there is.
    pub async fn start(&self, id: Option<&str>, request_id: Option<&str>) -> Result<Started> {
        self.start_as(StartAsk { run_id: id, request_id, ..StartAsk::default() }).await
    }

    /// The same for a run that may be kept for a time of its own.
    pub async fn start_as(&self, ask: StartAsk<'_>) -> Result<Started> {
        if let Err(error) = self.check_kept(ask.kept) {
            return self.noted(Err(error));
        }
        let started = match ask.run_id {
            Some(id) => in_steps(self.begin(id, ask, false)).await,
            None => in_steps(self.begin_fresh(ask)).await,
        };
        match started {
            Ok(Some(started)) => {
                match started.outcome {
                    Outcome::Started => &self.counts.started,
                    Outcome::Resumed => &self.counts.resumed,
                }
                .fetch_add(1, Relaxed);
                Ok(started)
            }
            Ok(None) => self.noted(Err(Error::new(ops::START, Code::StoreClock, "no free id was found"))),
            Err(error) => self.noted(Err(error)),
        }
    }

    /// Starts a run under an id of the moment; `None` when every moment tried was taken.
    async fn begin_fresh(&self, ask: StartAsk<'_>) -> Result<Option<Started>> {
        const OP: &str = ops::START;
        let mut taken = String::new();
        for try_number in 0..64 {
            // Another one may have begun in the very microsecond.
            let mut id = fresh_id(self.bound.engine.now_us() + try_number);
            if let Some(request_id) = ask.request_id {
                let call = ops::name(self, request_id, &id, &taken)?;
                let run_name::Reply::Named { id: named } =
                    run_name::Reply::read(OP, self.bound.run(OP, call).await?)?;
                id = answer::text(&named);
            }
            if let Some(started) = self.begin(&id, ask, true).await? {
                return Ok(Some(started));
            }
            taken = id;
        }
        Ok(None)
    }

    fn check_kept(&self, kept: Option<Duration>) -> Result<()> {
        let Some(kept) = kept else { return Ok(()) };
        let stale = self.spec.stale_after;
        if kept > MAX_KEPT || kept.is_zero() {
            let detail = format!("a run is kept for up to {} days", MAX_KEPT.as_secs() / 86_400);
            return Err(Error::new(ops::START, Code::RequestInvalid, detail).field("ttl_hours"));
        }
        if kept <= stale {
            let detail = format!("it would expire before it is stale, after {} s", stale.as_secs());
            return Err(Error::new(ops::START, Code::ResourceMismatch, detail).field("ttl_hours"));
        }
        Ok(())
    }

    /// `None` when it was to be a new one and there is one.
    async fn begin(&self, id: &str, ask: StartAsk<'_>, fresh: bool) -> Result<Option<Started>> {
        const OP: &str = ops::START;
        let mut read = None;
        for _ in 0..TRIES {
            let build = |frame: Frame<'_>, _| ops::start(frame, fresh, read, ask.kept);
            let told = self.ask(OP, id, ask.request_id, true, build, answer::begun).await?.0;
            let (outcome, view) = match told {
                Begun::There(outcome, view) => (outcome, view),
                Begun::Exists => return Ok(None),
                Begun::Foreign(list) => {
                    read = Some(self.adopt(OP, id, &list).await?);
                    continue;
                }
            };
            let run = answer::view(view, id)?;
            // A new run is kept as long as the schema says, whatever was said of one before it.
            let keep = ask.kept.or_else(|| (outcome == Outcome::Started).then_some(Duration::ZERO));
            self.index(OP, id, run.over, keep).await?;
            return Ok(Some(Started { outcome, run }));
        }
        Err(Error::new(
            OP,
            Code::StoreContended,
            format!("the list of run {id:?} changed {TRIES} times in a row"),
        ))
    }

    /// Ends the run with a status of the caller's, such as `completed` or `failed`. It is final: what workers still tell
    /// is counted, and only a start reopens it.
    pub async fn finish(&self, id: &str, status: &str, request_id: Option<&str>) -> Result<RunState> {
        let finished = in_steps(self.end(id, status, request_id)).await;
        if finished.is_ok() {
            self.counts.finished.fetch_add(1, Relaxed);
        }
        self.noted(finished)
    }

    async fn end(&self, id: &str, status: &str, request_id: Option<&str>) -> Result<RunState> {
        const OP: &str = ops::FINISH;
        check_status(OP, status)?;
        let build = |frame: Frame<'_>, _| ops::finish(frame, status);
        match self.ask(OP, id, request_id, true, build, answer::finished).await?.0 {
            Changed::Done(view) => {
                let run = answer::view(view, id)?;
                self.index(OP, id, true, None).await?;
                Ok(run)
            }
            Changed::Ended(status) => Err(ended(OP, id, &status)),
        }
    }

    /// The run as it is; `None` when there is none.
    pub async fn show(&self, id: &str, items: Items) -> Result<Option<RunState>> {
        let shown = match self.look(id, items).await {
            Err(error) if error.code == Code::RunMissing => Ok(None),
            other => other.map(Some),
        };
        self.noted(shown)
    }

    async fn look(&self, id: &str, items: Items) -> Result<RunState> {
        const OP: &str = ops::SHOW;
        let build = |frame: Frame<'_>, _| ops::show(frame, items == Items::With);
        let (view, _) = self.ask(OP, id, None, true, build, answer::shown).await?;
        let mut run = answer::view(view, id)?;
        if items == Items::With {
            self.load_items(&mut run).await?;
        }
        Ok(run)
    }

    /// Reads what the run has processed, in pages that no store is kept busy by.
    pub async fn load_items(&self, run: &mut RunState) -> Result<()> {
        const OP: &str = ops::SHOW;
        let wanted = usize::try_from(run.bytes).unwrap_or(usize::MAX);
        let mut text: Vec<u8> = Vec::with_capacity(wanted.min(MAX_LIST_BYTES));
        let mut from = 0;
        while text.len() < wanted {
            let call = ops::items(self, &[(&self.spec.id, &run.run_id)], from, from + PIECES - 1)?;
            let told = self.bound.run(OP, call).await?;
            let run_items::Reply::Items { pieces } = run_items::Reply::read(OP, told)?;
            let before = text.len();
            for piece in &pieces {
                text.extend_from_slice(piece);
            }
            if text.len() == before {
                return Err(missing(OP, &run.run_id));
            }
            from += PIECES;
        }
        // What came since is not of this answer.
        text.truncate(wanted);
        run.items = Some(ItemList::of(&text));
        Ok(())
    }

    /// Notes items as processed, a thousand at most; each is counted once, and is no failure any more.
    pub async fn processed(&self, id: &str, items: &[&str], request_id: Option<&str>) -> Result<Processed> {
        let told = in_steps(self.note_processed(id, items, request_id)).await;
        if let Ok(told) = &told {
            self.counts.processed.fetch_add(told.added, Relaxed);
        }
        self.noted(told)
    }

    async fn note_processed(&self, id: &str, items: &[&str], request_id: Option<&str>) -> Result<Processed> {
        const OP: &str = ops::PROCESSED;
        check_items(OP, items)?;
        let build = |frame: Frame<'_>, _| ops::processed(frame, items);
        let ((counts, beat), pulsed) = self.ask(OP, id, request_id, false, build, answer::processed).await?;
        self.beat(OP, id, pulsed, beat).await;
        Ok(counts)
    }

    /// Notes that an item failed, and why; it stays listed until it is processed.
    pub async fn failed(
        &self,
        id: &str,
        item: &str,
        error: Option<&str>,
        request_id: Option<&str>,
    ) -> Result<Failed> {
        let told = in_steps(self.note_failed(id, item, error.unwrap_or_default(), request_id)).await;
        if let Ok(told) = &told {
            self.counts.failed.fetch_add(u64::from(told.listed), Relaxed);
        }
        self.noted(told)
    }

    async fn note_failed(
        &self,
        id: &str,
        item: &str,
        error: &str,
        request_id: Option<&str>,
    ) -> Result<Failed> {
        const OP: &str = ops::FAILED;
        check_items(OP, &[item])?;
        let kept = cut(error, MAX_ERROR_BYTES);
        let build =
            |frame: Frame<'_>, now_us| ops::failed(frame, item, kept, kept.len() < error.len(), now_us);
        let ((counts, beat, again), _) = self.ask(OP, id, request_id, true, build, answer::failed).await?;
        if counts.listed && !self.is_whole() {
            self.note_hour(id, item, again).await;
        }
        self.beat(OP, id, counts.listed, beat).await;
        Ok(counts)
    }

    /// Puts an item into the hour's list, where the run's own script cannot. It is a view: what keeps the item out of it
    /// takes it from nobody who asks for failures.
    async fn note_hour(&self, id: &str, item: &str, again: bool) {
        let mut now_us = self.bound.engine.now_us();
        for _ in 0..STALE_TRIES {
            let told = async {
                let told = self.bound.run(ops::FAILED, ops::hour(self, item, again, now_us)?).await?;
                Ok(match run_hour::Reply::read(ops::FAILED, told)? {
                    run_hour::Reply::Listed => None,
                    run_hour::Reply::Stale { now_ms } => Some(now_ms),
                    run_hour::Reply::Malformed { key } => {
                        return Err(answer::malformed(ops::FAILED, &key));
                    }
                })
            };
            let told: Result<Option<i64>> = told.await;
            match told {
                Ok(Some(now_ms)) => now_us = now_ms * 1000,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(run = self.name(), id, item, %error, "the hour's list lacks a failure");
                    return;
                }
            }
        }
    }

    /// Those of `items` that the run has not processed, in their order.
    pub async fn remaining(&self, id: &str, items: &[&str]) -> Result<Vec<String>> {
        let told = self.ask_remaining(id, items).await;
        self.noted(told)
    }

    async fn ask_remaining(&self, id: &str, items: &[&str]) -> Result<Vec<String>> {
        const OP: &str = ops::REMAINING;
        // Without items no script runs, and the id must be a good one all the same.
        ops::remaining(self, &[(&self.spec.id, id)], &[]).map(drop)?;
        for chunk in items.chunks(MAX_ITEMS) {
            check_items(OP, chunk)?;
        }
        let chunks: Vec<_> = items.chunks(MAX_ITEMS).map(|chunk| self.left_of(id, chunk).boxed()).collect();
        stream::iter(chunks).buffered(AT_ONCE).try_concat().await
    }

    async fn left_of(&self, id: &str, items: &[&str]) -> Result<Vec<String>> {
        const OP: &str = ops::REMAINING;
        for _ in 0..TRIES {
            let call = ops::remaining(self, &[(&self.spec.id, id)], items)?;
            let indexes = match run_remaining::Reply::read(OP, self.bound.run(OP, call).await?)? {
                run_remaining::Reply::Remaining { indexes } => indexes,
                run_remaining::Reply::Missing => return Err(missing(OP, id)),
                run_remaining::Reply::Foreign => {
                    self.resume(id).await?;
                    continue;
                }
            };
            let item =
                |index: i64| items.get(usize::try_from(index - 1).ok()?).map(|item| (*item).to_owned());
            return Ok(indexes.into_iter().filter_map(item).collect());
        }
        Err(Error::new(OP, Code::StoreContended, format!("run {id:?} could not be adopted")))
    }

    /// Runs a run's script until it has an answer: again in another hour, with a pulse, or once the run is ours. Tells
    /// whether the answer came with a pulse.
    async fn ask<T>(
        &self,
        op: &'static str,
        id: &str,
        request_id: Option<&str>,
        pulse: bool,
        build: impl Fn(Frame<'_>, i64) -> Result<Invocation>,
        read: fn(&'static str, Reply) -> Result<Said<T>>,
    ) -> Result<(T, bool)> {
        let (mut now_us, mut pulsed) = (self.bound.engine.now_us(), pulse);
        for _ in 0..TRIES {
            let pulse = if pulsed { Some(self.pulse(op, id, now_us).await?) } else { None };
            let frame = Frame { op, run: self, id, request_id, pulse: pulse.as_ref() };
            match read(op, self.bound.run(op, build(frame, now_us)?).await?)? {
                Said::Answer(answer) => return Ok((answer, pulsed)),
                Said::Stale { now_ms } => now_us = now_ms * 1000,
                Said::Pulse => pulsed = true,
                Said::Foreign => self.resume(id).await?,
                Said::Missing => return Err(missing(op, id)),
                Said::Malformed { key } => return Err(answer::malformed(op, &key)),
                Said::Full => {
                    return Err(Error::new(
                        op,
                        Code::RunFull,
                        format!("run {id:?} holds the most a run may"),
                    ));
                }
                Said::Conflict => {
                    let detail = "request_id was already used for another verb on this run";
                    return Err(Error::new(op, Code::RequestReused, detail).field("request_id"));
                }
            }
        }
        Err(Error::new(op, Code::StoreClock, format!("run {id:?} was another one {TRIES} times in a row")))
    }

    /// Goes on with a run that another program began, or whose hash it has removed.
    async fn resume(&self, id: &str) -> Result<()> {
        Box::pin(self.begin(id, StartAsk::default(), false)).await.map(drop)
    }

    /// Takes over what another program lists as processed; answers the length of that text.
    async fn adopt(&self, op: &'static str, id: &str, text: &Bytes) -> Result<usize> {
        let malformed = || {
            let own = [(&*self.spec.id, id)];
            let state = keys::own(op, &self.bound, &own);
            let state = match state.and_then(|own| keys::text(op, &self.bound, own.state)) {
                Ok(state) => state,
                Err(error) => return error,
            };
            let list = &self.spec.processed_field;
            let detail = format!("`{list}` of {state} is no list of items, and would be overwritten");
            Error::new(op, Code::KeyMalformed, detail)
        };
        let items = std::str::from_utf8(text).ok().and_then(list::foreign).ok_or_else(malformed)?;
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        for chunk in items.chunks(MAX_ITEMS) {
            check_items(op, chunk).map_err(|_| malformed())?;
            let frame = Frame { op, run: self, id, request_id: None, pulse: None };
            match run_adopt::Reply::read(op, self.bound.run(op, ops::adopt(frame, chunk)?).await?)? {
                run_adopt::Reply::Adopted { .. } | run_adopt::Reply::Begun => {}
                run_adopt::Reply::Malformed { key } => return Err(answer::malformed(op, &key)),
            }
        }
        Ok(text.len())
    }

    /// Says where runs are looked up that this one is active, where the run's own script cannot.
    async fn index(&self, op: &'static str, id: &str, over: bool, keep: Option<Duration>) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        let told = self.bound.run(op, ops::index(op, self, id, over, keep)?).await?;
        run_index::Reply::read(op, told).map(drop)
    }

    /// The same behind a call that is done already: what it did must not look undone.
    async fn beat(&self, op: &'static str, id: &str, pulsed: bool, beat: i64) {
        if pulsed && let Err(error) = self.index(op, id, beat == 2, None).await {
            tracing::warn!(run = self.name(), id, %error, "the index of runs is behind");
        }
    }

    fn noted<T>(&self, told: Result<T>) -> Result<T> {
        if told.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        told
    }
}

/// `manual_2026-11-16T06:22:01.123456+00:00`.
fn fresh_id(us: i64) -> String {
    format!("manual_{}+00:00", crate::moment::document_text(us))
}

/// A moment of an answer: RFC 3339 in UTC, with microseconds.
pub fn moment(us: i64) -> String {
    crate::moment::document_text(us) + "Z"
}

/// The text up to so many bytes, and no half of a character.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn missing(op: &'static str, id: &str) -> Error {
    Error::new(op, Code::RunMissing, format!("there is no run {id:?}"))
}

fn ended(op: &'static str, id: &str, status: &Bytes) -> Error {
    let detail = format!("run {id:?} is finished: {:?}", answer::text(status));
    Error::new(op, Code::RunFinished, detail)
}

fn check_items(op: &'static str, items: &[&str]) -> Result<()> {
    if items.is_empty() || items.len() > MAX_ITEMS {
        let detail = format!("items: 1 to {MAX_ITEMS}, got {}", items.len());
        return Err(Error::new(op, Code::RequestInvalid, detail).field("items"));
    }
    match items.iter().find(|item| item.is_empty() || is_longer(item, MAX_ITEM_CHARS)) {
        Some(item) => {
            let detail =
                format!("an item has 1 to {MAX_ITEM_CHARS} characters, got {}", item.chars().count());
            Err(Error::new(op, Code::RequestInvalid, detail))
        }
        None => Ok(()),
    }
}

fn check_status(op: &'static str, status: &str) -> Result<()> {
    let sound = !status.trim().is_empty()
        && !is_longer(status, MAX_STATUS_CHARS)
        && !status.contains(char::is_control);
    if !sound {
        let detail = format!("status: 1 to {MAX_STATUS_CHARS} characters of text");
        return Err(Error::new(op, Code::RequestInvalid, detail).field("status"));
    }
    if status == "stale" {
        let detail = "status: a run becomes `stale` by itself";
        return Err(Error::new(op, Code::RunField, detail).field("status"));
    }
    Ok(())
}
