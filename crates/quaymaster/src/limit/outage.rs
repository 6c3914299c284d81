//! A limit while the store cannot be asked: let through, count here, count in SQL, or say so.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quaymaster_schema::Outage;
use quaymaster_store::Words;

use super::answer::{self, Told, verdict};
use super::ops::{self, Asked};
use super::{Charge, Key, Limit, Part, Quota, STALE_TRIES, Together, Verb, Verdict, Word};
use crate::outage::{Counting, Effect, Place};
use crate::{Code, Error, Result};

/// When to come again where only the store's return can help.
const COME_AGAIN: Duration = Duration::from_secs(1);

impl Limit {
    /// Whether this node counted something by itself that the store may not know. One look at a flag.
    pub(crate) fn has_something_to_tell(&self) -> bool {
        self.bound.resource.on_outage == Outage::Local && self.bound.shared.outages.local.is_waiting()
    }

    /// What this node counted under this key by itself goes before the call: the store must not let through what
    /// was used up already.
    pub(super) async fn tell_store_first(&self, op: &'static str, words: &Words) -> Result<()> {
        let key = words.word(0).unwrap_or_default();
        self.bound.shared.outages.carry_keys(&[key]).await.map_err(|error| error.during(op))
    }

    /// Answers by policy although the store said `error`, or tells the error.
    pub(super) async fn without_store(
        &self,
        verb: Verb,
        key: Key<'_>,
        charge: Charge<'_>,
        error: Error,
    ) -> Result<Verdict> {
        let (resource, outages) = (&self.bound.resource, &self.bound.shared.outages);
        // Forgetting what the store counted is nothing anybody else can do.
        if verb == Verb::Reset {
            return Err(error);
        }
        let Some(policy) = outages.policy(resource, &error) else { return Err(error) };
        let answer = match policy {
            Outage::Allow => self.uncounted(verb, key, charge),
            Outage::Local => self.locally(verb, key, charge).await,
            Outage::Database => self.in_database(verb, key, charge).await,
            _ => return Err(error),
        };
        match answer {
            Ok(verdict) => {
                outages.answered(resource, &error);
                Ok(verdict.under(policy))
            }
            Err(second) if second.code.is_store() => Err(Error {
                detail: format!(
                    "{}; and on_outage = \"{policy}\" cannot answer: {}",
                    error.detail, second.detail
                ),
                ..error
            }
            .because(second)),
            Err(second) => Err(second),
        }
    }

    /// Lets everything pass that could pass at all.
    fn uncounted(&self, verb: Verb, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        let op = verb.op();
        let now_us = self.bound.engine.now_us();
        let mut unread = Words::default();
        self.bound.bind(op, key, now_us, &mut unread)?;
        charge.request_id.map_or(Ok(()), |id| self.bound.bind_request(op, key, id, &mut unread))?;
        let limit = self.spec.effective();
        let quota = Quota { limit, used: 0, remaining: limit, reset_after: Duration::ZERO, outage: None };
        let cost = if verb == Verb::Take { charge.cost } else { 1 };
        Ok(if cost <= limit {
            Verdict::Allowed(quota)
        } else {
            Verdict::Limited { quota, retry_after: None }
        })
    }

    /// Where a call is counted: what is needed to count it in the store later.
    fn place(&self, op: &'static str, key: Key<'_>, words: &Words, bucket_ms: i64) -> Result<Place> {
        let mut request = Words::default();
        self.bound.bind_side(op, key, "req", &mut request)?;
        Ok(Place {
            limit: self.name().to_owned(),
            key: words.word(0).unwrap_or_default().to_vec(),
            request: request.word(0).unwrap_or_default().to_vec(),
            bucket_ms,
        })
    }

    /// This node's share, by the same scripts.
    async fn locally(&self, verb: Verb, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        let (op, outages) = (verb.op(), &self.bound.shared.outages);
        let share = outages.local.share(&self.spec);
        for _ in 0..STALE_TRIES {
            let now_us = self.bound.engine.now_us();
            let call = ops::call(verb, &share, Asked { bound: &self.bound, key, charge, now_us })?;
            let place = self.place(op, key, &call.keys, self.bound.bucket_ms(now_us).1)?;
            let read = |reply| {
                let told = answer::told(verb, share.algorithm, reply)?;
                let effect = match &told {
                    Told::Answer(Word::Allowed, raw) if verb == Verb::Take => {
                        Effect::Counted { units: charge.cost, reset_ms: raw.y }
                    }
                    Told::Answer(Word::Changed, _) => Effect::GivenBack { units: charge.cost },
                    _ => Effect::None,
                };
                Ok((told, effect))
            };
            let (told, waits_anew) = outages.local.run(&self.spec, place, now_us, call, read).await?;
            if waits_anew {
                outages.look_for_store();
            }
            match told {
                Told::Answer(word, raw) => {
                    return Ok(self.soon(verdict(&share, word, raw, charge.cost), charge.cost));
                }
                Told::Stale { .. } => {}
                Told::Conflict => return Err(super::conflict(op)),
                Told::Malformed | Told::Reset { .. } => return Err(self.malformed(op, key)),
            }
        }
        Err(Error::new(op, Code::StoreClock, format!("the bucket changed {STALE_TRIES} times in a row")))
    }

    /// A cost over the share is no cost over the limit: it can pass when the store is back.
    fn soon(&self, verdict: Verdict, cost: u64) -> Verdict {
        match verdict {
            Verdict::Limited { quota, retry_after: None } if cost <= self.spec.effective() => {
                Verdict::Limited { quota, retry_after: Some(COME_AGAIN) }
            }
            other => other,
        }
    }

    /// Shared with all nodes, in SQL.
    async fn in_database(&self, verb: Verb, key: Key<'_>, charge: Charge<'_>) -> Result<Verdict> {
        let (op, outages) = (verb.op(), &self.bound.shared.outages);
        let Some(database) = &outages.database else {
            return Err(Error::new(op, Code::StoreRefused, "no database is configured ([store] database)"));
        };
        let mut words = Words::default();
        self.bound.bind_side(op, key, "req", &mut words)?;
        if let Some(id) = charge.request_id {
            crate::bound::check_request_id(op, id)?;
        }
        let spell = |now_us: i64| {
            let mut words = Words::default();
            let bucket = self.bound.bind(op, key, now_us, &mut words)?;
            Ok((text(words.word(0)), bucket))
        };
        let request = text(words.word(0));
        let counting = Counting {
            op,
            verb,
            limit: self.name(),
            spec: &self.spec,
            units: charge.cost,
            request: &request,
            request_id: charge.request_id,
            spell: &spell,
        };
        let (word, raw, waits_anew) = database.count(&counting).await?;
        if waits_anew {
            outages.look_for_store();
        }
        Ok(verdict(&self.spec, word, raw, charge.cost))
    }
}

/// Keys are made of text.
fn text(word: Option<&[u8]>) -> String {
    String::from_utf8_lossy(word.unwrap_or_default()).into_owned()
}

/// Several limits while the store cannot be asked: each by its own policy, one after the other, and what was taken
/// is given back when a later one says no.
///
/// A repetition is not recognised: a part that was given back must not be remembered as taken.
pub(crate) async fn take_all(parts: &[Part<'_>], error: Error) -> Result<Together> {
    let mut quotas = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let answer =
            part.limit.without_store(Verb::Take, part.key, Charge::of(part.cost), error.clone()).await;
        if let Ok(Verdict::Allowed(quota)) = answer {
            quotas.push(quota);
            continue;
        }
        for part in &parts[..index] {
            // Whoever cannot give back has counted too much, never too little.
            let charge = Charge::of(part.cost);
            let _ = part.limit.without_store(Verb::Refund, part.key, charge, error.clone()).await;
        }
        let refused = answer?;
        return refused_by(parts, index, refused, &error).await.map(Together::Limited);
    }
    for part in parts {
        part.limit.counts.allowed.fetch_add(1, Relaxed);
    }
    Ok(Together::Allowed(quotas))
}

/// What each would say alone; the one that refused has said it.
async fn refused_by(
    parts: &[Part<'_>],
    index: usize,
    refused: Verdict,
    error: &Error,
) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        part.limit.counts.limited.fetch_add(1, Relaxed);
        verdicts.push(if at == index {
            refused.clone()
        } else {
            part.limit.without_store(Verb::Peek, part.key, Charge::of(part.cost), error.clone()).await?
        });
    }
    Ok(verdicts)
}
