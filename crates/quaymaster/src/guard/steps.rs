//! Entering step by step, and giving back what was taken when a later step says no.
//!
//! There is one step where the parts may share a script. Where there are more (a cluster, parts without a common
//! `colocate`), a process that dies between two of them leaves the claim until it expires, the lock until its
//! lease ends, and the counted units until their window has passed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::answer::{self, Told};
use super::ops::{self, Asked, ENTER, Units};
use super::{Entered, Guard, Pass, Step};
use crate::limit::{Quota, STALE_TRIES, Verdict};
use crate::outage::is_outage;
use crate::{Code, Error, Result};

/// A step that was entered.
struct Taken<'s> {
    step: &'s Step,
    units: Units,
    at_ms: i64,
}

pub(super) async fn enter(
    guard: &Guard,
    mut asked: Asked<'_>,
    fingerprint: Option<&[u8]>,
) -> Result<Entered> {
    let steps = guard.plan.steps(guard.bound.engine.topology());
    let mut verdicts: Vec<Option<Verdict>> = guard.limits.iter().map(|_| None).collect();
    let mut taken: Vec<Taken<'_>> = Vec::new();
    let mut pass = Pass {
        token: asked.token.clone(),
        fence: None,
        lock_expires_in: None,
        claim_expires_in: None,
        quotas: Vec::new(),
        outage: None,
    };
    for step in steps {
        let (told, units) = match enter_step(guard, step, &mut asked, fingerprint).await {
            Ok(told) => told,
            Err(error) => {
                // Whether it ran is not known; its claim and lease, if there are any, are the token's.
                give_back(guard, &asked, taken).await;
                if steps.len() > 1 && (step.record || step.lock) {
                    undo(guard, &asked, step, None).await;
                }
                return Err(error);
            }
        };
        match told {
            Told::Entered { again, fence, claim, at_ms, verdicts: said } => {
                asked.known |= again;
                if step.record {
                    pass.claim_expires_in = Some(claim);
                }
                if step.lock {
                    (pass.fence, pass.lock_expires_in) = (Some(fence), Some(asked.lock_ttl));
                }
                place(step, said, &mut verdicts);
                taken.push(Taken { step, units, at_ms });
            }
            Told::Limited(said) => {
                let ahead = !step.lock && !taken.iter().any(|taken| taken.step.lock);
                give_back(guard, &asked, taken).await;
                // A held lock is told before a full limit, also when its step was still to come.
                if ahead && let Some(call) = ops::look(guard, &asked)? {
                    match guard.bound.run(ENTER, call).await {
                        Ok(reply) => {
                            if let Some(retry_after) = answer::looked(ENTER, reply)? {
                                return Ok(Entered::Held { retry_after });
                            }
                        }
                        // What is known stays known: a limit refused, and no policy lets the call past it.
                        Err(error) if is_outage(error.code) => {}
                        Err(error) => return Err(error),
                    }
                }
                verdicts.fill(None);
                place(step, said, &mut verdicts);
                return limited(guard, &asked, verdicts).await;
            }
            no => {
                give_back(guard, &asked, taken).await;
                return refused(guard, &asked, step, no).await;
            }
        }
    }
    let said: Vec<Verdict> = verdicts.into_iter().flatten().collect();
    for (limit, verdict) in guard.limits.iter().zip(&said) {
        limit.note(verdict);
    }
    pass.quotas = said.into_iter().map(Verdict::into_quota).collect();
    Ok(Entered::Entered(pass))
}

/// One step, with buckets rendered again while the store's time is another one.
async fn enter_step(
    guard: &Guard,
    step: &Step,
    asked: &mut Asked<'_>,
    fingerprint: Option<&[u8]>,
) -> Result<(Told, Units)> {
    let mut now_us = guard.bound.engine.now_us();
    let mut other_keys_tried = false;
    for _ in 0..=STALE_TRIES {
        let units = Units::new(guard, step, now_us);
        let call = ops::enter(guard, step, asked, &units)?;
        let reply = guard.bound.run(ENTER, call).await?;
        let limits = step.limits.iter().map(|place| &guard.limits[*place]);
        match answer::entered(ENTER, reply, limits)? {
            Told::Stale { now_ms } => {
                guard.counts.stale.fetch_add(1, Relaxed);
                now_us = now_ms * 1000;
            }
            // The record's fingerprint may have been made with a seal key that has been changed since.
            Told::Mismatch { kept } if !other_keys_tried => {
                let part = guard.idempotency.as_ref();
                let Some(print) = part.and_then(|part| part.fingerprint_as(fingerprint, &kept)) else {
                    return Ok((Told::Mismatch { kept }, units));
                };
                other_keys_tried = true;
                asked.print = print;
            }
            told => return Ok((told, units)),
        }
    }
    Err(Error::new(ENTER, Code::StoreClock, format!("a bucket changed {STALE_TRIES} times in a row")))
}

async fn refused(guard: &Guard, asked: &Asked<'_>, step: &Step, no: Told) -> Result<Entered> {
    match (no, &guard.idempotency) {
        (Told::InProgress(retry_after), _) => Ok(Entered::InProgress { retry_after }),
        (Told::Held(retry_after), _) => Ok(Entered::Held { retry_after }),
        (Told::Mismatch { .. }, _) => Ok(Entered::Mismatch),
        (Told::Finished { encoding, bytes }, Some(part)) => {
            Ok(Entered::Finished(part.unpack(ENTER, &asked.key.record, &encoding, bytes).await?))
        }
        (Told::Malformed(Some(place)), _) => {
            let part = |place: &usize| Some((guard.limits.get(*place)?, asked.key.limits.get(*place)?));
            match step.limits.get(place).and_then(part) {
                Some((limit, key)) => Err(limit.malformed(ENTER, key)),
                None => {
                    Err(Error::new(ENTER, Code::StoreReply, "a limit was told malformed that is not there"))
                }
            }
        }
        (Told::Malformed(None), _) => Err(guard.malformed(ENTER, &asked.key.record)),
        (other, _) => Err(Error::new(ENTER, Code::StoreReply, format!("unexpected {other:?}"))),
    }
}

fn place(step: &Step, said: Vec<Verdict>, verdicts: &mut [Option<Verdict>]) {
    for (place, verdict) in step.limits.iter().zip(said) {
        verdicts[*place] = Some(verdict);
    }
}

/// What every limit says; those that the refusing step did not have are asked.
async fn limited(guard: &Guard, asked: &Asked<'_>, verdicts: Vec<Option<Verdict>>) -> Result<Entered> {
    let mut all = Vec::with_capacity(verdicts.len());
    for (place, verdict) in verdicts.into_iter().enumerate() {
        let limit = &guard.limits[place];
        match verdict {
            Some(verdict) => {
                if !verdict.is_allowed() {
                    limit.note(&verdict);
                }
                all.push(verdict);
            }
            None => match limit.peek(&asked.key.limits[place]).await {
                // The refusal is known. How this one stands is not, and it says so.
                Err(error) if is_outage(error.code) => {
                    let (most, policy) = (limit.spec().effective(), limit.bound.resource.on_outage);
                    all.push(Verdict::Allowed(Quota {
                        limit: most,
                        used: 0,
                        remaining: most,
                        reset_after: Duration::ZERO,
                        outage: Some(policy),
                    }));
                }
                said => all.push(said?),
            },
        }
    }
    Ok(Entered::Limited(all))
}

/// Gives back what was taken, the last first.
async fn give_back(guard: &Guard, asked: &Asked<'_>, taken: Vec<Taken<'_>>) {
    for Taken { step, units, at_ms } in taken.into_iter().rev() {
        undo(guard, asked, step, Some((&units, at_ms))).await;
    }
}

/// `counted` are the units that were counted, and when.
async fn undo(guard: &Guard, asked: &Asked<'_>, step: &Step, counted: Option<(&Units, i64)>) {
    let back = match ops::back(guard, step, asked, counted) {
        Ok(call) => guard.bound.run(ENTER, call).await.and_then(|reply| answer::back(ENTER, reply)),
        Err(error) => Err(error),
    };
    match back {
        Ok(()) => guard.counts.given_back.fetch_add(1, Relaxed),
        Err(error) => {
            tracing::warn!(
                guard = guard.name(),
                code = error.code.name(),
                "what a step took could not be given back; its leases end by themselves: {}",
                error.detail
            );
            guard.counts.not_given_back.fetch_add(1, Relaxed)
        }
    };
}
