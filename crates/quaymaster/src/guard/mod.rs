//! `guard`: the limits, the idempotency and the lock it names, entered together, all or none.
//!
//! `enter` claims the record, takes the lock and counts the limits in one script, or takes nothing and says which
//! part said no: mismatch, finished or in progress, held, limited, in this order. `leave` finishes or abandons
//! the claim and gives the lock back, in one script too. One token stands for both.
//!
//! A key of a guard is the union of its parts' placeholders. On a cluster, parts that do not share a hash tag
//! (`colocate`) are entered one after the other, and given back when a later one says no.

mod answer;
mod counts;
mod keys;
mod ops;
mod outage;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use answer::Leaving;
pub use answer::{Entered, Left, Pass, Settled};
pub use counts::Counts;

use keys::{Plan, Step};
use ops::{ENTER, End, LEAVE};

use quaymaster_store::Words;

use crate::bound::{Bound, Key, check_request_id, unspellable};
use crate::idempotency::Idempotency;
use crate::limit::Limit;
use crate::lock::Lock;
use crate::outage::is_outage;
use crate::wrote::in_steps;
use crate::{Code, Error, Result, Token};

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guards.md")]
struct Page;

/// How a guard is entered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enter<'a> {
    /// What the request is: another one under the same key is a mismatch. Only a digest is kept.
    pub fingerprint: Option<&'a [u8]>,
    /// The lock's lease; at most its declared `ttl`, which it is when not given.
    pub ttl: Option<Duration>,
    /// The same id again finds its own claim and lease, and counts nothing while it has them.
    pub request_id: Option<&'a str>,
}

/// How a guard is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leave<'a> {
    /// What the operation answered, for those who ask again.
    pub response: Option<&'a [u8]>,
    /// The operation did not take effect: the next one may enter at once.
    pub abandon: bool,
    /// The same id again within ten minutes gets the same answer.
    pub request_id: Option<&'a str>,
}

/// A guard of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Guard {
    bound: Bound,
    limits: Vec<Limit>,
    idempotency: Option<Idempotency>,
    lock: Option<Lock>,
    /// Every placeholder of every part.
    names: Arc<[String]>,
    plan: Arc<Plan>,
    counts: Arc<Counts>,
}

impl Guard {
    pub(crate) fn new(
        bound: Bound,
        limits: Vec<Limit>,
        idempotency: Option<Idempotency>,
        lock: Option<Lock>,
    ) -> Self {
        let parts = (idempotency.iter().map(|part| &part.bound))
            .chain(lock.iter().map(|part| &part.bound))
            .chain(limits.iter().map(|part| &part.bound));
        let mut names: Vec<String> = Vec::new();
        for name in parts.flat_map(|part| part.pattern().placeholders()) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let tag = |part: &Bound| part.resource.tag_text().unwrap_or_default();
        let tags: Vec<String> = limits.iter().map(|part| tag(&part.bound)).collect();
        let plan = Plan::new(
            idempotency.as_ref().map(|part| tag(&part.bound)).as_deref(),
            lock.as_ref().map(|part| tag(&part.bound)).as_deref(),
            &tags,
        );
        let (names, plan) = (names.into(), Arc::new(plan));
        Self { bound, limits, idempotency, lock, names, plan, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// The limits it takes.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The idempotency it begins.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        self.idempotency.as_ref()
    }

    /// The lock it acquires.
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// The placeholders of all its parts: what a key must give.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Enters every part, or none and says which one said no.
    pub async fn enter(&self, key: Key<'_>, enter: Enter<'_>) -> Result<Entered> {
        let answer = match self.asked(key, enter) {
            Ok(asked) => in_steps(self.enter_by_policy(key, asked, enter.fingerprint)).await,
            Err(error) => Err(error),
        };
        self.counts.note_enter(&answer);
        answer
    }

    /// Finishes or abandons the claim and gives the lock back, each if it is still ours.
    pub async fn leave(&self, key: Key<'_>, token: &Token, leave: Leave<'_>) -> Result<Left> {
        let answer = in_steps(self.leave_once(key, token, leave)).await;
        self.counts.note_leave(&answer);
        answer
    }

    async fn enter_by_policy(
        &self,
        key: Key<'_>,
        asked: ops::Asked<'_>,
        fingerprint: Option<&[u8]>,
    ) -> Result<Entered> {
        let (token, lock_ttl, print) = (asked.token.clone(), asked.lock_ttl, asked.print.clone());
        // Boxed: what happens seldom must not make every call's future larger.
        let entered = if self.limits.iter().any(Limit::has_something_to_tell) {
            Box::pin(self.tell_and_enter(asked, fingerprint)).await
        } else {
            steps::enter(self, asked, fingerprint).await
        };
        match entered {
            Err(error) if is_outage(error.code) => {
                Box::pin(outage::enter(self, key, &token, lock_ttl, &print, error)).await
            }
            answer => answer,
        }
    }

    /// Enters after the store was told what this node counted under the limits' keys by itself.
    async fn tell_and_enter(&self, asked: ops::Asked<'_>, fingerprint: Option<&[u8]>) -> Result<Entered> {
        let outages = &self.bound.shared.outages;
        let now_us = self.bound.engine.now_us();
        let mut words = Words::default();
        for (limit, key) in self.limits.iter().zip(&asked.key.limits) {
            limit.bound.bind(ENTER, key, now_us, &mut words)?;
        }
        let keys: Vec<&[u8]> = words.iter().collect();
        let tell = async { outages.carry_keys(&keys).await.map_err(|error| error.during(ENTER)) };
        if self.plan.steps(self.bound.engine.topology()).len() > 1 {
            // Left between two steps, nobody would give back what the first of them took.
            outages.in_one_deadline(ENTER, tell).await?;
            return steps::enter(self, asked, fingerprint).await;
        }
        let tell_and_enter = async {
            tell.await?;
            steps::enter(self, asked, fingerprint).await
        };
        outages.in_one_deadline(ENTER, tell_and_enter).await
    }

    async fn leave_once(&self, key: Key<'_>, token: &Token, leave: Leave<'_>) -> Result<Left> {
        let parts = keys::split(LEAVE, self, key)?;
        // Nothing is given back to limits; their values are told wrong all the same.
        for (part, values) in self.limits.iter().zip(&parts.limits) {
            for (name, value) in values {
                part.bound.pattern().check(name, value).map_err(|error| unspellable(LEAVE, error))?;
            }
        }
        self.refuse_meaningless("response", leave.response.is_some(), LEAVE)?;
        self.refuse_meaningless("abandon", leave.abandon, LEAVE)?;
        if leave.abandon && leave.response.is_some() {
            let detail = "response: an operation that is abandoned has none";
            return Err(Error::new(LEAVE, Code::RequestInvalid, detail).field("response"));
        }
        if token.is_away() {
            return Box::pin(outage::leave(self, key, &parts, token, leave)).await;
        }
        let request = self.derived(LEAVE, key, leave.request_id)?;
        let end = match &self.idempotency {
            Some(part) if !leave.abandon => {
                End::Finish(part.pack(LEAVE, &parts.record, leave.response).await?)
            }
            _ => End::Abandon,
        };
        let kept = matches!(&end, End::Finish(packed) if packed.is_kept());
        let mut all = Left { idempotency: None, lock: None, outage: None };
        // A record that cannot be ended is told after the lock was released, also where that is another step.
        let mut refused = None;
        for step in self.plan.steps(self.bound.engine.topology()) {
            if !step.record && !step.lock {
                continue;
            }
            let call = ops::leave(self, step, &parts, token, &end, request.as_ref())?;
            let reply = match self.bound.run(LEAVE, call).await {
                Err(error) if is_outage(error.code) && refused.is_none() => {
                    return outage::left(self, all, leave, error);
                }
                reply => reply?,
            };
            match answer::left(LEAVE, reply)? {
                Leaving::Left(left, held) => {
                    all.idempotency = all.idempotency.or(left.idempotency);
                    all.lock = all.lock.or(left.lock);
                    if let (Some(Settled::Finished { .. }), Some(part)) =
                        (left.idempotency, &self.idempotency)
                    {
                        let kept = kept && part.is_held(LEAVE, &parts.record, leave.response, held).await;
                        all.idempotency = Some(Settled::Finished { kept });
                    }
                }
                // The lock was given back all the same.
                Leaving::Malformed => {
                    refused = Some(self.malformed(LEAVE, &parts.record).ran(self.lock.is_some()));
                }
                Leaving::Conflict => {
                    let detail =
                        "request_id: already used to leave another lease, or to leave this one otherwise";
                    refused =
                        refused.or(Some(Error::new(LEAVE, Code::RequestReused, detail).field("request_id")));
                }
            }
        }
        refused.map_or(Ok(all), Err)
    }

    fn asked<'k>(&self, key: Key<'k>, enter: Enter<'_>) -> Result<ops::Asked<'k>> {
        let parts = keys::split(ENTER, self, key)?;
        self.refuse_meaningless("fingerprint", enter.fingerprint.is_some(), ENTER)?;
        let lock_ttl = match (&self.lock, enter.ttl) {
            (Some(lock), asked) => lock.ttl(ENTER, asked)?,
            (None, None) => Duration::ZERO,
            (None, Some(_)) => {
                let detail = format!("ttl_ms: guard.{} has no lock", self.name());
                return Err(Error::new(ENTER, Code::RequestInvalid, detail).field("ttl_ms"));
            }
        };
        let token = self.derived(ENTER, key, enter.request_id)?;
        let repeated = token.is_some();
        let print = self.idempotency.as_ref().map(|part| part.fingerprint(enter.fingerprint));
        Ok(ops::Asked {
            key: parts,
            token: token.unwrap_or_else(Token::random),
            print: print.unwrap_or_else(|| "-".to_owned()),
            lock_ttl,
            repeated,
            known: self.idempotency.is_none() && self.lock.is_none(),
        })
    }

    /// What every repetition of `request_id` on this key derives.
    fn derived(&self, op: &'static str, key: Key<'_>, request_id: Option<&str>) -> Result<Option<Token>> {
        let Some(id) = request_id else { return Ok(None) };
        check_request_id(op, id)?;
        let mut values = key.to_vec();
        values.sort_unstable();
        let mut parts: Vec<&[u8]> = vec![op.as_bytes(), self.name().as_bytes(), id.as_bytes()];
        parts.extend(values.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        Ok(Some(Token::derived(&parts)))
    }

    fn refuse_meaningless(&self, field: &'static str, given: bool, op: &'static str) -> Result<()> {
        if given && self.idempotency.is_none() {
            let detail = format!("{field}: guard.{} has no idempotency", self.name());
            return Err(Error::new(op, Code::ResourceMismatch, detail).field(field));
        }
        Ok(())
    }

    fn malformed(&self, op: &'static str, record: Key<'_>) -> Error {
        match &self.idempotency {
            Some(part) => part.malformed(op, record),
            None => Error::new(op, Code::StoreReply, "a record was told malformed where there is none"),
        }
    }
}
