//! Every operation of locks, idempotencies, guards, caches and dedupes, on both stores, under a clock that both share.
//!
//! Callers carry request ids, so that both stores hand out the same tokens: answers and records are compared to
//! the letter. Half of the batches lie about the node's clock on our side, so that buckets are found stale.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use parking_lot::Mutex;
use quaymaster::cache::{Put, Value, When};
use quaymaster::dedupe::First;
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::{Engine, Quaymaster, Result as Answer, Token};

use super::limits::bind;
use super::{Pair, compare, shrink};
use crate::conformance::command;
use crate::liar::Liar;

const STEPS: usize = 30;
const BATCH: usize = 100;

/// Short leases, so that histories outlive them; keys of one caller, so that parts meet.
const SCHEMA: &str = r#"
[idempotency.run]
key = "run:{id}"
ttl = "20s"
in_progress_ttl = "3s"
[idempotency.compact]
key = "compact:{id}"
ttl = "20s"
in_progress_ttl = "300ms"
compact = true
[lock.door]
key = "door:{id}"
ttl = "2s"
[lock.gate]
key = "gate:{id}"
ttl = "300ms"
[limit.fixed]
key = "fixed:{id}"
algorithm = "fixed_window"
limit = 3
window = "10s"
[limit.minute]
key = "minute:{id}:{minute}"
algorithm = "fixed_window"
limit = 3
window = "60s"
[limit.log]
key = "log:{id}"
algorithm = "sliding_log"
limit = 3
window = "10s"
[limit.two]
key = "two:{id}"
algorithm = "sliding_window"
limit = 3
window = "10s"
[limit.bucket]
key = "bucket:{id}"
algorithm = "token_bucket"
limit = 3
window = "10s"
[guard.all]
limits = ["fixed", "minute", "log", "two", "bucket"]
idempotency = "run"
lock = "door"
[guard.pay]
limits = ["minute", "log"]
idempotency = "compact"
lock = "gate"
[guard.quota]
limits = ["bucket", "two"]
[guard.held]
lock = "door"
limits = ["fixed"]
[guard.once]
idempotency = "run"
[cache.text]
key = "text:{id}"
ttl = "5s"
[cache.fields]
key = "fields:{id}"
type = "hash"
ttl = "5s"
[dedupe.seen]
key = "seen:{id}"
ttl = "1s"
"#;

/// Guards, and the idempotency and lock their histories use beside them.
const GUARDS: [(&str, &str, &str); 5] = [
    ("all", "run", "door"),
    ("pay", "compact", "gate"),
    ("quota", "run", "gate"),
    ("held", "compact", "door"),
    ("once", "run", "door"),
];
const LIMITS: [&str; 5] = ["fixed", "minute", "log", "two", "bucket"];
/// Documented keys another program may lay hands on.
const KEYS: [&str; 11] =
    ["run", "compact", "door", "gate", "fixed", "log", "two", "bucket", "text", "fields", "seen"];

/// What one of three callers does.
#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Enter { guard: &'static str, caller: u8, call: u8, print: u8, ttl_ms: Option<u64> },
    Leave { guard: &'static str, caller: u8, response: Option<usize>, abandon: bool, request: Option<u8> },
    Begin { record: &'static str, caller: u8, print: u8 },
    Finish { record: &'static str, caller: u8, response: Option<usize> },
    Abandon { record: &'static str, caller: u8, request: Option<u8> },
    Acquire { lock: &'static str, caller: u8, ttl_ms: Option<u64> },
    Renew { lock: &'static str, caller: u8 },
    Release { lock: &'static str, caller: u8, request: Option<u8> },
    Take { limit: &'static str, cost: u64 },
    Refund { limit: &'static str, cost: u64 },
    Put { hash: bool, value: u8, absent: bool, ttl_ms: Option<u64>, request: Option<u8> },
    Get { hash: bool },
    Exists { hash: bool },
    Delete { hash: bool, request: Option<u8> },
    First { value: Option<u8>, request: Option<u8> },
    Foreign { key: &'static str, words: Vec<&'static str> },
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    deed: Deed,
}

/// Calls of three callers on the resources of one id.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardHistory {
    seed: u64,
    lie_ms: i64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct GuardMismatch {
    history: GuardHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct GuardTally {
    /// Histories.
    pub histories: u64,
    /// Calls.
    pub calls: u64,
    /// Answers by deed and first word, `Enter Held`, or by deed and error code.
    pub answers: HashMap<String, u64>,
    /// Buckets found stale on our side.
    pub stale: u64,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for GuardMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, lie_ms) = (self.history.seed, self.history.lie_ms);
        writeln!(f, "guard history of seed {seed}, our node's clock off by {lie_ms} ms:")?;
        for step in &self.history.steps {
            writeln!(f, "  {:>14.3} ms  {:?}", step.at_us as f64 / 1000.0, step.deed)?;
        }
        write!(f, "differs:\n{}", self.difference)
    }
}

fn moments(rng: &mut Rng) -> Vec<i64> {
    let mut now_us = rng.i64(1..3_600_000_000);
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..12) {
                0 => rng.i64(0..400_000),
                1 => 1000,
                2 => rng.i64(0..4_000_000),
                // The ends of leases, of claims and of windows, and right beside them.
                3 => [299_000, 300_000, 301_000, 1_999_999, 2_000_000, 2_001_000][rng.usize(..6)],
                4 => [2_999_000, 3_000_000, 3_000_001, 20_000_000, 61_000_000][rng.usize(..5)],
                5 => (now_us / 60_000_000 + 1) * 60_000_000 - now_us + [-1000, -1, 0, 1][rng.usize(..4)],
                _ => 0,
            }
            .max(0);
            now_us
        })
        .collect()
}

fn deed(rng: &mut Rng, favourite: usize) -> Deed {
    let caller = [0, 0, 0, 0, 1, 2][rng.usize(..6)];
    // Most callers send the same request.
    let print = [1, 1, 1, 0, 2][rng.usize(..5)];
    // Some calls repeat the one before.
    let call = rng.u8(..4);
    let request = (rng.u8(..3) == 0).then(|| rng.u8(..2));
    let ttl_ms = (rng.u8(..5) == 0).then(|| [1, 100, 299, 3000][rng.usize(..4)]);
    let response = (rng.u8(..3) > 0).then(|| [0, 3, 1024, 1025, 5000, 70_000][rng.usize(..6)]);
    let other = rng.u8(..8) == 0;
    let (guard, record, lock) = GUARDS[if other { rng.usize(..GUARDS.len()) } else { favourite }];
    let (limit, cost) = (LIMITS[rng.usize(..LIMITS.len())], rng.u64(1..4));
    let hash = rng.bool();
    match rng.u8(..32) {
        0..=7 => Deed::Enter { guard, caller, call, print, ttl_ms },
        8..=11 => Deed::Leave { guard, caller, response, abandon: rng.u8(..3) == 0, request },
        12 | 13 => Deed::Begin { record, caller, print },
        14 => Deed::Finish { record, caller, response },
        15 => Deed::Abandon { record, caller, request },
        16..=18 => Deed::Acquire { lock, caller, ttl_ms },
        19 => Deed::Renew { lock, caller },
        20 | 21 => Deed::Release { lock, caller, request },
        22 => Deed::Take { limit, cost },
        23 => Deed::Refund { limit, cost },
        24 => Deed::Put { hash, value: rng.u8(..), absent: rng.bool(), ttl_ms, request },
        25 => Deed::Get { hash },
        26 => Deed::Exists { hash },
        27 => Deed::Delete { hash, request },
        28 | 29 => Deed::First { value: rng.bool().then(|| rng.u8(..)), request },
        _ => Deed::Foreign { key: KEYS[rng.usize(..KEYS.len())], words: foreign(rng) },
    }
}

fn foreign(rng: &mut Rng) -> Vec<&'static str> {
    let choices: &[&[&'static str]] = &[
        &["PERSIST"],
        &["DEL"],
        &["PEXPIRE", "5"],
        &["SET", "1"],
        &["SET", "x"],
        &["SET", "p token 9999999999999 -"],
        &["SET", "p token 1 -"],
        &["SET", "f - - r "],
        &["SET", "f - - z nonsense"],
        &["SET", "f - -"],
        &["SET", "theirs", "PX", "250"],
        &["ZADD", "5", "foreign"],
        &["HSET", "current", "3"],
        &["SADD", "foreign"],
    ];
    choices[rng.usize(..choices.len())].to_vec()
}

fn history(seed: u64, lie_ms: i64, moments: &[i64]) -> GuardHistory {
    let mut rng = Rng::with_seed(seed);
    let favourite = rng.usize(..GUARDS.len());
    let steps = moments.iter().map(|at_us| Step { at_us: *at_us, deed: deed(&mut rng, favourite) }).collect();
    GuardHistory { seed, lie_ms, steps }
}

/// The tokens callers were given, by what they were given for.
type Tokens = Mutex<HashMap<(String, &'static str, u8), Token>>;

/// One store under one schema.
struct World {
    quaymaster: Quaymaster,
    prefix: String,
    tokens: Tokens,
}

impl World {
    fn token(&self, user: &str, of: &'static str, caller: u8) -> Token {
        let known = self.tokens.lock().get(&(user.to_owned(), of, caller)).cloned();
        known.unwrap_or_else(|| Token::parse("test", "nobody-was-given-this-token").expect("a token"))
    }

    fn keep(&self, user: &str, of: &'static str, caller: u8, token: &Token) {
        self.tokens.lock().insert((user.to_owned(), of, caller), token.clone());
    }

    /// What this store says to a deed.
    async fn act(&self, user: &str, deed: &Deed) -> String {
        match self.answer(user, deed).await {
            Ok(said) => said,
            Err(error) => error.code.name().to_owned(),
        }
    }

    async fn answer(&self, user: &str, deed: &Deed) -> Answer<String> {
        let q = &self.quaymaster;
        let key = [("id", user)];
        let id = |caller: &u8| format!("c{caller}");
        let again = |request: &Option<u8>| request.map(|number| format!("again{number}"));
        let filled = |bytes: usize| "response ".bytes().cycle().take(bytes).collect::<Vec<u8>>();
        Ok(match deed {
            Deed::Enter { guard, caller, call, print, ttl_ms } => {
                let (part, id, print) = (q.guard(guard)?, format!("c{caller}.{call}"), [b'0' + print]);
                let how = Enter {
                    fingerprint: part
                        .idempotency()
                        .map(|_| print.as_slice())
                        .filter(|print| print[0] != b'0'),
                    ttl: ttl_ms.filter(|_| part.lock().is_some()).map(Duration::from_millis),
                    request_id: Some(&id),
                };
                let answer = part.enter(&key, how).await?;
                if let Entered::Entered(pass) = &answer {
                    self.keep(user, guard, *caller, &pass.token);
                }
                format!("{answer:?}")
            }
            Deed::Leave { guard, caller, response, abandon, request } => {
                let (part, again) = (q.guard(guard)?, again(request));
                let response = response.filter(|_| part.idempotency().is_some()).map(filled);
                let abandon = *abandon && part.idempotency().is_some();
                let how = Leave {
                    response: response.as_deref().filter(|_| !abandon),
                    abandon,
                    request_id: again.as_deref(),
                };
                format!("{:?}", part.leave(&key, &self.token(user, guard, *caller), how).await?)
            }
            Deed::Begin { record, caller, print } => {
                let (id, print) = (id(caller), [b'0' + print]);
                let begin = Begin {
                    fingerprint: Some(print.as_slice()).filter(|print| print[0] != b'0'),
                    wait: Duration::ZERO,
                    request_id: Some(&id),
                };
                let answer = q.idempotency(record)?.begin(&key, begin).await?;
                if let Begun::Started(claim) = &answer {
                    self.keep(user, record, *caller, &claim.token);
                }
                format!("{answer:?}")
            }
            Deed::Finish { record, caller, response } => {
                let (token, response) = (self.token(user, record, *caller), response.map(filled));
                format!("{:?}", q.idempotency(record)?.finish(&key, &token, response.as_deref()).await?)
            }
            Deed::Abandon { record, caller, request } => {
                let (token, again) = (self.token(user, record, *caller), again(request));
                format!("{:?}", q.idempotency(record)?.abandon(&key, &token, again.as_deref()).await?)
            }
            Deed::Acquire { lock, caller, ttl_ms } => {
                let id = id(caller);
                let ttl = ttl_ms.map(Duration::from_millis);
                let how = Acquire { ttl, request_id: Some(&id), ..Acquire::default() };
                let answer = q.lock(lock)?.acquire(&key, how).await?;
                if let Acquired::Ours(lease) = &answer {
                    self.keep(user, lock, *caller, &lease.token);
                }
                format!("{answer:?}")
            }
            Deed::Renew { lock, caller } => {
                format!("{:?}", q.lock(lock)?.renew(&key, &self.token(user, lock, *caller), None).await?)
            }
            Deed::Release { lock, caller, request } => {
                let (token, again) = (self.token(user, lock, *caller), again(request));
                format!("{:?}", q.lock(lock)?.release(&key, &token, again.as_deref()).await?)
            }
            Deed::Take { limit, cost } => {
                format!("{:?}", q.limit(limit)?.take(&key, Charge::of(*cost)).await?)
            }
            Deed::Refund { limit, cost } => {
                format!("{:?}", q.limit(limit)?.refund(&key, Charge::of(*cost)).await?)
            }
            Deed::Put { hash, value, absent, ttl_ms, request } => {
                let again = again(request);
                let put = Put {
                    ttl: ttl_ms.map(Duration::from_millis),
                    when: if *absent { When::Absent } else { When::Always },
                    request_id: again.as_deref(),
                };
                let text = format!("value {value}");
                let value = match hash {
                    true => Value::fields([("status", text), ("amount", value.to_string())]),
                    false => Value::Bytes(text.into()),
                };
                format!("{:?}", q.cache(cache(*hash))?.put(&key, &value, put).await?)
            }
            Deed::Get { hash } => format!("{:?}", q.cache(cache(*hash))?.get(&key).await?),
            Deed::Exists { hash } => format!("{:?}", q.cache(cache(*hash))?.exists(&key).await?),
            Deed::Delete { hash, request } => {
                format!("{:?}", q.cache(cache(*hash))?.delete(&key, again(request).as_deref()).await?)
            }
            Deed::First { value, request } => {
                let (value, again) = (value.map(|value| format!("first {value}")), again(request));
                let first =
                    First { value: value.as_deref().map(str::as_bytes), request_id: again.as_deref() };
                format!("{:?}", q.dedupe("seen")?.first(&key, first).await?)
            }
            Deed::Foreign { key, words } => {
                let name = format!("{}{key}:{user}", self.prefix);
                let mut all: Vec<&[u8]> = vec![words[0].as_bytes(), name.as_bytes()];
                all.extend(words[1..].iter().map(|word| word.as_bytes()));
                format!("{:?}", command(&**q.engine(), name.as_bytes(), &all).await?)
            }
        })
    }
}

fn cache(hash: bool) -> &'static str {
    if hash { "fields" } else { "text" }
}

impl Pair {
    /// Runs the guard histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_guards(&self, seeds: Range<u64>) -> Result<GuardTally, GuardMismatch> {
        let mut tally = GuardTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let mut rng = Rng::with_seed(batch[0]);
            let lie_ms = [0, 0, 7_200_000, -7_200_000][rng.usize(..4)];
            let moments = moments(&mut rng);
            let histories: Vec<GuardHistory> =
                batch.iter().map(|seed| history(*seed, lie_ms, &moments)).collect();
            if let Some((index, difference)) = self.run_guards(&histories, &mut tally).await {
                return Err(self.shrink_guards(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_guards(
        &self,
        histories: &[GuardHistory],
        tally: &mut GuardTally,
    ) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let prefix = format!("g{}:", start_us / super::DAY_US);
        let head = format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
        let text = head + SCHEMA;
        let lie_ms = histories.first().map_or(0, |history| history.lie_ms);
        let world = |engine: Arc<dyn Engine>| World {
            quaymaster: bind(&text, engine),
            prefix: prefix.clone(),
            tokens: Mutex::default(),
        };
        let ours = &world(Arc::new(Liar::new(self.ours.engine.clone(), lie_ms)));
        let theirs = &world(self.theirs.engine.clone());
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let moment =
                histories.iter().find_map(|history| history.steps.get(round)).map_or(0, |step| step.at_us);
            self.ours.set_time(start_us + moment).await;
            self.theirs.set_time(start_us + moment).await;
            let said = histories.iter().enumerate().map(|(index, history)| async move {
                let (user, deed) = (format!("u{index}"), &history.steps.get(round)?.deed);
                Some((ours.act(&user, deed).await, theirs.act(&user, deed).await))
            });
            for (index, said) in join_all(said).await.into_iter().enumerate() {
                let Some((ours, theirs)) = said else { continue };
                if ours != theirs {
                    let step = &histories[index].steps[round];
                    let at_ms = step.at_us as f64 / 1000.0;
                    let difference =
                        format!("  {at_ms:.3} ms {:?}\n  ours   {ours}\n  theirs {theirs}", step.deed);
                    return Some((index, difference));
                }
                tally.note(&histories[index].steps[round].deed, &ours);
            }
        }
        tally.stale += ours.quaymaster.guards().map(|guard| guard.counts().stale()).sum::<u64>();
        let (held, wanted) = (self.held_by(true, &prefix).await, self.held_by(false, &prefix).await);
        if let Some((key, difference)) = compare::keyspaces(&held, &wanted, self.tolerance) {
            let user = String::from_utf8_lossy(&key)
                .split([':', '}'])
                .find_map(|part| part.strip_prefix('u')?.parse().ok());
            return Some((user.unwrap_or(0), format!("  at the end {}\n{difference}", key.escape_ascii())));
        }
        tally.histories += histories.len() as u64;
        tally.keys += held.len() as u64;
        for side in [&self.ours, &self.theirs] {
            side.clear(&prefix).await;
        }
        None
    }

    async fn shrink_guards(&self, history: GuardHistory, difference: String) -> GuardMismatch {
        let differs =
            async |tried: &[GuardHistory; 1]| self.run_guards(tried, &mut GuardTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        GuardMismatch { history, difference }
    }
}

impl GuardTally {
    fn note(&mut self, deed: &Deed, said: &str) {
        self.calls += 1;
        let end = |text: &str| text.find(['(', ' ', '{']).unwrap_or(text.len());
        let deed = format!("{deed:?}");
        let word = format!("{} {}", &deed[..end(&deed)], &said[..end(said)]);
        *self.answers.entry(word).or_default() += 1;
    }

    /// How often a deed was answered so: `Enter Held`, `Leave Left`, `Begin key.malformed`.
    pub fn answered(&self, word: &str) -> u64 {
        self.answers.get(word).copied().unwrap_or(0)
    }
}
