//! Document 004: `systems/psp`.

mod backup;
mod caches;
mod idempotency;
mod limits;
mod locks;
mod memory;
mod outages;
mod rights;
mod store;
mod watching;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use crate::Case;

pub(crate) const CASES: &[&[Case]] = &[
    idempotency::CASES,
    limits::CASES,
    caches::CASES,
    locks::CASES,
    memory::CASES,
    watching::CASES,
    outages::CASES,
    store::CASES,
    rights::CASES,
    backup::CASES,
];

/// The documented transaction.
const TRANSACTION: &str = "fbded76a-9fc6-42d8-b0a0-e7e7110e0cc7";
/// 32 bytes in base64.
const SEAL_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn of_transaction() -> Value {
    json!({"transaction_id": TRANSACTION})
}

fn begin(s: &Stage, name: &str, key: &Value, fingerprint: &str) -> Value {
    s.ok(&format!("idempotency/{name}/begin"), json!({"key": key, "fingerprint": fingerprint}))
}

/// Begins an operation, which must be free, and finishes it.
fn run(s: &Stage, name: &str, key: &Value, response: &Value) {
    let begun = begin(s, name, key, "f");
    assert_eq!(begun["outcome"], "started", "{name} {key}");
    let finish = json!({"key": key, "token": begun["token"], "response": response});
    assert_eq!(
        s.ok(&format!("idempotency/{name}/finish"), finish),
        json!({"outcome": "finished", "kept": true})
    );
}

/// One call of a limit.
fn take(s: &Stage, limit: &str, key: &Value) -> Value {
    s.ok(&format!("limit/{limit}/take"), json!({ "key": key }))
}

fn put(s: &Stage, cache: &str, key: &Value, value: &Value) -> Value {
    s.ok(&format!("cache/{cache}/put"), json!({"key": key, "value": value}))
}

fn put_status(s: &Stage) {
    let value = json!({"status": "SUCCESS", "amount": 100_000, "timestamp": "2024-01-15T14:30:00Z"});
    assert_eq!(put(s, "status", &of_transaction(), &value), json!({"stored": true}));
}

fn kind(s: &Stage, key: &str) -> String {
    s.raw(&["TYPE", key])
}

/// What `SET key value NX EX seconds` says to another program: whether it was the first.
fn set_nx(s: &Stage, key: &str, value: &str, seconds: &str) -> bool {
    s.raw::<Option<String>>(&["SET", key, value, "NX", "EX", seconds]).is_some()
}

fn status(s: &Stage) -> Value {
    s.get("/v1/status").expect(200)
}

/// What `/v1/status` says of the store is up to two seconds old: looks until it has `field` as wanted.
fn status_with(s: &Stage, field: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut seen = Value::Null;
    s.until(field, || {
        seen = status(s);
        wanted(&seen["store"][field])
    });
    seen
}

/// What exceeds a threshold in a status: subject and action of each.
fn exceeded(status: &Value, threshold: &str) -> Vec<(String, String)> {
    let told = status["thresholds"].as_array().unwrap().iter().filter(|told| told["threshold"] == threshold);
    let word = |told: &Value, name: &str| told[name].as_str().unwrap().to_owned();
    told.map(|told| (word(told, "subject"), word(told, "action"))).collect()
}

/// Whether the warning, which says what to do, stands in the status.
fn warns(status: &Value, part: &str) -> bool {
    status["warnings"].as_array().unwrap().iter().any(|told| told.as_str().unwrap().contains(part))
}

/// What the store holds now.
fn used_now(s: &Stage) -> u64 {
    s.cli(&["health", "--json"]).json()["used_memory_bytes"].as_u64().unwrap()
}

/// Sets the store's bound so that what it holds now is this share of it.
fn bound(s: &Stage, percent: u64) {
    s.address();
    let max = used_now(s) * 100 / percent;
    match s.store() {
        Store::Redis => s.raw::<()>(&["CONFIG", "SET", "maxmemory", &max.to_string()]),
        Store::Embedded => {
            s.kill();
            s.var("QUAYMASTER_MAX_MEMORY", &format!("{max}B"));
        }
    }
    status_with(s, "max_memory_bytes", |seen| *seen == max);
}
