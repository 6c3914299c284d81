//! Calls that meet a store which is away.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use quaymaster::Result;
use quaymaster::retry::Retrying;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::{Engine, Repeat, StoreOptions, open};
use quaymaster_testkit::stage::{Ask, Stage, Wire};
use serde_json::json;

use super::{DETECTION, push};

const PRESSURE: &str = "/v1/queue/detection_queue/pressure";

fn l383_operations_are_repeated(s: &Stage) {
    s.settings("[store]\ndeadline = \"25s\"");
    push(s, DETECTION, json!(1));
    let address = s.address();
    // Whose connections are killed does not hear of it.
    for length in [1, 2, 2, 2, 2] {
        s.raw::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert_eq!(s.get(PRESSURE).expect(200)["current_length"], length);
        let body = json!({"payload": 2, "request_id": "r-1"});
        s.ok("queue/detection_queue/push", body);
    }
    assert_eq!(s.raw::<i64>(&["LLEN", DETECTION]), 2, "a push is repeated under its id, and there once");
    // A call that begins while Redis is away ends when it is back.
    s.redis(|server| server.kill9());
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || Wire::open(address).ask(&Ask::new("GET", PRESSURE)).0);
        s.redis(|server| server.restart());
        assert_eq!(asked.join().unwrap().expect(200)["current_length"], 0, "this Redis keeps nothing");
    });
}

/// The stage's Redis, asked by a program on the crate, each call for a tenth of a second.
async fn engine(s: &Stage) -> Arc<dyn Engine> {
    let mut options = StoreOptions::from_url(&s.url(), Path::new(".")).unwrap();
    if let StoreOptions::Redis(redis) = &mut options {
        redis.deadline = Duration::from_millis(100);
    }
    open(options).await.unwrap()
}

/// Asks an engine whose Redis is away; how often, how long and what came of it.
async fn asked(engine: &Arc<dyn Engine>, how: Retrying) -> (u32, Duration, Result<i64>) {
    let (count, begun) = (AtomicU32::new(0), Instant::now());
    let answer = how.run("time", || {
        count.fetch_add(1, SeqCst);
        engine.time_us()
    });
    let answer = answer.await;
    (count.load(SeqCst), begun.elapsed(), answer)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn l389_retries_have_a_bound(s: &Stage) {
    runtime().block_on(async {
        let engine = engine(s).await;
        s.redis(|server| server.kill9());
        let quick = Backoff { base: Duration::from_millis(1), max: Duration::from_millis(1), jitter: 0.0 };
        let default = Retrying { backoff: quick, repeat: Repeat::Safe, ..Retrying::default() };
        for (how, attempts) in [
            (default, 4),
            (Retrying { max_retries: 1, ..default }, 2),
            (Retrying { max_retries: 0, ..default }, 1),
        ] {
            let (count, _, answer) = asked(&engine, how).await;
            assert_eq!(count, attempts, "with {} retries", how.max_retries);
            assert!(answer.is_err_and(|error| error.code.is_store()));
        }
    });
    // A call over HTTP is bounded by its deadline, and told so.
    s.redis(|server| server.restart());
    s.settings("[store]\ndeadline = \"300ms\"");
    push(s, DETECTION, json!(1));
    s.redis(|server| server.kill9());
    let refused = s.get(PRESSURE);
    assert!(refused.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
}

fn l405_waits_follow_the_documented_table(s: &Stage) {
    // The documented waits are the defaults of whoever may wait so long.
    let table = [(1.0, 1.25), (2.0, 2.5), (4.0, 5.0), (8.0, 10.0), (16.0, 20.0), (30.0, 37.5)];
    for (attempt, (least, most)) in (1..).zip(table) {
        for _ in 0..100 {
            let wait = Retrying::default().backoff.delay(attempt).as_secs_f64();
            assert!((least..=most).contains(&wait), "{wait} s before attempt {attempt}");
        }
    }
    runtime().block_on(async {
        let engine = engine(s).await;
        s.redis(|server| server.kill9());
        let how = Retrying { max_retries: 1, repeat: Repeat::Safe, ..Retrying::default() };
        let (count, took, _) = asked(&engine, how).await;
        assert!(count == 2 && took >= Duration::from_secs(1), "{count} in {took:?}");
    });
    // A call with a deadline of less than a second is repeated within it.
    s.redis(|server| server.restart());
    s.settings("[store]\ndeadline = \"900ms\"\n[store.retry]\nbase = \"1h\"\nmax = \"1h\"");
    s.until("a call outlives its connection", || {
        s.get(PRESSURE).expect(200);
        s.raw::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
        s.get(PRESSURE).status == 200
    });
    // A server that starts without its store looks for it as seldom as it is told.
    s.kill();
    s.redis(|server| server.kill9());
    s.get("/readyz").expect(503);
    s.redis(|server| server.restart());
    for _ in 0..20 {
        s.get("/readyz").expect(503);
    }
    assert_eq!(
        s.metric("quaymaster_store_connect_attempts_total"),
        Some(1.0),
        "the next one is an hour away"
    );
    s.kill();
    s.get("/readyz").expect(200);
}

fn l429_pressure_has_a_timeout(s: &Stage) {
    s.settings("[store]\ndeadline = \"1h\"");
    push(s, DETECTION, json!(1));
    let asked = "/v1/queue/detection_queue/pressure?timeout_ms=50";
    assert_eq!(s.get(asked).expect(200)["current_length"], 1);
    s.redis(|server| server.pause());
    // It would hang for the hour that the deadline is.
    assert_eq!(s.get(asked).expect(503)["code"], "store.timed_out");
    let said = s.cli(&[
        "queue",
        "pressure",
        DETECTION,
        "--timeout-ms",
        "50",
        "--server",
        &format!("http://{}", s.address()),
        "--json",
    ]);
    assert_eq!((said.code, &said.json()["code"]), (3, &json!("store.timed_out")), "{said:?}");
    s.redis(|server| server.resume());
    s.until("it answers again", || s.get(asked).status == 200);
}

fn l480_start_waits_for_the_store(s: &Stage) {
    s.settings("[store.retry]\nbase = \"10ms\"\nmax = \"100ms\"");
    s.redis(|server| server.kill9());
    s.get("/healthz").expect(200);
    let away = s.get("/readyz");
    assert!(away.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", away.text());
    let refused = s.post("queue/detection_queue/push", json!({"payload": 1}));
    assert!(refused.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    s.redis(|server| server.restart());
    s.until("it found its store", || s.get("/readyz").status == 200);
    assert_eq!(push(s, DETECTION, json!(1))["queue_length"], 1);
}

cases! {
    l383_operations_are_repeated
    l389_retries_have_a_bound
    l405_waits_follow_the_documented_table
    l429_pressure_has_a_timeout
    l480_start_waits_for_the_store
}
