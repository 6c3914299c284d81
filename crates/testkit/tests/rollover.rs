//! The hour turns under load: no call is counted in two windows, in none, or in an hour that is not the store's.
//!
//! Workers take from a limit whose key names the hour. Some of their nodes' clocks are hours wrong. The
//! store's clock is moved to the next hour in the middle of it; from then on the old hour's counter must not
//! change any more.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use quaymaster::limit::Charge;
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::conformance::command_text;
use quaymaster_testkit::hammer::{Hammer, HammerConfig};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::liar::Liar;
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

const HOUR_US: i64 = 3_600_000_000;
/// The last second of an hour.
const BEFORE_US: i64 = 527_778 * HOUR_US - 1_000_000;
/// How many hours turn.
const TURNS: i64 = 3;
const LIES_MS: [i64; 4] = [0, 7_200_000, -7_200_000, 3_599_000];
const LIMIT: u64 = 1_000_000;
/// Answers each worker must get before and after every turn.
const LOAD: u64 = 60;

fn schema() -> String {
    format!(
        "[schema]\nname = \"turn\"\nowner = \"tests\"\n[limit.hourly]\nkey = \"calls:{{hour}}\"\n\
         algorithm = \"fixed_window\"\nlimit = {LIMIT}\nwindow = \"1h\"\nttl = \"24h\"\n"
    )
}

fn bind(engine: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "turn.toml", text: &schema() }], &|_| None);
    Quaymaster::new(Arc::new(loaded.schema.expect("the schema is right")), engine)
}

/// Every hour's counter, by key.
async fn counters(engine: &dyn Engine) -> Vec<(String, u64)> {
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let page = engine.scan(b"calls:*", 1000, cursor.take()).await.expect("scan");
        keys.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    let mut counters = Vec::new();
    for key in keys {
        let held = command_text(engine, &["GET", &key]).await.expect("a counter that did not expire");
        counters.push((key, held.parse().expect("an integer")));
    }
    counters
}

/// Turns the hours one by one; what the counters of past hours were when their hour had ended.
async fn turn(engine: &dyn Engine, set_time: impl Fn(i64), load: impl Fn()) -> Vec<(String, u64)> {
    load();
    let mut ended = Vec::new();
    for hour in 0..TURNS {
        set_time(BEFORE_US + hour * HOUR_US + 1_000_000);
        // Valkey looks at the clock once for many calls: the hour has turned when a call is counted in the next one.
        // From then on every change of the counters before it would be a call in an hour that is over.
        let mut looks = 0;
        while ended.len() as i64 <= hour + 1 {
            looks += 1;
            assert!(looks < 10_000, "the hour does not turn: {ended:?}");
            ended = counters(engine).await;
        }
        load();
        if hour + 1 < TURNS {
            set_time(BEFORE_US + (hour + 1) * HOUR_US);
            load();
        }
        let now = counters(engine).await;
        // The newest entry is the new hour's.
        for (key, count) in ended.iter().take(hour as usize + 1) {
            let later = now.iter().find(|(name, _)| name == key).map(|(_, count)| *count);
            assert_eq!(later, Some(*count), "{key} was counted in after its hour: {ended:?} {now:?}");
        }
        ended.truncate(hour as usize + 1);
    }
    ended
}

async fn settle(engine: &dyn Engine, allowed: u64, ended: &[(String, u64)]) {
    let counters = counters(engine).await;
    println!("{allowed} allowed, counted {counters:?}");
    assert_eq!(counters.len() as i64, TURNS + 1, "only the store's own hours are counted: {counters:?}");
    assert_eq!(counters[..ended.len()], *ended, "a past hour changed");
    assert_eq!(counters.iter().map(|(_, count)| count).sum::<u64>(), allowed, "{counters:?}");
    assert!(counters.iter().all(|(_, count)| *count <= LIMIT && *count > 0), "{counters:?}");
}

struct Workers {
    hammers: Vec<Hammer>,
    _folder: tempfile::TempDir,
}

impl Workers {
    fn start(store: &str, env: &[(String, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file: PathBuf = folder.path().join("schema.toml");
        std::fs::write(&file, schema()).expect("the schema can be written");
        let hammers = LIES_MS
            .iter()
            .map(|lie_ms| {
                let config = HammerConfig {
                    store: store.to_owned(),
                    limit: "hourly".to_owned(),
                    lie_ms: *lie_ms,
                    env: env.to_vec(),
                    ..HammerConfig::default()
                };
                let hammer = Hammer::start(env!("CARGO_BIN_EXE_limit_hammer"), &file, &config);
                hammer.wait_ready();
                hammer
            })
            .collect();
        Self { hammers, _folder: folder }
    }

    fn load(&self) {
        self.hammers.iter().for_each(|hammer| hammer.wait_more_answers(LOAD));
    }

    /// Ends them; how many calls they were told are allowed.
    fn finish(&mut self) -> u64 {
        // The first one may own the store: it goes last, so that nobody has to take over.
        self.hammers.iter_mut().rev().for_each(Hammer::finish);
        for hammer in &self.hammers {
            assert_eq!(hammer.unanswered(), Vec::<String>::new(), "no reply was lost: {:?}", hammer.codes());
        }
        self.hammers.iter().map(Hammer::allowed).sum()
    }
}

async fn on_server(binary: Binary) {
    let clock = HeldClock::frozen(BEFORE_US);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::of(binary) });
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    let mut workers = Workers::start(&server.url(), &[]);
    let ended = turn(&engine, |us| clock.freeze(us), || workers.load()).await;
    let allowed = workers.finish();
    settle(&engine, allowed, &ended).await;
}

/// The clock runs, and nobody moves it: the hour turns by itself under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_by_itself_on_redis_7() {
    let end_us = BEFORE_US + 1_000_000;
    let clock = HeldClock::running(end_us - HOUR_US / 2);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() });
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    let mut workers = Workers::start(&server.url(), &[]);
    workers.load();
    clock.run_from(end_us - 300_000);
    while engine.time_us().await.expect("time") < end_us {}
    let past = counters(&engine).await.remove(0);
    workers.load();
    let allowed = workers.finish();
    let counters = counters(&engine).await;
    println!("{allowed} allowed, counted {counters:?}");
    assert_eq!(counters.len(), 2, "only the store's own hours are counted: {counters:?}");
    assert_eq!(counters[0], past, "the past hour changed");
    assert_eq!(counters[0].1 + counters[1].1, allowed, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_on_redis_7() {
    on_server(Binary::Redis7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_on_redis_6_2() {
    on_server(Binary::Redis62).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_on_valkey_9() {
    on_server(Binary::Valkey9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_on_disk_under_four_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    // This process owns the folder and has the clock; the workers attach to it.
    let clock = Arc::new(AtomicI64::new(BEFORE_US));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine = EmbeddedStore::open(&data, options).await.expect("a folder of its own");
    let mut workers = Workers::start(&format!("embedded:{}", data.display()), &[]);
    let ended = turn(&engine, |us| clock.store(us, Ordering::SeqCst), || workers.load()).await;
    let allowed = workers.finish();
    settle(&engine, allowed, &ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_turns_in_memory() {
    let clock = Arc::new(AtomicI64::new(BEFORE_US));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(options).await.expect("memory"));
    let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = LIES_MS
        .iter()
        .map(|lie_ms| {
            let limit =
                bind(Arc::new(Liar::new(engine.clone(), *lie_ms))).limit("hourly").expect("declared").clone();
            let (stop, told) = (stop.clone(), told.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(async {
                    while !stop.load(Ordering::SeqCst) {
                        assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
                        told.fetch_add(1, Ordering::SeqCst);
                    }
                });
            })
        })
        .collect();
    let load = || {
        let target = told.load(Ordering::SeqCst) + 4 * LOAD;
        while told.load(Ordering::SeqCst) < target {
            std::thread::yield_now();
        }
    };
    let ended = turn(&*engine, |us| clock.store(us, Ordering::SeqCst), load).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.join().expect("a worker ends");
    }
    settle(&*engine, told.load(Ordering::SeqCst), &ended).await;
}
