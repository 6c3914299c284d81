//! What other programs leave in side keys breaks nothing: every key of every kind, on an embedded store and on Redis.
#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use quaymaster::Engine;
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance;
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::hostile::{Scene, play, scenes, uncovered, unmet};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

/// How many lines a failure shows.
const SHOWN: usize = 60;

/// The stores' clocks run from here, ten minutes past an hour: keys have hours in them, and none ends meanwhile.
const START_US: i64 = 1_794_744_600_000_000;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let mut trials = vec![Trial::test("every_key_of_the_table_has_a_row", || {
        let uncovered = uncovered(&conformance::scenes(), scenes::ELSEWHERE);
        if uncovered.is_empty() { Ok(()) } else { Err(format!("no scene spoils {uncovered:?}").into()) }
    })];
    trials.push(Trial::test("every_script_meets_a_spoiled_key", every_script_is_played));
    for scene in conformance::scenes() {
        let name = scene.name.replace(", ", "_").replace(' ', "_");
        trials.push(Trial::test(format!("memory::{name}"), move || on_memory(&scene)));
        trials.push(Trial::test(format!("redis::{name}"), move || on_redis(&scene)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A clock that runs for as long as the process does.
fn running_clock() -> Arc<AtomicI64> {
    let (clock, began) = (Arc::new(AtomicI64::new(START_US)), Instant::now());
    let shown = Arc::clone(&clock);
    std::thread::spawn(move || {
        loop {
            shown.store(START_US + began.elapsed().as_micros() as i64, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    clock
}

fn every_script_is_played() -> Result<(), libtest_mimic::Failed> {
    runtime().block_on(async {
        let clock = Clock::Manual(running_clock());
        let store =
            EmbeddedStore::memory(EmbeddedOptions { clock, ..EmbeddedOptions::default() }).await.unwrap();
        let unmet = unmet(Arc::new(store), &conformance::scenes(), scenes::SCRIPTS_ELSEWHERE).await;
        if unmet.is_empty() { Ok(()) } else { Err(format!("no scene plays {unmet:?}").into()) }
    })
}

fn on_memory(scene: &Scene) -> Result<(), libtest_mimic::Failed> {
    runtime().block_on(async {
        let clock = Clock::Manual(running_clock());
        let store =
            EmbeddedStore::memory(EmbeddedOptions { clock, ..EmbeddedOptions::default() }).await.unwrap();
        judged(Arc::new(store), scene).await
    })
}

fn on_redis(scene: &Scene) -> Result<(), libtest_mimic::Failed> {
    let clock = HeldClock::running(START_US);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() });
    runtime().block_on(async {
        let options = RedisOptions::from_url(&server.url()).unwrap();
        judged(Arc::new(RedisStore::connect(options).await.unwrap()), scene).await
    })
}

async fn judged(engine: Arc<dyn Engine>, scene: &Scene) -> Result<(), libtest_mimic::Failed> {
    let broken = play(engine, scene).await;
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("{} do not hold:\n{}", broken.len(), broken[..broken.len().min(SHOWN)].join("\n")).into())
}
