//! `lock`: a lease on a name, one holder at a time, across any number of nodes.
//!
//! The key holds the holder's token and lives as long as the lease. Every call compares the token in its
//! script, so a holder whose lease has ended changes nothing. Each lease has a fence, higher than all before
//! it, also when the lock's keys were lost. Who waits stands in a queue and is woken when its turn comes;
//! nobody overtakes a waiter that is alive.

mod answer;
mod holding;
pub(crate) mod keys;
mod ops;
mod outage;
#[cfg(test)]
mod tests;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quaymaster_schema::LockSpec;

pub use answer::{Acquired, Lease, Released, Renewed};
pub use holding::{Hold, Holding};

use crate::bound::{Bound, Key, check_request_id};
use crate::token::AWAY;
use crate::{Code, Error, Result, Token};

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/locks.md")]
struct Page;

/// The longest name of an owner.
pub const OWNER_MAX: usize = 64;

/// The longest wait of one call.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// How a lock is asked for. The default asks for the declared lease and does not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// A name that callers who find the lock held are told: 1 to 64 visible ASCII characters.
    pub owner: Option<&'a str>,
    /// The lease; at most the declared `ttl`, which it is when not given.
    pub ttl: Option<Duration>,
    /// How long to wait while the lock is held; at most [`WAIT_MAX`].
    pub wait: Duration,
    /// The same id again finds its own lease instead of being held off by it.
    pub request_id: Option<&'a str>,
}

/// Answers given so far by this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    acquired: AtomicU64,
    held: AtomicU64,
    renewed: AtomicU64,
    renew_lost: AtomicU64,
    released: AtomicU64,
    release_lost: AtomicU64,
    errors: AtomicU64,
    waiting: AtomicU64,
}

impl Counts {
    /// Calls of `acquire` that got the lock.
    pub fn acquired(&self) -> u64 {
        self.acquired.load(Relaxed)
    }
    /// Calls of `acquire` that did not.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
    /// Leases renewed.
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Relaxed)
    }
    /// Leases that were lost when they should be renewed.
    pub fn renew_lost(&self) -> u64 {
        self.renew_lost.load(Relaxed)
    }
    /// Leases given back.
    pub fn released(&self) -> u64 {
        self.released.load(Relaxed)
    }
    /// Leases that were lost when they should be given back.
    pub fn release_lost(&self) -> u64 {
        self.release_lost.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
    /// Calls that wait now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

/// A lock of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lock {
    pub(crate) bound: Bound,
    pub(crate) spec: LockSpec,
    counts: Arc<Counts>,
}

impl Lock {
    pub(crate) fn new(bound: Bound, spec: LockSpec) -> Self {
        Self { bound, spec, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &LockSpec {
        &self.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the lock, waiting for it as long as `how` says. A caller that stops waiting, also by dropping
    /// the future, leaves the queue.
    pub async fn acquire(&self, key: Key<'_>, how: Acquire<'_>) -> Result<Acquired> {
        let ttl = self.ttl(ops::ACQUIRE, how.ttl)?;
        if how.wait > WAIT_MAX {
            let detail = format!("wait_ms: at most {}, got {}", WAIT_MAX.as_millis(), how.wait.as_millis());
            return Err(Error::new(ops::ACQUIRE, Code::RequestInvalid, detail).field("wait_ms"));
        }
        let token = self.token(key, how)?;
        let answer = match wait::acquire(self, key, &token, ttl, how).await {
            Err(error) => self.acquired_without_store(key, &token, ttl, error).map(Acquired::Ours),
            answer => answer,
        };
        match &answer {
            Ok(Acquired::Ours(_)) => self.counts.acquired.fetch_add(1, Relaxed),
            Ok(Acquired::Held { .. }) => self.counts.held.fetch_add(1, Relaxed),
            Err(_) => self.counts.errors.fetch_add(1, Relaxed),
        };
        answer
    }

    /// Begins the lease anew if it is still ours; `ttl` is the declared one unless given.
    pub async fn renew(&self, key: Key<'_>, token: &Token, ttl: Option<Duration>) -> Result<Renewed> {
        let ttl = self.ttl(ops::RENEW, ttl)?;
        let answer = match self.renew_in_store(key, token, ttl).await {
            Err(error) => self.acquired_without_store(key, token, ttl, error).map(Renewed::Ours),
            answer => answer,
        };
        match &answer {
            Ok(Renewed::Ours(_)) => self.counts.renewed.fetch_add(1, Relaxed),
            Ok(Renewed::Lost) => self.counts.renew_lost.fetch_add(1, Relaxed),
            Err(_) => self.counts.errors.fetch_add(1, Relaxed),
        };
        answer
    }

    /// Gives the lock back if it is still ours, and wakes who is next.
    pub async fn release(&self, key: Key<'_>, token: &Token, request_id: Option<&str>) -> Result<Released> {
        let answer = match self.release_in_store(key, token, request_id).await {
            Err(error) => self.released_without_store(error),
            answer => answer,
        };
        match &answer {
            Ok(Released::Released | Released::Away(_)) => self.counts.released.fetch_add(1, Relaxed),
            Ok(Released::Lost) => self.counts.release_lost.fetch_add(1, Relaxed),
            Err(_) => self.counts.errors.fetch_add(1, Relaxed),
        };
        answer
    }

    /// The same as `acquire`, with a lease that renews itself until it is released or dropped.
    ///
    /// A `request_id` is refused: two handles on one lease would end it under each other.
    pub async fn hold(&self, key: Key<'_>, how: Acquire<'_>) -> Result<Hold> {
        holding::hold(self, key, how).await
    }

    pub(crate) fn ttl(&self, op: &'static str, asked: Option<Duration>) -> Result<Duration> {
        let ttl = asked.unwrap_or(self.spec.ttl);
        if ttl < Duration::from_millis(1) || ttl > self.spec.ttl {
            let most = self.spec.ttl.as_millis();
            let detail = format!("ttl_ms: 1 to {most}, the lock's declared ttl, got {}", ttl.as_millis());
            let code = if ttl > self.spec.ttl { Code::ResourceMismatch } else { Code::RequestInvalid };
            return Err(Error::new(op, code, detail).field("ttl_ms"));
        }
        Ok(ttl)
    }

    /// A token of its own for every attempt; one for all repetitions under a `request_id`.
    fn token(&self, key: Key<'_>, how: Acquire<'_>) -> Result<Token> {
        let token = match how.request_id {
            None => Token::random(),
            Some(id) => {
                check_request_id(ops::ACQUIRE, id)?;
                let mut parts: Vec<&[u8]> = vec![b"lock", self.name().as_bytes(), id.as_bytes()];
                let mut values = key.to_vec();
                values.sort_unstable();
                parts.extend(values.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
                Token::derived(&parts)
            }
        };
        let Some(owner) = how.owner else { return Ok(token) };
        if owner.is_empty()
            || owner.len() > OWNER_MAX
            || !owner.bytes().all(|c| c.is_ascii_graphic())
            || owner.starts_with(AWAY)
        {
            let detail =
                format!("owner: 1 to {OWNER_MAX} visible ASCII characters, not beginning with {AWAY:?}");
            return Err(Error::new(ops::ACQUIRE, Code::RequestInvalid, detail).field("owner"));
        }
        Token::parse(ops::ACQUIRE, &format!("{owner}.{}", token.as_str()))
    }
}
