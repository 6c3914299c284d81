//! A queue says exactly what a plain model says: random calls of one process under a clock that stands still between
//! them, every answer and every place compared after every call.
//!
//! Sixty histories of each make by default (twenty-five on Redis), five thousand under `QUAYMASTER_SOAK=1`; `QUAYMASTER_HISTORIES` and
//! `QUAYMASTER_SEED` choose others.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use fastrand::Rng;
use quaymaster::queue::{
    Ack, Claim, ClaimNext, Extended, Job, Lease, Nack, Nacked, Purge, Push, Queue, Redrive, Then,
};
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Code, Engine, Quaymaster};
use quaymaster_testkit::differential::{Hand, Side, count, seed};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::queue_model::{self, Model, Overflow, Rules};
use quaymaster_testkit::saboteur::Saboteur;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::Value;

const START_US: i64 = 1_900_000_000_000_000;
const STEPS: usize = 60;
const ATTEMPTS: u32 = 3;

/// Every make of queue, by its name in the schema.
const MAKES: [(&str, Rules); 5] = [
    ("plain", rules(false, 0, Overflow::Reject)),
    ("small", rules(false, 5, Overflow::Reject)),
    ("spill", rules(false, 5, Overflow::Move)),
    ("drop", rules(false, 5, Overflow::Drop)),
    ("ranked", rules(true, 0, Overflow::Reject)),
];

const fn rules(ranked: bool, max_size: usize, overflow: Overflow) -> Rules {
    Rules { ranked, max_size, overflow, max_attempts: ATTEMPTS, base_ms: 1000, max_ms: 1500 }
}

fn schema(prefix: &str) -> String {
    let make = |(name, rules): (&str, Rules)| {
        let overflow = match rules.overflow {
            Overflow::Reject => "reject",
            Overflow::Move => "dlq",
            Overflow::Drop => "drop_oldest",
        };
        let bound = match rules.max_size {
            0 => String::new(),
            most => format!("max_size = {most}\noverflow = \"{overflow}\"\n"),
        };
        let order = if rules.ranked { "priority" } else { "fifo" };
        format!(
            "[queue.{name}]\nlease = \"2s\"\norder = \"{order}\"\n{bound}\
             retry = {{ max_attempts = {ATTEMPTS}, base = \"1s\", max = \"1500ms\", jitter = 0.0 }}\n"
        )
    };
    let makes = MAKES.map(make).concat();
    format!("[schema]\nname = \"model\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n[queue.after]\n{makes}")
}

fn bind(engine: &Arc<dyn Engine>, prefix: &str) -> Quaymaster {
    let text = schema(prefix);
    let loaded = load(&[Source { name: "model.toml", text: &text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Quaymaster::new(Arc::new(schema), engine.clone())
}

/// A queue beside its model.
struct Pair<'a> {
    side: &'a Side,
    queue: &'a Queue,
    model: Model,
    rng: Rng,
    names: u64,
    followed: u64,
    /// Leases given, the latest last, each with the model's.
    leases: Vec<(Lease, usize)>,
    /// How often what was answered.
    seen: BTreeMap<String, u64>,
}

type Checked = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, told: &T, wanted: &T) -> Checked {
    if told == wanted { Ok(()) } else { Err(format!("{what}: told {told:?}, the model says {wanted:?}")) }
}

fn name_of(payload: &[u8]) -> String {
    serde_json::from_slice(payload).unwrap_or_else(|_| format!("{:?}", payload.escape_ascii().to_string()))
}

impl Pair<'_> {
    fn note(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    /// One of the latest leases, or one long settled.
    fn lease(&mut self) -> Option<(Lease, usize)> {
        let back = self.rng.usize(..6);
        self.leases.iter().rev().nth(back).or(self.leases.last()).cloned()
    }

    async fn step(&mut self) -> Checked {
        let pass = match self.rng.u8(..8) {
            0 => self.rng.i64(0..3000),
            1 => [999, 1000, 1001, 1499, 1500, 1999, 2000, 2001][self.rng.usize(..8)],
            2 => 1,
            _ => 0,
        };
        self.model.now_ms += pass;
        self.side.set_time(self.model.now_ms * 1000).await;
        match self.rng.u8(..32) {
            0..=9 => self.push().await?,
            10..=17 => self.claim().await?,
            18..=22 => self.ack().await?,
            23..=25 => self.nack().await?,
            26 => self.extend().await?,
            27 => self.release().await?,
            28 => self.switch().await?,
            29 => self.sweep().await?,
            30 => self.redrive().await?,
            _ => self.purge().await?,
        }
        self.places().await
    }

    async fn push(&mut self) -> Checked {
        let count = [1, 1, 2, 3, 7][self.rng.usize(..5)];
        let names: Vec<String> = (0..count).map(|n| format!("j{}", self.names + n)).collect();
        self.names += count;
        let delay_ms = if self.rng.u8(..4) == 0 { [1, 500, 2000][self.rng.usize(..3)] } else { 0 };
        let score = if self.queue.name() == "ranked" { f64::from(self.rng.i8(-1..2)) } else { 0.0 };
        let id = (self.rng.u8(..5) == 0).then(|| format!("i{}", self.rng.u8(..4)));
        let push = Push {
            payloads: names.iter().map(|name| format!("\"{name}\"").into()).collect(),
            priority: (self.queue.name() == "ranked").then_some(score),
            delay: (delay_ms > 0).then(|| Duration::from_millis(delay_ms as u64)),
            id: id.clone(),
            ..Push::default()
        };
        let told = match self.queue.push(push).await {
            Ok(pushed) if pushed.duplicate => queue_model::Pushed::Duplicate,
            Ok(told) => queue_model::Pushed::Accepted(
                told.accepted as usize,
                told.moved_to_dlq as usize,
                told.dropped as usize,
                told.queue_length as usize,
            ),
            Err(error) if error.code == Code::QueueFull => queue_model::Pushed::Full,
            Err(error) => return Err(format!("push: {error}")),
        };
        let wanted = self.model.push(&names, delay_ms, score, id.as_deref());
        self.note(format!("push {}", format!("{told:?}").split('(').next().unwrap_or_default()));
        same("push", &told, &wanted)
    }

    fn jobs(&mut self, told: Vec<Job>, wanted: &[(String, u32, usize)]) -> Checked {
        let shown: Vec<(String, u32)> = told.iter().map(|job| (name_of(&job.payload), job.attempt)).collect();
        let model: Vec<(String, u32)> =
            wanted.iter().map(|(name, attempt, _)| (name.clone(), *attempt)).collect();
        self.note(if shown.is_empty() { "claim none" } else { "claim some" });
        for (job, (_, attempt, lease)) in told.into_iter().zip(wanted) {
            self.note(if *attempt > 1 { "claim again" } else { "claim fresh" });
            self.leases.push((job.lease, *lease));
        }
        same("claim", &shown, &model)
    }

    async fn claim(&mut self) -> Checked {
        let count = [1, 1, 2, 4, 100][self.rng.usize(..5)];
        let lease_ms = [1, 1000, 2000, 5000][self.rng.usize(..4)];
        let lease = Some(Duration::from_millis(lease_ms as u64));
        let told = self.queue.claim(Claim { count, lease, ..Claim::default() }).await;
        let wanted = self.model.claim(count, lease_ms);
        self.jobs(told.map_err(|error| format!("claim: {error}"))?, &wanted)
    }

    async fn ack(&mut self) -> Checked {
        let given: Vec<(Lease, usize)> = (0..self.rng.usize(1..4)).filter_map(|_| self.lease()).collect();
        if given.is_empty() {
            return Ok(());
        }
        let leases: Vec<usize> = given.iter().map(|(_, lease)| *lease).collect();
        let mut ack = Ack::of(given.into_iter().map(|(lease, _)| lease).collect());
        let (next, then) = (self.rng.u8(..3) == 0, self.rng.u8(..4) == 0);
        let (name, payload) = ("after".to_owned(), "1".into());
        if then {
            ack.then.push(Then::Push { name, payload, priority: None, delay: None });
        }
        ack.claim = next.then_some(ClaimNext { count: 2, lease: None, worker: None });
        let told = self.queue.ack(ack).await.map_err(|error| format!("ack: {error}"))?;
        let wanted = if then && !self.model.all_held(&leases) {
            // Each lease given twice is held once.
            let held: std::collections::HashSet<&usize> = leases.iter().collect();
            let lives = held.into_iter().filter(|lease| self.model.all_held(&[**lease])).count();
            (0, leases.len() - lives)
        } else {
            let acked = self.model.ack(&leases);
            self.followed += u64::from(then);
            (acked, leases.len() - acked)
        };
        self.note(if told.acked > 0 { "ack acked" } else { "ack lost" });
        same("ack", &(told.acked as usize, told.lost as usize), &wanted)?;
        if next {
            let wanted = self.model.claim_once(2, 2000);
            self.jobs(told.jobs, &wanted)?;
        }
        Ok(())
    }

    async fn nack(&mut self) -> Checked {
        let Some((lease, known)) = self.lease() else { return Ok(()) };
        let delay_ms = (self.rng.u8(..3) == 0).then(|| [0, 1, 700][self.rng.usize(..3)]);
        let dead = self.rng.u8(..8) == 0;
        let delay = delay_ms.map(|ms| Duration::from_millis(ms as u64));
        let told = self.queue.nack(Nack { delay, dead, ..Nack::of(lease, "it failed") }).await;
        let told = match told.map_err(|error| format!("nack: {error}"))? {
            Nacked::Retry { retry_in, .. } => queue_model::Nacked::Retry(retry_in.as_millis() as i64),
            Nacked::Dead { .. } => queue_model::Nacked::Dead,
            Nacked::Lost => queue_model::Nacked::Lost,
        };
        self.note(format!("nack {}", format!("{told:?}").split('(').next().unwrap_or_default()));
        same("nack", &told, &self.model.nack(known, "it failed", delay_ms, dead))
    }

    async fn extend(&mut self) -> Checked {
        let Some((lease, known)) = self.lease() else { return Ok(()) };
        let lease_ms = [1, 2000, 9000][self.rng.usize(..3)];
        let told = self.queue.extend(&lease, Some(Duration::from_millis(lease_ms as u64))).await;
        let told = matches!(told.map_err(|error| format!("extend: {error}"))?, Extended::Ours { .. });
        self.note(if told { "extend ours" } else { "extend lost" });
        same("extend", &told, &self.model.extend(known, lease_ms))
    }

    async fn release(&mut self) -> Checked {
        let Some((lease, known)) = self.lease() else { return Ok(()) };
        let told = self.queue.release(&[lease]).await.map_err(|error| format!("release: {error}"))? == 1;
        self.note(if told { "release given back" } else { "release lost" });
        same("release", &told, &self.model.release(known))
    }

    async fn switch(&mut self) -> Checked {
        self.model.paused = !self.model.paused && self.rng.bool();
        let done = if self.model.paused { self.queue.pause().await } else { self.queue.resume().await };
        done.map_err(|error| format!("switch: {error}"))
    }

    async fn sweep(&mut self) -> Checked {
        let told = self.queue.sweep().await.map_err(|error| format!("sweep: {error}"))?;
        if told.returned > 0 {
            self.note("sweep returned");
        }
        if told.buried > 0 {
            self.note("sweep buried");
        }
        same("sweep", &(told.returned as usize, told.buried as usize), &self.model.sweep())
    }

    async fn redrive(&mut self) -> Checked {
        let count = self.rng.usize(1..4);
        let which = Redrive { count: Some(count as u64), ..Redrive::default() };
        let told = self.queue.redrive(which, |_| ()).await.map_err(|error| format!("redrive: {error}"))?;
        if told.moved > 0 {
            self.note("redrive moved");
        }
        same("redrive", &(told.moved as usize), &self.model.redrive(count))
    }

    async fn purge(&mut self) -> Checked {
        let count = self.rng.usize(1..3);
        let told = self.queue.purge(Purge { count: Some(count as u64), ..Purge::default() }, |_| ()).await;
        same("purge", &(told.map_err(|error| format!("purge: {error}"))? as usize), &self.model.purge(count))
    }

    /// Every job is in exactly the place the model has it in.
    async fn places(&mut self) -> Checked {
        let now = self.queue.pressure().await.map_err(|error| format!("pressure: {error}"))?;
        let told = (now.current_length, now.delayed, now.leased, now.dead, now.overflowed);
        let told = (told.0 as usize, told.1 as usize, told.2 as usize, told.3 as usize, told.4 as usize);
        same("places", &told, &self.model.places())?;
        same("acked", &(now.totals.acked as usize), &self.model.acked())?;
        let items = self.queue.peek(1000).await.map_err(|error| format!("peek: {error}"))?;
        let waiting: Vec<String> = items.iter().map(|item| name_of(item.bytes())).collect();
        let wanted: Vec<String> = self.model.waiting().into_iter().map(str::to_owned).collect();
        same("waiting", &waiting, &wanted)?;
        let page = self.queue.dead(1000, 0).await.map_err(|error| format!("dead: {error}"))?;
        same("letters", &page.items.len(), &self.model.dead().len())?;
        for (item, (name, attempts, error)) in page.items.iter().zip(self.model.dead()) {
            let letter: Value = serde_json::from_slice(item.bytes()).map_err(|error| error.to_string())?;
            same("letter", &letter["original_job"], &Value::from(name.as_str()))?;
            same("attempts", &letter["attempt_count"], &Value::from(*attempts))?;
            match error {
                Some(error) => same("error", &letter["error"], &Value::from(error.as_str()))?,
                None => same(
                    "error",
                    &letter["error"].as_str().is_some_and(|error| error.contains("lease")),
                    &true,
                )?,
            }
        }
        Ok(())
    }
}

/// Runs histories of every make; the first difference, or how often what was answered.
async fn compare(side: &Side, histories: u64) -> Result<BTreeMap<String, u64>, String> {
    let mut seen = BTreeMap::new();
    let mut now_ms = START_US / 1000;
    for (make, (name, rules)) in MAKES.into_iter().enumerate() {
        for number in 0..histories {
            let quaymaster = bind(&side.engine, &format!("m{make}:{number}:"));
            let queue = quaymaster.queue(name).expect("declared");
            let rng = Rng::with_seed(seed() * 1_000_003 + number * 10 + make as u64);
            let model = Model::new(rules, now_ms);
            let mut pair = Pair {
                side,
                queue,
                model,
                rng,
                names: 0,
                followed: 0,
                leases: Vec::new(),
                seen: BTreeMap::new(),
            };
            for step in 0..STEPS {
                let checked = pair.step().await;
                checked.map_err(|wrong| format!("{name}, history {number}, step {step}: {wrong}"))?;
            }
            let after = quaymaster.queue("after").expect("declared").pressure().await.expect("an answer");
            same("what followed", &after.current_length, &pair.followed)
                .map_err(|wrong| format!("{name}, history {number}: {wrong}"))?;
            now_ms = pair.model.now_ms;
            for (what, count) in pair.seen {
                *seen.entry(what).or_default() += count;
            }
        }
    }
    Ok(seen)
}

async fn embedded() -> Side {
    let clock = Arc::new(AtomicI64::new(START_US));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine = Arc::new(EmbeddedStore::memory(options).await.expect("a store"));
    Side { name: "embedded", engine, hand: Hand::Manual(clock) }
}

fn agrees(name: &str, histories: u64, told: Result<BTreeMap<String, u64>, String>) {
    let seen = told.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    println!("{name}: {seen:#?}");
    // A run in which nothing happened proves nothing.
    for what in [
        "push Accepted",
        "push Duplicate",
        "push Full",
        "claim some",
        "claim none",
        "claim again",
        "claim fresh",
        "ack acked",
        "ack lost",
        "nack Retry",
        "nack Dead",
        "nack Lost",
        "extend ours",
        "extend lost",
        "release given back",
        "sweep returned",
        "redrive moved",
    ] {
        let times = seen.get(what).copied().unwrap_or(0);
        assert!(times >= histories / 20, "{name}: {what} only {times} times");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_embedded_store_every_answer_is_the_models() {
    let histories = count(60, 5000);
    agrees("embedded", histories, compare(&embedded().await, histories).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_7_every_answer_is_the_models() {
    let histories = count(25, 1000);
    let held = HeldClock::frozen(START_US);
    let server = RedisServer::start(RedisConfig { env: held.environment(), ..RedisConfig::default() });
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = Arc::new(RedisStore::connect(options).await.expect("the server is there"));
    let side = Side { name: "redis 7", engine, hand: Hand::Held(held) };
    agrees("redis 7", histories, compare(&side, histories).await);
}

/// Script, what is replaced, and by what; each is a different answer than the model's.
const DEFECTS: [(&str, &str, &str); 10] = [
    ("queue.claim", "redis.call(\"LPOP\", items, wanted)", "redis.call(\"RPOP\", items, wanted)"),
    ("queue.claim", "if dying == 0 then attempt", "if dying == 0 and not ended then attempt"),
    ("queue.claim", "if switches[1] == \"1\" then", "if false then"),
    ("queue.ack", "or \"0\") or 0) > now_ms then", "or \"0\") or 0) >= now_ms then"),
    (
        "queue.push",
        "local due, held = string.format(\"%.0f\", now_ms + words[from + 3])",
        "local due, held = string.format(\"%.0f\", now_ms)",
    ),
    ("queue.push", "redis.call(\"LTRIM\", items, over, -1)", "redis.call(\"LTRIM\", items, 0, -1 - over)"),
    ("queue.push", "9007199254740991 - (number", "(number"),
    ("queue.extend", "redis.call(\"ZADD\", leases, ends, id)", ""),
    ("queue.release", "math.max(attempt - uncount, 0)", "attempt"),
    ("queue.redrive", "redis.call(\"LSET\", dead, ARGV[at], stone)", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_a_script_is_another_answer_than_the_models() {
    for (script, old, new) in DEFECTS {
        let mut side = embedded().await;
        let saboteur = Arc::new(Saboteur::new(side.engine.clone(), script, old, new));
        side.engine = saboteur.clone();
        let found = compare(&side, 40).await;
        assert!(saboteur.changed() > 0, "{script} does not say {old:?} any more");
        println!("{script} {new:?}: {}", found.expect_err("the defect must be found"));
    }
}
