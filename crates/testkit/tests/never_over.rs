//! Never over the limit: four processes of sixteen tasks on one store, which is paused for two seconds,
//! while one of them (on the embedded store: its owner too) is killed -9.
//!
//! The store's clock stands still, so that every algorithm must be exact: what is counted is what was
//! acknowledged plus calls whose replies were lost, and never more than the limit.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use quaymaster::limit::Charge;
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::conformance::command_int;
use quaymaster_testkit::hammer::{Hammer, HammerConfig};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use rustix::process::Signal;

const LIMIT: u64 = 12_000;
/// In the middle of an hour.
const NOON_US: i64 = 1_900_000_800_000_000;
const PAUSE: Duration = Duration::from_secs(2);
/// Shorter than the pause: its calls give up while the store stands still.
const IMPATIENT: Duration = Duration::from_millis(700);
const ID: &[(&str, &str)] = &[("id", "a")];

struct Scene {
    folder: tempfile::TempDir,
    schema: String,
    clock: HeldClock,
}

impl Scene {
    fn new(clock: HeldClock, limit: u64, window: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut schema = "[schema]\nname = \"over\"\nowner = \"tests\"\n".to_owned();
        for algorithm in ["fixed_window", "sliding_log", "sliding_window", "token_bucket"] {
            let table = format!(
                "[limit.{algorithm}]\nkey = \"{algorithm}:{{id}}\"\nalgorithm = \"{algorithm}\"\n\
                 limit = {limit}\nwindow = \"{window}\"\n"
            );
            schema.push_str(&table);
        }
        std::fs::write(folder.path().join("schema.toml"), &schema).expect("the schema can be written");
        Self { folder, schema, clock }
    }

    fn schema_file(&self) -> PathBuf {
        self.folder.path().join("schema.toml")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn hammer(&self, config: HammerConfig) -> Hammer {
        let config = HammerConfig { env: self.clock.environment(), ..config };
        Hammer::start(env!("CARGO_BIN_EXE_limit_hammer"), &self.schema_file(), &config)
    }

    fn bind(&self, engine: Arc<dyn Engine>) -> Quaymaster {
        let loaded = load(&[Source { name: "over.toml", text: &self.schema }], &|_| None);
        Quaymaster::new(Arc::new(loaded.schema.expect("the schema is right")), engine)
    }

    async fn on_redis(&self, server: &RedisServer) -> Quaymaster {
        let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
        self.bind(Arc::new(RedisStore::connect(options).await.expect("the server is there")))
    }

    async fn on_disk(&self) -> Quaymaster {
        let clock = Clock::Manual(Arc::new(AtomicI64::new(self.clock.now_us())));
        let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
        self.bind(Arc::new(EmbeddedStore::open(&self.data(), options).await.expect("the folder opens")))
    }

    /// Four workers on `store`, two of them impatient; with request ids when `ids` says so.
    fn workers(&self, store: &str, limit: &str, ids: bool) -> Vec<Hammer> {
        let workers: Vec<Hammer> = (0..4)
            .map(|number| {
                let worker = self.hammer(HammerConfig {
                    store: store.to_owned(),
                    limit: limit.to_owned(),
                    key: vec![("id".to_owned(), "a".to_owned())],
                    deadline: (number % 2 == 1).then_some(IMPATIENT),
                    // The others have time for a second attempt, which only a call with a request id may make.
                    response_timeout: (number % 2 == 0).then_some(IMPATIENT),
                    request_ids: ids.then(|| format!("w{number}")),
                    ..HammerConfig::default()
                });
                // One after the other: the first one owns an embedded store.
                worker.wait_ready();
                worker
            })
            .collect();
        for worker in &workers {
            worker.wait_more_answers(20);
        }
        workers
    }
}

/// What the callers were told against what the store holds.
async fn settle(quaymaster: &Quaymaster, limit: &str, workers: &[Hammer], ids: bool) {
    let limit = quaymaster.limit(limit).expect("declared");
    let used = limit.peek(ID).await.expect("peek").quota().used;
    let allowed: u64 = workers.iter().map(Hammer::allowed).sum();
    let unanswered: Vec<String> = workers.iter().flat_map(Hammer::unanswered).collect();
    let told = workers.iter().map(Hammer::codes).collect::<Vec<_>>();
    println!("{}: {used} counted, {allowed} told, {} unanswered, {told:?}", limit.name(), unanswered.len());
    assert_eq!(used, LIMIT, "the workers went on until the limit was full");
    assert!(allowed <= used, "{allowed} callers were let through, {used} counted");
    let missing = used - allowed;
    assert!(missing <= unanswered.len() as u64, "{missing} counted calls belong to nobody");
    if ids {
        resolve(quaymaster, limit, &unanswered, missing).await;
    }
}

/// With request ids every lost call can be asked about: the counted ones left a record, and repeating them
/// all gives the missing answers without counting again.
async fn resolve(quaymaster: &Quaymaster, limit: &quaymaster::limit::Limit, lost: &[String], missing: u64) {
    let engine = &**quaymaster.engine();
    let mut recorded = 0;
    for id in lost {
        let record = format!("{{{}:a}}:req:{id}", limit.name());
        recorded += command_int(engine, &["EXISTS", &record]).await as u64;
    }
    assert_eq!(recorded, missing, "what is missing is exactly the lost calls that ran");
    let mut answered = 0;
    for id in lost {
        let verdict = limit.take(ID, Charge::one().request_id(id)).await.expect("take");
        answered += u64::from(verdict.is_allowed());
    }
    assert_eq!(answered, missing, "a repeated call gets the answer it lost");
    assert_eq!(limit.peek(ID).await.expect("peek").quota().used, LIMIT, "repeating counted again");
}

async fn on_redis(limit: &str, ids: bool) {
    let scene = Scene::new(HeldClock::frozen(NOON_US), LIMIT, "1h");
    let server = RedisServer::start(RedisConfig { env: scene.clock.environment(), ..RedisConfig::default() });
    let mut workers = scene.workers(&server.url(), limit, ids);
    let paused = Instant::now();
    server.pause();
    if !ids {
        // The impatient give up; what they sent still waits in the sockets and runs when the store wakes.
        workers[1].wait_lost(1);
        workers[3].wait_lost(1);
    }
    std::thread::sleep(PAUSE.saturating_sub(paused.elapsed()));
    server.resume();
    workers[0].wait_more_answers(20);
    workers[2].kill9();
    for worker in [0, 1, 3] {
        workers[worker].wait_limited(20);
        workers[worker].finish();
    }
    settle(&scene.on_redis(&server).await, limit, &workers, ids).await;
}

async fn on_disk(limit: &str, ids: bool) {
    let scene = Scene::new(HeldClock::frozen(NOON_US), LIMIT, "1h");
    let mut workers = scene.workers(&format!("embedded:{}", scene.data().display()), limit, ids);
    let paused = Instant::now();
    workers[0].signal(Signal::STOP);
    if !ids {
        workers[1].wait_lost(1);
        workers[3].wait_lost(1);
    }
    std::thread::sleep(PAUSE.saturating_sub(paused.elapsed()));
    workers[0].signal(Signal::CONT);
    workers[1].wait_more_answers(20);
    workers[2].kill9();
    workers[3].wait_more_answers(20);
    workers[0].kill9();
    for worker in [1, 3] {
        workers[worker].wait_limited(20);
        workers[worker].finish();
    }
    settle(&scene.on_disk().await, limit, &workers, ids).await;
}

macro_rules! on_every_algorithm {
    ($($name:ident $where:ident $limit:literal $ids:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $where($limit, $ids).await;
        })*
    };
}

on_every_algorithm! {
    fixed_window_on_redis_is_never_over on_redis "fixed_window" false;
    fixed_window_on_redis_finds_every_lost_call on_redis "fixed_window" true;
    sliding_log_on_redis_is_never_over on_redis "sliding_log" false;
    sliding_log_on_redis_finds_every_lost_call on_redis "sliding_log" true;
    sliding_window_on_redis_is_never_over on_redis "sliding_window" false;
    token_bucket_on_redis_is_never_over on_redis "token_bucket" false;
    fixed_window_on_disk_is_never_over on_disk "fixed_window" false;
    fixed_window_on_disk_finds_every_lost_call on_disk "fixed_window" true;
    sliding_log_on_disk_is_never_over on_disk "sliding_log" false;
    sliding_log_on_disk_finds_every_lost_call on_disk "sliding_log" true;
    sliding_window_on_disk_is_never_over on_disk "sliding_window" false;
    token_bucket_on_disk_is_never_over on_disk "token_bucket" false;
}

/// With a clock that runs: what the stated arithmetic allows between the first call and the last.
async fn while_time_runs(
    limit: &str,
    most: fn(per_window: u64, window_us: i64, from_us: i64, to_us: i64) -> u64,
) {
    const PER_WINDOW: u64 = 500;
    const WINDOW_US: i64 = 1_000_000;
    let scene = Scene::new(HeldClock::running(NOON_US), PER_WINDOW, "1s");
    let server = RedisServer::start(RedisConfig { env: scene.clock.environment(), ..RedisConfig::default() });
    let quaymaster = scene.on_redis(&server).await;
    let from_us = quaymaster.engine().time_us().await.expect("time");
    let mut workers = scene.workers(&server.url(), limit, false);
    let paused = Instant::now();
    server.pause();
    std::thread::sleep(PAUSE.saturating_sub(paused.elapsed()));
    server.resume();
    workers[0].wait_more_answers(2000);
    workers[2].kill9();
    for worker in [0, 1, 3] {
        workers[worker].wait_more_answers(500);
        workers[worker].finish();
    }
    let to_us = quaymaster.engine().time_us().await.expect("time");
    let allowed: u64 = workers.iter().map(Hammer::allowed).sum();
    let most = most(PER_WINDOW, WINDOW_US, from_us, to_us);
    println!("{limit}: {allowed} of at most {most} in {} ms", (to_us - from_us) / 1000);
    assert!(allowed > PER_WINDOW, "more than one window passed");
    assert!(allowed <= most, "{allowed} were let through, the arithmetic allows {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_bucket_gives_its_burst_and_its_rate_and_no_more() {
    while_time_runs("token_bucket", |per_window, window_us, from_us, to_us| {
        per_window + (per_window as i64 * (to_us - from_us) / window_us) as u64 + 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sliding_window_gives_its_limit_to_every_window_and_no_more() {
    while_time_runs("sliding_window", |per_window, window_us, from_us, to_us| {
        per_window * (to_us / window_us - from_us / window_us + 1) as u64
    })
    .await;
}
