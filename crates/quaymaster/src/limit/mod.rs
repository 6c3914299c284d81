//! `limit`: count calls against a bound, across any number of nodes.
//!
//! | algorithm | key | accuracy |
//! |---|---|---|
//! | `fixed_window` | an integer string | exact within its window; up to 2 × limit across a boundary |
//! | `sliding_log` | a zset, one member per call | exact over every window of that length |
//! | `sliding_window` | a hash of two counters | calls of the window before count as evenly spread |
//! | `token_bucket` | one string (GCRA) | exact rate and burst, at microsecond resolution |
//!
//! A call is counted only if it may go ahead. The store's clock decides; a key whose name holds a time
//! bucket is rendered again when the store says that its time is another one.

mod answer;
mod log;
mod ops;
mod outage;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quaymaster_schema::{Algorithm, LimitSpec};

pub use answer::{Quota, Verdict};

use answer::{Told, verdict};
use ops::Asked;

pub(crate) use answer::{Raw, Word, increment};
pub(crate) use ops::Verb;
pub(crate) use outage::take_all as take_all_without_store;

use crate::bound::Bound;
pub use crate::bound::Key;
use crate::outage::is_outage;
use crate::scripts::{LimitArgs, limit_take_all, one_each};
use crate::{Code, Error, Result};

/// Highest cost of one call against a `sliding_log`, which writes a member per unit.
pub const SLIDING_LOG_MAX_COST: u64 = 10_000;

/// How often a key is rendered again because the store's time moved past its bucket.
pub(crate) const STALE_TRIES: usize = 4;

/// What a call costs and how a repetition of it is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge<'a> {
    /// Units to count; at least 1.
    pub cost: u64,
    /// The same id again within ten minutes gets the same answer and counts nothing.
    pub request_id: Option<&'a str>,
}

impl Default for Charge<'_> {
    fn default() -> Self {
        Self { cost: 1, request_id: None }
    }
}

impl<'a> Charge<'a> {
    /// One unit, without a request id.
    pub fn one() -> Self {
        Self::default()
    }

    /// `cost` units.
    pub fn of(cost: u64) -> Self {
        Self { cost, request_id: None }
    }

    /// The same, recognised when repeated; the engine may then send it again after a lost reply.
    pub fn request_id(mut self, id: &'a str) -> Self {
        self.request_id = Some(id);
        self
    }
}

/// Answers given so far by this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    allowed: AtomicU64,
    limited: AtomicU64,
    errors: AtomicU64,
    stale: AtomicU64,
}

impl Counts {
    /// Calls of `take` that passed.
    pub fn allowed(&self) -> u64 {
        self.allowed.load(Relaxed)
    }
    /// Calls of `take` that were refused.
    pub fn limited(&self) -> u64 {
        self.limited.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
    /// Keys rendered again because the store's time was another one.
    pub fn stale(&self) -> u64 {
        self.stale.load(Relaxed)
    }
}

/// A limit of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limit {
    pub(crate) bound: Bound,
    spec: LimitSpec,
    counts: Arc<Counts>,
    said: Arc<log::Said>,
}

impl Limit {
    pub(crate) fn new(bound: Bound, spec: LimitSpec) -> Self {
        Self { bound, spec, counts: Arc::default(), said: Arc::default() }
    }

    /// The limit's name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &LimitSpec {
        &self.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts a call if it may go ahead.
    pub async fn take(&self, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        let answer = self.run(Verb::Take, key, charge).await;
        match &answer {
            Ok(verdict) => self.note(verdict),
            Err(_) => {
                self.counts.errors.fetch_add(1, Relaxed);
            }
        }
        answer
    }

    /// What a call of cost 1 would be told; counts nothing.
    pub async fn peek(&self, key: Key<'_>) -> Result<Verdict> {
        self.run(Verb::Peek, key, Charge::one()).await
    }

    /// Peeks with the key of `now_us`, which moves to the store's time if the store is in another bucket.
    pub(crate) async fn peek_at(&self, key: Key<'_>, now_us: &mut i64) -> Result<Verdict> {
        self.run_at(Verb::Peek, key, Charge::one(), now_us).await
    }

    /// Gives units back, never below zero; the newest calls first.
    pub async fn refund(&self, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        self.run(Verb::Refund, key, charge).await
    }

    /// Forgets everything counted under this key (in its current bucket, if it has one).
    pub async fn reset(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Verdict> {
        self.run(Verb::Reset, key, Charge { cost: 1, request_id }).await
    }

    fn check_cost(&self, verb: Verb, op: &'static str, cost: u64) -> Result<()> {
        if cost == 0 {
            return Err(
                Error::new(op, Code::LimitCost, "cost must be an integer of at least 1, got 0").field("cost")
            );
        }
        // A take over the limit is refused before anything is written, whatever its size.
        let written = verb == Verb::Refund || cost <= self.spec.effective();
        if self.spec.algorithm == Algorithm::SlidingLog && cost > SLIDING_LOG_MAX_COST && written {
            let detail =
                format!("cost {cost}: a sliding_log counts at most {SLIDING_LOG_MAX_COST} units a call");
            return Err(Error::new(op, Code::ResourceMismatch, detail).field("cost"));
        }
        Ok(())
    }

    async fn run(&self, verb: Verb, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        self.run_at(verb, key, charge, &mut self.bound.engine.now_us()).await
    }

    async fn run_at(
        &self,
        verb: Verb,
        key: Key<'_>,
        charge: Charge<'_>,
        now_us: &mut i64,
    ) -> Result<Verdict> {
        self.check_cost(verb, verb.op(), charge.cost)?;
        // Boxed: what happens seldom must not make every call's future larger.
        let asked = if self.has_something_to_tell() {
            let outages = &self.bound.shared.outages;
            Box::pin(outages.in_one_deadline(verb.op(), self.ask(verb, key, charge, true, now_us))).await
        } else {
            self.ask(verb, key, charge, false, now_us).await
        };
        match asked {
            Err(error) if is_outage(error.code) => {
                Box::pin(self.without_store(verb, key, charge, error)).await
            }
            answer => answer,
        }
    }

    /// Asks the store; with `tell`, after it was told what this node counted under the key by itself.
    async fn ask(
        &self,
        verb: Verb,
        key: Key<'_>,
        charge: Charge<'_>,
        tell: bool,
        now_us: &mut i64,
    ) -> Result<Verdict> {
        let op = verb.op();
        for _ in 0..STALE_TRIES {
            let asked = Asked { bound: &self.bound, key, charge, now_us: *now_us };
            let mut call = ops::call(verb, &self.spec, asked)?;
            if tell {
                Box::pin(self.tell_store_first(op, &call.keys)).await?;
            }
            if charge.request_id.is_some() {
                call = call.repeat_safe();
            }
            let reply = self.bound.run(op, call).await?;
            match answer::told(verb, self.spec.algorithm, reply)? {
                Told::Answer(word, raw) => {
                    self.say_turn(*now_us);
                    return Ok(verdict(&self.spec, word, raw, charge.cost));
                }
                Told::Reset { reset_ms } => {
                    let fixed = self.spec.algorithm == Algorithm::FixedWindow;
                    let raw = Raw { x: 0, y: if fixed { reset_ms } else { 0 }, z: 0 };
                    return Ok(verdict(&self.spec, Word::Changed, raw, 1));
                }
                Told::Stale { now_ms } => {
                    self.counts.stale.fetch_add(1, Relaxed);
                    *now_us = now_ms * 1000;
                }
                Told::Malformed => return Err(self.malformed(op, key)),
                Told::Conflict => return Err(conflict(op)),
            }
        }
        Err(Error::new(op, Code::StoreClock, format!("the bucket changed {STALE_TRIES} times in a row")))
    }

    /// A word that tells one unit from all others, for a guard that counts it with others; empty where none is wanted.
    pub(crate) fn nonce(&self) -> String {
        ops::nonce_for(&self.spec)
    }

    /// One unit under a key that is rendered for `now_us`, told from others by what [`Self::nonce`] made.
    pub(crate) fn unit<'a>(&self, now_us: i64, nonce: &'a str) -> LimitArgs<'a> {
        ops::unit(&self.spec, 1, self.bound.bucket_ms(now_us), nonce)
    }

    /// What this limit said among others.
    pub(crate) fn read_unit(&self, op: &'static str, word: &[u8], numbers: [i64; 3]) -> Result<Verdict> {
        let (word, raw) = answer::among_others(op, word, numbers)?;
        Ok(verdict(&self.spec, word, raw, 1))
    }

    /// Counts the verdict of a take, alone or among others; the log tells of refused ones.
    pub(crate) fn note(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Allowed(quota) => {
                self.counts.allowed.fetch_add(1, Relaxed);
                self.say_allowed(quota);
            }
            Verdict::Limited { quota, retry_after } => {
                self.counts.limited.fetch_add(1, Relaxed);
                self.say_refused(quota, *retry_after);
            }
        }
    }

    pub(crate) fn malformed(&self, op: &'static str, key: Key<'_>) -> Error {
        let (held, key) = (self.bound.resource.keys[0].kind, self.bound.spelled(key));
        Error::new(
            op,
            Code::KeyMalformed,
            format!("{key}: the {held} holds no count of limit.{}", self.name()),
        )
    }
}

fn conflict(op: &'static str) -> Error {
    let detail = "request_id was already used for another verb on this limit";
    Error::new(op, Code::RequestReused, detail).field("request_id")
}

/// One of several limits to take in one step.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Which limit.
    pub limit: &'a Limit,
    /// Under which key.
    pub key: Key<'a>,
    /// Units to count.
    pub cost: u64,
}

/// Most limits in one [`take_all`].
pub const TAKE_ALL_MAX: usize = 16;

/// What several limits answer together.
#[must_use = "a limited call must not go ahead"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// Every limit let the call pass and counted it.
    Allowed(Vec<Quota>),
    /// At least one refused and none counted; what each would have said alone.
    Limited(Vec<Verdict>),
}

impl Together {
    /// Whether the call may go ahead.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Together::Allowed(_))
    }
}

/// Takes several limits in one step: all are counted when every one lets the call pass, else none is.
/// The answers come in the order of `parts`. On a cluster the keys must share a slot (`colocate`). A
/// repeated `request_id` (kept beside the first part's key) gets the same answer and counts nothing.
///
/// While the store cannot be asked every limit answers by its own policy, and every one must let the call pass.
pub async fn take_all(parts: &[Part<'_>], request_id: Option<&str>) -> Result<Together> {
    let asked = match parts.iter().find(|part| part.limit.has_something_to_tell()) {
        Some(part) => {
            let outages = &part.limit.bound.shared.outages;
            Box::pin(outages.in_one_deadline(TAKE_ALL, ask_all(parts, request_id, true))).await
        }
        None => ask_all(parts, request_id, false).await,
    };
    match asked {
        Err(error) if is_outage(error.code) => Box::pin(outage::take_all(parts, error)).await,
        answer => answer,
    }
}

const TAKE_ALL: &str = "limit.take_all";

async fn ask_all(parts: &[Part<'_>], request_id: Option<&str>, tell: bool) -> Result<Together> {
    const OP: &str = TAKE_ALL;
    let Some(first) = parts.first() else { return Ok(Together::Allowed(Vec::new())) };
    if parts.len() > TAKE_ALL_MAX {
        let detail = format!("{} limits in one call; the most is {TAKE_ALL_MAX}", parts.len());
        return Err(Error::new(OP, Code::RequestInvalid, detail));
    }
    let mut now_us = first.limit.bound.engine.now_us();
    for _ in 0..STALE_TRIES {
        for part in parts {
            part.limit.check_cost(Verb::Take, OP, part.cost)?;
        }
        let request = request_id.map(|id| first.limit.bound.request(first.key, id));
        let mut call = ops::take_all(OP, parts, request, now_us)?;
        let states: Vec<&[u8]> = call.keys.iter().take(parts.len()).collect();
        refuse_twice_the_same_key(&states)?;
        if tell {
            Box::pin(first.limit.bound.shared.outages.carry_keys(&states)).await?;
        }
        if request_id.is_some() {
            call = call.repeat_safe();
        }
        match limit_take_all::Reply::read(OP, first.limit.bound.run(OP, call).await?)? {
            limit_take_all::Reply::Stale { now_ms } => now_us = now_ms * 1000,
            limit_take_all::Reply::Malformed { limit } => {
                let index = usize::try_from(limit).unwrap_or(1).saturating_sub(1);
                let part = parts.get(index).unwrap_or(first);
                return Err(part.limit.malformed(OP, part.key));
            }
            limit_take_all::Reply::Conflict => return Err(conflict(OP)),
            limit_take_all::Reply::Allowed { verdicts } => {
                let verdicts = part_verdicts(parts, verdicts)?;
                for part in parts {
                    part.limit.counts.allowed.fetch_add(1, Relaxed);
                }
                return Ok(Together::Allowed(verdicts.into_iter().map(Verdict::into_quota).collect()));
            }
            limit_take_all::Reply::Limited { verdicts } => {
                let verdicts = part_verdicts(parts, verdicts)?;
                for (part, verdict) in parts.iter().zip(&verdicts).filter(|(_, said)| !said.is_allowed()) {
                    part.limit.note(verdict);
                }
                return Ok(Together::Limited(verdicts));
            }
        }
    }
    Err(Error::new(OP, Code::StoreClock, format!("a bucket changed {STALE_TRIES} times in a row")))
}

/// Two parts on one key would each be checked before either is counted, and pass together over the limit.
fn refuse_twice_the_same_key(states: &[&[u8]]) -> Result<()> {
    let mut seen = states.to_vec();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        let detail = "two parts name the same key: add their costs and name it once";
        return Err(Error::new("limit.take_all", Code::RequestInvalid, detail));
    }
    Ok(())
}

fn part_verdicts(parts: &[Part<'_>], told: Vec<limit_take_all::VerdictsRow>) -> Result<Vec<Verdict>> {
    let told = one_each(TAKE_ALL, told, parts.len())?;
    let answer = |(part, row): (&Part<'_>, limit_take_all::VerdictsRow)| {
        let (word, raw) = answer::among_others(TAKE_ALL, &row.word, [row.x, row.y, row.z])?;
        Ok(verdict(&part.limit.spec, word, raw, part.cost))
    };
    parts.iter().zip(told).map(answer).collect()
}
