//! What memory is used, and what is done when it ends.

use quaymaster_testkit::stage::{Answer, Ask, Stage, Store, Wire};
use serde_json::{Value, json};

use super::{
    bound, exceeded, of_transaction, put, put_status, run, status, status_with, take, used_now, warns,
};

const MIB: u64 = 1 << 20;

/// Keeps about three megabytes.
fn fill(s: &Stage) {
    for kid in 0..10 {
        put(s, "jwks", &json!({ "kid": kid }), &json!("x".repeat(300_000)));
    }
}

fn used(status: &Value) -> u64 {
    status["store"]["used_memory_bytes"].as_u64().unwrap()
}

fn lock(s: &Stage, id: &str) -> Answer {
    s.post("lock/update/acquire", json!({"key": {"transaction_id": id}}))
}

fn claim(s: &Stage, id: &str) -> Answer {
    s.post("idempotency/create/begin", json!({"key": {"psp_transaction_id": id}}))
}

fn l200_memory_has_a_bound(s: &Stage) {
    match s.store() {
        Store::Redis => s.redis_line("maxmemory 4gb"),
        Store::Embedded => s.settings("[store]\nmax_memory = \"4GiB\""),
    }
    let told = status(s);
    assert_eq!(told["store"]["max_memory_bytes"], 4096 * MIB);
    assert_eq!(exceeded(&told, "memory"), []);
    let health = s.cli(&["health", "--json"]).json();
    assert_eq!(health["max_memory_bytes"], 4096 * MIB);
    fill(s);
    let held = lock(s, "A").expect(200);
    bound(s, 120);
    // What would grow is refused; nothing is thrown away, and what is there can be read and given back.
    let before = used_now(s);
    for id in 0..20 {
        claim(s, &id.to_string()).expect(503);
        let stored = put(s, "token", &json!({ "psp_id": id }), &json!("x".repeat(300_000)));
        assert_eq!(stored, json!({"stored": false, "outage": "miss"}));
    }
    let after = used_now(s);
    assert!(after < before + MIB / 2, "{before} and then {after}");
    assert_eq!(s.get("/v1/cache/jwks/exists?key.kid=0").expect(200)["exists"], true);
    let release = json!({"key": {"transaction_id": "A"}, "token": held["token"]});
    assert_eq!(s.ok("lock/update/release", release)["outcome"], "released");
}

fn l213_memory_over_80_percent_warns(s: &Stage) {
    fill(s);
    bound(s, 70);
    let told = status(s);
    assert!(exceeded(&told, "memory").is_empty() && !warns(&told, "of its"), "{told}");
    bound(s, 90);
    let told = status(s);
    assert_eq!(exceeded(&told, "memory"), [("store".to_owned(), "scale up".to_owned())], "{told}");
    let max = told["store"]["max_memory_bytes"].as_u64().unwrap();
    let percent = used(&told) as f64 * 100.0 / max as f64;
    assert!(warns(&told, &format!("uses {percent:.0} % of its {max} bytes of memory; scale up")), "{told}");
    assert_eq!(s.metric(r#"quaymaster_threshold_exceeded{threshold="memory"}"#), Some(1.0));
    s.until("the log says it", || s.log().contains("scale up"));
    // It begins at 80 %.
    s.kill();
    s.settings("[thresholds]\nmemory = 0.95");
    assert_eq!(exceeded(&status(s), "memory"), []);
}

fn l225_memory_is_reported(s: &Stage) {
    let before = used(&status(s));
    fill(s);
    let told = status_with(s, "used_memory_bytes", |seen| seen.as_u64() > Some(before + 3_000_000));
    let after = used(&told);
    assert!(after < before + 5 * MIB, "{before} and then {after}");
    let health = s.cli(&["health", "--json"]).json()["used_memory_bytes"].as_u64().unwrap();
    let metric = match s.store() {
        Store::Redis => "redis_memory_used_bytes",
        Store::Embedded => "quaymaster_store_memory_used_bytes",
    };
    let metric = s.metric(metric).unwrap() as u64;
    for (other, from) in [(health, "health"), (metric, "metrics")] {
        assert!(other.abs_diff(after) < MIB, "{other} in {from}, {after} in the status");
    }
    if s.store() == Store::Redis {
        let said: u64 = s.redis(|server| server.info("memory", "used_memory")).unwrap().parse().unwrap();
        assert!(said.abs_diff(after) < MIB, "{said} by INFO, {after}");
    }
}

fn l239_out_of_memory_has_a_code(s: &Stage) {
    fill(s);
    bound(s, 200);
    let refused = claim(s, "A");
    let told = refused.expect(503);
    assert_eq!(told["code"], "store.out_of_memory");
    assert!(told["advice"].as_str().unwrap().contains("(OOM)"), "{told}");
    assert!(told["may_have_run"].is_null() && refused.header("retry-after").is_some(), "{told}");
    let said = s.cli(&["idempotency", "begin", "create", "--key", "psp_transaction_id=A", "--json"]);
    assert_eq!((said.code, &said.json()["code"]), (3, &json!("store.out_of_memory")), "{said:?}");
    s.until("it is not ready", || s.get("/readyz").status == 503);
    assert_eq!(s.get("/readyz").json()["code"], "store.out_of_memory");
    bound(s, 50);
    s.until("there is room again", || claim(s, "A").status == 200);
}

/// What Redis says that a key takes.
fn bytes(s: &Stage, key: &str) -> i64 {
    s.raw(&["MEMORY", "USAGE", key])
}

fn l160_bytes_of_a_key(s: &Stage) {
    put_status(s);
    put(s, "jwks", &json!({"kid": "key-123"}), &json!("x".repeat(1800)));
    take(s, "psp", &json!({"psp_id": "PSP001"}));
    take(s, "transaction", &of_transaction());
    for (pattern, most) in [("status:*", 300), ("jwks:*", 2600), ("rl:PSP001:*", 110), ("rl:tx:*", 250)] {
        let key = s.keys(pattern).pop_first().unwrap();
        assert!((50..=most).contains(&bytes(s, &key)), "{key} takes {}", bytes(s, &key));
    }
    // Not 50: a key that can tell a repetition from another request is larger than a `1`.
    let answer = json!({"answer": "a".repeat(137)});
    run(s, "create", &json!({"psp_transaction_id": "PSP-TX-123456"}), &answer);
    let whole = bytes(s, "idem:create:PSP-TX-123456");
    assert!((200..400).contains(&whole), "{whole}");
    s.kill();
    s.amend(
        "psp",
        "key = \"idem:create:{psp_transaction_id}\"",
        "key = \"idem:create:{psp_transaction_id}\"\ncompact = true",
    );
    let begun = super::begin(s, "create", &json!({"psp_transaction_id": "PSP-TX-654321"}), "f");
    let key = json!({"psp_transaction_id": "PSP-TX-654321"});
    s.ok("idempotency/create/finish", json!({"key": key, "token": begun["token"]}));
    let compact = bytes(s, "idem:create:PSP-TX-654321");
    assert!((60..150).contains(&compact), "{compact}");
}

fn l167_memory_of_a_day(s: &Stage) {
    const KEYS: u64 = 500;
    const A_DAY: u64 = 864_000_000;
    s.amend(
        "psp",
        "key = \"idem:create:{psp_transaction_id}\"",
        "key = \"idem:create:{psp_transaction_id}\"\ncompact = true",
    );
    let ids = |from: u64| (from..from + KEYS).map(|n| format!("PSP-TX-{n:06}"));
    let mut wire = Wire::open(s.address());
    let mut call = |verb: &str, body: Value| {
        let ask = Ask::new("POST", &format!("/v1/idempotency/create/{verb}")).json(&body.to_string());
        wire.ask(&ask).0.expect(200)
    };
    let mut keep = |id: String| {
        let key = json!({"psp_transaction_id": id});
        let begun = call("begin", json!({"key": key, "fingerprint": "f"}));
        call("finish", json!({"key": key, "token": begun["token"]}));
    };
    let used = || -> u64 { s.redis(|server| server.info("memory", "used_memory")).unwrap().parse().unwrap() };
    // Connections, scripts and tables are there.
    ids(0).for_each(&mut keep);
    let before = used();
    ids(KEYS).for_each(&mut keep);
    let each = (used() - before) / KEYS;
    assert!((100..500).contains(&each), "{each} bytes a key");
    assert!(each * A_DAY > 10 * 4096 * MIB, "a day of keys does not fit 4 GB, even without answers");
    // A shorter life does fit.
    s.kill();
    s.amend("psp", "compact = true\nttl = \"24h\"", "compact = true\nttl = \"60s\"");
    let begun = super::begin(s, "create", &json!({"psp_transaction_id": "short"}), "f");
    s.ok(
        "idempotency/create/finish",
        json!({"key": {"psp_transaction_id": "short"}, "token": begun["token"]}),
    );
    s.lives("idem:create:short", 60);
    assert!(each * A_DAY / 1440 < 4096 * MIB);
}

cases! {
    l160_bytes_of_a_key
    l167_memory_of_a_day
    l200_memory_has_a_bound
    l213_memory_over_80_percent_warns
    l225_memory_is_reported
    l239_out_of_memory_has_a_code
}
