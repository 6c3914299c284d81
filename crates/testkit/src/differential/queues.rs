//! Every operation of queues on both stores, under a clock that both share.
//!
//! Calls carry request ids, so that both stores hand out the same tokens: answers, leases and records are compared to
//! the letter. Each history has queues of its own, every make of them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use parking_lot::Mutex;
use quaymaster::queue::{Ack, Claim, ClaimNext, Job, Lease, Nack, Purge, Push, PushDedupe, Redrive, Then};
use quaymaster::{Engine, Quaymaster, Result as Answer};

use super::limits::bind;
use super::side::{Held, Side};
use super::{Pair, compare, shrink};
use crate::conformance::command;

const STEPS: usize = 40;
const BATCH: usize = 60;

/// Short leases, so that histories outlive them; no jitter, since both stores must wait alike.
const SCHEMA: &str = r#"
[queue.fifo]
lease = "2s"
retry = { max_attempts = 3, base = "1s", max = "3s", jitter = 0.0 }
[queue.small]
lease = "2s"
max_size = 4
overflow = "reject"
retry = { max_attempts = 2, base = "1s", max = "3s", jitter = 0.0 }
[queue.spill]
lease = "2s"
max_size = 4
overflow = "dlq"
retry = { max_attempts = 2, base = "1s", max = "3s", jitter = 0.0 }
compress_over = "64B"
[queue.drop]
lease = "2s"
max_size = 4
overflow = "drop_oldest"
retry = { max_attempts = 2, base = "1s", max = "3s", jitter = 0.0 }
[queue.ranked]
lease = "2s"
order = "priority"
max_size = 6
overflow = "dlq"
retry = { max_attempts = 3, base = "1s", max = "3s", jitter = 0.0 }
[dedupe.seen]
key = "seen:{id}"
ttl = "1s"
[event.news]
"#;

const QUEUES: [&str; 5] = ["fifo", "small", "spill", "drop", "ranked"];
/// Keys of a queue that another program may lay hands on. Not the dead letters: a sweep that cannot bury leaves a record
/// under a token of its own.
const KEYS: [&str; 8] = ["", ":jobs", ":held", ":leases", ":delayed", ":meta", ":stamps", "dlq:overflow:"];

/// What is done with one queue.
#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Push {
        count: u8,
        delay_ms: Option<u64>,
        priority: Option<i8>,
        id: Option<u8>,
        seen: Option<u8>,
        large: bool,
    },
    Claim {
        count: usize,
        lease_ms: Option<u64>,
    },
    Ack {
        leases: Vec<usize>,
        next: bool,
        then: Option<&'static str>,
    },
    Nack {
        lease: usize,
        delay_ms: Option<u64>,
        dead: bool,
    },
    Extend {
        lease: usize,
        lease_ms: Option<u64>,
    },
    Release {
        lease: usize,
    },
    Pause,
    Resume,
    Pressure,
    Peek,
    Dead {
        count: usize,
        offset: usize,
    },
    Redrive {
        count: Option<u64>,
        overflow: bool,
    },
    Purge {
        count: Option<u64>,
        older_ms: Option<u64>,
    },
    Sweep,
    Foreign {
        key: &'static str,
        words: Vec<&'static str>,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    queue: &'static str,
    /// The same number again is the same request.
    request: u8,
    deed: Deed,
}

/// Calls on queues of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueHistory {
    seed: u64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct QueueMismatch {
    history: QueueHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct QueueTally {
    /// Histories.
    pub histories: u64,
    /// Calls.
    pub calls: u64,
    /// Answers by deed and first word, or by deed and error code.
    pub answers: BTreeMap<String, u64>,
    /// Jobs handed over.
    pub jobs: u64,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for QueueMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "queue history of seed {}:", self.history.seed)?;
        for step in &self.history.steps {
            let at_ms = step.at_us as f64 / 1000.0;
            writeln!(f, "  {at_ms:>14.3} ms  {} r{} {:?}", step.queue, step.request, step.deed)?;
        }
        write!(f, "differs:\n{}", self.difference)
    }
}

fn moments(rng: &mut Rng) -> Vec<i64> {
    let mut now_us = rng.i64(1..3_600_000_000);
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..18) {
                0 => rng.i64(0..400_000),
                1 => 1000,
                2 => rng.i64(0..4_000_000),
                // The ends of leases, of backoffs and of delays, and right beside them.
                3 => [999_000, 1_000_000, 1_001_000, 1_999_999, 2_000_000, 2_001_000][rng.usize(..6)],
                4 if rng.u8(..8) == 0 => [3_000_000, 61_000_000, 601_000_000][rng.usize(..3)],
                _ => 0,
            };
            now_us
        })
        .collect()
}

fn deed(rng: &mut Rng, queue: &'static str) -> Deed {
    let lease = rng.usize(..6).min(rng.usize(..6));
    let some_ms = |rng: &mut Rng| (rng.u8(..4) == 0).then(|| [0, 1, 500, 1000, 1999, 5000][rng.usize(..6)]);
    let lease_ms = (rng.u8(..4) == 0).then(|| [1, 100, 1999, 5000][rng.usize(..4)]);
    let few = |rng: &mut Rng| (rng.u8(..3) > 0).then(|| rng.u64(1..4));
    match rng.u8(..48) {
        0..=13 => Deed::Push {
            count: [1, 1, 1, 2, 3, 5][rng.usize(..6)],
            delay_ms: some_ms(rng),
            priority: (queue == "ranked" && rng.u8(..3) > 0).then(|| rng.i8(-1..3)),
            id: (rng.u8(..6) == 0).then(|| rng.u8(..2)),
            seen: (rng.u8(..8) == 0).then(|| rng.u8(..2)),
            large: rng.u8(..4) == 0,
        },
        // The small one stays full.
        14..=23 if queue == "small" => Deed::Claim { count: 1, lease_ms },
        14..=23 => Deed::Claim { count: [1, 1, 2, 5, 1000][rng.usize(..5)], lease_ms },
        24..=29 => Deed::Ack {
            leases: (0..[1, 1, 2, 3][rng.usize(..4)]).map(|_| rng.usize(..6).min(rng.usize(..6))).collect(),
            next: rng.u8(..3) == 0,
            then: (rng.u8(..3) == 0).then(|| [queue, queue, "fifo", "news"][rng.usize(..4)]),
        },
        30..=33 => Deed::Nack { lease, delay_ms: some_ms(rng), dead: rng.u8(..6) == 0 },
        34 | 35 => Deed::Extend { lease, lease_ms },
        36 => Deed::Release { lease },
        37 if rng.bool() => Deed::Pause,
        37 | 38 => Deed::Resume,
        39 | 40 => Deed::Pressure,
        41 => Deed::Peek,
        42 => Deed::Dead { count: rng.usize(1..4), offset: rng.usize(..3) },
        43 => Deed::Redrive { count: few(rng), overflow: rng.u8(..3) == 0 },
        44 if rng.bool() => Deed::Purge { count: few(rng), older_ms: some_ms(rng) },
        44 | 45 => Deed::Sweep,
        _ => Deed::Foreign {
            key: KEYS[if rng.bool() { 0 } else { rng.usize(..KEYS.len()) }],
            words: foreign(rng),
        },
    }
}

/// Not what nobody can read: its letter has the node's own time.
fn foreign(rng: &mut Rng) -> Vec<&'static str> {
    let choices: &[&[&'static str]] = &[
        &["RPUSH", "{\"foreign\":1}", "[1,2]"],
        &["LPOP"],
        &["ZADD", "5", "\"foreign\""],
        &["ZPOPMAX"],
        &["DEL"],
        &["SET", "x"],
        &["HSET", "1", "odd"],
        &["HSET", "paused", "odd", "stamped", "odd", "pushed", "odd"],
        &["PEXPIRE", "1500"],
    ];
    choices[rng.usize(..choices.len())].to_vec()
}

fn history(seed: u64, moments: &[i64]) -> QueueHistory {
    let mut rng = Rng::with_seed(seed);
    let favourite = QUEUES[rng.usize(..QUEUES.len())];
    let steps = moments.iter().enumerate().map(|(at, at_us)| {
        let queue = if rng.u8(..6) == 0 { QUEUES[rng.usize(..QUEUES.len())] } else { favourite };
        // Some calls come again.
        let request = if rng.u8(..12) == 0 && at > 0 { at as u8 - 1 } else { at as u8 };
        Step { at_us: *at_us, queue, request, deed: deed(&mut rng, queue) }
    });
    QueueHistory { seed, steps: steps.collect() }
}

/// One store under one history's schema.
struct World {
    quaymaster: Quaymaster,
    prefix: String,
    /// Leases given, by queue, the latest last.
    leases: Mutex<BTreeMap<&'static str, Vec<Lease>>>,
}

impl World {
    fn lease(&self, queue: &'static str, back: usize) -> Lease {
        let leases = self.leases.lock();
        let known = leases.get(queue).and_then(|known| known.iter().rev().nth(back));
        known.cloned().unwrap_or_else(|| Lease::parse("test", "1.1.nobody-was-given-this").expect("a lease"))
    }

    /// Puts a lease that was settled behind those that were not.
    fn settle(&self, queue: &'static str, settled: &[Lease]) {
        if let Some(leases) = self.leases.lock().get_mut(queue) {
            leases.sort_by_key(|lease| !settled.contains(lease));
        }
    }

    fn keep(&self, queue: &'static str, jobs: &[Job]) {
        let mut leases = self.leases.lock();
        leases.entry(queue).or_default().extend(jobs.iter().map(|job| job.lease.clone()));
    }

    /// What this store says to a step.
    async fn act(&self, step: &Step) -> String {
        match self.answer(step).await {
            Ok(said) => said,
            Err(error) => error.code.name().to_owned(),
        }
    }

    async fn answer(&self, step: &Step) -> Answer<String> {
        let name = step.queue;
        let queue = self.quaymaster.queue(name)?;
        let request_id = Some(format!("r{}", step.request));
        let ms = |ms: &Option<u64>| ms.map(Duration::from_millis);
        Ok(match &step.deed {
            Deed::Push { count, delay_ms, priority, id, seen, large } => {
                let filler = if *large { "x".repeat(100) } else { String::new() };
                let payload =
                    |n| format!("{{\"n\":\"{}-{n}\",\"filler\":\"{filler}\"}}", step.request).into();
                let dedupe = seen.map(|id| PushDedupe {
                    name: "seen".to_owned(),
                    key: vec![("id".to_owned(), id.to_string())],
                    value: None,
                });
                let push = Push {
                    payloads: (0..*count).map(payload).collect(),
                    priority: priority.map(f64::from),
                    delay: ms(delay_ms),
                    id: id.filter(|_| *count == 1).map(|id| format!("i{id}")),
                    dedupe,
                    request_id,
                };
                format!("{:?}", queue.push(push).await?)
            }
            Deed::Claim { count, lease_ms } => {
                let worker = Some("w1".to_owned());
                let claim =
                    Claim { count: *count, lease: ms(lease_ms), worker, request_id, ..Claim::default() };
                let jobs = queue.claim(claim).await?;
                self.keep(name, &jobs);
                told(&jobs)
            }
            Deed::Ack { leases, next, then } => {
                let mut ack = Ack::of(leases.iter().map(|back| self.lease(name, *back)).collect());
                ack.claim = next.then_some(ClaimNext { count: 2, lease: None, worker: None });
                ack.then.extend(then.map(|to| follow(to, step.request)));
                ack.request_id = request_id;
                let settled = ack.leases.clone();
                let answer = queue.ack(ack).await?;
                self.settle(name, &settled);
                self.keep(name, &answer.jobs);
                format!("Acked {} lost {} then {}", answer.acked, answer.lost, told(&answer.jobs))
            }
            Deed::Nack { lease, delay_ms, dead } => {
                let lease = self.lease(name, *lease);
                let nack =
                    Nack { delay: ms(delay_ms), dead: *dead, request_id, ..Nack::of(lease.clone(), "no") };
                let answer = queue.nack(nack).await?;
                self.settle(name, &[lease]);
                format!("{answer:?}")
            }
            Deed::Extend { lease, lease_ms } => {
                format!("{:?}", queue.extend(&self.lease(name, *lease), ms(lease_ms)).await?)
            }
            Deed::Release { lease } => format!("{:?}", queue.release(&[self.lease(name, *lease)]).await?),
            Deed::Pause => format!("{:?}", queue.pause().await?),
            Deed::Resume => format!("{:?}", queue.resume().await?),
            Deed::Pressure => format!("{:?}", queue.pressure().await?),
            Deed::Peek => format!("{:?}", queue.peek(3).await?),
            Deed::Dead { count, offset } => format!("{:?}", queue.dead(*count, *offset as u64).await?),
            Deed::Redrive { count, overflow } => {
                let redrive = Redrive { count: *count, overflow: *overflow, request_id: None };
                format!("{:?}", queue.redrive(redrive, |_| ()).await?)
            }
            Deed::Purge { count, older_ms } => {
                let purge = Purge { count: *count, older_than: ms(older_ms), request_id: None };
                format!("{:?}", queue.purge(purge, |_| ()).await?)
            }
            Deed::Sweep => format!("{:?}", queue.sweep().await?),
            Deed::Foreign { key, words } => {
                let prefix = &self.prefix;
                let key = match key.strip_prefix(':') {
                    Some(side) => format!("{prefix}{{{prefix}{name}}}:{side}"),
                    None => format!("{prefix}{key}{name}"),
                };
                let mut all: Vec<&[u8]> = vec![words[0].as_bytes(), key.as_bytes()];
                all.extend(words[1..].iter().map(|word| word.as_bytes()));
                format!("{:?}", command(&**self.quaymaster.engine(), key.as_bytes(), &all).await?)
            }
        })
    }
}

fn follow(to: &'static str, request: u8) -> Then {
    let text = format!("{{\"then\":{request}}}");
    match to {
        "news" => Then::Publish { name: to.to_owned(), data: text.into() },
        to => Then::Push { name: to.to_owned(), payload: text.into(), priority: None, delay: None },
    }
}

/// Jobs to the letter, their leases too.
fn told(jobs: &[Job]) -> String {
    let one = |job: &Job| {
        let payload = String::from_utf8_lossy(&job.payload);
        format!("{} {} {} {:?} {payload}", job.id, job.attempt, job.lease, job.lease_expires_in)
    };
    let all: Vec<String> = jobs.iter().map(one).collect();
    format!("{} jobs: {}", jobs.len(), all.join(" | "))
}

/// Documented keys and side keys, with their members.
async fn everything(side: &Side, base: &str) -> BTreeMap<bytes::Bytes, Held> {
    side.keyspace(base).await
}

impl Pair {
    /// Runs the queue histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_queues(&self, seeds: Range<u64>) -> Result<QueueTally, QueueMismatch> {
        let mut tally = QueueTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let moments = moments(&mut Rng::with_seed(batch[0]));
            let histories: Vec<QueueHistory> = batch.iter().map(|seed| history(*seed, &moments)).collect();
            if let Some((index, difference)) = self.run_queues(&histories, &mut tally).await {
                return Err(self.shrink_queues(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_queues(
        &self,
        histories: &[QueueHistory],
        tally: &mut QueueTally,
    ) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let base = format!("q{}:", start_us / super::DAY_US);
        let world = |index: usize, engine: &Arc<dyn Engine>| {
            let prefix = format!("{base}u{index}:");
            let head =
                format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
            World { quaymaster: bind(&(head + SCHEMA), engine.clone()), prefix, leases: Mutex::default() }
        };
        let both = |index| (world(index, &self.ours.engine), world(index, &self.theirs.engine));
        let worlds: Vec<(World, World)> = (0..histories.len()).map(both).collect();
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let moment =
                histories.iter().find_map(|history| history.steps.get(round)).map_or(0, |step| step.at_us);
            self.ours.set_time(start_us + moment).await;
            self.theirs.set_time(start_us + moment).await;
            let said = histories.iter().zip(&worlds).map(|(history, (ours, theirs))| async move {
                let step = history.steps.get(round)?;
                Some((ours.act(step).await, theirs.act(step).await))
            });
            for (index, said) in join_all(said).await.into_iter().enumerate() {
                let Some((ours, theirs)) = said else { continue };
                let step = &histories[index].steps[round];
                if ours != theirs {
                    let at_ms = step.at_us as f64 / 1000.0;
                    let difference =
                        format!("  {at_ms:.3} ms {:?}\n  ours   {ours}\n  theirs {theirs}", step.deed);
                    return Some((index, difference));
                }
                tally.note(&step.deed, &ours);
            }
        }
        let (held, wanted) = (everything(&self.ours, &base).await, everything(&self.theirs, &base).await);
        if let Some((key, difference)) = compare::keyspaces(&held, &wanted, self.tolerance) {
            let user = String::from_utf8_lossy(&key)
                .split([':', '}'])
                .find_map(|part| part.strip_prefix('u')?.parse().ok());
            return Some((user.unwrap_or(0), format!("  at the end {}\n{difference}", key.escape_ascii())));
        }
        tally.histories += histories.len() as u64;
        tally.keys += held.len() as u64;
        for side in [&self.ours, &self.theirs] {
            side.clear(&base).await;
        }
        None
    }

    async fn shrink_queues(&self, history: QueueHistory, difference: String) -> QueueMismatch {
        let differs =
            async |tried: &[QueueHistory; 1]| self.run_queues(tried, &mut QueueTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        QueueMismatch { history, difference }
    }
}

impl QueueTally {
    fn note(&mut self, deed: &Deed, said: &str) {
        self.calls += 1;
        let end = |text: &str| text.find(['(', ' ', '{']).unwrap_or(text.len());
        let deed = format!("{deed:?}");
        // How many jobs came is no word.
        let said = match said.split_once(" jobs: ") {
            Some((count, _)) if count.parse::<u64>().is_ok() => {
                self.jobs += count.parse::<u64>().unwrap_or(0);
                if count == "0" { "none" } else { "some" }
            }
            _ => &said[..end(said)],
        };
        *self.answers.entry(format!("{} {said}", &deed[..end(&deed)])).or_default() += 1;
    }

    /// How often a deed was answered so: `Claim some`, `Nack Retry`, `Push queue.full`.
    pub fn answered(&self, word: &str) -> u64 {
        self.answers.get(word).copied().unwrap_or(0)
    }
}
