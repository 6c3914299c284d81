//! One function per operation: the call it becomes. No policy.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quaymaster_schema::{Algorithm, LimitSpec};
use quaymaster_store::{Invocation, Workload};

use super::answer::{increment, micros, millis};
use super::{Charge, Part};
use crate::bound::{Bound, Key, KeyBinding};
use crate::scripts::{
    At, LimitArgs, Word, limit_peek_fixed_window, limit_peek_sliding_log, limit_peek_sliding_window,
    limit_peek_token_bucket, limit_refund_fixed_window, limit_refund_sliding_log,
    limit_refund_sliding_window, limit_refund_token_bucket, limit_reset, limit_take_all,
    limit_take_fixed_window, limit_take_sliding_log, limit_take_sliding_window, limit_take_token_bucket,
};
use crate::{Code, Error, Result};

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
}

/// What a limit's scripts are told of a call, whatever the algorithm.
struct Terms {
    cost: i64,
    limit: i64,
    window_ms: i64,
    window_us: i64,
    ttl_ms: i64,
    /// The bucket in the key, zeros without one.
    start_ms: i64,
    end_ms: i64,
    /// What the cost adds to a token bucket.
    inc_us: i64,
    inc_part: i64,
}

impl Terms {
    fn new(spec: &LimitSpec, cost: u64, (start_ms, end_ms): (i64, i64)) -> Self {
        let cost = cost.min(COST_MAX);
        let token_bucket = spec.algorithm == Algorithm::TokenBucket;
        let (inc_us, inc_part) = if token_bucket { increment(spec, cost) } else { (0, 0) };
        Self {
            cost: cost as i64,
            limit: spec.effective() as i64,
            window_ms: millis(spec.window) as i64,
            window_us: micros(spec.window) as i64,
            ttl_ms: millis(spec.ttl) as i64,
            start_ms,
            end_ms,
            inc_us: inc_us as i64,
            inc_part: inc_part as i64,
        }
    }
}

/// One call of a limit: which, under which key, and the moment the key is rendered for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) bound: &'a Bound,
    pub(super) key: Key<'a>,
    pub(super) charge: Charge<'a>,
    pub(super) now_us: i64,
}

impl<'a> Asked<'a> {
    fn at(self, verb: Verb) -> At {
        self.bound.at(verb.op(), Workload::RateLimit)
    }

    fn state(self) -> KeyBinding<'a> {
        self.bound.key(self.key, self.now_us)
    }

    fn request(self) -> Option<KeyBinding<'a>> {
        self.charge.request_id.map(|id| self.bound.request(self.key, id))
    }

    fn terms(self, spec: &LimitSpec) -> Terms {
        Terms::new(spec, self.charge.cost, self.bound.bucket_ms(self.now_us))
    }

    /// An argument that nobody reads without a request: each costs the server a fifth of a microsecond.
    fn keep_ms(self) -> Option<i64> {
        self.charge.request_id.map(|_| KEEP_MS)
    }
}

/// The call of `verb` by the rules of `spec`.
pub(super) fn call(verb: Verb, spec: &LimitSpec, asked: Asked<'_>) -> Result<Invocation> {
    match verb {
        Verb::Take => take(spec, asked),
        Verb::Peek => peek(spec, asked),
        Verb::Refund => refund(spec, asked),
        Verb::Reset => {
            let (start_ms, end_ms) = asked.bound.bucket_ms(asked.now_us);
            let (state, request) = (asked.state(), asked.request());
            limit_reset::Call { state, request, start_ms, end_ms, keep_ms: KEEP_MS }.on(asked.at(verb))
        }
    }
}

fn take(spec: &LimitSpec, asked: Asked<'_>) -> Result<Invocation> {
    let Terms { cost, limit, window_ms, window_us, ttl_ms, start_ms, end_ms, inc_us, inc_part } =
        asked.terms(spec);
    let (at, state, request) = (asked.at(Verb::Take), asked.state(), asked.request());
    let keep_ms = asked.keep_ms();
    match spec.algorithm {
        Algorithm::FixedWindow => {
            let told = end_ms > 0 || request.is_some();
            limit_take_fixed_window::Call {
                counter: state,
                request,
                cost,
                limit,
                window_ms,
                ttl_ms: told.then_some(ttl_ms),
                start_ms: told.then_some(start_ms),
                end_ms: told.then_some(end_ms),
                keep_ms,
            }
            .on(at)
        }
        Algorithm::SlidingLog => {
            let nonce = &nonce();
            limit_take_sliding_log::Call {
                log: state,
                request,
                cost,
                limit,
                window_ms,
                ttl_ms,
                nonce,
                keep_ms,
            }
            .on(at)
        }
        Algorithm::SlidingWindow => {
            limit_take_sliding_window::Call { state, request, cost, limit, window_ms, ttl_ms, keep_ms }.on(at)
        }
        Algorithm::TokenBucket => limit_take_token_bucket::Call {
            bucket: state,
            request,
            cost,
            limit,
            window_us,
            ttl_ms,
            inc_us,
            inc_part,
            keep_ms,
        }
        .on(at),
    }
}

fn peek(spec: &LimitSpec, asked: Asked<'_>) -> Result<Invocation> {
    let Terms { cost, limit, window_ms, window_us, ttl_ms, start_ms, end_ms, inc_us, inc_part } =
        asked.terms(spec);
    let (at, state) = (asked.at(Verb::Peek), asked.state());
    match spec.algorithm {
        Algorithm::FixedWindow => {
            limit_peek_fixed_window::Call { counter: state, cost, limit, window_ms, ttl_ms, start_ms, end_ms }
                .on(at)
        }
        Algorithm::SlidingLog => {
            let nonce = &nonce();
            limit_peek_sliding_log::Call { log: state, cost, limit, window_ms, ttl_ms, nonce }.on(at)
        }
        Algorithm::SlidingWindow => {
            limit_peek_sliding_window::Call { state, cost, limit, window_ms, ttl_ms }.on(at)
        }
        Algorithm::TokenBucket => {
            limit_peek_token_bucket::Call { bucket: state, cost, limit, window_us, ttl_ms, inc_us, inc_part }
                .on(at)
        }
    }
}

fn refund(spec: &LimitSpec, asked: Asked<'_>) -> Result<Invocation> {
    let Terms { cost, limit, window_ms, window_us, ttl_ms, start_ms, end_ms, inc_us, inc_part } =
        asked.terms(spec);
    let (at, state, request, keep_ms) = (asked.at(Verb::Refund), asked.state(), asked.request(), KEEP_MS);
    match spec.algorithm {
        Algorithm::FixedWindow => limit_refund_fixed_window::Call {
            counter: state,
            request,
            cost,
            limit,
            window_ms,
            ttl_ms,
            start_ms,
            end_ms,
            keep_ms,
        }
        .on(at),
        Algorithm::SlidingLog => {
            let nonce = &nonce();
            limit_refund_sliding_log::Call {
                log: state,
                request,
                cost,
                limit,
                window_ms,
                ttl_ms,
                nonce,
                keep_ms,
            }
            .on(at)
        }
        Algorithm::SlidingWindow => {
            limit_refund_sliding_window::Call { state, request, cost, limit, window_ms, ttl_ms, keep_ms }
                .on(at)
        }
        Algorithm::TokenBucket => limit_refund_token_bucket::Call {
            bucket: state,
            request,
            cost,
            limit,
            window_us,
            ttl_ms,
            inc_us,
            inc_part,
            keep_ms,
        }
        .on(at),
    }
}

/// One limit among several: its algorithm and what its own take has. `nonce` is what [`nonce_for`] made.
pub(super) fn unit<'a>(spec: &LimitSpec, cost: u64, bucket_ms: (i64, i64), nonce: &'a str) -> LimitArgs<'a> {
    let terms = Terms::new(spec, cost, bucket_ms);
    let zero = Word::Int(0);
    let (algorithm, window, third, fourth) = match spec.algorithm {
        Algorithm::FixedWindow => {
            ("fixed_window", terms.window_ms, Word::Int(terms.start_ms), Word::Int(terms.end_ms))
        }
        Algorithm::SlidingLog => ("sliding_log", terms.window_ms, Word::Text(nonce), zero),
        Algorithm::SlidingWindow => ("sliding_window", terms.window_ms, zero, zero),
        Algorithm::TokenBucket => {
            ("token_bucket", terms.window_us, Word::Int(terms.inc_us), Word::Int(terms.inc_part))
        }
    };
    let Terms { cost, limit, ttl_ms, .. } = terms;
    LimitArgs { algorithm, cost, limit, window, ttl_ms, third, fourth }
}

/// The call that takes several limits in one step.
pub(super) fn take_all(
    op: &'static str,
    parts: &[Part<'_>],
    request: Option<KeyBinding<'_>>,
    now_us: i64,
) -> Result<Invocation> {
    let Some(first) = parts.first() else { return Err(Error::new(op, Code::Internal, "no limits")) };
    let call = limit_take_all::Call {
        states: &|keys| parts.iter().try_for_each(|part| keys.put(part.limit.bound.key(part.key, now_us))),
        request,
        keep_ms: KEEP_MS,
        limits: &|args| {
            for part in parts {
                let spec = &part.limit.spec;
                let nonce = nonce_for(spec);
                let LimitArgs { algorithm, cost, limit, window, ttl_ms, third, fourth } =
                    unit(spec, part.cost, part.limit.bound.bucket_ms(now_us), &nonce);
                let row = limit_take_all::LimitsRow {
                    algorithm,
                    cost,
                    limit,
                    window,
                    ttl_ms,
                    third,
                    fourth,
                    spare: 0,
                };
                args.put(row);
            }
        },
    };
    Ok(call.on(first.limit.bound.at(op, Workload::RateLimit))?.compound())
}

/// A nonce where the algorithm wants one.
pub(super) fn nonce_for(spec: &LimitSpec) -> String {
    if spec.algorithm == Algorithm::SlidingLog { nonce() } else { String::new() }
}

/// A word no other call of any process uses: random per process, counted within it.
fn nonce() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| fastrand::u64(..));
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // Never to be taken for a number.
    format!("q{process:x}.{call:x}")
}
