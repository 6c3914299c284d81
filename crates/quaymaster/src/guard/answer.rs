//! What a guard answers, and how a script's reply becomes it. Plain functions, no I/O.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::Outage;
use quaymaster_store::Reply;

use crate::idempotency::{Held, Replay};
use crate::limit::{Limit, Quota, Verdict};
use crate::lock::Released;
use crate::scripts::{guard_back, guard_enter, guard_leave, guard_look, one_each, unknown};
use crate::{Code, Error, Result, Token};

/// The answer of `enter`; when several parts would say no, the first of this order is told: mismatch, finished
/// or in progress, held, limited.
#[must_use = "only `Entered` may go ahead"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entered {
    /// Every part said yes: go ahead, then `leave` with this pass' token.
    Entered(Pass),
    /// At least one limit refused and nothing was taken; what each limit says, in the order of
    /// [`super::Guard::limits`].
    Limited(Vec<Verdict>),
    /// Somebody else is running the operation.
    InProgress {
        /// When their claim ends at the latest.
        retry_after: Duration,
    },
    /// The operation has run; this is what it answered. No quota was taken.
    Finished(Replay),
    /// The key was used for another request: its fingerprint is another one.
    Mismatch,
    /// Somebody else has the lock, or is next.
    Held {
        /// When asking again can help.
        retry_after: Duration,
    },
}

/// What was entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Proves that claim and lease are ours; `leave` wants it.
    pub token: Token,
    /// The lock's fence, higher than that of every lease before; `None` without a lock.
    pub fence: Option<u64>,
    /// How long the lock is ours; `None` without one.
    pub lock_expires_in: Option<Duration>,
    /// How long nobody else may run the operation; `None` without an idempotency.
    pub claim_expires_in: Option<Duration>,
    /// How the limits stand, in the order of [`super::Guard::limits`].
    pub quotas: Vec<Quota>,
    /// The policy that answered in the store's place; `None` when the store did.
    pub outage: Option<Outage>,
}

/// What became of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Everybody who enters from now on is told so.
    Finished {
        /// Whether they are told the response too.
        kept: bool,
    },
    /// The next one may enter at once.
    Abandoned,
    /// The claim had expired, or is another one's: nothing was written.
    Lost,
}

/// The answer of `leave`: what each part said. One may be lost while the other was still ours.
#[must_use = "what was lost did not protect what was done under it"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// `None` without an idempotency.
    pub idempotency: Option<Settled>,
    /// `None` without a lock.
    pub lock: Option<Released>,
    /// The policy that answered in the store's place; `None` when the store did.
    pub outage: Option<Outage>,
}

impl Left {
    /// Whether a part was not ours any more.
    pub fn lost_any(&self) -> bool {
        self.idempotency == Some(Settled::Lost) || self.lock == Some(Released::Lost)
    }
}

/// What one step of `guard.enter` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Entered {
        /// Whether the claim or the lease was the token's already.
        again: bool,
        fence: u64,
        claim: Duration,
        /// When the limits were counted.
        at_ms: i64,
        verdicts: Vec<Verdict>,
    },
    Limited(Vec<Verdict>),
    InProgress(Duration),
    Finished {
        encoding: Bytes,
        bytes: Bytes,
    },
    Mismatch {
        kept: Bytes,
    },
    Held(Duration),
    Stale {
        now_ms: i64,
    },
    /// The limit of this place in the step, or the record.
    Malformed(Option<usize>),
}

/// Reads the reply of a step with these limits.
pub(super) fn entered<'a>(
    op: &'static str,
    reply: Reply,
    limits: impl ExactSizeIterator<Item = &'a Limit>,
) -> Result<Told> {
    use guard_enter::Reply as Said;
    let read = |told: Vec<guard_enter::VerdictsRow>| {
        let told = one_each(op, told, limits.len())?;
        let verdict = |(limit, row): (&Limit, guard_enter::VerdictsRow)| {
            limit.read_unit(op, &row.word, [row.x, row.y, row.z])
        };
        limits.zip(told).map(verdict).collect::<Result<_>>()
    };
    let entered = |again, fence, claim_ms, at_ms, verdicts| Told::Entered {
        again,
        fence: u64::try_from(fence).unwrap_or(0),
        claim: millis(claim_ms),
        at_ms,
        verdicts,
    };
    Ok(match Said::read(op, reply)? {
        Said::Entered { fence, claim_ms, at_ms, verdicts } => {
            entered(false, fence, claim_ms, at_ms, read(verdicts)?)
        }
        Said::Again { fence, claim_ms, at_ms, verdicts } => {
            entered(true, fence, claim_ms, at_ms, read(verdicts)?)
        }
        Said::Limited { verdicts, .. } => Told::Limited(read(verdicts)?),
        Said::InProgress { remaining_ms } => Told::InProgress(soon(remaining_ms)),
        Said::Held { remaining_ms } => Told::Held(soon(remaining_ms)),
        Said::Finished { enc, bytes } => Told::Finished { encoding: enc, bytes },
        Said::Mismatch { kept_fp } => Told::Mismatch { kept: kept_fp },
        Said::Stale { now_ms } => Told::Stale { now_ms },
        Said::Malformed { limit } => {
            Told::Malformed(usize::try_from(limit).ok().and_then(|place| place.checked_sub(1)))
        }
        Said::Conflict => {
            let detail = "request_id: already used for another call under this key";
            return Err(Error::new(op, Code::RequestReused, detail).field("request_id"));
        }
    })
}

/// Reads the reply of a step that was given back. What was lost meanwhile need not be.
pub(super) fn back(op: &'static str, reply: Reply) -> Result<()> {
    match guard_back::Reply::read(op, reply)? {
        guard_back::Reply::Back { .. } => Ok(()),
    }
}

/// What one step of `guard.leave` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// What the record and the lock said; the response in the record, where it is not the one given.
    Left(Left, Held),
    /// The record is not ours; what there was of the lock is released.
    Malformed,
    /// The request's id was used to leave another lease, or to end it otherwise.
    Conflict,
}

/// Reads the reply of a step.
pub(super) fn left(op: &'static str, reply: Reply) -> Result<Leaving> {
    let (claim, lease, held) = match guard_leave::Reply::read(op, reply)? {
        guard_leave::Reply::Left { claim, lease, same, enc, bytes } => {
            (claim, lease, Held::of(same, enc, bytes))
        }
        guard_leave::Reply::Malformed => return Ok(Leaving::Malformed),
        guard_leave::Reply::Conflict => return Ok(Leaving::Conflict),
    };
    let idempotency = match &claim[..] {
        b"-" => None,
        b"finished" => Some(Settled::Finished { kept: true }),
        b"abandoned" => Some(Settled::Abandoned),
        b"lost" => Some(Settled::Lost),
        other => return Err(unknown(op, other)),
    };
    let lock = match &lease[..] {
        b"-" => None,
        b"released" => Some(Released::Released),
        b"lost" => Some(Released::Lost),
        other => return Err(unknown(op, other)),
    };
    Ok(Leaving::Left(Left { idempotency, lock, outage: None }, held))
}

/// What `guard.look` said: how long the lock is not to be had.
pub(super) fn looked(op: &'static str, reply: Reply) -> Result<Option<Duration>> {
    Ok(match guard_look::Reply::read(op, reply)? {
        guard_look::Reply::Held { remaining_ms } => Some(soon(remaining_ms)),
        guard_look::Reply::Free | guard_look::Reply::Ours { .. } => None,
    })
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

/// Zero would be a promise that the very next moment helps.
fn soon(value: i64) -> Duration {
    millis(value.max(1))
}
