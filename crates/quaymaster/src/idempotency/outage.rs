//! An idempotency while the store cannot be asked: `allow` lets operations run that may have run before.

use super::{Abandoned, Claim, Finished, Idempotency};
use crate::{Error, Result, Token};

impl Idempotency {
    /// A claim of the policy's, although the store said `error`.
    pub(crate) fn begun_without_store(&self, token: &Token, error: Error) -> Result<Claim> {
        let Some(policy) = self.bound.shared.outages.excuse(&self.bound.resource, &error) else {
            return Err(error);
        };
        Ok(Claim { token: token.away(0), expires_in: self.spec.in_progress_ttl, outage: Some(policy) })
    }

    /// The answer to a finish that the store could not be told of: nothing is kept, and nobody will be told.
    pub(crate) fn finished_without_store(&self, error: Error) -> Result<Finished> {
        match self.bound.shared.outages.excuse(&self.bound.resource, &error) {
            Some(policy) => Ok(Finished::Finished { kept: false, outage: Some(policy) }),
            None => Err(error),
        }
    }

    /// The answer to an abandon that the store could not be told of.
    pub(crate) fn abandoned_without_store(&self, error: Error) -> Result<Abandoned> {
        match self.bound.shared.outages.excuse(&self.bound.resource, &error) {
            Some(policy) => Ok(Abandoned::Away(policy)),
            None => Err(error),
        }
    }
}
