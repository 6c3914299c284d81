//! `idempotency`: an operation runs once per key, and everybody who asks for it gets the same answer.
//!
//! `begin` claims the operation or says why not; `finish` keeps its answer, `abandon` gives the claim back. A claim
//! has an expiry of its own and a token, compared in the script: a holder that was paused past its deadline
//! writes nothing. The fingerprint of the request stays in the record for its whole life.
//!
//! | record | meaning |
//! |---|---|
//! | `p <token> <deadline_ms> <fp>` | in progress until the deadline |
//! | `f <fp> <tail> <enc> <bytes>` | finished; `enc` says what the bytes are |
//! | `f <fp> <tail>` | finished without a response; formerly with ` -` behind it |
//! | `1` | another program noted that it ran: finished, nothing to replay |

mod answer;
mod counts;
mod keys;
#[cfg(feature = "tower")]
mod layer;
mod ops;
mod outage;
mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use quaymaster_schema::IdempotencySpec;
use tokio::time::Instant;

pub use answer::{Abandoned, Begun, Claim, Finished, Replay};
pub use counts::Counts;
#[cfg(feature = "tower")]
pub use layer::{IdempotencyLayer, IdempotencyService, LayerBody, REPLAYED};

pub(crate) use response::Packed;

pub(crate) use answer::Held;
use answer::{Ended, Told};

use crate::bound::{Bound, Key, check_request_id};
use crate::outage::is_outage;
use crate::wake::Wake;
use crate::wrote::in_steps;
use crate::{Code, Error, Result, Seal, Token};

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/idempotency.md")]
struct Page;

const BEGIN: &str = "idempotency.begin";
const FINISH: &str = "idempotency.finish";
const ABANDON: &str = "idempotency.abandon";

/// Who waits asks again after this long at the latest: a hint may be lost without a word.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The longest wait of one call.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// How an operation is begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Begin<'a> {
    /// What the request is: another one under the same key is a mismatch. Only a digest is kept.
    pub fingerprint: Option<&'a [u8]>,
    /// How long to wait while somebody else runs it; more than [`WAIT_MAX`] counts as that.
    pub wait: Duration,
    /// The same id again finds its own claim, and is told again that it started.
    pub request_id: Option<&'a str>,
}

/// An idempotency of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Idempotency {
    pub(crate) bound: Bound,
    spec: IdempotencySpec,
    counts: Arc<Counts>,
}

impl Idempotency {
    pub(crate) fn new(bound: Bound, spec: IdempotencySpec) -> Self {
        Self { bound, spec, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &IdempotencySpec {
        &self.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Claims the operation, or says who runs it or what it answered.
    pub async fn begin(&self, key: Key<'_>, begin: Begin<'_>) -> Result<Begun> {
        let answer = match self.token(BEGIN, key, begin.request_id) {
            Ok(token) => match self.begin_waiting(key, &token, begin).await {
                Err(error) => {
                    let print = self.fingerprint(begin.fingerprint);
                    self.begun_without_store(key, &token, &print, error).map(Begun::Started)
                }
                answer => answer,
            },
            Err(error) => Err(error),
        };
        self.counts.begun(&answer);
        answer
    }

    /// Keeps the operation's answer and wakes who waits for it. A response over `max_response` is not kept: the
    /// operation counts as finished all the same, for it has run.
    pub async fn finish(&self, key: Key<'_>, token: &Token, response: Option<&[u8]>) -> Result<Finished> {
        let answer = match in_steps(self.finish_once(key, token, response)).await {
            Err(error) => self.finished_without_store(error),
            answer => answer,
        };
        self.counts.finished_with(&answer, response);
        answer
    }

    /// Gives the claim back: the operation did not take effect and may be begun again at once.
    pub async fn abandon(&self, key: Key<'_>, token: &Token, request_id: Option<&str>) -> Result<Abandoned> {
        let answer = match self.abandon_once(key, token, request_id).await {
            Err(error) => self.abandoned_without_store(error),
            answer => answer,
        };
        self.counts.abandoned_with(&answer);
        answer
    }

    async fn begin_waiting(&self, key: Key<'_>, token: &Token, begin: Begin<'_>) -> Result<Begun> {
        let until = Instant::now() + begin.wait.min(WAIT_MAX);
        let first = self.ask(key, token, begin.fingerprint).await?;
        let Begun::InProgress { mut retry_after } = first else { return Ok(first) };
        if begin.wait.is_zero() {
            return Ok(first);
        }
        self.counts.waited.fetch_add(1, Relaxed);
        // What is known stays known: somebody runs it, also when the store goes away while we wait.
        let known = |error: Error, retry_after| {
            if is_outage(error.code) { Ok(Begun::InProgress { retry_after }) } else { Err(error) }
        };
        let channel = keys::channel(BEGIN, &self.bound, key)?;
        let mut wake = match Wake::on(&*self.bound.engine, &channel).await {
            Ok(wake) => wake,
            Err(error) => return known(error.during(BEGIN), retry_after),
        };
        let mut pause = Duration::from_millis(1);
        loop {
            // Asked after listening, so that an end in between is not missed.
            match self.ask(key, token, begin.fingerprint).await {
                Ok(Begun::InProgress { retry_after: left }) => retry_after = left,
                Ok(answer) => return Ok(answer),
                Err(error) => return known(error, retry_after),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Begun::InProgress { retry_after });
            }
            // The claim ends by the store's clock, which need not tick with ours.
            let claim_ends = retry_after + Duration::from_millis(1);
            wake.wait(left.min(claim_ends.max(pause)).min(ASK_AGAIN)).await;
            // Whatever ends at once, over and over, is asked for less and less often.
            pause = if claim_ends <= pause { pause * 2 } else { Duration::from_millis(1) };
        }
    }

    async fn ask(&self, key: Key<'_>, token: &Token, fingerprint: Option<&[u8]>) -> Result<Begun> {
        let print = self.fingerprint(fingerprint);
        let call = ops::begin(&self.bound, key, token, &print, self.spec.in_progress_ttl)?;
        let mut told = answer::begun(BEGIN, self.bound.run(BEGIN, call).await?)?;
        if let Told::Mismatch { kept } = &told
            && let Some(print) = self.fingerprint_as(fingerprint, kept)
        {
            let call = ops::begin(&self.bound, key, token, &print, self.spec.in_progress_ttl)?;
            told = answer::begun(BEGIN, self.bound.run(BEGIN, call).await?)?;
        }
        match told {
            Told::Started(expires_in) => {
                Ok(Begun::Started(Claim { token: token.clone(), expires_in, outage: None }))
            }
            Told::InProgress(retry_after) => Ok(Begun::InProgress { retry_after }),
            Told::Finished { encoding, bytes } => {
                Ok(Begun::Finished(self.unpack(BEGIN, key, &encoding, bytes).await?))
            }
            Told::Mismatch { .. } => Ok(Begun::Mismatch),
            Told::Malformed => Err(self.malformed(BEGIN, key)),
        }
    }

    pub(crate) async fn finish_once(
        &self,
        key: Key<'_>,
        token: &Token,
        response: Option<&[u8]>,
    ) -> Result<Finished> {
        if !token.is_away() {
            return self.finish_in_store(key, token, response).await;
        }
        match self.open_away(key, token) {
            Some(away) => Box::pin(self.finish_away(key, &away, response)).await,
            None => Ok(Finished::Lost),
        }
    }

    /// Finishes a claim that is in the store.
    async fn finish_in_store(
        &self,
        key: Key<'_>,
        token: &Token,
        response: Option<&[u8]>,
    ) -> Result<Finished> {
        let packed = self.pack(FINISH, key, response).await?;
        let kept = packed.is_kept();
        let call = ops::finish(&self.bound, key, token, self.spec.ttl, &packed)?;
        match answer::finished(FINISH, self.bound.run(FINISH, call).await?)? {
            Ended::Finished(held) => {
                let kept = kept && self.is_held(FINISH, key, response, held).await;
                Ok(Finished::Finished { kept, outage: None })
            }
            Ended::Lost => Ok(Finished::Lost),
            Ended::Malformed => Err(self.malformed(FINISH, key)),
        }
    }

    pub(crate) async fn abandon_once(
        &self,
        key: Key<'_>,
        token: &Token,
        request_id: Option<&str>,
    ) -> Result<Abandoned> {
        let away = self.open_away(key, token);
        if token.is_away() && away.is_none() {
            return Ok(Abandoned::Lost);
        }
        let token = away.as_ref().map_or(token, |away| &away.token);
        let call = ops::abandon(&self.bound, key, token, request_id)?;
        let told = answer::abandoned(ABANDON, self.bound.run(ABANDON, call).await?)?;
        told.ok_or_else(|| self.malformed(ABANDON, key))
    }

    /// A fresh token, or the one every repetition of `request_id` derives.
    pub(crate) fn token(&self, op: &'static str, key: Key<'_>, request_id: Option<&str>) -> Result<Token> {
        let Some(id) = request_id else { return Ok(Token::random()) };
        check_request_id(op, id)?;
        let place = keys::place(op, &self.bound, key)?;
        Ok(Token::derived(&[op.as_bytes(), &place, id.as_bytes()]))
    }

    /// What the record keeps of a fingerprint: 16 characters, `-` for none. With a seal key, only its holders can
    /// compute a sensitive one.
    pub(crate) fn fingerprint(&self, text: Option<&[u8]>) -> String {
        match text {
            None => "-".to_owned(),
            Some(text) if self.bound.resource.sensitive => print(self.bound.shared.seal.fingerprint(text)),
            Some(text) => print(Seal::none().fingerprint(text)),
        }
    }

    /// The same fingerprint as another key (or none) gave it, if that is what was `kept`: keys may have been changed
    /// since the record was begun. To be asked once more with.
    pub(crate) fn fingerprint_as(&self, text: Option<&[u8]>, kept: &[u8]) -> Option<String> {
        if !self.bound.resource.sensitive {
            return None;
        }
        self.bound.shared.seal.fingerprints(text?).map(print).find(|print| print.as_bytes() == kept)
    }

    /// What the record keeps of a response.
    pub(crate) async fn pack<'a>(
        &self,
        op: &'static str,
        key: Key<'_>,
        response: Option<&'a [u8]>,
    ) -> Result<Packed<'a>> {
        let Some(response) = response else { return Ok(Packed::NONE) };
        if self.spec.compact || response.len() as u64 > self.spec.max_response {
            return Ok(Packed::NONE);
        }
        let seal = &self.bound.shared.seal;
        if self.bound.resource.sensitive && seal.is_active() {
            let place = keys::place(op, &self.bound, key)?;
            return Packed::of(op, response, Some((seal, &place))).await;
        }
        Packed::of(op, response, None).await
    }

    /// The response in a finished record.
    pub(crate) async fn unpack(
        &self,
        op: &'static str,
        key: Key<'_>,
        encoding: &[u8],
        bytes: Bytes,
    ) -> Result<Replay> {
        if self.bound.sealed_only() && matches!(encoding, b"r" | b"z") {
            let detail = format!(
                "the record of idempotency.{} holds a response that is not sealed, and require_seal_key is set; \
                 remove the key if it may run again",
                self.name()
            );
            return Err(Error::new(op, Code::KeyMalformed, detail));
        }
        let place = keys::place(op, &self.bound, key)?;
        let response = response::unpack(op, encoding, bytes, &self.bound.shared.seal, &place).await?;
        Ok(Replay { response })
    }

    /// Whether the response that a finished record holds is this one. One that cannot be read is not.
    pub(crate) async fn is_held(
        &self,
        op: &'static str,
        key: Key<'_>,
        response: Option<&[u8]>,
        held: Held,
    ) -> bool {
        match held {
            Held::Given => true,
            Held::Other { encoding, bytes } => {
                let replay = Box::pin(self.unpack(op, key, &encoding, bytes)).await;
                replay.is_ok_and(|replay| replay.response.as_deref() == response)
            }
        }
    }

    /// Where those who wait for the record listen.
    pub(crate) fn channel(&self, op: &'static str, key: Key<'_>) -> Result<Vec<u8>> {
        keys::channel(op, &self.bound, key)
    }

    /// Whether a record can lie under this key.
    #[cfg(feature = "tower")]
    pub(crate) fn check_key(&self, key: Key<'_>) -> Result<()> {
        self.bound.bind(BEGIN, key, 0, &mut quaymaster_store::Words::default()).map(drop)
    }

    pub(crate) fn malformed(&self, op: &'static str, key: Key<'_>) -> Error {
        let key = self.bound.spelled(key);
        let detail = format!("{key}: the string holds no record of idempotency.{}", self.name());
        Error::new(op, Code::KeyMalformed, detail)
    }
}

fn print(digest: [u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(&digest[..12])
}
