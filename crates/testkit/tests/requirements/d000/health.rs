//! What is told of the store: connections, operations, memory, clocks; and what calls answer while it is away.
#![expect(clippy::float_cmp, reason = "counts are whole, and a rate of nothing failed is exactly 1")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use quaymaster_testkit::servers::any_port;
use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{QUOTA, on_a_node_ahead, show, start, take};

/// `store` of the status: what the server knows of its connections and operations.
fn told(s: &Stage) -> Value {
    s.get("/v1/status").expect(200)["store"].take()
}

fn number(told: &Value, name: &str) -> f64 {
    told[name].as_f64().unwrap_or_else(|| panic!("no {name}: {told}"))
}

fn metric(s: &Stage, name: &str) -> f64 {
    s.metric(name).unwrap_or_else(|| panic!("no {name}"))
}

fn goes_away(s: &Stage) {
    s.redis(|redis| redis.kill9());
}

fn comes_back(s: &Stage) {
    s.redis(|redis| redis.restart());
    s.until("calls are answered again", || {
        s.post("limit/courtlistener/take", json!({"key": {}})).status == 200
    });
}

fn l264_connection_attempts_and_failures_are_counted(s: &Stage) {
    const TRIED: &str = "quaymaster_store_connect_attempts_total";
    const FAILED: &str = "quaymaster_store_connect_failures_total";
    take(s);
    let tried = metric(s, TRIED);
    assert!(tried >= 1.0 && metric(s, FAILED) == 0.0);
    goes_away(s);
    s.until("connections are tried and fail", || metric(s, TRIED) > tried && metric(s, FAILED) >= 2.0);
    comes_back(s);
    let told = told(s);
    assert!(number(&told, "connect_attempts") > number(&told, "connect_failures"), "{told}");
}

fn l265_connections_have_a_success_rate(s: &Stage) {
    take(s);
    assert_eq!(number(&told(s), "connect_success_rate"), 1.0);
    goes_away(s);
    s.until("a connection fails", || {
        let told = told(s);
        let (tried, failed) = (number(&told, "connect_attempts"), number(&told, "connect_failures"));
        let rate = number(&told, "connect_success_rate");
        assert!((rate - (tried - failed) / tried).abs() < 1e-9, "{told}");
        failed > 0.0
    });
    assert!(metric(s, "quaymaster_store_connect_success_ratio") < 1.0);
}

fn l266_consecutive_failures_are_counted(s: &Stage) {
    const IN_A_ROW: &str = "quaymaster_store_consecutive_failures";
    take(s);
    assert_eq!(metric(s, IN_A_ROW), 0.0);
    goes_away(s);
    s.until("some failed", || metric(s, IN_A_ROW) >= 3.0);
    assert!(number(&told(s), "consecutive_failures") >= 3.0);
    comes_back(s);
    s.until("none failed since", || metric(s, IN_A_ROW) == 0.0);
    assert!(metric(s, "quaymaster_store_failures_total") >= 1.0, "what failed before stays counted");
}

fn l269_operations_are_counted(s: &Stage) {
    const COUNTED: &str = "quaymaster_store_operations_total";
    take(s);
    let before = metric(s, COUNTED);
    for _ in 0..40 {
        take(s);
    }
    let since = metric(s, COUNTED) - before;
    assert!((40.0..80.0).contains(&since), "{since} for forty calls");
    assert!(number(&told(s), "operations") >= before + since);
}

fn l270_failed_operations_are_counted(s: &Stage) {
    const COUNTED: &str = "quaymaster_store_failures_total";
    take(s);
    assert_eq!(metric(s, COUNTED), 0.0);
    goes_away(s);
    s.until("a call fails", || s.post("limit/courtlistener/take", json!({"key": {}})).status == 503);
    s.until("it is counted", || metric(s, COUNTED) >= 1.0);
    assert!(number(&told(s), "failures") >= 1.0);
}

fn l271_operations_have_a_success_rate(s: &Stage) {
    take(s);
    assert_eq!(number(&told(s), "success_rate"), 1.0);
    assert_eq!(metric(s, "quaymaster_store_success_ratio"), 1.0);
    if s.store() == Store::Redis {
        goes_away(s);
        s.until("an operation fails", || {
            let told = told(s);
            let (made, failed) = (number(&told, "operations"), number(&told, "failures"));
            assert!((number(&told, "success_rate") - (made - failed) / made).abs() < 1e-9, "{told}");
            failed > 0.0
        });
        assert!(metric(s, "quaymaster_store_success_ratio") < 1.0);
    }
}

fn l274_response_times_have_a_mean(s: &Stage) {
    const SUM: &str = "quaymaster_store_operation_duration_seconds_sum";
    const COUNT: &str = "quaymaster_store_operation_duration_seconds_count";
    take(s);
    let (sum, count) = (metric(s, SUM), metric(s, COUNT));
    for _ in 0..40 {
        take(s);
    }
    assert!(metric(s, SUM) > sum && metric(s, COUNT) >= count + 40.0);
    let mean_us = number(&told(s), "latency_mean_us");
    assert!(mean_us > 0.0 && mean_us <= metric(s, SUM) * 1e6, "{mean_us}");
    let health = s.cli(&["health", "--json"]).json();
    assert!(number(&health["latency_us"], "median") <= number(&health["latency_us"], "max"), "{health}");
}

fn l275_peak_use_is_told(s: &Stage) {
    start(s);
    for _ in 0..3 {
        take(s);
    }
    let peak =
        |run: &Value| (run["calls_this_hour"].clone(), run["peak_calls"].clone(), run["peak_hour"].clone());
    assert_eq!(peak(&show(s)), (json!(3), json!(3), json!("2026-11-15_12")));
    s.pass(3_600_000);
    take(s);
    assert_eq!(peak(&show(s)), (json!(1), json!(3), json!("2026-11-15_12")), "the busiest hour stays");
    for _ in 0..3 {
        take(s);
    }
    assert_eq!(peak(&show(s)), (json!(4), json!(4), json!("2026-11-15_13")));
    assert_eq!(peak(&s.get("/v1/status").expect(200)["runs"][0]), peak(&show(s)));
}

/// Puts so many pieces of 900,000 bytes into the store.
fn fill(s: &Stage, pieces: usize) {
    let piece = "x".repeat(900_000);
    for number in 0..pieces {
        s.raw::<()>(&["SET", &format!("piece:{number}"), &piece]);
    }
}

fn l276_memory_of_the_store_is_told(s: &Stage) {
    let used = match s.store() {
        Store::Redis => "redis_memory_used_bytes",
        Store::Embedded => "quaymaster_store_memory_used_bytes",
    };
    let before = number(&told(s), "used_memory_bytes");
    fill(s, 3);
    s.until("it has grown", || number(&told(s), "used_memory_bytes") >= before + 2.7e6);
    s.until("the metric too", || metric(s, used) >= before + 2.7e6);
    let health = s.cli(&["health", "--json"]).json();
    assert!(number(&health, "used_memory_bytes") >= before + 2.7e6, "{health}");
}

fn l282_health_is_yes_or_no(s: &Stage) {
    let health = || s.cli(&["health"]).code;
    if s.store() == Store::Embedded {
        assert_eq!(health(), 3, "there is no store yet");
    }
    s.address();
    assert_eq!((health(), s.get("/readyz").status), (0, 200));
    if s.store() == Store::Redis {
        goes_away(s);
        s.until("it is told", || s.get("/readyz").status == 503);
        assert_eq!(health(), 3);
        assert_eq!(s.get("/healthz").status, 200, "the process itself is well");
        s.redis(|redis| redis.restart());
        s.until("it is well again", || s.get("/readyz").status == 200);
        assert_eq!(health(), 0);
    }
}

fn l286_connection_metrics_are_one_report(s: &Stage) {
    take(s);
    let said = s.cli(&["health", "--json"]);
    let health = said.json();
    let figures = |told: &Value| {
        ["connect_failures", "connect_success_rate", "consecutive_failures"].map(|name| number(told, name))
    };
    assert_eq!(
        (figures(&health), health["connect_attempts"].as_u64()),
        ([0.0, 1.0, 0.0], Some(1)),
        "{health}"
    );
    let told = told(s);
    assert!(figures(&told) == [0.0, 1.0, 0.0] && number(&told, "connect_attempts") >= 1.0, "{told}");
    if s.store() == Store::Redis {
        goes_away(s);
        let said = s.cli(&["health", "--json"]);
        assert_eq!((said.code, &said.json()["status"]), (3, &json!("unreachable")), "{said:?}");
    }
}

fn l305_clock_difference_is_told(s: &Stage) {
    let offset_s = |health: &Value| number(health, "clock_offset_us") / 1e6;
    let same = s.cli(&["health", "--json"]);
    assert!(s.store() == Store::Embedded || offset_s(&same.json()).abs() < 1.0, "{same:?}");
    // The store is behind a node that is ninety seconds ahead.
    let apart: Value = serde_json::from_str(&on_a_node_ahead(s, 90_000_000, &["health", "--json"])).unwrap();
    assert!((-92.0..=-88.0).contains(&offset_s(&apart)), "{apart}");
    let warnings = apart["warnings"].to_string();
    assert!(warnings.contains("clock"), "{apart}");
    assert_eq!(metric(s, "quaymaster_store_clock_offset_seconds").abs().round(), 0.0);
}

fn l309_memory_is_watched(s: &Stage) {
    const OVER: &str = "quaymaster_threshold_exceeded{threshold=\"memory\"}";
    match s.store() {
        Store::Redis => s.redis_line("maxmemory 20mb"),
        Store::Embedded => s.settings("[store]\nmax_memory = \"20MiB\""),
    }
    take(s);
    assert_eq!(metric(s, OVER), 0.0);
    fill(s, 19);
    s.until("it is over four fifths", || metric(s, OVER) == 1.0);
    let status = s.get("/v1/status").expect(200);
    let exceeded = &status["thresholds"][0];
    assert_eq!(
        (&exceeded["threshold"], &exceeded["action"]),
        (&json!("memory"), &json!("scale up")),
        "{status}"
    );
    for number in 0..19 {
        s.raw::<()>(&["DEL", &format!("piece:{number}")]);
    }
    s.until("it is well again", || metric(s, OVER) == 0.0);
}

fn l335_outage_of_the_store_has_a_policy(s: &Stage) {
    let ask = || s.post("limit/courtlistener/take", json!({"key": {}}));
    s.var("CALL_LIMIT_PER_HOUR", "28");
    take(s);
    goes_away(s);
    // Unless told otherwise nobody calls.
    s.until("it is away", || ask().status == 503);
    assert!(ask().header("retry-after").is_some());
    for (policy, answers) in [("allow", [true, true, true, true]), ("local", [true, true, true, false])] {
        s.kill();
        s.var("COURTLISTENER_ON_OUTAGE", policy);
        for allowed in answers {
            let told = ask().expect(200);
            assert_eq!((&told["allowed"], &told["outage"]), (&json!(allowed), &json!(policy)));
        }
    }
    // What the process counted is told to the store when it is back.
    s.redis(|redis| redis.restart());
    s.until("the store counts again", || ask().expect(200)["outage"].is_null());
    assert_eq!(s.text(QUOTA).as_deref(), Some("3"));
    assert_eq!(ask().expect(200)["allowed"], false);
}

/// Passes everything on to Redis, which calls itself 6.0 in it.
fn as_redis_6_0(upstream: SocketAddr, version: &str) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let (from, to) =
        (format!("redis_version:{version}"), format!("redis_version:6.0.{:0>1$}", 16, version.len() - 4));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(upstream).unwrap());
            let (asking, asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass(asking, asked, |_| ()));
            let (from, to) = (from.clone(), to.clone());
            thread::spawn(move || {
                pass(server, client, |piece| {
                    if let Some(at) = piece.windows(from.len()).position(|part| part == from.as_bytes()) {
                        piece[at..at + to.len()].copy_from_slice(to.as_bytes());
                    }
                });
            });
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut piece = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        change(&mut piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn l344_old_redis_is_named(s: &Stage) {
    let version = s.redis(|redis| redis.info("server", "redis_version")).unwrap();
    assert_eq!(s.cli(&["health", "--json"]).json()["redis_version"], version);
    let old = as_redis_6_0(s.redis(|redis| redis.address()), &version);
    s.var("QUAYMASTER_STORE", &format!("redis://{old}"));
    let refused = s.cli(&["limit", "take", "courtlistener"]);
    assert!(refused.code == 3 && refused.err.contains("6.0") && refused.err.contains("6.2"), "{refused:?}");
    // What the document itself has, without our queue, is served on 6.0.
    let whole = quaymaster_testkit::stage::schema_of("courtlistener");
    let (before, rest) = whole.split_once("[queue.dockets]").unwrap();
    let (queue, after) = rest.split_once("\n[").unwrap();
    assert!(before.contains("[run.courtlistener]") && after.starts_with("cache."));
    s.amend("courtlistener", &format!("[queue.dockets]{queue}"), "");
    assert_eq!(take(s)["used"], 1);
    assert_eq!(s.get("/readyz").expect(200)["redis_version"], "6.0.16");
}

cases! {
    l264_connection_attempts_and_failures_are_counted
    l265_connections_have_a_success_rate
    l266_consecutive_failures_are_counted
    l269_operations_are_counted
    l270_failed_operations_are_counted
    l271_operations_have_a_success_rate
    l274_response_times_have_a_mean
    l275_peak_use_is_told
    l276_memory_of_the_store_is_told
    l282_health_is_yes_or_no
    l286_connection_metrics_are_one_report
    l305_clock_difference_is_told
    l309_memory_is_watched
    l335_outage_of_the_store_has_a_policy
    l344_old_redis_is_named
}
