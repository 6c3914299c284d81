//! What a limit answers, and the arithmetic from a script's integers to it. Plain functions, no I/O.

use std::time::Duration;

use quaymaster_schema::{Algorithm, LimitSpec, Outage};
use quaymaster_store::Reply;

use super::ops::Verb;
use crate::Result;
use crate::scripts::{self, limit_reset};

/// How a limit stands after a call. `limit` and `remaining` are effective: the safety buffer is taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Calls allowed per window.
    pub limit: u64,
    /// Calls counted now.
    pub used: u64,
    /// Calls that would still pass.
    pub remaining: u64,
    /// Until nothing that is counted now counts any more.
    pub reset_after: Duration,
    /// The policy that answered while the store could not be asked; `None` when the store did.
    pub outage: Option<Outage>,
}

/// The answer of `take`, `peek`, `refund` and `reset`.
#[must_use = "a limited call must not go ahead"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// `take`: the call is counted and may go ahead. Otherwise: a call of cost 1 would pass.
    Allowed(Quota),
    /// The call must not go ahead; nothing was counted.
    Limited {
        /// How the limit stands.
        quota: Quota,
        /// When the same call can pass; `None` when waiting never helps (cost over limit).
        retry_after: Option<Duration>,
    },
}

impl Verdict {
    /// Whether the call may go ahead.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }

    /// How the limit stands.
    pub fn quota(&self) -> &Quota {
        match self {
            Verdict::Allowed(quota) | Verdict::Limited { quota, .. } => quota,
        }
    }

    /// The same, without the verdict.
    pub(crate) fn into_quota(self) -> Quota {
        match self {
            Verdict::Allowed(quota) | Verdict::Limited { quota, .. } => quota,
        }
    }

    /// The same, given by a policy.
    pub(crate) fn under(mut self, policy: Outage) -> Self {
        let (Verdict::Allowed(quota) | Verdict::Limited { quota, .. }) = &mut self;
        quota.outage = Some(policy);
        self
    }

    /// When the same call can pass: zero when it may now, `None` when waiting never helps.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Verdict::Allowed(_) => Some(Duration::ZERO),
            Verdict::Limited { retry_after, .. } => *retry_after,
        }
    }
}

/// The three integers every limit script answers with; what they mean depends on the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// Whether the script let the call pass, or did not judge one (`refund`, `reset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Allowed,
    Limited,
    Changed,
}

/// What a script told.
#[derive(Debug)]
pub(super) enum Told {
    Answer(Word, Raw),
    Reset { reset_ms: u64 },
    Stale { now_ms: i64 },
    Malformed,
    Conflict,
}

impl Told {
    fn answer(word: Word, numbers: [i64; 3]) -> Self {
        Self::Answer(word, raw(numbers))
    }
}

fn raw(numbers: [i64; 3]) -> Raw {
    let [x, y, z] = numbers.map(|number| u64::try_from(number).unwrap_or(0));
    Raw { x, y, z }
}

/// Reads the reply of one script: `judges` or `refunds`, and `wanders` where a bucket in the key may be over.
macro_rules! told {
    (judges $script:ident, $op:ident, $reply:ident $(, $more:ident)*) => {{
        use scripts::$script::Reply;
        match Reply::read($op, $reply)? {
            Reply::Allowed { x, y, z } => Told::answer(Word::Allowed, [x, y, z]),
            Reply::Limited { x, y, z } => Told::answer(Word::Limited, [x, y, z]),
            Reply::Malformed => Told::Malformed,
            $(told!(pattern $more now_ms) => told!(value $more now_ms),)*
        }
    }};
    (refunds $script:ident, $op:ident, $reply:ident $(, $more:ident)*) => {{
        use scripts::$script::Reply;
        match Reply::read($op, $reply)? {
            Reply::Refunded { x, y, z } => Told::answer(Word::Changed, [x, y, z]),
            Reply::Malformed => Told::Malformed,
            Reply::Conflict => Told::Conflict,
            $(told!(pattern $more now_ms) => told!(value $more now_ms),)*
        }
    }};
    (pattern repeats $now_ms:ident) => { Reply::Conflict };
    (value repeats $now_ms:ident) => { Told::Conflict };
    (pattern wanders $now_ms:ident) => { Reply::Stale { $now_ms } };
    (value wanders $now_ms:ident) => { Told::Stale { $now_ms } };
}

/// Reads the reply to `verb`.
pub(super) fn told(verb: Verb, algorithm: Algorithm, reply: Reply) -> Result<Told> {
    use Algorithm::{FixedWindow, SlidingLog, SlidingWindow, TokenBucket};
    let op = verb.op();
    Ok(match (verb, algorithm) {
        (Verb::Take, FixedWindow) => told!(judges limit_take_fixed_window, op, reply, repeats, wanders),
        (Verb::Take, SlidingLog) => told!(judges limit_take_sliding_log, op, reply, repeats),
        (Verb::Take, SlidingWindow) => told!(judges limit_take_sliding_window, op, reply, repeats),
        (Verb::Take, TokenBucket) => told!(judges limit_take_token_bucket, op, reply, repeats),
        (Verb::Peek, FixedWindow) => told!(judges limit_peek_fixed_window, op, reply, wanders),
        (Verb::Peek, SlidingLog) => told!(judges limit_peek_sliding_log, op, reply),
        (Verb::Peek, SlidingWindow) => told!(judges limit_peek_sliding_window, op, reply),
        (Verb::Peek, TokenBucket) => told!(judges limit_peek_token_bucket, op, reply),
        (Verb::Refund, FixedWindow) => told!(refunds limit_refund_fixed_window, op, reply, wanders),
        (Verb::Refund, SlidingLog) => told!(refunds limit_refund_sliding_log, op, reply),
        (Verb::Refund, SlidingWindow) => told!(refunds limit_refund_sliding_window, op, reply),
        (Verb::Refund, TokenBucket) => told!(refunds limit_refund_token_bucket, op, reply),
        (Verb::Reset, _) => match limit_reset::Reply::read(op, reply)? {
            limit_reset::Reply::Reset { reset_ms } => {
                Told::Reset { reset_ms: u64::try_from(reset_ms).unwrap_or(0) }
            }
            limit_reset::Reply::Stale { now_ms } => Told::Stale { now_ms },
            limit_reset::Reply::Conflict => Told::Conflict,
        },
    })
}

/// What one limit among several said.
pub(super) fn among_others(op: &'static str, word: &[u8], numbers: [i64; 3]) -> Result<(Word, Raw)> {
    let word = match word {
        b"allowed" => Word::Allowed,
        b"limited" => Word::Limited,
        other => return Err(scripts::unknown(op, other)),
    };
    Ok((word, raw(numbers)))
}

/// What the scripts' numbers mean for a call of `cost`.
pub(crate) fn verdict(spec: &LimitSpec, word: Word, raw: Raw, cost: u64) -> Verdict {
    let limit = spec.effective();
    let window_ms = millis(spec.window);
    // A fixed window with a bucket ends at its end even when nothing is counted in it.
    let fixed = spec.algorithm == Algorithm::FixedWindow;
    let (used, reset_ms) = match spec.algorithm {
        Algorithm::FixedWindow | Algorithm::SlidingLog => (raw.x, raw.y),
        Algorithm::SlidingWindow => {
            (weighted(raw, window_ms), if raw.y > 0 { 2 * window_ms - raw.z } else { window_ms - raw.z })
        }
        Algorithm::TokenBucket => {
            (tokens(spec, raw), raw.x.saturating_add(u64::from(raw.y > 0)).div_ceil(1000))
        }
    };
    let quota = Quota {
        limit,
        used,
        remaining: limit.saturating_sub(used),
        reset_after: Duration::from_millis(if used == 0 && !fixed { 0 } else { reset_ms }),
        outage: None,
    };
    let passes = match word {
        Word::Allowed => true,
        Word::Limited => false,
        Word::Changed => quota.remaining >= 1,
    };
    if passes {
        return Verdict::Allowed(quota);
    }
    let cost = if word == Word::Changed { 1 } else { cost };
    let retry_ms = (cost <= limit).then(|| match spec.algorithm {
        // A counter that ends by itself lives through its last millisecond.
        Algorithm::FixedWindow => reset_ms + u64::from(raw.z > 0),
        Algorithm::SlidingLog => raw.z,
        Algorithm::SlidingWindow => weighted_retry(raw, window_ms, limit, cost),
        Algorithm::TokenBucket => token_retry(spec, raw, cost),
    });
    Verdict::Limited { quota, retry_after: retry_ms.map(|ms| Duration::from_millis(ms.max(1))) }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// `ceil(previous × share still covered) + current`, as the script computes it.
fn weighted(raw: Raw, window_ms: u64) -> u64 {
    let covered = u128::from(window_ms.saturating_sub(raw.z));
    let share = (u128::from(raw.x) * covered).div_ceil(u128::from(window_ms.max(1)));
    raw.y.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
}

/// Milliseconds until a call of `cost` passes if nobody else calls: in this window while the one before
/// fades, or in the next one while this one fades.
fn weighted_retry(raw: Raw, window_ms: u64, limit: u64, cost: u64) -> u64 {
    let room = limit - cost;
    let left_ms = window_ms.saturating_sub(raw.z);
    if raw.y <= room {
        return left_ms.saturating_sub(longest_cover(raw.x, room - raw.y, window_ms));
    }
    left_ms + (window_ms - longest_cover(raw.y, room, window_ms))
}

/// The longest cover at which `count` calls spread over a window weigh at most `room`.
fn longest_cover(count: u64, room: u64, window_ms: u64) -> u64 {
    if count <= room {
        return window_ms;
    }
    let cover = u128::from(room) * u128::from(window_ms) / u128::from(count);
    u64::try_from(cover).unwrap_or(window_ms)
}

/// What a cost adds to the theoretical arrival time: whole microseconds and parts of 1/limit.
pub(crate) fn increment(spec: &LimitSpec, cost: u64) -> (u64, u64) {
    let limit = u128::from(spec.effective().max(1));
    let total = u128::from(cost) * u128::from(micros(spec.window));
    // More than a hundred windows is refused like any more, and must stay exact in Lua.
    let whole = u64::try_from(total / limit).unwrap_or(u64::MAX).min(micros(spec.window).saturating_mul(100));
    (whole, u64::try_from(total % limit).unwrap_or(0))
}

/// Tokens out of the bucket, rounded up.
fn tokens(spec: &LimitSpec, raw: Raw) -> u64 {
    let limit = u128::from(spec.effective());
    let out =
        (u128::from(raw.x) * limit + u128::from(raw.y)).div_ceil(u128::from(micros(spec.window).max(1)));
    u64::try_from(out).unwrap_or(u64::MAX)
}

/// Milliseconds until the bucket has `cost` tokens again, rounded up.
fn token_retry(spec: &LimitSpec, raw: Raw, cost: u64) -> u64 {
    let (inc_us, inc_part) = increment(spec, cost);
    let parts = u64::from(raw.y + inc_part > 0) + u64::from(raw.y + inc_part > spec.effective());
    let ahead_us = raw.x.saturating_add(inc_us).saturating_add(parts);
    ahead_us.saturating_sub(micros(spec.window)).div_ceil(1000)
}
