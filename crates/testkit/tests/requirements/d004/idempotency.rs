//! Operations that run once.

use quaymaster_testkit::stage::{Ask, Stage, Store, Wire};
use serde_json::{Value, json};

use super::{TRANSACTION, begin, of_transaction, run, set_nx};

const CREATE: &str = "idem:create:PSP-TX-123456";

fn creation() -> Value {
    json!({"psp_transaction_id": "PSP-TX-123456"})
}

/// The answer of a finished operation lies at `documented` for so long, and is then forgotten.
fn lives(s: &Stage, name: &str, key: &Value, documented: &str, seconds: u32) {
    let response = json!({"transaction_id": TRANSACTION});
    run(s, name, key, &response);
    assert_eq!(s.keys("idem:*"), [documented.to_owned()].into());
    s.lives(documented, seconds.into());
    let again = begin(s, name, key, "f");
    assert_eq!((&again["outcome"], &again["response"]), (&json!("finished"), &response));
    s.pass(u64::from(seconds) * 1000 + 1);
    assert_eq!(s.text(documented), None);
    assert_eq!(begin(s, name, key, "f")["outcome"], "started");
}

fn l017_check_lives_two_minutes(s: &Stage) {
    let key = |amount: u32| json!({"psp_id": "PSP001", "merchant_provider": "DEMO_MERCHANT", "qr_tx_id": "QR123", "amount": amount});
    lives(s, "check", &key(100_000), "idem:check:PSP001:DEMO_MERCHANT:QR123:100000", 120);
    assert_eq!(
        begin(s, "check", &key(100_001), "f")["outcome"],
        "started",
        "another amount is another check"
    );
}

fn l018_create_lives_a_day(s: &Stage) {
    lives(s, "create", &creation(), CREATE, 86_400);
}

fn l019_execute_lives_a_day(s: &Stage) {
    lives(s, "execute", &of_transaction(), &format!("idem:execute:{TRANSACTION}"), 86_400);
}

fn l020_update_lives_a_day(s: &Stage) {
    let key = |status: u32| json!({"transaction_id": TRANSACTION, "status": status});
    lives(s, "update", &key(50), &format!("idem:update:{TRANSACTION}:50"), 86_400);
    assert_eq!(begin(s, "update", &key(60), "f")["outcome"], "started", "another status is another update");
}

fn l095_first_caller_wins(s: &Stage) {
    let address = s.address();
    let body = json!({"key": creation(), "fingerprint": "100000"}).to_string();
    let ask = Ask::new("POST", "/v1/idempotency/create/begin").json(&body);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..12).map(|_| scope.spawn(|| Wire::open(address).ask(&ask).0.expect(200))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let (first, others): (Vec<_>, Vec<_>) = answers.iter().partition(|told| told["outcome"] == "started");
    assert_eq!(first.len(), 1, "{answers:?}");
    assert!(others.iter().all(|told| told["outcome"] == "in_progress"), "{answers:?}");
    assert!(!set_nx(s, CREATE, "1", "86400"), "a program of the document is not the first either");
    // What a `1` cannot do: give the answer again, and tell another request apart.
    let finish = json!({"key": creation(), "token": first[0]["token"], "response": {"id": 7}});
    s.ok("idempotency/create/finish", finish);
    assert_eq!(begin(s, "create", &creation(), "100000")["response"], json!({"id": 7}));
    assert_eq!(begin(s, "create", &creation(), "1"), json!({"outcome": "mismatch"}));
    // The `1` of another program is finished, without an answer.
    assert!(set_nx(s, "idem:create:theirs", "1", "86400"));
    let theirs = begin(s, "create", &json!({"psp_transaction_id": "theirs"}), "100000");
    assert_eq!(theirs, json!({"outcome": "finished", "response": null, "kept": false}));
    assert_eq!(s.text("idem:create:theirs").as_deref(), Some("1"));
}

fn l096_a_claim_ends_before_its_record(s: &Stage) {
    let dead = begin(s, "create", &creation(), "f");
    assert_eq!(dead["outcome"], "started");
    s.lives(CREATE, 61);
    s.pass(59_000);
    if s.store() == Store::Redis {
        assert_eq!(
            begin(s, "create", &creation(), "f"),
            json!({"outcome": "in_progress", "retry_after_ms": 1000})
        );
    }
    s.pass(1000);
    let next = begin(s, "create", &creation(), "f");
    assert_eq!(next["outcome"], "started", "its owner died, and the payment is not refused for a day");
    let finish = |claim: &Value, response: &str| {
        let body = json!({"key": creation(), "token": claim["token"], "response": response});
        s.ok("idempotency/create/finish", body)["outcome"].clone()
    };
    assert_eq!(finish(&dead, "late"), "lost");
    assert_eq!(finish(&next, "paid"), "finished");
    s.lives(CREATE, 86_400);
    assert_eq!(begin(s, "create", &creation(), "f")["response"], "paid");
}

cases! {
    l017_check_lives_two_minutes
    l018_create_lives_a_day
    l019_execute_lives_a_day
    l020_update_lives_a_day
    l095_first_caller_wins
    l096_a_claim_ends_before_its_record
}
