//! A lock while the store cannot be asked: `allow` hands out leases that lock nothing, and says so.

use std::time::Duration;

use super::answer::{self, Told};
use super::ops::{self, Queue};
use super::{Lease, Lock, Released, Renewed};
use crate::bound::Key;
use crate::{Error, Result, Token};

impl Lock {
    /// A lease of the policy's, although the store said `error`. Its fence comes from the store's clock as this node
    /// last knew it, like every fence: it lies above those handed out before.
    pub(crate) fn acquired_without_store(&self, token: &Token, ttl: Duration, error: Error) -> Result<Lease> {
        let Some(policy) = self.bound.shared.outages.excuse(&self.bound.resource, &error) else {
            return Err(error);
        };
        let now_us = self.bound.engine.now_us();
        let fence = token.away_fence().unwrap_or_else(|| u64::try_from(now_us).unwrap_or(0));
        let token = token.away(fence);
        Ok(Lease { token, fence, expires_in: ttl, at_us: now_us, outage: Some(policy) })
    }

    /// The answer to a release that the store could not be told of.
    pub(crate) fn released_without_store(&self, error: Error) -> Result<Released> {
        match self.bound.shared.outages.excuse(&self.bound.resource, &error) {
            Some(policy) => Ok(Released::Away(policy)),
            None => Err(error),
        }
    }

    /// Begins a lease anew. One that a policy gave out becomes a real one, if nobody else has the lock by now.
    pub(super) async fn renew_in_store(&self, key: Key<'_>, token: &Token, ttl: Duration) -> Result<Renewed> {
        if token.away_fence().is_none() {
            let call = ops::renew(&self.bound, &self.spec, key, token, ttl)?;
            return answer::renewed(ops::RENEW, self.bound.run(ops::RENEW, call).await?, token);
        }
        let call = ops::acquire(&self.bound, &self.spec, key, token, ttl, Queue::No)?;
        match answer::acquired(ops::RENEW, self.bound.run(ops::RENEW, call).await?, token)? {
            Told::Ours(lease) => Ok(Renewed::Ours(lease)),
            Told::Held { .. } => Ok(Renewed::Lost),
        }
    }
}
