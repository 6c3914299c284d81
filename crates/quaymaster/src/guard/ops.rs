//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_store::{Invocation, Script, Words, Workload};

use super::Guard;
use super::keys::{PartKeys, Step};
use crate::idempotency::Packed;
use crate::{Result, Token, lock, scripts};

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

/// What a step took, as its call named it: enough to give it back.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    pub(super) keys: Words,
    /// Seven words per limit.
    pub(super) limits: Words,
}

/// Keys and limits of a step whose buckets are those of `now_us`.
pub(super) fn bind(guard: &Guard, step: &Step, asked: &Asked<'_>, now_us: i64) -> Result<Bundle> {
    let (mut keys, mut limits) = (Words::default(), Words::default());
    bind_leases(ENTER, guard, step, &asked.key, &mut keys)?;
    for place in &step.limits {
        guard.limits[*place].bind_unit(ENTER, &asked.key.limits[*place], now_us, &mut keys, &mut limits)?;
    }
    // Claim and lease are found again by their token; counted units only by what is kept of the request.
    if let Some(place) = step.limits.first().filter(|_| asked.repeated) {
        let kept = Token::derived(&[b"guard.enter.request", asked.token.as_str().as_bytes()]);
        let suffix = format!("req:{}", kept.as_str());
        guard.limits[*place].bound.bind_side(ENTER, &asked.key.limits[*place], &suffix, &mut keys)?;
    }
    Ok(Bundle { keys, limits })
}

fn bind_leases(
    op: &'static str,
    guard: &Guard,
    step: &Step,
    key: &PartKeys<'_>,
    keys: &mut Words,
) -> Result<()> {
    if let Some(part) = guard.idempotency.as_ref().filter(|_| step.record) {
        part.bound.bind(op, &key.record, 0, keys)?;
    }
    if let Some(part) = guard.lock.as_ref().filter(|_| step.lock) {
        lock::keys::bind(op, &part.bound, &key.lock, keys)?;
    }
    Ok(())
}

/// The call that enters a step.
pub(super) fn enter(guard: &Guard, step: &Step, asked: &Asked<'_>, bundle: &Bundle) -> Invocation {
    let claim = guard.idempotency.as_ref().filter(|_| step.record).map(|part| part.spec().in_progress_ttl);
    let lock = guard.lock.as_ref().filter(|_| step.lock);
    let lease = lock.map(|_| asked.lock_ttl);
    // The token finds its own claim and lease again, and then counts nothing.
    let recognised = claim.into_iter().chain(lease).any(|lives| lives >= LONG_LEASE);
    // So is what a request counted, where a lease of this step or of one before tells that it is the same.
    let kept = asked.repeated && (asked.known || claim.is_some() || lease.is_some());
    let mut call = new(&scripts::GUARD_ENTER.script, kept || recognised || step.limits.is_empty());
    call.keys = bundle.keys.clone();
    call.args.push(asked.token.as_str());
    call.args.push(&asked.print);
    call.args.push_int(claim.map_or(0, millis));
    call.args.push_int(lease.map_or(0, millis));
    call.args.push_int(lock.map_or(0, |part| millis(part.spec().fence_ttl())));
    call.args.push_int(KEEP_MS);
    call.args.push(if asked.known { "1" } else { "0" });
    push_all(&mut call.args, &bundle.limits);
    call
}

/// Which limits of a step are given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// They were counted at this moment.
    CountedAt(i64),
    /// Nobody knows whether they were counted: better a unit too many than one too few.
    Unknown,
}

/// The call that gives a step back. Safe to repeat only without limits: units would be given back twice.
pub(super) fn back(
    guard: &Guard,
    step: &Step,
    asked: &Asked<'_>,
    bundle: Bundle,
    units: Units,
) -> Result<Invocation> {
    let record = guard.idempotency.as_ref().filter(|_| step.record);
    let lock = guard.lock.as_ref().filter(|_| step.lock);
    let mut call = new(&scripts::GUARD_BACK.script, step.limits.is_empty() || units == Units::Unknown);
    call.args.push(asked.token.as_str());
    match record {
        Some(part) => call.args.push(part.channel(ENTER, &asked.key.record)?),
        None => call.args.push(""),
    }
    call.args.push_int(lock.map_or(0, |part| millis(part.spec().fence_ttl())));
    match lock {
        Some(part) => call.args.push(lock::keys::channel(ENTER, &part.bound, &asked.key.lock)?),
        None => call.args.push(""),
    }
    match units {
        Units::CountedAt(at_ms) => {
            call.args.push_int(at_ms);
            push_all(&mut call.args, &bundle.limits);
            call.keys = bundle.keys;
        }
        Units::Unknown => {
            call.args.push("0");
            bind_leases(ENTER, guard, step, &asked.key, &mut call.keys)?;
        }
    }
    Ok(call)
}

/// The call that asks whether the lock could be had.
pub(super) fn look(guard: &Guard, asked: &Asked<'_>) -> Result<Option<Invocation>> {
    let Some(part) = &guard.lock else { return Ok(None) };
    let mut call = new(&scripts::GUARD_LOOK.script, true);
    lock::keys::bind_queue(ENTER, &part.bound, &asked.key.lock, &mut call.keys)?;
    call.args.push(asked.token.as_str());
    Ok(Some(call))
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
    let record = guard.idempotency.as_ref().filter(|_| step.record);
    let lock = guard.lock.as_ref().filter(|_| step.lock);
    // A finish is known again by its token; an abandoned claim and a released lock are gone.
    let gone = step.lock || matches!(end, End::Abandon);
    let mut call = new(&scripts::GUARD_LEAVE.script, request.is_some() || !gone);
    bind_leases(LEAVE, guard, step, key, &mut call.keys)?;
    if let Some(request) = request {
        let suffix = format!("req:{}", request.as_str());
        match (record, lock) {
            (Some(part), _) => part.bound.bind_side(LEAVE, &key.record, &suffix, &mut call.keys)?,
            (None, Some(part)) => part.bound.bind_side(LEAVE, &key.lock, &suffix, &mut call.keys)?,
            (None, None) => {}
        }
    }
    call.args.push(token.as_str());
    match (record, end) {
        (Some(part), End::Finish(packed)) => {
            call.args.push("finish");
            call.args.push_int(millis(part.spec().ttl));
            call.args.push(packed.encoding);
            call.args.push(&packed.bytes);
        }
        (Some(_), End::Abandon) => push_words(&mut call.args, ["abandon", "0", "-", ""]),
        (None, _) => push_words(&mut call.args, ["-", "0", "-", ""]),
    }
    match record {
        Some(part) => call.args.push(part.channel(LEAVE, &key.record)?),
        None => call.args.push(""),
    }
    call.args.push_int(lock.map_or(0, |part| millis(part.spec().fence_ttl())));
    match lock {
        Some(part) => call.args.push(lock::keys::channel(LEAVE, &part.bound, &key.lock)?),
        None => call.args.push(""),
    }
    call.args.push_int(KEEP_MS);
    Ok(call)
}

fn new(script: &'static Script, repeat_safe: bool) -> Invocation {
    let call = Invocation::new(script, Workload::Default).compound();
    if repeat_safe { call.repeat_safe() } else { call }
}

fn push_all(args: &mut Words, more: &Words) {
    for word in more.iter() {
        args.push(word);
    }
}

fn push_words(args: &mut Words, words: [&str; 4]) {
    for word in words {
        args.push(word);
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}
