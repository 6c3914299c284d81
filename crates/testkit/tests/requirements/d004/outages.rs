//! What happens while Redis cannot be asked.

use std::time::{Duration, Instant};

use quaymaster_testkit::stage::{Answer, Stage};
use serde_json::{Value, json};

use super::{of_transaction, put_status, take};

fn lock(s: &Stage) -> Answer {
    s.post("lock/update/acquire", json!({ "key": of_transaction() }))
}

fn lock_by_command(s: &Stage) -> (i32, Value) {
    let said = s.cli(&["lock", "acquire", "update", "--key", "transaction_id=A", "--json"]);
    (said.code, said.json()["code"].clone())
}

/// Calls until the error has this code; every answer before it is an error of the store, too.
fn refused(s: &Stage, code: &str) -> Answer {
    let mut last = Answer::default();
    s.until(code, || {
        last = lock(s);
        assert!(last.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", last.text());
        last.json()["code"] == code
    });
    assert!(last.header("retry-after").is_some(), "{}", last.text());
    last
}

fn advice(answer: &Answer) -> String {
    answer.json()["advice"].as_str().unwrap().to_owned()
}

/// Redis is away, after it was there.
fn away(s: &Stage) {
    lock(s).expect(200);
    s.redis(|server| server.kill9());
}

fn l240_failed_authentication_has_a_code(s: &Stage) {
    s.redis_line("requirepass the-right-password");
    let told = refused(s, "store.auth");
    assert!(advice(&told).contains("Check user and password"), "{}", told.text());
    assert_eq!(lock_by_command(s), (3, json!("store.auth")));
    s.kill();
    s.var("QUAYMASTER_STORE_PASSWORD", "a-wrong-password");
    refused(s, "store.auth");
    assert!(!s.log().contains("a-wrong-password"), "{}", s.log());
    s.kill();
    s.var("QUAYMASTER_STORE_PASSWORD", "the-right-password");
    lock(s).expect(200);
}

fn l241_a_refused_connection_has_a_code(s: &Stage) {
    away(s);
    // Failing again and again it is held back without being asked.
    s.until("the breaker opens", || lock(s).expect(503)["code"] == "store.breaker_open");
    s.kill();
    let told = refused(s, "store.refused");
    assert!(advice(&told).contains("Start the store"), "{}", told.text());
    assert!(told.json()["may_have_run"].is_null(), "{}", told.text());
    assert_eq!(lock_by_command(s), (3, json!("store.refused")));
    s.redis(|server| server.restart());
    s.until("it finds it by itself", || lock(s).status == 200);
}

fn l242_a_timeout_has_a_code(s: &Stage) {
    lock(s).expect(200);
    s.redis(|server| server.pause());
    let begun = Instant::now();
    let told = lock(s);
    assert_eq!(told.expect(503)["code"], "store.timed_out");
    assert!(begun.elapsed() >= Duration::from_millis(4900), "the documented 5 s: {:?}", begun.elapsed());
    assert_eq!(told.json()["may_have_run"], true, "it may be carried out yet");
    assert!(advice(&told).contains("load and the network"), "{}", told.text());
    s.kill();
    s.redis(|server| server.resume());
    s.settings("[store]\ndeadline = \"200ms\"");
    lock(s).expect(200);
    s.redis(|server| server.pause());
    let begun = Instant::now();
    refused(s, "store.timed_out");
    assert!(begun.elapsed() >= Duration::from_millis(190), "{:?}", begun.elapsed());
    s.redis(|server| server.resume());
    s.until("it answers again", || lock(s).status == 200);
}

fn l247_an_outage_is_logged(s: &Stage) {
    away(s);
    for _ in 0..20 {
        s.get("/v1/cache/status/get?key.transaction_id=secret-id").expect(200);
    }
    let lines = |part: &str| -> Vec<String> {
        s.log().lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    };
    let told = lines("answering by policy");
    assert!(!told.is_empty() && told.len() < 20, "not one a call: {told:?}");
    for part in ["WARN", "cache.status", "miss", "store."] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    s.until("that it is away", || lines("not ready").iter().any(|line| line.contains("WARN")));
    s.redis(|server| server.restart());
    s.until("that it is back", || lines("ready").len() > lines("not ready").len());
    assert!(!s.log().contains("secret-id"), "{}", s.log());
}

fn begin(s: &Stage, name: &str, key: &Value) -> Answer {
    s.post(&format!("idempotency/{name}/begin"), json!({"key": key, "fingerprint": "f"}))
}

fn l248_going_on_without_a_store_is_a_choice(s: &Stage) {
    let create = json!({"psp_transaction_id": "A"});
    let check = json!({"psp_id": "P", "merchant_provider": "M", "qr_tx_id": "Q", "amount": 1});
    away(s);
    for (name, key) in [("create", &create), ("execute", &of_transaction()), ("check", &check)] {
        let told = begin(s, name, key);
        assert!(told.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", told.text());
        assert!(told.header("retry-after").is_some(), "{name}");
    }
    s.kill();
    s.var("PSP_CREATE_ON_OUTAGE", "allow");
    for _ in 0..2 {
        let told = begin(s, "create", &create);
        assert_eq!(
            (&told.expect(200)["outcome"], &told.json()["outage"]),
            (&json!("started"), &json!("allow"))
        );
        assert_eq!(told.header("quaymaster-outage"), Some("allow"));
    }
    begin(s, "execute", &of_transaction()).expect(503);
    let counted = r#"quaymaster_outage_answers_total{kind="idempotency",name="create",policy="allow"}"#;
    assert_eq!(s.metric(counted), Some(2.0));
    assert!(s.log().contains("idempotency.create"), "{}", s.log());
    s.redis(|server| server.restart());
    s.until("nothing is said of it any more", || {
        begin(s, "create", &create).header("quaymaster-outage").is_none()
    });
    assert_eq!(begin(s, "create", &create).expect(200)["outcome"], "in_progress");
}

fn l249_a_cache_misses_in_an_outage(s: &Stage) {
    put_status(s);
    s.redis(|server| server.kill9());
    let path = format!("/v1/cache/status/get?key.transaction_id={}", super::TRANSACTION);
    let told = s.get(&path);
    assert_eq!(told.expect(200), json!({"hit": false, "outage": "miss"}));
    assert_eq!(told.header("quaymaster-outage"), Some("miss"));
    let stored = super::put(s, "status", &of_transaction(), &json!({"status": "NEW"}));
    assert_eq!(stored, json!({"stored": false, "outage": "miss"}));
    // What was to be gone must not come back.
    s.post("cache/status/delete", json!({ "key": of_transaction() })).expect(503);
    s.redis(|server| server.restart());
    s.until("it is asked again", || s.get(&path).header("quaymaster-outage").is_none());
    put_status(s);
    assert_eq!(s.get(&path).expect(200)["hit"], true);
}

fn l250_limits_go_on_in_the_database(s: &Stage) {
    let key = json!({"psp_id": "PSP001"});
    s.var("PSP_LIMIT", "10");
    away(s);
    s.post("limit/psp/take", json!({ "key": key })).expect(503);
    assert!(s.log().contains("database"), "told at the start: {}", s.log());
    s.kill();
    s.settings("[store]\ndatabase = \"sqlite:outage.db\"");
    for used in 1..=10 {
        if used == 6 {
            // Another process counts on: the count is in SQL.
            s.kill();
        }
        let told = take(s, "psp", &key);
        assert_eq!((&told["used"], &told["outage"]), (&json!(used), &json!("database")));
    }
    assert_eq!(take(s, "psp", &key)["allowed"], false);
    s.redis(|server| server.restart());
    s.until("Redis is told", || s.text("rl:PSP001:2026-11-15-12-00").as_deref() == Some("10"));
    let told = take(s, "psp", &key);
    assert_eq!((&told["allowed"], &told["used"], &told["outage"]), (&json!(false), &json!(10), &Value::Null));
}

cases! {
    l240_failed_authentication_has_a_code
    l241_a_refused_connection_has_a_code
    l242_a_timeout_has_a_code
    l247_an_outage_is_logged
    l248_going_on_without_a_store_is_a_choice
    l249_a_cache_misses_in_an_outage
    l250_limits_go_on_in_the_database
}
