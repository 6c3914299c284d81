//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Workload};

use super::Guard;
use super::keys::{PartKeys, Step};
use crate::bound::KeyBinding;
use crate::idempotency::{Idempotency, Packed};
use crate::lock::{self, Lock};
use crate::scripts::{KeyList, LimitArgsList, LockKeys, guard_back, guard_enter, guard_leave, guard_look};
use crate::{Result, Token};

pub(super) const ENTER: &str = "guard.enter";
pub(super) const LEAVE: &str = "guard.leave";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// Leases at least this long outlive every repetition that the engine makes by itself.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// What a caller asked for, once for all steps.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) key: PartKeys<'a>,
    pub(super) token: Token,
    /// What the record keeps of the fingerprint.
    pub(super) print: String,
    pub(super) lock_ttl: Duration,
    /// Whether repetitions of the call derive the same token.
    pub(super) repeated: bool,
    /// Whether the limits may have been counted by an earlier call: there is no lease that would tell, or a step
    /// before found its own.
    pub(super) known: bool,
}

/// The units of a step's limits as they were counted: enough to give them back.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// What the keys of the limits were rendered for.
    now_us: i64,
    /// What tells the unit of each limit from all others.
    nonces: Vec<String>,
}

impl Units {
    /// One of each limit of a step, in the buckets of `now_us`.
    pub(super) fn new(guard: &Guard, step: &Step, now_us: i64) -> Self {
        let nonces = step.limits.iter().map(|place| guard.limits[*place].nonce()).collect();
        Self { now_us, nonces }
    }

    fn put(&self, guard: &Guard, step: &Step, args: &mut LimitArgsList<'_>) {
        for (place, nonce) in step.limits.iter().zip(&self.nonces) {
            args.put(guard.limits[*place].unit(self.now_us, nonce));
        }
    }

    fn put_keys(
        &self,
        guard: &Guard,
        step: &Step,
        asked: &Asked<'_>,
        keys: &mut KeyList<'_, '_>,
    ) -> Result<()> {
        step.limits.iter().try_for_each(|place| {
            keys.put(guard.limits[*place].bound.key(&asked.key.limits[*place], self.now_us))
        })
    }
}

/// The suffix of the key beside the first limit that keeps what was counted. Claim and lease are found again by their
/// token; counted units only by what is kept of the request.
fn kept_units(step: &Step, asked: &Asked<'_>) -> Option<String> {
    if !asked.repeated || step.limits.is_empty() {
        return None;
    }
    let kept = Token::derived(&[b"guard.enter.request", asked.token.as_str().as_bytes()]);
    Some(format!("req:{}", kept.as_str()))
}

fn kept_beside<'a>(
    guard: &'a Guard,
    step: &Step,
    asked: &'a Asked<'_>,
    suffix: Option<&'a str>,
) -> Option<KeyBinding<'a>> {
    let place = *step.limits.first()?;
    Some(guard.limits[place].bound.side(&asked.key.limits[place], suffix?))
}

/// The parts of a step that have leases.
struct Leases<'a> {
    record: Option<&'a Idempotency>,
    lock: Option<&'a Lock>,
    key: &'a PartKeys<'a>,
}

impl<'a> Leases<'a> {
    fn of(guard: &'a Guard, step: &Step, key: &'a PartKeys<'a>) -> Self {
        let record = guard.idempotency.as_ref().filter(|_| step.record);
        Self { record, lock: guard.lock.as_ref().filter(|_| step.lock), key }
    }

    fn record_key(&self) -> Option<KeyBinding<'a>> {
        self.record.map(|part| part.bound.key(&self.key.record, 0))
    }

    fn lock_keys(&self) -> Option<LockKeys<'a>> {
        self.lock.map(|part| lock::keys::all(&part.bound, &self.key.lock))
    }

    fn fence_ttl_ms(&self) -> i64 {
        self.lock.map_or(0, |part| millis(part.spec().fence_ttl()))
    }

    /// Where those listen who wait for the record; empty without one.
    fn record_channel(&self, op: &'static str) -> Result<Vec<u8>> {
        self.record.map_or(Ok(Vec::new()), |part| part.channel(op, &self.key.record))
    }

    /// Where the next waiter for the lock listens; empty without one.
    fn lock_channel(&self, op: &'static str) -> Result<Vec<u8>> {
        self.lock.map_or(Ok(Vec::new()), |part| lock::keys::channel(op, &part.bound, &self.key.lock))
    }
}

/// The call that enters a step.
pub(super) fn enter(guard: &Guard, step: &Step, asked: &Asked<'_>, units: &Units) -> Result<Invocation> {
    let leases = Leases::of(guard, step, &asked.key);
    let claim = leases.record.map(|part| part.spec().in_progress_ttl);
    let lease = leases.lock.map(|_| asked.lock_ttl);
    // The token finds its own claim and lease again, and then counts nothing.
    let recognised = claim.into_iter().chain(lease).any(|lives| lives >= LONG_LEASE);
    // So is what a request counted, where a lease of this step or of one before tells that it is the same.
    let kept = asked.repeated && (asked.known || claim.is_some() || lease.is_some());
    let suffix = kept_units(step, asked);
    let call = guard_enter::Call {
        record: leases.record_key(),
        lock: leases.lock_keys(),
        limits: &|keys| units.put_keys(guard, step, asked, keys),
        request: kept_beside(guard, step, asked, suffix.as_deref()),
        token: asked.token.as_str(),
        fp: &asked.print,
        in_progress_ms: claim.map_or(0, millis),
        lock_ms: lease.map_or(0, millis),
        fence_ttl_ms: leases.fence_ttl_ms(),
        keep_ms: KEEP_MS,
        known: if asked.known { "1" } else { "0" },
        units: &|args| units.put(guard, step, args),
    };
    let call = call.on(guard.bound.at(ENTER, Workload::Default))?;
    Ok(repeated(call, kept || recognised || step.limits.is_empty()))
}

/// The call that gives a step back. `counted` are its units and when they were counted; where nobody knows whether they
/// were, better a unit too many than one too few. Safe to repeat only without units: they would be given back twice.
pub(super) fn back(
    guard: &Guard,
    step: &Step,
    asked: &Asked<'_>,
    counted: Option<(&Units, i64)>,
) -> Result<Invocation> {
    let leases = Leases::of(guard, step, &asked.key);
    let suffix = counted.and_then(|_| kept_units(step, asked));
    let call = guard_back::Call {
        record: leases.record_key(),
        lock: leases.lock_keys(),
        limits: &|keys| counted.map_or(Ok(()), |(units, _)| units.put_keys(guard, step, asked, keys)),
        request: kept_beside(guard, step, asked, suffix.as_deref()),
        token: asked.token.as_str(),
        record_channel: &leases.record_channel(ENTER)?,
        fence_ttl_ms: leases.fence_ttl_ms(),
        lock_channel: &leases.lock_channel(ENTER)?,
        taken_ms: counted.map_or(0, |(_, at_ms)| at_ms),
        units: &|args| {
            if let Some((units, _)) = counted {
                units.put(guard, step, args);
            }
        },
    };
    let call = call.on(guard.bound.at(ENTER, Workload::Default))?;
    Ok(repeated(call, step.limits.is_empty() || counted.is_none()))
}

/// The call that asks whether the lock could be had.
pub(super) fn look(guard: &Guard, asked: &Asked<'_>) -> Result<Option<Invocation>> {
    let Some(part) = &guard.lock else { return Ok(None) };
    let (lock, [queue, alive]) =
        (part.bound.key(&asked.key.lock, 0), lock::keys::waiters(&part.bound, &asked.key.lock));
    let call = guard_look::Call { lock, queue, alive, token: asked.token.as_str() };
    let call = call.on(guard.bound.at(ENTER, Workload::Default))?;
    Ok(Some(repeated(call, true)))
}

/// How the claim ends.
#[derive(Debug)]
pub(super) enum End<'a> {
    Finish(Packed<'a>),
    Abandon,
}

/// The call that leaves a step.
pub(super) fn leave(
    guard: &Guard,
    step: &Step,
    key: &PartKeys<'_>,
    token: &Token,
    end: &End<'_>,
    request: Option<&Token>,
) -> Result<Invocation> {
    let leases = Leases::of(guard, step, key);
    // A finish is known again by its token; an abandoned claim and a released lock are gone.
    let gone = step.lock || matches!(end, End::Abandon);
    let suffix = request.map(|request| format!("req:{}", request.as_str()));
    let kept = |suffix| match (leases.record, leases.lock) {
        (Some(part), _) => Some(part.bound.side(&key.record, suffix)),
        (None, Some(part)) => Some(part.bound.side(&key.lock, suffix)),
        (None, None) => None,
    };
    let (verb, ttl_ms, enc, bytes) = match (leases.record, end) {
        (Some(part), End::Finish(packed)) => {
            ("finish", millis(part.spec().ttl), packed.encoding, &packed.bytes[..])
        }
        (Some(_), End::Abandon) => ("abandon", 0, "-", b"".as_slice()),
        (None, _) => ("-", 0, "-", b"".as_slice()),
    };
    let call = guard_leave::Call {
        record: leases.record_key(),
        lock: leases.lock_keys(),
        request: suffix.as_deref().and_then(kept),
        token: token.as_str(),
        verb,
        ttl_ms,
        enc,
        bytes,
        record_channel: &leases.record_channel(LEAVE)?,
        fence_ttl_ms: leases.fence_ttl_ms(),
        lock_channel: &leases.lock_channel(LEAVE)?,
        keep_ms: KEEP_MS,
    };
    let call = call.on(guard.bound.at(LEAVE, Workload::Default))?;
    Ok(repeated(call, request.is_some() || !gone))
}

fn repeated(call: Invocation, safe: bool) -> Invocation {
    let call = call.compound();
    if safe { call.repeat_safe() } else { call }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}
