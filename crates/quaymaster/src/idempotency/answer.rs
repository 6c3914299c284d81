//! What an idempotency answers, and how a script's reply becomes it. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::Outage;
use quaymaster_store::{Parts, Reply};

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
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    Ok(match &word[..] {
        b"started" => Told::Started(millis(parts.int()?)),
        b"in_progress" => Told::InProgress(millis(parts.int()?)),
        b"finished" => Told::Finished { encoding: parts.bytes()?, bytes: parts.bytes()? },
        b"mismatch" => {
            parts.int()?;
            Told::Mismatch { kept: parts.bytes()? }
        }
        b"malformed" => Told::Malformed,
        other => return Err(unknown(op, other)),
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
    /// Reads `same enc bytes`.
    pub(crate) fn read(parts: &mut Parts) -> Result<Self> {
        let same = parts.int()? == 1;
        let (encoding, bytes) = (parts.bytes()?, parts.bytes()?);
        Ok(if same { Self::Given } else { Self::Other { encoding, bytes } })
    }
}

/// Reads the reply of `finish`.
pub(super) fn finished(op: &'static str, reply: Reply) -> Result<Ended> {
    let mut parts = reply.parts(op)?;
    Ok(match &parts.bytes()?[..] {
        b"finished" => Ended::Finished(Held::read(&mut parts)?),
        b"lost" => Ended::Lost,
        b"malformed" => Ended::Malformed,
        other => return Err(unknown(op, other)),
    })
}

/// The one word of `abandon`: whether it is `done`; `None` when the record is not ours.
pub(super) fn settled(op: &'static str, reply: Reply, done: &[u8]) -> Result<Option<bool>> {
    let word = reply.parts(op)?.bytes()?;
    match &word[..] {
        word if word == done => Ok(Some(true)),
        b"lost" => Ok(Some(false)),
        b"malformed" => Ok(None),
        b"conflict" => {
            let detail = "request_id was already used for another claim, or for another verb, on this key";
            Err(Error::new(op, Code::RequestInvalid, detail))
        }
        other => Err(unknown(op, other)),
    }
}

fn unknown(op: &'static str, word: &[u8]) -> Error {
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
