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
mod keys;
mod ops;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quaymaster_schema::{Algorithm, LimitSpec, Resource};
use quaymaster_store::{Engine, Reply, Words};

pub use answer::{Quota, Verdict};

use answer::{Raw, Word, verdict};
use ops::Verb;

use crate::{Code, Error, Result};

/// Values of a pattern's placeholders, by name.
pub type Key<'a> = &'a [(&'a str, &'a str)];

/// Highest cost of one call against a `sliding_log`, which writes a member per unit.
pub const SLIDING_LOG_MAX_COST: u64 = 10_000;

/// How often a key is rendered again because the store's time moved past its bucket.
const STALE_TRIES: usize = 4;

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
    engine: Arc<dyn Engine>,
    resource: Arc<Resource>,
    spec: LimitSpec,
    counts: Arc<Counts>,
}

impl Limit {
    pub(crate) fn new(engine: Arc<dyn Engine>, resource: Arc<Resource>, spec: LimitSpec) -> Self {
        Self { engine, resource, spec, counts: Arc::default() }
    }

    /// The limit's name in the schema.
    pub fn name(&self) -> &str {
        &self.resource.name
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
            Ok(Verdict::Allowed(_)) => self.counts.allowed.fetch_add(1, Relaxed),
            Ok(Verdict::Limited { .. }) => self.counts.limited.fetch_add(1, Relaxed),
            Err(_) => self.counts.errors.fetch_add(1, Relaxed),
        };
        answer
    }

    /// What a call of cost 1 would be told; counts nothing.
    pub async fn peek(&self, key: Key<'_>) -> Result<Verdict> {
        self.run(Verb::Peek, key, Charge::one()).await
    }

    /// Gives units back, never below zero; the newest calls first.
    pub async fn refund(&self, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        self.run(Verb::Refund, key, charge).await
    }

    /// Forgets everything counted under this key (in its current bucket, if it has one).
    pub async fn reset(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Verdict> {
        self.run(Verb::Reset, key, Charge { cost: 1, request_id }).await
    }

    fn check_cost(&self, op: &'static str, cost: u64) -> Result<()> {
        if cost == 0 {
            return Err(Error::new(op, Code::LimitCost, "cost must be an integer of at least 1, got 0"));
        }
        if self.spec.algorithm == Algorithm::SlidingLog
            && cost > SLIDING_LOG_MAX_COST
            && cost <= self.spec.effective()
        {
            let detail = format!("cost {cost}: a sliding_log counts at most {SLIDING_LOG_MAX_COST} units a call");
            return Err(Error::new(op, Code::LimitCost, detail));
        }
        Ok(())
    }

    async fn run(&self, verb: Verb, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        let op = verb.op();
        self.check_cost(op, charge.cost)?;
        let pattern = &self.resource.keys[0].pattern;
        let mut now_us = self.engine.now_us();
        for _ in 0..STALE_TRIES {
            let mut words = Words::default();
            let topology = self.engine.topology();
            let bucket = keys::bind(op, pattern, key, charge.request_id, now_us, topology, &mut words)?;
            let mut call = ops::call(verb, &self.spec, charge.cost, bucket, words);
            if charge.request_id.is_some() {
                call = call.repeat_safe();
            }
            let reply = self.engine.run(call).await.map_err(|error| error.during(op))?;
            match decode(op, reply)? {
                Told::Answer(word, raw) => return Ok(verdict(&self.spec, word, raw, charge.cost)),
                Told::Reset { now_ms } => {
                    // A repeated call is told the first one's moment: the bucket is that moment's, whatever
                    // this node's clock says.
                    let moment_us = now_ms.saturating_mul(1000);
                    let bucket = match bucket {
                        Some(_) => keys::bind(op, pattern, key, None, moment_us, topology, &mut Words::default())?,
                        None => None,
                    };
                    return Ok(verdict(&self.spec, Word::Changed, self.after_reset(now_ms, bucket), 1));
                }
                Told::Stale { now_ms } => {
                    self.counts.stale.fetch_add(1, Relaxed);
                    now_us = now_ms * 1000;
                }
                Told::Malformed => return Err(self.malformed(op)),
                Told::Conflict => {
                    let detail = "request_id was already used for another verb on this limit";
                    return Err(Error::new(op, Code::RequestInvalid, detail));
                }
            }
        }
        Err(Error::new(op, Code::StoreClock, format!("the bucket changed {STALE_TRIES} times in a row")))
    }

    fn malformed(&self, op: &'static str) -> Error {
        let held = self.resource.keys[0].kind;
        Error::new(op, Code::KeyMalformed, format!("limit.{}: the {held:?} holds no count of ours", self.name()))
    }

    /// A limit that was just reset, in the numbers its algorithm would answer.
    fn after_reset(&self, now_ms: i64, bucket: Option<quaymaster_schema::Bucket>) -> Raw {
        let window_ms = answer::millis(self.spec.window);
        let now = u64::try_from(now_ms).unwrap_or(0);
        let left = match bucket {
            Some(bucket) => u64::try_from(bucket.end_ms - now_ms).unwrap_or(0),
            None => window_ms - now % window_ms.max(1),
        };
        match self.spec.algorithm {
            Algorithm::FixedWindow => Raw { x: 0, y: left, z: 0 },
            Algorithm::SlidingWindow => Raw { x: 0, y: 0, z: window_ms - left },
            Algorithm::SlidingLog | Algorithm::TokenBucket => Raw { x: 0, y: 0, z: 0 },
        }
    }
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

/// Takes several limits in one step: all are counted when every one lets the call pass, else none is.
/// The answers come in the order of `parts`. On a cluster the keys must share a slot (`colocate`).
pub async fn take_all(parts: &[Part<'_>]) -> Result<Vec<Verdict>> {
    const OP: &str = "limit.take_all";
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    if parts.len() > TAKE_ALL_MAX {
        let detail = format!("{} limits in one call; the most is {TAKE_ALL_MAX}", parts.len());
        return Err(Error::new(OP, Code::RequestInvalid, detail));
    }
    let engine = &first.limit.engine;
    let mut now_us = engine.now_us();
    for _ in 0..STALE_TRIES {
        let (mut words, mut args) = (Words::default(), Words::default());
        for part in parts {
            part.limit.check_cost(OP, part.cost)?;
            let pattern = &part.limit.resource.keys[0].pattern;
            let bucket = keys::bind(OP, pattern, part.key, None, now_us, engine.topology(), &mut words)?;
            ops::push_block(&mut args, &part.limit.spec, part.cost, bucket);
        }
        refuse_twice_the_same_key(&words)?;
        let reply = engine.run(ops::take_all(words, args)).await.map_err(|error| error.during(OP))?;
        let mut told = reply.parts(OP)?;
        match &told.bytes()?[..] {
            b"stale" => now_us = told.int()? * 1000,
            b"malformed" => {
                let index = usize::try_from(told.int()?).unwrap_or(1).saturating_sub(1);
                return Err(parts.get(index).unwrap_or(first).limit.malformed(OP));
            }
            _ => return parts.iter().map(|part| part_verdict(part, told.any())).collect(),
        }
    }
    Err(Error::new(OP, Code::StoreClock, format!("a bucket changed {STALE_TRIES} times in a row")))
}

/// Two parts on one key would each be checked before either is counted, and pass together over the limit.
fn refuse_twice_the_same_key(words: &Words) -> Result<()> {
    let mut seen: Vec<&[u8]> = words.iter().collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        let detail = "two parts name the same key: add their costs and name it once";
        return Err(Error::new("limit.take_all", Code::RequestInvalid, detail));
    }
    Ok(())
}

fn part_verdict(part: &Part<'_>, reply: Option<Reply>) -> Result<Verdict> {
    let reply = reply.unwrap_or(Reply::Nil);
    match decode("limit.take_all", reply)? {
        Told::Answer(word, raw) => Ok(verdict(&part.limit.spec, word, raw, part.cost)),
        other => Err(Error::new("limit.take_all", Code::StoreProtocol, format!("unexpected {other:?}"))),
    }
}

#[derive(Debug)]
enum Told {
    Answer(Word, Raw),
    Reset { now_ms: i64 },
    Stale { now_ms: i64 },
    Malformed,
    Conflict,
}

fn decode(op: &'static str, reply: Reply) -> Result<Told> {
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    let word = match &word[..] {
        b"allowed" => Word::Allowed,
        b"limited" => Word::Limited,
        b"refunded" => Word::Changed,
        b"reset" => return Ok(Told::Reset { now_ms: parts.int()? }),
        b"stale" => return Ok(Told::Stale { now_ms: parts.int()? }),
        b"malformed" => return Ok(Told::Malformed),
        b"conflict" => return Ok(Told::Conflict),
        other => {
            let detail = format!("unknown status {:?}", String::from_utf8_lossy(other));
            return Err(Error::new(op, Code::StoreProtocol, detail));
        }
    };
    let mut next = || parts.int().map(|value| u64::try_from(value).unwrap_or(0));
    Ok(Told::Answer(word, Raw { x: next()?, y: next()?, z: next()? }))
}
