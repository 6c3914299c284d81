//! One function per operation: the call it becomes. No policy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Invocation, Words, Workload};

use super::answer::Redriven;
use super::keys::{Place, Role};
use super::{CLAIM_BYTES, Lease};
use crate::{Operation, Result, scripts};

pub(super) const PUSH: &str = "queue.push";
pub(super) const CLAIM: &str = "queue.claim";
pub(super) const ACK: &str = "queue.ack";
pub(super) const NACK: &str = "queue.nack";
pub(super) const EXTEND: &str = "queue.extend";
pub(super) const RELEASE: &str = "queue.release";
pub(super) const PRESSURE: &str = "queue.pressure";
pub(super) const PAUSE: &str = "queue.pause";
pub(super) const RESUME: &str = "queue.resume";
pub(super) const PEEK: &str = "queue.peek";
pub(super) const DEAD: &str = "queue.dead";
pub(super) const REDRIVE: &str = "queue.redrive";
pub(super) const PURGE: &str = "queue.purge";
pub(super) const SWEEP: &str = "queue.sweep";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// How long a caller's id is remembered.
const ID_MS: i64 = 86_400_000;

/// How long a dying job is held at least for who buries it.
const BURY_MS: i64 = 10_000;

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn call(operation: &'static Operation) -> Invocation {
    Invocation::new(&operation.script, Workload::Queue)
}

/// A call on `count` items: one for itself, or several at once.
fn call_of(count: usize, operation: &'static Operation) -> Invocation {
    let call = call(operation);
    if count > 1 { call.compound() } else { call }
}

/// Whether a request that comes again is recognised.
fn asked(call: Invocation, request_id: Option<&str>) -> Invocation {
    if request_id.is_some() { call.repeat_safe() } else { call }
}

/// A dedupe that a push asks.
pub(super) struct First {
    pub(super) key: Vec<u8>,
    pub(super) value: Bytes,
    pub(super) ttl: Duration,
    pub(super) bucket_ms: (i64, i64),
}

/// What a push carries beside its items.
#[derive(Default)]
pub(super) struct Marks<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) first: Option<First>,
    pub(super) request_id: Option<&'a str>,
}

pub(super) fn push(
    place: &Place,
    items: &[Bytes],
    priority: f64,
    delay: Duration,
    marks: Marks<'_>,
) -> Result<Invocation> {
    let mut call = call_of(items.len() + usize::from(marks.first.is_some()), &scripts::QUEUE_PUSH);
    place.bind_add(&mut call.keys);
    add(place, items, priority, delay, &mut call.args);
    let mut letters = String::new();
    if let Some(id) = marks.id {
        place.bind_id(PUSH, id, &mut call.keys)?;
        letters.push('i');
    }
    if let Some(first) = &marks.first {
        call.keys.push(&first.key);
        letters.push('d');
    }
    if marks.request_id.is_some() {
        place.bind_request(PUSH, marks.request_id, &mut call.keys)?;
        letters.push('r');
    }
    if !letters.is_empty() {
        let none = First { key: Vec::new(), value: Bytes::new(), ttl: Duration::ZERO, bucket_ms: (0, 0) };
        let first = marks.first.as_ref().unwrap_or(&none);
        call.args.push(letters);
        call.args.push_int(ID_MS);
        call.args.push(&first.value);
        call.args.push_int(millis(first.ttl));
        call.args.push_int(first.bucket_ms.0);
        call.args.push_int(first.bucket_ms.1);
        call.args.push_int(KEEP_MS);
    }
    Ok(asked(call, marks.request_id))
}

/// The words of something added to a queue.
pub(super) fn add(place: &Place, items: &[Bytes], priority: f64, delay: Duration, args: &mut Words) {
    args.push(place.order());
    args.push_int(place.max_size());
    args.push(place.policy());
    args.push_int(millis(delay));
    args.push(priority.to_string());
    args.push_int(items.len() as i64);
    for item in items {
        args.push(item);
    }
}

/// One claim's terms.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) count: usize,
    pub(super) lease: Duration,
    pub(super) token: Arc<str>,
    pub(super) worker: Option<String>,
}

fn terms(place: &Place, terms: &Terms, args: &mut Words) {
    args.push(place.order());
    args.push_int(terms.count as i64);
    args.push_int(millis(terms.lease));
    args.push(&*terms.token);
    args.push(terms.worker.as_deref().unwrap_or("-"));
    args.push_int(i64::from(place.spec.retry.max_attempts));
    args.push_int(CLAIM_BYTES as i64);
    args.push_int(place.bounds().largest_item() as i64);
    args.push_int(KEEP_MS);
}

pub(super) fn claim(place: &Place, how: &Terms, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call_of(how.count, &scripts::QUEUE_CLAIM);
    place.bind_claim(&mut call.keys);
    place.bind_request(CLAIM, request_id, &mut call.keys)?;
    terms(place, how, &mut call.args);
    Ok(asked(call, request_id))
}

pub(super) fn ack(place: &Place, leases: &[Lease], request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call_of(leases.len(), &scripts::QUEUE_ACK);
    place.bind(&[Role::Jobs, Role::Held, Role::Leases, Role::Meta], &mut call.keys);
    place.bind_request(ACK, request_id, &mut call.keys)?;
    call.args.push_int(KEEP_MS);
    group(leases, &mut call.args);
    Ok(asked(call, request_id))
}

pub(super) fn ack_claim(
    place: &Place,
    leases: &[Lease],
    how: &Terms,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_ACK_CLAIM).compound();
    place.bind_claim(&mut call.keys);
    place.bind_request(ACK, request_id, &mut call.keys)?;
    terms(place, how, &mut call.args);
    group(leases, &mut call.args);
    Ok(asked(call, request_id))
}

/// What follows from an ack: its keys, and its words with their kind.
#[derive(Default)]
pub(super) struct Part {
    pub(super) kind: &'static str,
    pub(super) keys: Words,
    pub(super) words: Words,
}

/// `how.count` is 0 where nothing is claimed.
pub(super) fn ack_then(
    place: &Place,
    leases: &[Lease],
    parts: &[Part],
    how: &Terms,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_ACK_THEN).compound();
    place.bind_claim(&mut call.keys);
    terms(place, how, &mut call.args);
    call.args.push(if request_id.is_some() { "1" } else { "0" });
    call.args.push_int(parts.len() as i64);
    for part in parts {
        for key in part.keys.iter() {
            call.keys.push(key);
        }
        call.args.push(part.kind);
        call.args.push_int(part.words.len() as i64);
        for word in part.words.iter() {
            call.args.push(word);
        }
    }
    place.bind_request(ACK, request_id, &mut call.keys)?;
    group(leases, &mut call.args);
    Ok(asked(call, request_id))
}

/// Leases by what their records begin with: prefix, count, ids; and again.
fn group(leases: &[Lease], args: &mut Words) {
    let mut sorted: Vec<&Lease> = leases.iter().collect();
    let by = |lease: &&Lease| (lease.token().clone(), lease.attempt());
    if !sorted.windows(2).all(|pair| by(&pair[0]) == by(&pair[1])) {
        sorted.sort_by(|one, two| (one.token(), one.attempt()).cmp(&(two.token(), two.attempt())));
    }
    for alike in sorted.chunk_by(|one, two| one.token() == two.token() && one.attempt() == two.attempt()) {
        args.push(alike[0].prefix());
        args.push_int(alike.len() as i64);
        for lease in alike {
            args.push_int(lease.id() as i64);
        }
    }
}

pub(super) fn nack(
    place: &Place,
    lease: &Lease,
    delay: Duration,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_NACK);
    place.bind(&[Role::Held, Role::Leases, Role::Delayed, Role::Meta], &mut call.keys);
    place.bind_request(NACK, request_id, &mut call.keys)?;
    call.args.push_int(lease.id() as i64);
    call.args.push(lease.prefix());
    call.args.push_int(millis(delay));
    call.args.push_int(KEEP_MS);
    Ok(asked(call, request_id))
}

/// Reads, and holds the lease a little longer: it may be sent again.
pub(super) fn dying(place: &Place, lease: &Lease, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_DYING).repeat_safe();
    place.bind(&[Role::Jobs, Role::Held, Role::Leases], &mut call.keys);
    place.bind_request(NACK, request_id, &mut call.keys)?;
    call.args.push_int(lease.id() as i64);
    call.args.push(lease.prefix());
    call.args.push_int(BURY_MS);
    Ok(call)
}

/// What a burial does with the record of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request<'a> {
    /// There is none.
    Without,
    /// The nack that buries is answered so again.
    Keep(&'a str),
    /// The claim that got nothing else is asked anew.
    Forget(&'a str),
}

pub(super) fn bury(place: &Place, letters: &[(Lease, Vec<u8>)], request: Request<'_>) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_BURY).compound();
    place.bind(&[Role::Jobs, Role::Held, Role::Leases, Role::Dead, Role::Meta], &mut call.keys);
    let (id, keep_ms) = match request {
        Request::Without => (None, KEEP_MS),
        Request::Keep(id) => (Some(id), KEEP_MS),
        Request::Forget(id) => (Some(id), 0),
    };
    place.bind_request(NACK, id, &mut call.keys)?;
    call.args.push_int(keep_ms);
    for (lease, letter) in letters {
        call.args.push(lease.prefix());
        call.args.push_int(lease.id() as i64);
        call.args.push(letter);
    }
    Ok(call)
}

/// A job that is back already is not found again: it may be sent again, but tells less then.
pub(super) fn release(place: &Place, leases: &[Lease]) -> Invocation {
    let mut call = call_of(leases.len(), &scripts::QUEUE_RELEASE).repeat_safe();
    place.bind(&[Role::Held, Role::Leases, Role::Delayed], &mut call.keys);
    group(leases, &mut call.args);
    call
}

/// Extending twice is extending once.
pub(super) fn extend(place: &Place, leases: &[Lease], lease: Duration) -> Invocation {
    let mut call = call_of(leases.len(), &scripts::QUEUE_EXTEND).repeat_safe();
    place.bind(&[Role::Held, Role::Leases], &mut call.keys);
    call.args.push_int(millis(lease));
    group(leases, &mut call.args);
    call
}

pub(super) fn pressure(place: &Place) -> Invocation {
    let mut call = call(&scripts::QUEUE_PRESSURE);
    let first = [Role::Items, Role::Meta, Role::Stamps, Role::Overflow];
    place.bind(&first, &mut call.keys);
    place.bind(&[Role::Dead, Role::Delayed, Role::Leases], &mut call.keys);
    call.args.push(place.order());
    call
}

pub(super) fn pause(place: &Place, paused: bool) -> Invocation {
    let mut call = call(&scripts::QUEUE_PAUSE).repeat_safe();
    place.bind(&[Role::Meta], &mut call.keys);
    call.args.push(if paused { "1" } else { "0" });
    call
}

pub(super) fn peek(place: &Place, count: usize) -> Invocation {
    let mut call = call(&scripts::QUEUE_PEEK).compound();
    place.bind(&[Role::Items], &mut call.keys);
    call.args.push(place.order());
    call.args.push_int(count as i64);
    call.args.push_int(CLAIM_BYTES as i64);
    call
}

pub(super) fn dead(place: &Place, offset: u64, count: usize) -> Invocation {
    let mut call = call(&scripts::QUEUE_DEAD).compound();
    place.bind(&[Role::Dead], &mut call.keys);
    call.args.push_int(i64::try_from(offset).unwrap_or(i64::MAX / 2));
    call.args.push_int(count as i64);
    call.args.push_int(CLAIM_BYTES as i64);
    call
}

/// A letter that becomes a job again.
pub(super) struct Again {
    pub(super) index: u64,
    pub(super) letter: Bytes,
    pub(super) priority: f64,
    pub(super) item: Bytes,
}

/// How far a call of many steps has come; with an answer, that it is done. Sent again it says the same.
pub(super) fn progress(
    place: &Place,
    op: &'static str,
    request_id: &str,
    answer: Option<Redriven>,
) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_PROGRESS).repeat_safe();
    place.bind_request(op, Some(request_id), &mut call.keys)?;
    call.args.push(op.strip_prefix("queue.").unwrap_or(op));
    call.args.push_int(KEEP_MS);
    call.args.push(if answer.is_some() { "1" } else { "0" });
    let answer = answer.unwrap_or_default();
    for number in [answer.moved, answer.left, u64::from(answer.full)] {
        call.args.push_int(number as i64);
    }
    Ok(call)
}

pub(super) fn redrive(place: &Place, letters: &[Again], request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_REDRIVE).compound();
    place.bind_add(&mut call.keys);
    place.bind(&[Role::Dead], &mut call.keys);
    place.bind_request(REDRIVE, request_id, &mut call.keys)?;
    call.args.push(place.order());
    call.args.push_int(place.max_size());
    call.args.push(stone());
    call.args.push_int(KEEP_MS);
    for again in letters {
        call.args.push_int(again.index as i64);
        call.args.push(&again.letter);
        call.args.push(again.priority.to_string());
        call.args.push(&again.item);
    }
    Ok(call)
}

pub(super) fn redrive_overflow(place: &Place, count: usize, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_REDRIVE_OVERFLOW).compound();
    place.bind_add(&mut call.keys);
    place.bind_request(REDRIVE, request_id, &mut call.keys)?;
    call.args.push(place.order());
    call.args.push_int(place.max_size());
    call.args.push_int(count as i64);
    call.args.push_int(KEEP_MS);
    Ok(call)
}

pub(super) fn purge(place: &Place, count: u64, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_PURGE).compound();
    place.bind(&[Role::Dead], &mut call.keys);
    place.bind_request(PURGE, request_id, &mut call.keys)?;
    call.args.push_int(count as i64);
    call.args.push_int(KEEP_MS);
    Ok(call)
}

pub(super) fn purge_aged(
    place: &Place,
    letters: &[(u64, Bytes)],
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = call(&scripts::QUEUE_PURGE_AGED).compound();
    place.bind(&[Role::Dead], &mut call.keys);
    place.bind_request(PURGE, request_id, &mut call.keys)?;
    call.args.push(stone());
    call.args.push_int(KEEP_MS);
    for (index, letter) in letters {
        call.args.push_int(*index as i64);
        call.args.push(letter);
    }
    Ok(call)
}

/// What no letter is: it stands in a list within one script only.
fn stone() -> String {
    format!("\0removed {}", crate::Token::random().as_str())
}

pub(super) fn sweep(place: &Place, count: usize, token: &str) -> Invocation {
    let mut call = call(&scripts::QUEUE_SWEEP).compound();
    let roles = [Role::Jobs, Role::Held, Role::Leases, Role::Delayed, Role::Meta];
    place.bind(&roles, &mut call.keys);
    call.args.push_int(count as i64);
    call.args.push_int(BURY_MS.max(millis(place.spec.lease)));
    call.args.push(token);
    call.args.push_int(i64::from(place.spec.retry.max_attempts));
    call.args.push_int(CLAIM_BYTES as i64);
    call
}
