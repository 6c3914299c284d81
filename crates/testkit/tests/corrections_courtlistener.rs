//! `docs/corrections.md`, the docket pipeline: each scheme as its document has it, in plain commands on a real Redis,
//! seen failing; and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::clean::{Ask, Mode};
use quaymaster::limit::Charge;
use quaymaster::run::{FailuresAsk, Fields, Items, RetryAsk};
use quaymaster::schema::{BUNDLED, Source, load};
use quaymaster::store::StoreOptions;
use quaymaster::store::redis::{Address, RedisOptions, RedisStore, Target};
use quaymaster::{Code, Engine, Outage, Quaymaster};
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::liar::Liar;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const RUN: &str = "manual_2024-09-17T14:30:00+00:00";
const STATE: &str = "courtlistener:pipeline:manual_2024-09-17T14:30:00+00:00";
/// 2024-09-17 14:30:00 UTC.
const HALF_PAST_US: i64 = 1_726_583_400_000_000;
const COUNTER: &str = "courtlistener:rate_limit:2024-09-17_14";
const FAILED: &str = "courtlistener:failed:2024-09-17_14";
const HOUR_US: i64 = 3_600_000_000;

fn courtlistener() -> &'static str {
    let (_, text) = BUNDLED.iter().find(|(name, _)| name.contains("courtlistener")).expect("it is bundled");
    text
}

async fn engine(server: &RedisServer) -> Arc<dyn Engine> {
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    Arc::new(RedisStore::connect(options).await.expect("the server is there"))
}

/// The system's schema with a limit of `limit` calls and no buffer.
fn bind(engine: Arc<dyn Engine>, limit: u64) -> Quaymaster {
    bind_under(engine, limit, "deny")
}

/// The same, with what is answered while the store is away.
fn bind_under(engine: Arc<dyn Engine>, limit: u64, policy: &str) -> Quaymaster {
    let env = |name: &str| match name {
        "CALL_LIMIT_PER_HOUR" => Some(limit.to_string()),
        "COURTLISTENER_SAFETY_BUFFER" => Some("0".to_owned()),
        "COURTLISTENER_ON_OUTAGE" => Some(policy.to_owned()),
        _ => None,
    };
    let loaded = load(&[Source { name: "schema.toml", text: courtlistener() }], &env);
    Quaymaster::new(Arc::new(loaded.schema.expect("the schema is right")), engine)
}

/// A server at half past two on the document's day, and its clock.
fn server() -> (RedisServer, HeldClock) {
    let clock = HeldClock::running(HALF_PAST_US);
    (RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() }), clock)
}

/// The documented state, as `initialize_pipeline_state` leaves it.
fn initialize(server: &RedisServer) {
    server.command::<()>(&[
        "HSET",
        STATE,
        "dag_run_id",
        RUN,
        "start_time",
        "2024-09-17T14:30:00.123456",
        "current_hour",
        "2024-09-17_14",
        "api_calls_this_hour",
        "0",
        "status",
        "running",
        "dockets_processed",
        "[]",
        "redis_keys",
        "{'state_key': '...', 'counter_key': '...', 'failed_key': '...'}",
    ]);
    server.command::<()>(&["EXPIRE", STATE, "90000"]);
}

fn field(server: &RedisServer, name: &str) -> String {
    server.command(&["HGET", STATE, name])
}

/// How the document's language prints a list.
fn printed(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("'{item}'")).collect();
    format!("[{}]", items.join(", "))
}

#[tokio::test]
async fn a_list_read_and_written_back_loses_what_another_worker_wrote() {
    let (server, _clock) = server();
    initialize(&server);
    // Two workers read the list, each adds its docket, each writes the whole list back.
    let (one, two) = (field(&server, "dockets_processed"), field(&server, "dockets_processed"));
    assert_eq!((one.as_str(), two.as_str()), ("[]", "[]"));
    server.command::<()>(&["HSET", STATE, "dockets_processed", &printed(&["12345"])]);
    server.command::<()>(&["HSET", STATE, "dockets_processed", &printed(&["12346"])]);
    let left = field(&server, "dockets_processed");
    assert!(!left.contains("12345"), "the first docket is lost: {left}");
    // And what is there is JSON for nobody.
    assert!(serde_json::from_str::<Vec<String>>(&left).is_err(), "{left}");
    server.command::<()>(&["DEL", STATE]);

    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let _started = run.start(Some(RUN), None).await.expect("start");
    for worker in [["12345", "12347"], ["12346", "12345"]] {
        let _counts = run.processed(RUN, &worker, None).await.expect("processed");
    }
    let shown = run.show(RUN, Items::With).await.expect("show").expect("it is there");
    assert_eq!(shown.processed_count, 3, "a docket told twice is one");
    // What a program of the document reads.
    let listed: Vec<String> = serde_json::from_str(&field(&server, "dockets_processed")).expect("JSON");
    assert_eq!(listed, ["12345", "12347", "12346"]);
}

#[tokio::test]
async fn a_list_of_the_document_is_taken_over_and_goes_on() {
    let (server, _clock) = server();
    initialize(&server);
    server.command::<()>(&["HSET", STATE, "dockets_processed", &printed(&["12345", "12346"])]);
    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let _started = run.start(Some(RUN), None).await.expect("resumed");
    assert_eq!(run.remaining(RUN, &["12345", "12346", "12347"]).await.expect("remaining"), ["12347"]);
    let _counts = run.processed(RUN, &["12347"], None).await.expect("processed");
    let _shown = run.show(RUN, Items::With).await.expect("show");
    let listed: Vec<String> = serde_json::from_str(&field(&server, "dockets_processed")).expect("JSON");
    assert_eq!(listed, ["12345", "12346", "12347"]);
    assert_eq!(field(&server, "start_time"), "2024-09-17T14:30:00.123456", "it keeps what it was");
    // What a program of the document writes there is written over when there is something new to list.
    server.command::<i64>(&["HSET", STATE, "dockets_processed", &printed(&["99999"])]);
    let _counts = run.processed(RUN, &["12348"], None).await.expect("processed");
    let _shown = run.show(RUN, Items::With).await.expect("show");
    let listed: Vec<String> = serde_json::from_str(&field(&server, "dockets_processed")).expect("JSON");
    assert_eq!(listed, ["12345", "12346", "12347", "12348"]);
}

#[tokio::test]
async fn a_dict_that_is_printed_is_json_to_nobody() {
    let (server, _clock) = server();
    initialize(&server);
    assert!(serde_json::from_str::<serde_json::Value>(&field(&server, "redis_keys")).is_err());
    server.command::<()>(&["DEL", STATE]);

    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let _started = run.start(Some(RUN), None).await.expect("start");
    let told: serde_json::Value = serde_json::from_str(&field(&server, "redis_keys")).expect("JSON");
    let documented = serde_json::json!({ "state_key": STATE, "counter_key": COUNTER, "failed_key": FAILED });
    assert_eq!(told, documented);
    // The document's language reads it as the dict that it printed.
    let read = "import ast, sys; print(ast.literal_eval(sys.argv[1])['counter_key'])";
    let python = Command::new("python3").args(["-c", read, &field(&server, "redis_keys")]).output();
    let output = python.expect("python3 runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), COUNTER);
}

#[tokio::test]
async fn calls_noted_beside_the_counter_are_another_number() {
    let (server, clock) = server();
    initialize(&server);
    for call in 1..=3 {
        server.command::<()>(&["INCR", COUNTER]);
        // The worker of the third call dies before it writes the state.
        if call < 3 {
            server.command::<()>(&["HSET", STATE, "api_calls_this_hour", &call.to_string()]);
        }
    }
    assert_eq!(
        (server.command::<i64>(&["GET", COUNTER]), field(&server, "api_calls_this_hour").as_str()),
        (3, "2")
    );
    // The hour turns, and the state speaks of the old one until somebody writes it.
    clock.run_from(HALF_PAST_US + HOUR_US);
    assert_eq!(field(&server, "current_hour"), "2024-09-17_14");
    server.command::<()>(&["DEL", STATE, COUNTER]);
    clock.run_from(HALF_PAST_US);

    let quaymaster = bind(engine(&server).await, 10);
    let (run, limit) = (
        quaymaster.run("courtlistener").expect("declared"),
        quaymaster.limit("courtlistener").expect("declared"),
    );
    let _started = run.start(Some(RUN), None).await.expect("start");
    for _ in 0..3 {
        assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
    }
    let shown = run.show(RUN, Items::Without).await.expect("show").expect("it is there");
    assert_eq!((shown.calls_this_hour, server.command::<u64>(&["GET", COUNTER])), (3, 3));
    assert_eq!(field(&server, "api_calls_this_hour"), "3", "and a foreign program reads the same");
    clock.run_from(HALF_PAST_US + HOUR_US);
    let shown = run.show(RUN, Items::Without).await.expect("show").expect("it is there");
    assert_eq!((shown.current_hour.as_str(), shown.calls_this_hour), ("2024-09-17_15", 0));
    assert_eq!(field(&server, "current_hour"), "2024-09-17_15");
    // What a foreign program writes there does not last.
    server.command::<i64>(&["HSET", STATE, "api_calls_this_hour", "99"]);
    let _shown = run.show(RUN, Items::Without).await.expect("show");
    assert_eq!(field(&server, "api_calls_this_hour"), "0");
}

#[tokio::test]
async fn an_update_of_a_run_that_expired_makes_half_a_run() {
    let (server, _clock) = server();
    let script = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('EXPIRE', KEYS[1], ARGV[3]) \
                  return redis.call('HLEN', KEYS[1])";
    let fields: i64 = server.command(&["EVAL", script, "1", STATE, "status", "processing", "90000"]);
    assert_eq!(fields, 1, "a run without an id, a start and an hour");
    server.command::<()>(&["DEL", STATE]);

    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let processing = Fields { status: Some("processing"), ..Fields::default() };
    let error = run.update(RUN, &processing, None).await.expect_err("there is none");
    assert_eq!(error.code, Code::RunMissing);
    assert_eq!(server.command::<i64>(&["EXISTS", STATE]), 0);
    // A program of the document makes one again; whoever starts a run of that id makes it whole.
    server.command::<i64>(&["EVAL", script, "1", STATE, "status", "processing", "90000"]);
    let _started = run.start(Some(RUN), None).await.expect("taken over");
    assert_eq!(
        (field(&server, "dag_run_id").as_str(), field(&server, "current_hour").as_str()),
        (RUN, "2024-09-17_14")
    );
}

#[tokio::test]
async fn a_list_of_failures_forgets_why_repeats_itself_and_ends_before_the_run() {
    let (server, clock) = server();
    // A docket fails, is tried again, fails, and is fetched in the end.
    for _ in 0..2 {
        server.command::<()>(&["LPUSH", FAILED, "12345"]);
        server.command::<()>(&["EXPIRE", FAILED, "7200"]);
    }
    let listed: Vec<String> = server.command(&["LRANGE", FAILED, "0", "-1"]);
    assert_eq!(listed, ["12345", "12345"], "twice, without a word why, and nothing takes it out");
    // The run goes on for a day; what failed in its first hours is forgotten by then.
    clock.run_from(HALF_PAST_US + 3 * HOUR_US);
    assert_eq!(server.command::<i64>(&["EXISTS", FAILED]), 0);
    clock.run_from(HALF_PAST_US);

    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let _started = run.start(Some(RUN), None).await.expect("start");
    for error in ["answered 502", "answered 503"] {
        let _counts = run.failed(RUN, "12345", Some(error), None).await.expect("failed");
    }
    let _counts = run.failed(RUN, "12346", Some("answered 404"), None).await.expect("failed");
    // A program of the document finds its list.
    let listed: Vec<String> = server.command(&["LRANGE", FAILED, "0", "-1"]);
    assert!(listed.contains(&"12345".to_owned()) && listed.contains(&"12346".to_owned()), "{listed:?}");
    assert!((1..=7200).contains(&server.command::<i64>(&["TTL", FAILED])));
    clock.run_from(HALF_PAST_US + 3 * HOUR_US);
    let ask = || FailuresAsk { run_id: Some(RUN), ..FailuresAsk::default() };
    let page = run.failures(ask()).await.expect("failures");
    let told: Vec<(&str, &str, u64)> = page
        .failures
        .iter()
        .map(|failure| (failure.item.as_str(), failure.error.as_str(), failure.attempts))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.contains(&("12345", "answered 503", 2)) && told.contains(&("12346", "answered 404", 1)),
        "{told:?}"
    );
    let _counts = run.processed(RUN, &["12345"], None).await.expect("processed");
    let page = run.failures(ask()).await.expect("failures");
    assert_eq!(page.failures.iter().map(|failure| failure.item.as_str()).collect::<Vec<_>>(), ["12346"]);
}

#[tokio::test]
async fn what_a_program_of_the_document_lists_is_tried_again() {
    let (server, _clock) = server();
    let quaymaster = bind(engine(&server).await, 10);
    let run = quaymaster.run("courtlistener").expect("declared");
    let _started = run.start(Some(RUN), None).await.expect("start");
    let _counts = run.failed(RUN, "12345", Some("answered 502"), None).await.expect("failed");
    server.command::<()>(&["LPUSH", FAILED, "99999"]);
    let page = run.failures(FailuresAsk { hour: Some("2024-09-17_14"), ..FailuresAsk::default() }).await;
    let listed: Vec<(String, String)> =
        page.expect("failures").failures.into_iter().map(|one| (one.item, one.run_id)).collect();
    let pair = |item: &str, run: &str| (item.to_owned(), run.to_owned());
    assert_eq!(listed, [pair("99999", ""), pair("12345", RUN)]);
    let handed = run.retry(RetryAsk::default()).await.expect("retry");
    let mut handed: Vec<(String, String)> = handed.into_iter().map(|one| (one.item, one.run_id)).collect();
    handed.sort_unstable();
    assert_eq!(handed, [pair("12345", RUN), pair("99999", RUN)]);
    let _counts = run.processed(RUN, &["99999", "12345"], None).await.expect("processed");
    assert_eq!(run.failures(FailuresAsk::default()).await.expect("failures").failures, []);
    // Its list is as it and we left it.
    assert_eq!(server.command::<Vec<String>>(&["LRANGE", FAILED, "0", "-1"]), ["99999", "12345"]);
}

#[tokio::test]
async fn counting_before_asking_counts_calls_that_nobody_made() {
    let (server, _clock) = server();
    let limit = 3;
    let mut made = 0;
    for _ in 0..10 {
        if server.command::<i64>(&["INCR", COUNTER]) <= limit {
            made += 1;
        }
    }
    assert_eq!(
        (made, server.command::<i64>(&["GET", COUNTER])),
        (3, 10),
        "seven calls were refused and counted"
    );
    // A worker that dies between the count and its EXPIRE leaves a counter for ever.
    assert_eq!(server.command::<i64>(&["TTL", COUNTER]), -1);
    server.command::<()>(&["DEL", COUNTER]);

    let quaymaster = bind(engine(&server).await, 3);
    let limit = quaymaster.limit("courtlistener").expect("declared");
    let mut allowed = 0;
    for _ in 0..10 {
        allowed += u64::from(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
    }
    assert_eq!((allowed, server.command::<u64>(&["GET", COUNTER])), (3, 3));
    assert!((1..=7200).contains(&server.command::<i64>(&["TTL", COUNTER])));
    // An old program and ours count in one key.
    server.command::<()>(&["DEL", COUNTER]);
    assert_eq!(server.command::<i64>(&["INCR", COUNTER]), 1);
    assert_eq!(limit.take(&[], Charge::one()).await.expect("take").quota().used, 2);
    assert_eq!(server.command::<i64>(&["INCR", COUNTER]), 3);
    // What an old program left without an end gets one with the next call.
    server.command::<()>(&["SET", COUNTER, "10"]);
    assert!(!limit.take(&[], Charge::one()).await.expect("take").is_allowed());
    assert!(server.command::<i64>(&["TTL", COUNTER]) > 0);
}

/// The documented script: count if there is room.
const COUNT: &str = "local current = tonumber(redis.call('GET', KEYS[1]) or 0) \
                     if current + ARGV[1] > tonumber(ARGV[2]) then return 0 end \
                     redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('EXPIRE', KEYS[1], ARGV[3]) return 1";

#[tokio::test]
async fn a_second_counter_to_fall_back_to_is_a_second_quota() {
    let (mut server, _clock) = server();
    let other = "courtlistener:counter:2024-09-17_14";
    // One node counts in the first key. Another lost a reply, falls back, and counts in the second.
    let count = |key: &str| server.try_command::<i64>(&["EVAL", COUNT, "1", key, "1", "3", "7200"]);
    let made: i64 =
        [COUNTER, other].iter().flat_map(|key| (0..5).map(|_| count(key).expect("a count"))).sum();
    assert_eq!(made, 6, "twice the quota in one hour");
    // When the server is away the fallback is away with it.
    server.kill9();
    assert!(server.try_command::<i64>(&["EVAL", COUNT, "1", other, "1", "3", "7200"]).is_err());

    server.restart();
    server.command::<()>(&["FLUSHALL"]);
    let quaymaster = bind_under(engine(&server).await, 3, "local");
    let limit = quaymaster.limit("courtlistener").expect("declared");
    server.kill9();
    let mut allowed = 0;
    for _ in 0..5 {
        let verdict = limit.take(&[], Charge::one()).await.expect("counted in the process");
        assert_eq!(verdict.quota().outage, Some(Outage::Local), "the answer says who counted");
        allowed += u64::from(verdict.is_allowed());
    }
    assert_eq!(allowed, 3);
    // Back again, the store is told: no call is left, and no other key was counted in.
    server.restart();
    eventually(async || {
        let told = limit.take(&[], Charge::one()).await.expect("take");
        assert!(!told.is_allowed(), "{told:?}");
        told.quota().outage.is_none()
    })
    .await;
    assert_eq!(server.command::<u64>(&["GET", COUNTER]), 3);
    assert_eq!(server.command::<i64>(&["EXISTS", other]), 0);
    server.command::<i64>(&["INCR", other]);
    assert_eq!(limit.peek(&[]).await.expect("peek").quota().used, 3, "nor is it looked at");
}

/// Tries until it is so; for what comes back by itself.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Instant::now();
    while !is_so().await {
        assert!(patience.elapsed() < Duration::from_secs(60), "waited too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn hours_of_the_nodes_own_clocks_are_as_many_quotas() {
    let (server, _clock) = server();
    let limit = 3;
    // Each node names the hour by its own clock; the second's is an hour ahead.
    let mut made = 0;
    for hour in ["2024-09-17_14", "2024-09-17_15"] {
        for _ in 0..5 {
            let key = format!("courtlistener:rate_limit:{hour}");
            made += i64::from(server.command::<i64>(&["INCR", &key]) <= limit);
        }
    }
    assert_eq!(made, 6, "twice the quota in one hour");
    server.command::<()>(&["DEL", COUNTER, "courtlistener:rate_limit:2024-09-17_15"]);

    let engine = engine(&server).await;
    let ahead: Arc<dyn Engine> = Arc::new(Liar::new(engine.clone(), 3_600_000));
    let mut allowed = 0;
    for node in [bind(engine, 3), bind(ahead, 3)] {
        for _ in 0..5 {
            let limit = node.limit("courtlistener").expect("declared");
            allowed += u64::from(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
        }
    }
    assert_eq!((allowed, server.command::<u64>(&["GET", COUNTER])), (3, 3));
    assert_eq!(server.command::<i64>(&["EXISTS", "courtlistener:rate_limit:2024-09-17_15"]), 0);
}

#[tokio::test]
async fn a_clean_up_by_age_cannot_tell_what_is_over_and_takes_what_is_not() {
    let (server, _clock) = server();
    let old = "courtlistener:rate_limit:2024-09-16_09";
    server.command::<()>(&["SET", old, "4975"]);
    initialize(&server);
    server.command::<()>(&["PERSIST", STATE]);
    // A key has no age in Redis. What can be asked is its TTL, and two keys without one look alike: an hour that is
    // over, and a run at work.
    assert_eq!([old, STATE].map(|key| server.command::<i64>(&["TTL", key])), [-1, -1]);

    let quaymaster = bind(engine(&server).await, 10);
    let clean = async |mode| quaymaster.clean(Ask { mode, ..Ask::default() }, |_| ()).await.expect("clean");
    let report = clean(Mode::Look).await;
    assert_eq!((report.stale, report.immortal, report.done), (1, 1, 0), "{report:?}");
    assert_eq!(server.command::<i64>(&["EXISTS", old]), 1, "first it only says so");
    let report = clean(Mode::Apply).await;
    assert_eq!((report.stale, report.immortal, report.done), (1, 1, 2), "{report:?}");
    assert_eq!(server.command::<i64>(&["EXISTS", old]), 0);
    assert!((1..=90_000).contains(&server.command::<i64>(&["TTL", STATE])), "the run goes on, and will end");
}

/// `REDIS_CONN_ID`, `DEFAULT_HOST`, `DEFAULT_PORT` and `DEFAULT_DB`.
#[test]
fn without_settings_the_store_is_embedded_and_redis_alone_is_the_documented_server() {
    let store = |store: Option<&str>| {
        let overrides = Overrides { store: store.map(str::to_owned), ..Overrides::default() };
        let config = Config::resolve(RawConfig::default(), overrides).expect("right");
        (config.store, config.store_is_named)
    };
    let (chosen, is_named) = store(None);
    assert!(matches!(chosen, StoreOptions::Embedded(_, _)) && !is_named, "{chosen:?}");
    let (StoreOptions::Redis(options), true) = store(Some("redis://")) else {
        panic!("a Redis that was named")
    };
    let documented = Address { host: "localhost".into(), port: 6379 };
    assert_eq!((&options.target, options.database), (&Target::Standalone(documented), 0));
}
