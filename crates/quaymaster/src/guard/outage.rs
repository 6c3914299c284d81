//! A guard while the store cannot be asked: every part answers by its own policy, and every part must permit.

use std::time::Duration;

use quaymaster_schema::Outage;

use super::keys::{self, PartKeys};
use super::ops::ENTER;
use super::{Entered, Guard, Leave, Left, Pass, Settled};
use crate::bound::{Bound, Key};
use crate::idempotency::{Abandoned, Finished};
use crate::limit::{self, Part, Together};
use crate::lock::Released;
use crate::{Error, Result, Token};

/// Enters every part by its policy, or takes nothing.
pub(super) async fn enter(
    guard: &Guard,
    key: Key<'_>,
    token: &Token,
    lock_ttl: Duration,
    print: &str,
    error: Error,
) -> Result<Entered> {
    let keys = keys::split(ENTER, guard, key)?;
    let bounds = (guard.idempotency.iter().map(|part| &part.bound))
        .chain(guard.lock.iter().map(|part| &part.bound))
        .chain(guard.limits.iter().map(|part| &part.bound));
    let policies: Vec<Option<Outage>> =
        bounds.map(|part| part.shared.outages.policy(&part.resource, &error)).collect();
    // Nothing is counted for a guard that one part will refuse anyway.
    if policies.iter().any(Option::is_none) {
        return Err(error);
    }
    let parts: Vec<Part<'_>> =
        (guard.limits.iter().zip(&keys.limits)).map(|(limit, key)| Part { limit, key, cost: 1 }).collect();
    let quotas = match limit::take_all_without_store(&parts, error.clone()).await? {
        Together::Allowed(quotas) => quotas,
        Together::Limited(verdicts) => return Ok(Entered::Limited(verdicts)),
    };
    let lease = match &guard.lock {
        Some(lock) => Some(lock.acquired_without_store(&keys.lock, token, lock_ttl, error.clone())?),
        None => None,
    };
    let claim = match &guard.idempotency {
        Some(part) => Some(part.begun_without_store(&keys.record, token, print, error.clone())?),
        None => None,
    };
    // One token stands for the guard, the claim and the lease, as it does in the store.
    let mut places: Vec<(&Bound, Key<'_>)> = vec![(&guard.bound, key)];
    places.extend(guard.idempotency.iter().map(|part| (&part.bound, keys.record.as_slice())));
    places.extend(guard.lock.iter().map(|part| (&part.bound, keys.lock.as_slice())));
    Ok(Entered::Entered(Pass {
        token: token.away(&places, lease.as_ref().map_or(0, |lease| lease.fence), print),
        fence: lease.as_ref().map(|lease| lease.fence),
        lock_expires_in: lease.map(|lease| lease.expires_in),
        claim_expires_in: claim.map(|claim| claim.expires_in),
        quotas,
        outage: policies.into_iter().flatten().next(),
    }))
}

/// Leaves what a policy let in: the store hears of it now, if it can.
pub(super) async fn leave(
    guard: &Guard,
    key: Key<'_>,
    keys: &PartKeys<'_>,
    token: &Token,
    leave: Leave<'_>,
) -> Result<Left> {
    let mut all = Left { idempotency: None, lock: None, outage: None };
    let mut leased =
        (guard.idempotency.iter().map(|part| &part.bound)).chain(guard.lock.iter().map(|part| &part.bound));
    let away = match token.open_away(&guard.bound, key) {
        Some(away) if leased.all(|part| part.resource.on_outage == Outage::Allow) => away,
        _ => {
            all.idempotency = guard.idempotency.as_ref().map(|_| Settled::Lost);
            all.lock = guard.lock.as_ref().map(|_| Released::Lost);
            return Ok(all);
        }
    };
    if let Some(part) = &guard.idempotency {
        let ended = if leave.abandon {
            part.abandon_once(&keys.record, &away.token, None).await.map(settled_abandon)
        } else {
            part.finish_away(&keys.record, &away, leave.response).await.map(settled_finish)
        };
        match ended {
            Ok(settled) => all.idempotency = Some(settled),
            Err(error) => return left(guard, all, leave, error),
        }
    }
    if let Some(lock) = &guard.lock {
        let released = lock.release(&keys.lock, &away.token, None).await?;
        if let Released::Away(policy) = released {
            all.outage = Some(policy);
        }
        all.lock = Some(released);
    }
    Ok(all)
}

/// Parts that the store could not be told of end by their policies; `all` holds those that it was told of.
pub(super) fn left(guard: &Guard, mut all: Left, leave: Leave<'_>, error: Error) -> Result<Left> {
    if let (Some(part), None) = (&guard.idempotency, all.idempotency) {
        let settled = if leave.abandon {
            settled_abandon(part.abandoned_without_store(error.clone())?)
        } else {
            settled_finish(part.finished_without_store(error.clone())?)
        };
        all.idempotency = Some(settled);
        all.outage = Some(part.bound.resource.on_outage);
    }
    if let (Some(lock), None) = (&guard.lock, all.lock) {
        all.lock = Some(lock.released_without_store(error)?);
        all.outage = Some(lock.bound.resource.on_outage);
    }
    Ok(all)
}

fn settled_finish(answer: Finished) -> Settled {
    match answer {
        Finished::Finished { kept, .. } => Settled::Finished { kept },
        Finished::Lost => Settled::Lost,
    }
}

fn settled_abandon(answer: Abandoned) -> Settled {
    match answer {
        Abandoned::Abandoned | Abandoned::Away(_) => Settled::Abandoned,
        Abandoned::Lost => Settled::Lost,
    }
}
