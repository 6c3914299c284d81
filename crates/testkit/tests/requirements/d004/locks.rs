//! Locks with a fence.

use quaymaster_testkit::stage::Stage;
use serde_json::{Value, json};

use super::{TRANSACTION, of_transaction, set_nx};

fn acquire(s: &Stage, lock: &str, key: &Value) -> Value {
    s.ok(&format!("lock/{lock}/acquire"), json!({ "key": key }))
}

/// The lease lies at `documented` for so long and is then free.
fn lives(s: &Stage, lock: &str, key: &Value, documented: &str, seconds: u32) {
    let ours = acquire(s, lock, key);
    assert_eq!(ours["outcome"], "ours");
    assert_eq!(s.text(documented).as_deref(), ours["token"].as_str());
    s.lives(documented, seconds.into());
    assert_eq!(acquire(s, lock, key)["outcome"], "held");
    let longer = json!({"key": key, "ttl_ms": seconds * 1000 + 1});
    assert_eq!(s.post(&format!("lock/{lock}/acquire"), longer).expect(422)["field"], "ttl_ms");
    s.pass(u64::from(seconds) * 1000 + 1);
    assert_eq!(s.text(documented), None);
    assert_eq!(acquire(s, lock, key)["outcome"], "ours");
}

fn l078_update_lock_lives_thirty_seconds(s: &Stage) {
    lives(s, "update", &of_transaction(), &format!("lock:update:{TRANSACTION}"), 30);
}

fn l079_processing_lock_lives_a_minute(s: &Stage) {
    let key = json!({"psp_transaction_id": "PSP-TX-123456"});
    lives(s, "process", &key, "lock:process:PSP-TX-123456", 60);
}

fn l074_locks_exclude_and_fence(s: &Stage) {
    let (key, name) = (of_transaction(), format!("lock:update:{TRANSACTION}"));
    let give_back =
        |token: &Value| s.ok("lock/update/release", json!({"key": key, "token": token}))["outcome"].clone();
    let stale = acquire(s, "update", &key);
    assert!(!set_nx(s, &name, "theirs", "30"), "a program of the document is held off");
    assert_eq!(give_back(&json!("stolen")), "lost");
    assert_eq!(acquire(s, "update", &key)["outcome"], "held");
    // The holder is paused past its lease; it can neither write under its fence nor free the next one's lock.
    s.pass(30_001);
    let next = acquire(s, "update", &key);
    assert_eq!(next["outcome"], "ours");
    assert!(next["fence"].as_u64() > stale["fence"].as_u64(), "{next} after {stale}");
    assert_eq!(give_back(&stale["token"]), "lost");
    assert_eq!(s.text(&name).as_deref(), next["token"].as_str());
    assert_eq!(give_back(&next["token"]), "released");
    // A lock of the document holds us off, too.
    assert!(set_nx(s, &name, "theirs", "30"));
    assert_eq!(acquire(s, "update", &key)["outcome"], "held");
    s.raw::<i64>(&["DEL", &name]);
    let third = acquire(s, "update", &key);
    assert!(third["fence"].as_u64() > next["fence"].as_u64(), "{third} after {next}");
}

cases! {
    l078_update_lock_lives_thirty_seconds
    l079_processing_lock_lives_a_minute
    l074_locks_exclude_and_fence
}
