//! One function per operation: the call it becomes. No policy.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quaymaster_schema::{Algorithm, Bucket, LimitSpec};
use quaymaster_store::{Invocation, Script, Words, Workload};

use super::answer::{increment, micros, millis};
use crate::scripts;

/// Above every limit a schema may declare, and still counted exactly by Lua: a larger cost is refused, and a
/// larger refund empties the counter, just the same.
const COST_MAX: u64 = 2_000_000_000_000_000;

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// Which operation a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Take,
    Peek,
    Refund,
    Reset,
}

impl Verb {
    pub(crate) const fn op(self) -> &'static str {
        match self {
            Verb::Take => "limit.take",
            Verb::Peek => "limit.peek",
            Verb::Refund => "limit.refund",
            Verb::Reset => "limit.reset",
        }
    }

    fn script(self, algorithm: Algorithm) -> &'static Script {
        use Algorithm::{FixedWindow, SlidingLog, SlidingWindow, TokenBucket};
        let operation = match (self, algorithm) {
            (Verb::Take, FixedWindow) => &scripts::LIMIT_TAKE_FIXED_WINDOW,
            (Verb::Take, SlidingLog) => &scripts::LIMIT_TAKE_SLIDING_LOG,
            (Verb::Take, SlidingWindow) => &scripts::LIMIT_TAKE_SLIDING_WINDOW,
            (Verb::Take, TokenBucket) => &scripts::LIMIT_TAKE_TOKEN_BUCKET,
            (Verb::Peek, FixedWindow) => &scripts::LIMIT_PEEK_FIXED_WINDOW,
            (Verb::Peek, SlidingLog) => &scripts::LIMIT_PEEK_SLIDING_LOG,
            (Verb::Peek, SlidingWindow) => &scripts::LIMIT_PEEK_SLIDING_WINDOW,
            (Verb::Peek, TokenBucket) => &scripts::LIMIT_PEEK_TOKEN_BUCKET,
            (Verb::Refund, FixedWindow) => &scripts::LIMIT_REFUND_FIXED_WINDOW,
            (Verb::Refund, SlidingLog) => &scripts::LIMIT_REFUND_SLIDING_LOG,
            (Verb::Refund, SlidingWindow) => &scripts::LIMIT_REFUND_SLIDING_WINDOW,
            (Verb::Refund, TokenBucket) => &scripts::LIMIT_REFUND_TOKEN_BUCKET,
            (Verb::Reset, _) => &scripts::LIMIT_RESET,
        };
        &operation.script
    }
}

/// The call of `verb` with its arguments; keys are bound by the caller.
pub(super) fn call(
    verb: Verb,
    spec: &LimitSpec,
    cost: u64,
    bucket: Option<Bucket>,
    keys: Words,
) -> Invocation {
    let mut call = Invocation::new(verb.script(spec.algorithm), Workload::RateLimit);
    // Without a request the last argument is not needed, and every argument costs the server a fifth of a
    // microsecond.
    let keeps = verb != Verb::Peek && (verb != Verb::Take || keys.len() > 1);
    call.keys = keys;
    if verb == Verb::Reset {
        let (start, end) = bounds(bucket);
        call.args.push_int(start);
        call.args.push_int(end);
    } else if verb == Verb::Take && spec.algorithm == Algorithm::FixedWindow && bucket.is_none() && !keeps {
        for value in [cost.min(COST_MAX) as i64, spec.effective() as i64, millis(spec.window) as i64] {
            call.args.push_int(value);
        }
    } else {
        push_spec(&mut call.args, spec, cost, bucket);
    }
    if keeps {
        call.args.push_int(KEEP_MS);
    }
    call
}

/// Cost, limit and the algorithm's own arguments, in the order of its include.
fn push_spec(args: &mut Words, spec: &LimitSpec, cost: u64, bucket: Option<Bucket>) {
    let limit = spec.effective();
    let cost = cost.min(COST_MAX);
    let window_ms = millis(spec.window) as i64;
    let ttl_ms = millis(spec.ttl) as i64;
    args.push_int(cost as i64);
    args.push_int(limit as i64);
    match spec.algorithm {
        Algorithm::FixedWindow => {
            let (start, end) = bounds(bucket);
            for value in [window_ms, ttl_ms, start, end] {
                args.push_int(value);
            }
        }
        Algorithm::SlidingLog => {
            args.push_int(window_ms);
            args.push_int(ttl_ms);
            push_nonce(args);
        }
        Algorithm::SlidingWindow => {
            args.push_int(window_ms);
            args.push_int(ttl_ms);
        }
        Algorithm::TokenBucket => {
            let (inc_us, inc_part) = increment(spec, cost);
            for value in [micros(spec.window) as i64, ttl_ms, inc_us as i64, inc_part as i64] {
                args.push_int(value);
            }
        }
    }
}

/// The first word of `limit.take_all`.
pub(super) fn push_keep(args: &mut Words) {
    args.push_int(KEEP_MS);
}

/// Words of one limit among several in `limit.take_all`.
pub(super) const TAKE_ALL_WORDS: usize = 8;

/// Words of one limit among several in the guard's scripts.
pub(super) const GUARD_WORDS: usize = 7;

/// One limit among several: its algorithm and what its own take has, filled up to `words`.
pub(super) fn push_block(
    args: &mut Words,
    spec: &LimitSpec,
    cost: u64,
    bucket: Option<Bucket>,
    words: usize,
) {
    let start = args.len();
    args.push(match spec.algorithm {
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingLog => "sliding_log",
        Algorithm::SlidingWindow => "sliding_window",
        Algorithm::TokenBucket => "token_bucket",
    });
    push_spec(args, spec, cost, bucket);
    while args.len() < start + words {
        args.push("0");
    }
}

/// The call that takes several limits in one step.
pub(super) fn take_all(keys: Words, args: Words) -> Invocation {
    let mut call = Invocation::new(&scripts::LIMIT_TAKE_ALL.script, Workload::RateLimit).compound();
    call.keys = keys;
    call.args = args;
    call
}

fn bounds(bucket: Option<Bucket>) -> (i64, i64) {
    bucket.map_or((0, 0), |bucket| (bucket.start_ms, bucket.end_ms))
}

/// A word no other call of any process uses: random per process, counted within it.
fn push_nonce(args: &mut Words) {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| fastrand::u64(..));
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // Never to be taken for a number.
    args.push(format!("q{process:x}.{call:x}"));
}
