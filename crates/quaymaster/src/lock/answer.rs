//! What a lock answers, and how a script's reply becomes it. Plain functions, no I/O.

use std::time::Duration;

use quaymaster_schema::Outage;
use quaymaster_store::Reply;

use crate::scripts::{lock_acquire, lock_release, lock_renew};
use crate::{Code, Error, Result, Token};

/// Characters of a token after its owner's name: 128 bits.
const RANDOM_CHARS: usize = 22;

/// A lease on a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Proves that it is ours: `renew` and `release` want it.
    pub token: Token,
    /// Higher than that of every lease before. Hand it to what the lock protects, which refuses lower ones
    /// than it has seen: a holder that was paused past its lease then changes nothing.
    pub fence: u64,
    /// How long it lasts from `at_us`; whoever cannot read the store's clock counts from before it asked.
    pub expires_in: Duration,
    /// The store's time when it was granted or renewed, in microseconds since the epoch.
    pub at_us: i64,
    /// Set when the store could not be asked and the resource's policy answered; nothing is locked then.
    pub outage: Option<Outage>,
}

/// The answer of `acquire`.
#[must_use = "without the lease nothing is locked"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is ours.
    Ours(Lease),
    /// Somebody else has it, or is next.
    Held {
        /// When asking again can help: the holder's lease ends then if it is not renewed.
        retry_after: Duration,
        /// The holder, if it gave its name.
        owner: Option<String>,
    },
}

/// The answer of `renew`.
#[must_use = "a lost lease protects nothing"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// The lease begins anew, under the same fence.
    Ours(Lease),
    /// It has ended; somebody else may hold the lock.
    Lost,
}

/// The answer of `release`.
#[must_use = "a lease that was lost did not protect what was done under it"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It was ours until now.
    Released,
    /// It had ended before; nothing was changed.
    Lost,
    /// The store cannot be asked, and this policy answered: what it holds of the lease ends by itself.
    Away(Outage),
}

/// What `lock.acquire` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Ours(Lease),
    Held { left: Duration, place: i64, owner: Option<String> },
}

fn lease(token: &Token, fence: i64, ttl_ms: i64, now_us: i64) -> Lease {
    let expires_in = Duration::from_millis(u64::try_from(ttl_ms).unwrap_or(0));
    let fence = u64::try_from(fence).unwrap_or(0);
    Lease { token: token.clone(), fence, expires_in, at_us: now_us, outage: None }
}

pub(super) fn acquired(op: &'static str, reply: Reply, token: &Token) -> Result<Told> {
    use lock_acquire::Reply::{Held, Ours};
    Ok(match lock_acquire::Reply::read(op, reply)? {
        Ours { fence, ttl_ms, now_us } => Told::Ours(lease(token, fence, ttl_ms, now_us)),
        Held { remaining_ms, place, holder } => {
            // Zero would be a promise that the very next moment helps.
            let left = Duration::from_millis(u64::try_from(remaining_ms).unwrap_or(0).max(1));
            Told::Held { left, place, owner: owner(&holder) }
        }
    })
}

pub(super) fn renewed(op: &'static str, reply: Reply, token: &Token) -> Result<Renewed> {
    use lock_renew::Reply::{Lost, Ours};
    Ok(match lock_renew::Reply::read(op, reply)? {
        Ours { fence, ttl_ms, now_us } => Renewed::Ours(lease(token, fence, ttl_ms, now_us)),
        Lost => Renewed::Lost,
    })
}

pub(super) fn released(op: &'static str, reply: Reply) -> Result<Released> {
    match lock_release::Reply::read(op, reply)? {
        lock_release::Reply::Released => Ok(Released::Released),
        lock_release::Reply::Lost => Ok(Released::Lost),
        lock_release::Reply::Conflict => {
            let detail = "request_id: already used to release another lease of this lock";
            Err(Error::new(op, Code::RequestReused, detail).field("request_id"))
        }
    }
}

/// The name in front of a holder's token; never anything of the token itself. What another program wrote
/// has no name that we could tell from its secret.
pub(super) fn owner(holder: &[u8]) -> Option<String> {
    let (owner, random) = std::str::from_utf8(holder).ok()?.rsplit_once('.')?;
    let ours = random.len() == RANDOM_CHARS
        && random.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
    (ours && !owner.is_empty()).then(|| owner.to_owned())
}
