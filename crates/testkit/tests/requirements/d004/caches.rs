//! Caches, and the end of every key.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{SEAL_KEY, TRANSACTION, begin, kind, of_transaction, put, put_status, run, take};

const TOKEN: &str = "token:psp:PSP001";

fn status_key() -> String {
    format!("status:{TRANSACTION}")
}

fn get_status(s: &Stage) -> Value {
    s.get(&format!("/v1/cache/status/get?key.transaction_id={TRANSACTION}")).expect(200)
}

fn l059_status_lives_a_minute(s: &Stage) {
    put_status(s);
    assert_eq!(s.keys("status:*"), [status_key()].into());
    s.lives(&status_key(), 60);
    let longer = json!({"key": of_transaction(), "value": {"status": "S"}, "ttl_ms": 60_001});
    assert_eq!(s.post("cache/status/put", longer).expect(422)["code"], "resource.mismatch");
    s.pass(60_001);
    assert_eq!(get_status(s), json!({"hit": false}));
}

fn l109_status_is_a_hash(s: &Stage) {
    put_status(s);
    assert_eq!(kind(s, &status_key()), "hash");
    for (field, value) in [("status", "SUCCESS"), ("amount", "100000"), ("timestamp", "2024-01-15T14:30:00Z")]
    {
        assert_eq!(s.field(&status_key(), field).as_deref(), Some(value));
    }
    assert_eq!(s.raw::<i64>(&["HLEN", &status_key()]), 3);
    // What another program writes as documented is read.
    s.raw::<i64>(&["HSET", &status_key(), "status", "FAILED", "amount", "7"]);
    let value = json!({"status": "FAILED", "amount": "7", "timestamp": "2024-01-15T14:30:00Z"});
    assert_eq!(get_status(s), json!({"hit": true, "value": value}));
}

fn l101_status_is_no_string(s: &Stage) {
    s.raw::<()>(&["SET", &status_key(), "{\"status\":\"OLD\"}", "EX", "60"]);
    assert_eq!(get_status(s), json!({"hit": false}), "another program's string is a miss");
    put_status(s);
    assert_eq!(kind(s, &status_key()), "hash", "and is replaced");
    s.lives(&status_key(), 60);
    let text = json!({"key": of_transaction(), "value": "SUCCESS"});
    assert_eq!(s.post("cache/status/put", text).expect(422)["field"], "value");
    // One pattern has one type.
    s.kill();
    let twice = "[cache.text]\nkey = \"status:{transaction_id}\"\nttl = \"60s\"\n\n[cache.jwks]";
    s.amend("psp", "[cache.jwks]", twice);
    assert_eq!(s.cli(&["check", "psp.toml"]).code, 1);
}

fn l060_operator_keys_live_an_hour(s: &Stage) {
    let keys = json!({"keys": [{"kid": "key-123", "kty": "RSA", "n": "0vx7", "e": "AQAB"}]});
    put(s, "jwks", &json!({"kid": "key-123"}), &keys);
    assert_eq!(s.keys("jwks:*"), ["jwks:operator:key-123".to_owned()].into());
    s.lives("jwks:operator:key-123", 3600);
    let held: Value = serde_json::from_str(&s.text("jwks:operator:key-123").unwrap()).unwrap();
    assert_eq!(held, keys, "another program reads the JSON");
    let get = |s: &Stage| s.get("/v1/cache/jwks/get?key.kid=key-123").expect(200);
    assert_eq!(get(s), json!({"hit": true, "value": keys}));
    s.pass(3_600_001);
    assert_eq!(get(s), json!({"hit": false}));
}

fn l061_token_lives_a_day(s: &Stage) {
    s.var("QUAYMASTER_SEAL_KEY", SEAL_KEY);
    put(s, "token", &json!({"psp_id": "PSP001"}), &json!("hunter2-hunter2"));
    assert_eq!(s.keys("token:*"), [TOKEN.to_owned()].into());
    s.lives(TOKEN, 86_400);
    let get = |s: &Stage| s.get("/v1/cache/token/get?key.psp_id=PSP001").expect(200);
    assert_eq!(get(s), json!({"hit": true, "value": "hunter2-hunter2"}));
    let held: Vec<u8> = s.raw(&["GET", TOKEN]);
    assert!(held.len() > 15 && !String::from_utf8_lossy(&held).contains("hunter2"), "{held:?}");
    s.pass(86_400_001);
    assert_eq!(get(s), json!({"hit": false}));
}

/// Everything that the schema can write, under ids that side keys are kept for.
fn write_everything(s: &Stage) -> Vec<String> {
    let psp = json!({"psp_id": "PSP001"});
    let check = json!({"psp_id": "PSP001", "merchant_provider": "M", "qr_tx_id": "Q", "amount": 1});
    run(s, "check", &check, &json!(1));
    begin(s, "update", &json!({"transaction_id": TRANSACTION, "status": 50}), "f");
    take(s, "psp", &psp);
    s.ok("limit/transaction/take", json!({"key": of_transaction(), "request_id": "r1"}));
    put_status(s);
    put(s, "jwks", &json!({"kid": "key-123"}), &json!({}));
    put(s, "token", &psp, &json!("t"));
    let payment = json!({"psp_id": "PSP001", "psp_transaction_id": "A"});
    let entered = s.ok("guard/create/enter", json!({"key": payment, "request_id": "r2"}));
    let left = json!({"key": payment, "token": entered["token"], "response": 1, "request_id": "r3"});
    assert_eq!(s.ok("guard/create/leave", left)["outcome"], "finished");
    let execution = json!({"psp_id": "PSP001", "transaction_id": TRANSACTION});
    assert_eq!(s.ok("guard/execute/enter", json!({ "key": execution }))["outcome"], "entered");
    s.ok("lock/process/acquire", json!({"key": {"psp_transaction_id": "A"}, "request_id": "r4"}));
    // One that waits, in vain.
    s.ok("lock/process/acquire", json!({"key": {"psp_transaction_id": "A"}, "wait_ms": 10}));
    [
        "idem:check:PSP001:M:Q:1",
        "idem:create:A",
        &format!("idem:execute:{TRANSACTION}"),
        &format!("idem:update:{TRANSACTION}:50"),
        "rl:PSP001:2026-11-15-12-00",
        &format!("rl:tx:{TRANSACTION}"),
        &status_key(),
        "jwks:operator:key-123",
        TOKEN,
        &format!("lock:update:{TRANSACTION}"),
        "lock:process:A",
    ]
    .map(str::to_owned)
    .into()
}

fn l140_every_key_has_a_ttl(s: &Stage) {
    let documented = write_everything(s);
    let keys = s.keys("*");
    for key in documented {
        assert!(keys.contains(&key), "{key} is not among {keys:?}");
    }
    for key in &keys {
        assert_ne!(s.raw::<i64>(&["PTTL", key]), -1, "{key} never ends");
    }
    // And nobody has to clean up.
    s.pass(24 * 3_600_000 + 600_000);
    let mut left = s.keys("*");
    left.retain(|key| !key.starts_with("quaymaster:"));
    assert_eq!(left, [].into());
}

fn l147_ttl_and_existence_are_explained(s: &Stage) {
    for key in write_everything(s) {
        let explained = s.get(&format!("/v1/key/explain?key={key}")).expect(200);
        let actual = &explained["actual"];
        assert_eq!(
            (&actual["exists"], &actual["type"]),
            (&json!(true), &json!(kind(s, &key))),
            "{explained}"
        );
        assert_eq!(explained["type"], actual["type"], "{key}");
        let (left, shown) = (s.raw::<i64>(&["PTTL", &key]), actual["ttl_ms"].as_i64().unwrap());
        let later = if s.store() == Store::Redis { 0 } else { 30_000 };
        assert!((left..=left + later).contains(&shown), "{key}: {shown} ms, {left} ms");
        assert!(shown <= explained["expected_ttl_ms"].as_i64().unwrap() + 1000, "{explained}");
        let said = s.cli(&["explain", &key, "--json"]);
        assert_eq!((said.code, &said.json()["actual"]["exists"]), (0, &json!(true)), "{said:?}");
    }
    let absent = s.get("/v1/key/explain?key=idem:create:B").expect(200);
    assert_eq!(absent["actual"]["exists"], false);
    assert_eq!(absent["expected_ttl_ms"], 86_400_000);
    assert_eq!(s.cli(&["explain", "nobody:knows"]).code, 1);
}

cases! {
    l059_status_lives_a_minute
    l109_status_is_a_hash
    l101_status_is_no_string
    l060_operator_keys_live_an_hour
    l061_token_lives_a_day
    l140_every_key_has_a_ttl
    l147_ttl_and_existence_are_explained
}
