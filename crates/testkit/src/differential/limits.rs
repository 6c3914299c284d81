//! Every operation of `limit` with every algorithm, on both stores, under a clock that both share.
//!
//! Moments are drawn around the edges of windows: on them, a microsecond and a millisecond before and
//! after. Half of the batches lie about the node's clock on our side, so that buckets are found stale.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use futures_util::future::join_all;
use quaymaster::limit::{Charge, Limit, Part, Together, Verdict, take_all};
use quaymaster::{Engine, Quaymaster};
use quaymaster_schema::{Source, load};

use super::{Pair, compare, shrink};
use crate::conformance::command;
use crate::liar::Liar;

const STEPS: usize = 24;
const BATCH: usize = 100;

/// Name, algorithm, limit, window, and what else the schema says. Names with a bucket end in it.
const LIMITS: &[(&str, &str, u64, &str, &str)] = &[
    ("fixed", "fixed_window", 5, "10s", ""),
    ("fixed_ms", "fixed_window", 3, "300ms", ""),
    ("fixed_buffer", "fixed_window", 20, "1h", "safety_buffer = 4"),
    ("fixed_zero", "fixed_window", 0, "10s", ""),
    ("fixed_huge", "fixed_window", 1_000_000_000_000_000, "1h", ""),
    ("by_minute", "fixed_window", 5, "60s", "ttl = \"2m\""),
    ("by_hour", "fixed_window", 9, "1h", "ttl = \"2h\""),
    ("by_day", "fixed_window", 50, "24h", "ttl = \"25h\""),
    ("log", "sliding_log", 5, "10s", ""),
    ("log_ms", "sliding_log", 40, "300ms", ""),
    ("log_buffer", "sliding_log", 7, "60s", "safety_buffer = 2"),
    ("log_zero", "sliding_log", 0, "10s", ""),
    ("two", "sliding_window", 10, "10s", ""),
    ("two_ms", "sliding_window", 7, "300ms", ""),
    ("two_hour", "sliding_window", 1000, "1h", "safety_buffer = 1"),
    ("two_zero", "sliding_window", 0, "10s", ""),
    ("bucket", "token_bucket", 10, "10s", ""),
    ("bucket_odd", "token_bucket", 7, "60s", ""),
    ("bucket_fast", "token_bucket", 1000, "1s", "safety_buffer = 1"),
    ("bucket_zero", "token_bucket", 0, "10s", ""),
];

/// What a history does to one limit, or to several at once.
#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Take {
        limit: usize,
        cost: u64,
        request: Option<u8>,
    },
    Peek {
        limit: usize,
    },
    Refund {
        limit: usize,
        cost: u64,
        request: Option<u8>,
    },
    Reset {
        limit: usize,
        request: Option<u8>,
    },
    TakeAll {
        parts: Vec<(usize, u64)>,
    },
    /// Another program's hand on the key: command and arguments after the key.
    Foreign {
        limit: usize,
        words: Vec<&'static str>,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    deed: Deed,
}

/// Calls on the limits of one user of them.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitHistory {
    seed: u64,
    lie_ms: i64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct LimitMismatch {
    history: LimitHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct LimitTally {
    /// Histories.
    pub histories: u64,
    /// Calls.
    pub calls: u64,
    /// Of them: takes that passed, takes that were refused, errors.
    pub allowed: u64,
    /// Refused.
    pub limited: u64,
    /// Errors, the same on both.
    pub errors: u64,
    /// Buckets found stale on our side.
    pub stale: u64,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for LimitMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "limit history of seed {}, our node's clock off by {} ms:",
            self.history.seed, self.history.lie_ms
        )?;
        for step in &self.history.steps {
            writeln!(f, "  {:>14.3} ms  {}", step.at_us as f64 / 1000.0, step.deed)?;
        }
        write!(f, "differs:\n{}", self.difference)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |limit: &usize| LIMITS[*limit].0;
        match self {
            Deed::TakeAll { parts } => {
                let parts: Vec<String> =
                    parts.iter().map(|(limit, cost)| format!("{} × {cost}", name(limit))).collect();
                write!(f, "take_all {}", parts.join(", "))
            }
            Deed::Take { limit, cost, request } => write!(f, "take {} × {cost} {request:?}", name(limit)),
            Deed::Peek { limit } => write!(f, "peek {}", name(limit)),
            Deed::Refund { limit, cost, request } => write!(f, "refund {} × {cost} {request:?}", name(limit)),
            Deed::Reset { limit, request } => write!(f, "reset {} {request:?}", name(limit)),
            Deed::Foreign { limit, words } => write!(f, "{} on {}", words.join(" "), name(limit)),
        }
    }
}

fn is_bucketed(limit: usize) -> bool {
    LIMITS[limit].0.starts_with("by_")
}

fn schema(prefix: &str) -> String {
    let mut text = format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
    for (name, algorithm, limit, window, more) in LIMITS {
        let bucket = name.strip_prefix("by_").map_or(String::new(), |bucket| format!(":{{{bucket}}}"));
        let table = format!(
            "[limit.{name}]\nkey = \"{name}:{{id}}{bucket}\"\nalgorithm = \"{algorithm}\"\nlimit = {limit}\n\
             window = \"{window}\"\n{more}\n"
        );
        text.push_str(&table);
    }
    text
}

pub(super) fn bind(text: &str, engine: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "differential.toml", text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Quaymaster::new(Arc::new(schema), engine)
}

fn moments(rng: &mut Rng) -> Vec<i64> {
    let mut now_us = rng.i64(1..3_600_000_000);
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..10) {
                0 => rng.i64(0..400_000),
                1 => 1000,
                2 => rng.i64(0..20_000_000),
                3 | 4 => {
                    let window_us =
                        [300_000, 1_000_000, 10_000_000, 60_000_000, 3_600_000_000][rng.usize(..5)];
                    let edge = now_us - now_us % window_us + window_us;
                    let beside = [-1000, -1, 0, 1, 999, 1000][rng.usize(..6)];
                    (edge + beside - now_us).max(0)
                }
                _ => 0,
            };
            now_us
        })
        .collect()
}

fn deed(rng: &mut Rng, favourites: &[usize]) -> Deed {
    let limit = favourites[rng.usize(..favourites.len())];
    let request = (rng.u8(..4) == 0).then(|| rng.u8(..3));
    match rng.u8(..24) {
        0 | 1 => Deed::Peek { limit },
        2..=4 => Deed::Refund { limit, cost: cost(rng, limit), request },
        5 => Deed::Reset { limit, request },
        6..=8 => {
            let limits: Vec<usize> = (0..rng.usize(1..5)).map(|_| rng.usize(..LIMITS.len())).collect();
            Deed::TakeAll { parts: limits.into_iter().map(|limit| (limit, cost(rng, limit))).collect() }
        }
        9 if !is_bucketed(limit) => Deed::Foreign { limit, words: foreign(rng) },
        _ => Deed::Take { limit, cost: cost(rng, limit), request },
    }
}

fn cost(rng: &mut Rng, limit: usize) -> u64 {
    let most = LIMITS[limit].2;
    match rng.u8(..16) {
        0 => 0,
        1 => most,
        2 => most + 1,
        3 => [u64::MAX, 1 << 53, 10_001][rng.usize(..3)],
        4 => rng.u64(1..=most.clamp(1, 1000)),
        _ => rng.u64(1..3),
    }
}

fn foreign(rng: &mut Rng) -> Vec<&'static str> {
    let choices: &[&[&'static str]] = &[
        &["PERSIST"],
        &["DEL"],
        &["PEXPIRE", "5"],
        &["PEXPIRE", "100000000"],
        &["SET", "3"],
        &["SET", "x"],
        &["SET", "-4"],
        &["SET", "99999999999999999999"],
        &["SET", "1763230000123456:3"],
        &["INCRBY", "2"],
        &["ZADD", "5", "foreign"],
        &["HSET", "current", "3"],
        &["HSET", "start", "x"],
        &["SADD", "foreign"],
    ];
    choices[rng.usize(..choices.len())].to_vec()
}

fn history(seed: u64, lie_ms: i64, moments: &[i64]) -> LimitHistory {
    let mut rng = Rng::with_seed(seed);
    let favourites: Vec<usize> = (0..3).map(|_| rng.usize(..LIMITS.len())).collect();
    let steps =
        moments.iter().map(|at_us| Step { at_us: *at_us, deed: deed(&mut rng, &favourites) }).collect();
    LimitHistory { seed, lie_ms, steps }
}

/// What one store says to a deed, so that two can be compared.
#[derive(Debug, PartialEq)]
enum Said {
    Verdict(Verdict),
    Together(Together),
    Reply(quaymaster_store::Reply),
    Error(&'static str),
}

async fn act(quaymaster: &Quaymaster, prefix: &str, user: &str, deed: &Deed) -> Said {
    let limit = |index: &usize| -> &Limit { quaymaster.limit(LIMITS[*index].0).expect("declared") };
    let key = [("id", user)];
    let spelled = |request: &Option<u8>| request.map(|number| format!("r{number}"));
    let one = |verdict: quaymaster::Result<Verdict>| match verdict {
        Ok(verdict) => Said::Verdict(verdict),
        Err(error) => Said::Error(error.code.name()),
    };
    match deed {
        Deed::Take { limit: index, cost, request } => {
            let request = spelled(request);
            one(limit(index).take(&key, Charge { cost: *cost, request_id: request.as_deref() }).await)
        }
        Deed::Refund { limit: index, cost, request } => {
            let request = spelled(request);
            one(limit(index).refund(&key, Charge { cost: *cost, request_id: request.as_deref() }).await)
        }
        Deed::Peek { limit: index } => one(limit(index).peek(&key).await),
        Deed::Reset { limit: index, request } => {
            one(limit(index).reset(&key, spelled(request).as_deref()).await)
        }
        Deed::TakeAll { parts } => {
            let parts: Vec<Part<'_>> = parts
                .iter()
                .map(|(index, cost)| Part { limit: limit(index), key: &key, cost: *cost })
                .collect();
            match take_all(&parts, None).await {
                Ok(together) => Said::Together(together),
                Err(error) => Said::Error(error.code.name()),
            }
        }
        Deed::Foreign { limit: index, words } => {
            let name = format!("{prefix}{}:{user}", LIMITS[*index].0);
            let mut all: Vec<&[u8]> = vec![words[0].as_bytes(), name.as_bytes()];
            all.extend(words[1..].iter().map(|word| word.as_bytes()));
            match command(&**quaymaster.engine(), name.as_bytes(), &all).await {
                Ok(reply) => Said::Reply(reply),
                Err(error) => Said::Error(error.code.name()),
            }
        }
    }
}

impl Pair {
    /// Runs the limit histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_limits(&self, seeds: Range<u64>) -> Result<LimitTally, LimitMismatch> {
        let mut tally = LimitTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let mut rng = Rng::with_seed(batch[0]);
            let lie_ms = [0, 0, 7_200_000, -7_200_000][rng.usize(..4)];
            let moments = moments(&mut rng);
            let histories: Vec<LimitHistory> =
                batch.iter().map(|seed| history(*seed, lie_ms, &moments)).collect();
            if let Some((index, difference)) = self.run_limits(&histories, &mut tally).await {
                return Err(self.shrink_limits(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_limits(
        &self,
        histories: &[LimitHistory],
        tally: &mut LimitTally,
    ) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let prefix = format!("l{}:", start_us / super::DAY_US);
        let text = schema(&prefix);
        let lie_ms = histories.first().map_or(0, |history| history.lie_ms);
        let lying: Arc<dyn Engine> = Arc::new(Liar::new(self.ours.engine.clone(), lie_ms));
        let (ours, theirs) = (&bind(&text, lying), &bind(&text, self.theirs.engine.clone()));
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let moment =
                histories.iter().find_map(|history| history.steps.get(round)).map_or(0, |step| step.at_us);
            self.ours.set_time(start_us + moment).await;
            self.theirs.set_time(start_us + moment).await;
            let said = histories.iter().enumerate().map(|(index, history)| {
                let (prefix, user) = (&prefix, format!("u{index}"));
                async move {
                    let deed = &history.steps.get(round)?.deed;
                    Some((act(ours, prefix, &user, deed).await, act(theirs, prefix, &user, deed).await))
                }
            });
            for (index, said) in join_all(said).await.into_iter().enumerate() {
                let Some((ours, theirs)) = said else { continue };
                if ours != theirs {
                    let step = &histories[index].steps[round];
                    let at_ms = step.at_us as f64 / 1000.0;
                    return Some((
                        index,
                        format!("  {at_ms:.3} ms {}\n  ours   {ours:?}\n  theirs {theirs:?}", step.deed),
                    ));
                }
                tally.note(&ours);
            }
        }
        tally.stale +=
            LIMITS.iter().map(|row| ours.limit(row.0).expect("declared").counts().stale()).sum::<u64>();
        let (held, wanted) = (self.held_by(true, &prefix).await, self.held_by(false, &prefix).await);
        if let Some((key, difference)) = compare::keyspaces(&held, &wanted, self.tolerance) {
            let user = String::from_utf8_lossy(&key)
                .split([':', '}'])
                .find_map(|part| part.strip_prefix('u')?.parse().ok());
            return Some((user.unwrap_or(0), format!("  at the end {}\n{difference}", key.escape_ascii())));
        }
        tally.histories += histories.len() as u64;
        tally.keys += held.len() as u64;
        self.ours.clear(&prefix).await;
        self.theirs.clear(&prefix).await;
        None
    }

    /// The members of a log carry the caller's nonce: only their scores can be compared.
    pub(super) async fn held_by(
        &self,
        ours: bool,
        prefix: &str,
    ) -> std::collections::BTreeMap<bytes::Bytes, super::side::Held> {
        let side = if ours { &self.ours } else { &self.theirs };
        let mut held = side.keyspace(prefix).await;
        for entry in held.values_mut().filter(|entry| entry.kind == "zset") {
            if let quaymaster_store::Reply::Array(parts) = &mut entry.content {
                parts.iter_mut().step_by(2).for_each(|member| *member = quaymaster_store::Reply::Nil);
            }
        }
        held
    }

    async fn shrink_limits(&self, history: LimitHistory, difference: String) -> LimitMismatch {
        let differs =
            async |tried: &[LimitHistory; 1]| self.run_limits(tried, &mut LimitTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        LimitMismatch { history, difference }
    }
}

impl LimitTally {
    fn note(&mut self, said: &Said) {
        self.calls += 1;
        match said {
            Said::Verdict(verdict) if verdict.is_allowed() => self.allowed += 1,
            Said::Verdict(_) => self.limited += 1,
            Said::Error(_) => self.errors += 1,
            Said::Together(_) | Said::Reply(_) => {}
        }
    }
}
