//! One function per operation: the call it becomes. No policy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Invocation, Words, Workload};

use super::answer::Redriven;
use super::ask::Scores;
use super::keys::{Place, Role};
use super::{CLAIM_BYTES, Lease};
use crate::Result;
use crate::bound::KeyBinding::Spelled;
use crate::scripts::{
    At, BytesList, ClaimArgs, IntList, LeasesArgs, LeasesArgsList, QueueArgs, queue_ack, queue_ack_claim,
    queue_ack_then, queue_bury, queue_claim, queue_dead, queue_dying, queue_extend, queue_nack, queue_pause,
    queue_peek, queue_pressure, queue_progress, queue_purge, queue_purge_aged, queue_push, queue_range,
    queue_redrive, queue_redrive_overflow, queue_release, queue_sweep, queue_trim,
};

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
pub(super) const RANGE: &str = "queue.range";
pub(super) const TRIM: &str = "queue.trim";
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

fn at(place: &Place, op: &'static str) -> At {
    place.bound.at(op, Workload::Queue)
}

/// A call on `count` items: one for itself, or several at once.
fn of_many(count: usize, call: Invocation) -> Invocation {
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
    let Marks { id, first, request_id } = marks;
    let id_key = id.map(|id| place.id_key(PUSH, id)).transpose()?;
    let letters = match (id.is_some(), first.is_some(), request_id.is_some()) {
        (false, false, false) => None,
        (true, false, false) => Some("i"),
        (false, true, false) => Some("d"),
        (false, false, true) => Some("r"),
        (true, true, false) => Some("id"),
        (true, false, true) => Some("ir"),
        (false, true, true) => Some("dr"),
        (true, true, true) => Some("idr"),
    };
    let none = First { key: Vec::new(), value: Bytes::new(), ttl: Duration::ZERO, bucket_ms: (0, 0) };
    let kept = first.as_ref().unwrap_or(&none);
    let call = queue_push::Call {
        queue: place.add_keys(),
        id: id_key.as_deref().map(Spelled),
        first: first.as_ref().map(|first| Spelled(&first.key)),
        request: place.request(request_id),
        add: added(place, items.len(), &priority.to_string(), delay, &|args| put_all(items, args)),
        marks: letters.map(|letters| queue_push::Marks {
            letters,
            id_ms: ID_MS,
            value: &kept.value,
            ttl_ms: millis(kept.ttl),
            start_ms: kept.bucket_ms.0,
            end_ms: kept.bucket_ms.1,
            keep_ms: KEEP_MS,
        }),
    }
    .on(at(place, PUSH))?;
    Ok(asked(of_many(items.len() + usize::from(first.is_some()), call), request_id))
}

/// The words of something added to a queue.
fn added<'a>(
    place: &Place,
    count: usize,
    score: &'a str,
    delay: Duration,
    payloads: &'a dyn Fn(&mut BytesList<'_>),
) -> QueueArgs<'a> {
    QueueArgs {
        order: place.order(),
        max_size: place.max_size(),
        policy: place.policy(),
        delay_ms: millis(delay),
        score,
        count: count as i64,
        payloads,
    }
}

fn put_all(items: &[Bytes], args: &mut BytesList<'_>) {
    for item in items {
        args.put(item);
    }
}

/// Appends the words of something added to a queue.
pub(super) fn add(place: &Place, items: &[Bytes], priority: f64, delay: Duration, args: &mut Words) {
    added(place, items.len(), &priority.to_string(), delay, &|args| put_all(items, args)).put(args);
}

/// One claim's terms.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) count: usize,
    pub(super) lease: Duration,
    pub(super) token: Arc<str>,
    pub(super) worker: Option<String>,
}

fn terms<'a>(place: &Place, terms: &'a Terms) -> ClaimArgs<'a> {
    ClaimArgs {
        order: place.order(),
        count: terms.count as i64,
        lease_ms: millis(terms.lease),
        token: &terms.token,
        worker: terms.worker.as_deref().unwrap_or("-"),
        max_attempts: i64::from(place.spec.retry.max_attempts),
        budget: CLAIM_BYTES as i64,
        largest: place.bounds().largest_item() as i64,
    }
}

pub(super) fn claim(place: &Place, how: &Terms, request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_claim::Call {
        queue: place.claim_keys(),
        request: place.request(request_id),
        terms: terms(place, how),
        keep_ms: KEEP_MS,
    };
    Ok(asked(of_many(how.count, call.on(at(place, CLAIM))?), request_id))
}

pub(super) fn ack(place: &Place, leases: &[Lease], request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_ack::Call {
        jobs: place.spelled(Role::Jobs),
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        meta: place.spelled(Role::Meta),
        request: place.request(request_id),
        keep_ms: KEEP_MS,
        given: &|args| group(leases, args),
    };
    Ok(asked(of_many(leases.len(), call.on(at(place, ACK))?), request_id))
}

pub(super) fn ack_claim(
    place: &Place,
    leases: &[Lease],
    how: &Terms,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = queue_ack_claim::Call {
        queue: place.claim_keys(),
        request: place.request(request_id),
        terms: terms(place, how),
        keep_ms: KEEP_MS,
        given: &|args| group(leases, args),
    };
    Ok(asked(call.on(at(place, ACK))?.compound(), request_id))
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
    let call = queue_ack_then::Call {
        queue: place.claim_keys(),
        targets: &|keys| {
            parts.iter().flat_map(|part| part.keys.iter()).try_for_each(|key| keys.put(Spelled(key)))
        },
        request: place.request(request_id),
        terms: terms(place, how),
        keep_ms: KEEP_MS,
        asked: if request_id.is_some() { "1" } else { "0" },
        count: parts.len() as i64,
        parts: &|args| {
            for Part { kind, words, .. } in parts {
                let count = words.len() as i64;
                let words = &|args: &mut BytesList<'_>| words.iter().for_each(|word| args.put(word));
                args.put(queue_ack_then::PartsRow { kind, count, words });
            }
        },
        given: &|args| group(leases, args),
    };
    Ok(asked(call.on(at(place, ACK))?.compound(), request_id))
}

/// Leases by what their records begin with: prefix, count, ids; and again.
fn group(leases: &[Lease], args: &mut LeasesArgsList<'_>) {
    let mut sorted: Vec<&Lease> = leases.iter().collect();
    let by = |lease: &&Lease| (lease.token().clone(), lease.attempt());
    if !sorted.windows(2).all(|pair| by(&pair[0]) == by(&pair[1])) {
        sorted.sort_by(|one, two| (one.token(), one.attempt()).cmp(&(two.token(), two.attempt())));
    }
    for alike in sorted.chunk_by(|one, two| one.token() == two.token() && one.attempt() == two.attempt()) {
        let (prefix, count) = (&*alike[0].prefix(), alike.len() as i64);
        let ids = &|args: &mut IntList<'_>| alike.iter().for_each(|lease| args.put(lease.id() as i64));
        args.put(LeasesArgs { prefix, count, ids });
    }
}

pub(super) fn nack(
    place: &Place,
    lease: &Lease,
    delay: Duration,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = queue_nack::Call {
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        delayed: place.spelled(Role::Delayed),
        meta: place.spelled(Role::Meta),
        request: place.request(request_id),
        id: lease.id() as i64,
        prefix: &lease.prefix(),
        delay_ms: millis(delay),
        keep_ms: KEEP_MS,
    };
    Ok(asked(call.on(at(place, NACK))?, request_id))
}

/// Reads, and holds the lease a little longer: it may be sent again.
pub(super) fn dying(place: &Place, lease: &Lease, request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_dying::Call {
        jobs: place.spelled(Role::Jobs),
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        request: place.request(request_id),
        id: lease.id() as i64,
        prefix: &lease.prefix(),
        hold_ms: BURY_MS,
    };
    Ok(call.on(at(place, NACK))?.repeat_safe())
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
    let (id, keep_ms) = match request {
        Request::Without => (None, KEEP_MS),
        Request::Keep(id) => (Some(id), KEEP_MS),
        Request::Forget(id) => (Some(id), 0),
    };
    let call = queue_bury::Call {
        jobs: place.spelled(Role::Jobs),
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        dead: place.spelled(Role::Dead),
        meta: place.spelled(Role::Meta),
        request: place.request(id),
        keep_ms,
        letters: &|args| {
            for (lease, letter) in letters {
                let (prefix, id) = (&*lease.prefix(), lease.id() as i64);
                args.put(queue_bury::LettersRow { prefix, id, letter });
            }
        },
    };
    Ok(call.on(at(place, NACK))?.compound())
}

/// A job that is back already is not found again: it may be sent again, but tells less then.
pub(super) fn release(place: &Place, leases: &[Lease]) -> Result<Invocation> {
    let call = queue_release::Call {
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        delayed: place.spelled(Role::Delayed),
        given: &|args| group(leases, args),
    };
    Ok(of_many(leases.len(), call.on(at(place, RELEASE))?).repeat_safe())
}

/// Extending twice is extending once.
pub(super) fn extend(place: &Place, leases: &[Lease], lease: Duration) -> Result<Invocation> {
    let call = queue_extend::Call {
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        lease_ms: millis(lease),
        given: &|args| group(leases, args),
    };
    Ok(of_many(leases.len(), call.on(at(place, EXTEND))?).repeat_safe())
}

pub(super) fn pressure(place: &Place) -> Result<Invocation> {
    let call = queue_pressure::Call {
        items: place.spelled(Role::Items),
        meta: place.spelled(Role::Meta),
        stamps: place.spelled(Role::Stamps),
        overflow: place.spelled(Role::Overflow),
        dead: place.spelled(Role::Dead),
        delayed: place.spelled(Role::Delayed),
        leases: place.spelled(Role::Leases),
        order: place.order(),
    };
    call.on(at(place, PRESSURE))
}

pub(super) fn pause(place: &Place, op: &'static str, paused: bool) -> Result<Invocation> {
    let call = queue_pause::Call { meta: place.spelled(Role::Meta), paused: if paused { "1" } else { "0" } };
    Ok(call.on(at(place, op))?.repeat_safe())
}

pub(super) fn peek(place: &Place, count: usize) -> Result<Invocation> {
    let call = queue_peek::Call {
        items: place.spelled(Role::Items),
        order: place.order(),
        count: count as i64,
        budget: CLAIM_BYTES as i64,
    };
    Ok(call.on(at(place, PEEK))?.compound())
}

/// Two scores as the store reads them.
fn two_scores(scores: Scores) -> (String, String) {
    let text = |score: Option<f64>, none: &str| score.map_or(none.to_owned(), |score| score.to_string());
    (text(scores.min, "-inf"), text(scores.max, "+inf"))
}

pub(super) fn range(place: &Place, scores: Scores, offset: u64, count: usize) -> Result<Invocation> {
    let (min, max) = two_scores(scores);
    let call = queue_range::Call {
        items: place.spelled(Role::Items),
        min: &min,
        max: &max,
        offset: i64::try_from(offset).unwrap_or(i64::MAX / 2),
        count: count as i64,
        budget: CLAIM_BYTES as i64,
    };
    Ok(call.on(at(place, RANGE))?.compound())
}

pub(super) fn trim(
    place: &Place,
    scores: Scores,
    count: u64,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let (min, max) = two_scores(scores);
    let call = queue_trim::Call {
        items: place.spelled(Role::Items),
        meta: place.spelled(Role::Meta),
        request: place.request(request_id),
        min: &min,
        max: &max,
        count: count as i64,
        keep_ms: KEEP_MS,
    };
    Ok(call.on(at(place, TRIM))?.compound())
}

pub(super) fn dead(place: &Place, op: &'static str, offset: u64, count: usize) -> Result<Invocation> {
    let call = queue_dead::Call {
        dead: place.spelled(Role::Dead),
        offset: i64::try_from(offset).unwrap_or(i64::MAX / 2),
        count: count as i64,
        budget: CLAIM_BYTES as i64,
    };
    Ok(call.on(at(place, op))?.compound())
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
    let done = if answer.is_some() { "1" } else { "0" };
    let answer = answer.unwrap_or_default();
    let call = queue_progress::Call {
        request: place.bound.request(&[], request_id),
        op: op.strip_prefix("queue.").unwrap_or(op),
        keep_ms: KEEP_MS,
        done,
        total: answer.moved as i64,
        left: answer.left as i64,
        full: i64::from(answer.full),
    };
    Ok(call.on(at(place, op))?.repeat_safe())
}

pub(super) fn redrive(place: &Place, letters: &[Again], request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_redrive::Call {
        queue: place.add_keys(),
        dead: place.spelled(Role::Dead),
        request: place.request(request_id),
        order: place.order(),
        max_size: place.max_size(),
        stone: stone().as_bytes(),
        keep_ms: KEEP_MS,
        letters: &|args| {
            for Again { index, letter, priority, item } in letters {
                let score = &priority.to_string();
                args.put(queue_redrive::LettersRow { index: *index as i64, letter, score, item });
            }
        },
    }
    .on(at(place, REDRIVE))?;
    Ok(call.compound())
}

pub(super) fn redrive_overflow(place: &Place, count: usize, request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_redrive_overflow::Call {
        queue: place.add_keys(),
        request: place.request(request_id),
        order: place.order(),
        max_size: place.max_size(),
        count: count as i64,
        keep_ms: KEEP_MS,
    };
    Ok(call.on(at(place, REDRIVE))?.compound())
}

pub(super) fn purge(place: &Place, count: u64, request_id: Option<&str>) -> Result<Invocation> {
    let call = queue_purge::Call {
        dead: place.spelled(Role::Dead),
        request: place.request(request_id),
        count: count as i64,
        keep_ms: KEEP_MS,
    };
    Ok(call.on(at(place, PURGE))?.compound())
}

pub(super) fn purge_aged(
    place: &Place,
    letters: &[(u64, Bytes)],
    request_id: Option<&str>,
) -> Result<Invocation> {
    let call = queue_purge_aged::Call {
        dead: place.spelled(Role::Dead),
        request: place.request(request_id),
        stone: stone().as_bytes(),
        keep_ms: KEEP_MS,
        letters: &|args| {
            for (index, letter) in letters {
                args.put(queue_purge_aged::LettersRow { index: *index as i64, letter });
            }
        },
    }
    .on(at(place, PURGE))?;
    Ok(call.compound())
}

/// What no letter is: it stands in a list within one script only.
fn stone() -> String {
    format!("\0removed {}", crate::Token::random().as_str())
}

pub(super) fn sweep(place: &Place, count: usize, token: &str) -> Result<Invocation> {
    let call = queue_sweep::Call {
        jobs: place.spelled(Role::Jobs),
        held: place.spelled(Role::Held),
        leases: place.spelled(Role::Leases),
        delayed: place.spelled(Role::Delayed),
        meta: place.spelled(Role::Meta),
        count: count as i64,
        lease_ms: BURY_MS.max(millis(place.spec.lease)),
        token,
        max_attempts: i64::from(place.spec.retry.max_attempts),
        budget: CLAIM_BYTES as i64,
    };
    Ok(call.on(at(place, SWEEP))?.compound())
}
