//! An idempotency while the store cannot be asked: `allow` lets operations run that may have run before.

use quaymaster_schema::Outage;

use super::answer::{self, Told};
use super::{Abandoned, BEGIN, Claim, Finished, Idempotency, ops};
use crate::bound::Key;
use crate::token::Away;
use crate::{Error, Result, Token};

impl Idempotency {
    /// A claim of the policy's, although the store said `error`. The request's fingerprint goes with the token.
    pub(crate) fn begun_without_store(
        &self,
        key: Key<'_>,
        token: &Token,
        print: &str,
        error: Error,
    ) -> Result<Claim> {
        let Some(policy) = self.bound.shared.outages.excuse(&self.bound.resource, &error) else {
            return Err(error);
        };
        let token = token.away(&[(&self.bound, key)], 0, print);
        Ok(Claim { token, expires_in: self.spec.in_progress_ttl, outage: Some(policy) })
    }

    /// What a policy of this idempotency gave out for `key`; `None` for everything else.
    pub(super) fn open_away(&self, key: Key<'_>, token: &Token) -> Option<Away> {
        token.open_away(&self.bound, key).filter(|_| self.bound.resource.on_outage == Outage::Allow)
    }

    /// Finishes a claim that a policy gave out. It may be in the store, or be finished there already; where it is
    /// not, it is made now under its fingerprint, unless somebody else was here.
    pub(crate) async fn finish_away(
        &self,
        key: Key<'_>,
        away: &Away,
        response: Option<&[u8]>,
    ) -> Result<Finished> {
        let told = self.finish_in_store(key, &away.token, response).await?;
        if told != Finished::Lost {
            return Ok(told);
        }
        let call = ops::begin(&self.bound, key, &away.token, &away.print, self.spec.in_progress_ttl)?;
        match answer::begun(BEGIN, self.bound.run(BEGIN, call).await?)? {
            Told::Started(_) => self.finish_in_store(key, &away.token, response).await,
            Told::Malformed => Err(self.malformed(BEGIN, key)),
            Told::InProgress(_) | Told::Finished { .. } | Told::Mismatch { .. } => Ok(Finished::Lost),
        }
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
