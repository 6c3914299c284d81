//! What an idempotency answers, and how a script's reply becomes it. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::Outage;
use quaymaster_store::Reply;

use crate::scripts::{idempotency_abandon, idempotency_begin, idempotency_finish};
use crate::{Code, Error, Result, Token};

/// The answer of `begin`.
#[must_use = "only `Started` may run the operation"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Run the operation, then `finish` or `abandon` with this claim's token.
    Started(Claim),
    /// Somebody else is running it.
    InProgress {
        /// When their claim ends at the latest.
        retry_after: Duration,
    },
    /// It has run; this is what it answered.
    Finished(Replay),
    /// The key was used for another request: its fingerprint is another one.
    Mismatch,
}

/// The right to run an operation, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What proves it.
    pub token: Token,
    /// How long nobody else may run the operation.
    pub expires_in: Duration,
    /// The policy that answered in the store's place; `None` when the store did.
    pub outage: Option<Outage>,
}

/// What a finished operation answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The response; `None` when none was kept: none was given, it was too large, the record is compact, or
    /// another program only noted that it ran.
    pub response: Option<Bytes>,
}

/// The answer of `finish`.
#[must_use = "after `Lost` another one may have run the operation too"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Everybody who begins from now on is told so.
    Finished {
        /// Whether they are told the response too.
        kept: bool,
        /// The policy that answered in the store's place; `None` when the store did.
        outage: Option<Outage>,
    },
    /// The claim had expired, or is another one's: nothing was written.
    Lost,
}

/// The answer of `abandon`.
#[must_use = "after `Lost` another one may have run the operation too"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// The next one may begin at once.
    Abandoned,
    /// The claim had expired, or is another one's: nothing was changed.
    Lost,
    /// The store cannot be asked, and this policy answered: what it holds of the claim ends by itself.
    Away(Outage),
}

/// What `idempotency.begin` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Started(Duration),
    InProgress(Duration),
    Finished { encoding: Bytes, bytes: Bytes },
    Mismatch { kept: Bytes },
    Malformed,
}

/// What `idempotency.finish` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Finished(Held),
    Lost,
    Malformed,
}

pub(super) fn begun(op: &'static str, reply: Reply) -> Result<Told> {
    use idempotency_begin::Reply::{Finished, InProgress, Malformed, Mismatch, Started};
    Ok(match idempotency_begin::Reply::read(op, reply)? {
        Started { remaining_ms } => Told::Started(millis(remaining_ms)),
        InProgress { remaining_ms } => Told::InProgress(millis(remaining_ms)),
        Finished { enc, bytes } => Told::Finished { encoding: enc, bytes },
        Mismatch { kept_fp } => Told::Mismatch { kept: kept_fp },
        Malformed => Told::Malformed,
    })
}

/// What a finished record holds, where a finish found it finished.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// What was given.
    Given,
    /// This, which may still unpack to what was given: no two sealings are the same bytes.
    Other { encoding: Bytes, bytes: Bytes },
}

impl Held {
    /// What `same enc bytes` mean.
    pub(crate) fn of(same: i64, encoding: Bytes, bytes: Bytes) -> Self {
        if same == 1 { Self::Given } else { Self::Other { encoding, bytes } }
    }
}

/// Reads the reply of `finish`.
pub(super) fn finished(op: &'static str, reply: Reply) -> Result<Ended> {
    use idempotency_finish::Reply::{Finished, Lost, Malformed};
    Ok(match idempotency_finish::Reply::read(op, reply)? {
        Finished { same, enc, bytes } => Ended::Finished(Held::of(same, enc, bytes)),
        Lost => Ended::Lost,
        Malformed => Ended::Malformed,
    })
}

/// Reads the reply of `abandon`; `None` when the record is not ours.
pub(super) fn abandoned(op: &'static str, reply: Reply) -> Result<Option<Abandoned>> {
    match idempotency_abandon::Reply::read(op, reply)? {
        idempotency_abandon::Reply::Abandoned => Ok(Some(Abandoned::Abandoned)),
        idempotency_abandon::Reply::Lost => Ok(Some(Abandoned::Lost)),
        idempotency_abandon::Reply::Malformed => Ok(None),
        idempotency_abandon::Reply::Conflict => {
            let detail = "request_id was already used for another claim, or for another verb, on this key";
            Err(Error::new(op, Code::RequestReused, detail).field("request_id"))
        }
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
