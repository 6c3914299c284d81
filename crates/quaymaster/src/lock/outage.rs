//! A lock while the store cannot be asked: `allow` hands out leases that lock nothing, and says so.

use std::time::Duration;

use quaymaster_schema::Outage;

use super::answer;
use super::ops;
use super::{Lease, Lock, Released, Renewed};
use crate::bound::Key;
use crate::token::{Away, NO_PRINT};
use crate::{Error, Result, Token};

impl Lock {
    /// A lease of the policy's, although the store said `error`. Its fence comes from the store's clock as this node
    /// last knew it, like every fence: it lies above those handed out before.
    ///
    /// A lease that a policy gave out before keeps its fence; its `token` was proved by whoever asked the store.
    pub(crate) fn acquired_without_store(
        &self,
        key: Key<'_>,
        token: &Token,
        ttl: Duration,
        error: Error,
    ) -> Result<Lease> {
        let Some(policy) = self.bound.shared.outages.excuse(&self.bound.resource, &error) else {
            return Err(error);
        };
        let now_us = self.bound.engine.now_us();
        if let Some(Away { fence, .. }) = self.open_away(key, token) {
            return Ok(Lease {
                token: token.clone(),
                fence,
                expires_in: ttl,
                at_us: now_us,
                outage: Some(policy),
            });
        }
        let fence = u64::try_from(now_us).unwrap_or(0);
        let token = token.away(&[(&self.bound, key)], fence, NO_PRINT);
        Ok(Lease { token, fence, expires_in: ttl, at_us: now_us, outage: Some(policy) })
    }

    /// The answer to a release that the store could not be told of.
    pub(crate) fn released_without_store(&self, error: Error) -> Result<Released> {
        match self.bound.shared.outages.excuse(&self.bound.resource, &error) {
            Some(policy) => Ok(Released::Away(policy)),
            None => Err(error),
        }
    }

    /// What a policy of this lock gave out for `key`; `None` for everything else.
    fn open_away(&self, key: Key<'_>, token: &Token) -> Option<Away> {
        token.open_away(&self.bound, key).filter(|_| self.bound.resource.on_outage == Outage::Allow)
    }

    /// Begins a lease anew. One that a policy gave out becomes a real one under its fence, if nobody has had the
    /// lock since it was given out, and nobody waits for it.
    pub(super) async fn renew_in_store(&self, key: Key<'_>, token: &Token, ttl: Duration) -> Result<Renewed> {
        let (in_store, fence) = match self.open_away(key, token) {
            Some(away) => (away.token, away.fence),
            None if token.is_away() => return Ok(Renewed::Lost),
            None => (token.clone(), 0),
        };
        let call = ops::renew(&self.bound, &self.spec, key, &in_store, ttl, fence)?;
        answer::renewed(ops::RENEW, self.bound.run(ops::RENEW, call).await?, token)
    }

    /// Ends a lease that is in the store. One that a policy gave out may be there too.
    pub(super) async fn release_in_store(
        &self,
        key: Key<'_>,
        token: &Token,
        request_id: Option<&str>,
    ) -> Result<Released> {
        let in_store = match self.open_away(key, token) {
            Some(away) => away.token,
            None if token.is_away() => return Ok(Released::Lost),
            None => token.clone(),
        };
        let call = ops::release(&self.bound, &self.spec, key, &in_store, request_id)?;
        answer::released(ops::RELEASE, self.bound.run(ops::RELEASE, call).await?)
    }

    /// The token that the store may know a lease by.
    pub(super) fn in_store(&self, key: Key<'_>, token: &Token) -> Token {
        self.open_away(key, token).map_or_else(|| token.clone(), |away| away.token)
    }
}
