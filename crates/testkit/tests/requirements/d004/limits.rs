//! Limits of PSPs and of transactions.

use quaymaster_testkit::stage::{Ask, Stage, Wire};
use serde_json::{Value, json};

use super::{TRANSACTION, kind, of_transaction, take};

/// The minute in which every stage begins.
const MINUTE: &str = "rl:PSP001:2026-11-15-12-00";

fn psp() -> Value {
    json!({"psp_id": "PSP001"})
}

fn of_tx() -> String {
    format!("rl:tx:{TRANSACTION}")
}

/// How many of so many calls are let through.
fn allowed(s: &Stage, limit: &str, key: &Value, calls: usize) -> usize {
    (0..calls).filter(|_| take(s, limit, key)["allowed"] == true).count()
}

fn l038_quota_key_is_the_minute(s: &Stage) {
    take(s, "psp", &psp());
    take(s, "psp", &psp());
    assert_eq!(s.keys("rl:*"), [MINUTE.to_owned()].into());
    assert_eq!(s.text(MINUTE).as_deref(), Some("2"));
    s.lives(MINUTE, 60);
    s.pass(60_001);
    assert_eq!(s.text(MINUTE), None);
    assert_eq!(take(s, "psp", &psp())["used"], 1);
}

fn l043_minute_has_dashes(s: &Stage) {
    take(s, "psp", &psp());
    // Over the end of a day, and of a year.
    s.pass(12 * 3_600_000);
    take(s, "psp", &psp());
    assert_eq!(s.keys("rl:*"), ["rl:PSP001:2026-11-16-00-00".to_owned()].into());
    s.pass(46 * 86_400_000 + 9 * 3_600_000 + 5 * 60_000);
    take(s, "psp", &psp());
    assert_eq!(s.keys("rl:*"), ["rl:PSP001:2027-01-01-09-05".to_owned()].into());
}

fn l117_quota_counts_in_one_step(s: &Stage) {
    s.var("PSP_LIMIT", "50");
    let address = s.address();
    let ask = Ask::new("POST", "/v1/limit/psp/take").json(&json!({ "key": psp() }).to_string());
    let counts = std::thread::scope(|scope| {
        let ten = || {
            let mut wire = Wire::open(address);
            (0..10).filter(|_| wire.ask(&ask).0.expect(200)["allowed"] == true).count()
        };
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(ten)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>()
    });
    assert_eq!(counts, 50, "callers at once never exceed it");
    assert_eq!(s.text(MINUTE).as_deref(), Some("50"), "refused calls are not counted");
    // Another program's zset in the minute is refused and stays.
    s.raw::<i64>(&["ZADD", "rl:PSP002:2026-11-15-12-00", "1705329059", "r1"]);
    let refused = s.post("limit/psp/take", json!({"key": {"psp_id": "PSP002"}}));
    assert_eq!(refused.expect(409)["code"], "key.wrong_type");
    assert!(refused.text().contains("rl:PSP002:2026-11-15-12-00 holds a zset"), "{}", refused.text());
    assert_eq!(s.raw::<i64>(&["ZCARD", "rl:PSP002:2026-11-15-12-00"]), 1);
}

fn l048_a_thousand_requests_a_minute(s: &Stage) {
    assert_eq!(s.get("/v1/limit/psp/peek?key.psp_id=PSP001").expect(200)["limit"], 1000);
    let many = |cost: u32| s.ok("limit/psp/take", json!({"key": psp(), "cost": cost}));
    assert_eq!(many(999)["allowed"], true);
    assert_eq!(many(2)["allowed"], false);
    assert_eq!((&many(1)["remaining"], &many(1)["allowed"]), (&json!(0), &json!(false)));
    let wait = many(1)["retry_after_ms"].as_u64().unwrap();
    assert!((1..=40_000).contains(&wait), "{wait}: the minute has 40 s left");
    assert_eq!(take(s, "psp", &json!({"psp_id": "PSP002"}))["used"], 1, "each PSP has its own");
    s.pass(40_000);
    assert_eq!(many(1)["used"], 1);
    s.kill();
    s.var("PSP_LIMIT", "3");
    assert_eq!(take(s, "psp", &psp())["limit"], 3);
}

fn l039_transaction_limit_lives_five_minutes(s: &Stage) {
    take(s, "transaction", &of_transaction());
    assert_eq!(s.keys("rl:*"), [of_tx()].into());
    assert_eq!((kind(s, &of_tx()).as_str(), s.raw::<i64>(&["ZCARD", &of_tx()])), ("zset", 1));
    s.lives(&of_tx(), 300);
    s.pass(300_001);
    assert_eq!(kind(s, &of_tx()), "none");
}

fn l049_ten_requests_in_five_minutes(s: &Stage) {
    assert_eq!(allowed(s, "transaction", &of_transaction(), 12), 10);
    assert_eq!(s.raw::<i64>(&["ZCARD", &of_tx()]), 10, "a refused call is not counted");
    s.pass(200_000);
    let refused = take(s, "transaction", &of_transaction());
    let wait = refused["retry_after_ms"].as_u64().unwrap();
    assert!(refused["allowed"] == false && (1..=100_000).contains(&wait), "{refused}");
    let other = json!({"transaction_id": "another"});
    assert_eq!(take(s, "transaction", &other)["remaining"], 9);
    s.pass(100_000);
    assert_eq!(take(s, "transaction", &of_transaction())["allowed"], true);
}

fn l115_the_window_is_what_it_is_called(s: &Stage) {
    s.var("PSP_LIMIT", "10");
    let both =
        |calls| (allowed(s, "psp", &psp(), calls), allowed(s, "transaction", &of_transaction(), calls));
    assert_eq!(both(20), (10, 10));
    assert_eq!((kind(s, MINUTE).as_str(), kind(s, &of_tx()).as_str()), ("string", "zset"));
    // The minute turns. A fixed window begins anew; a log has no minute in its key, and slides.
    s.pass(40_000);
    assert_eq!(both(20), (10, 0));
    s.kill();
    s.amend("psp", "algorithm = \"fixed_window\"", "algorithm = \"sliding_log\"");
    let said = s.cli(&["check", "psp.toml"]);
    assert!(said.code == 1 && said.out.contains("bucket-in-sliding"), "{said:?}");
}

fn l044_a_psp_is_not_called_tx(s: &Stage) {
    let refused = s.post("limit/psp/take", json!({"key": {"psp_id": "tx"}})).expect(400);
    assert_eq!((&refused["code"], &refused["field"]), (&json!("key.value"), &json!("key.psp_id")));
    let guarded = s.post("guard/create/enter", json!({"key": {"psp_id": "tx", "psp_transaction_id": "A"}}));
    assert_eq!(guarded.expect(400)["code"], "key.value");
    assert_eq!(s.keys("*tx*"), [].into());
    take(s, "transaction", &of_transaction());
    let explained = s.get(&format!("/v1/key/explain?key={}", of_tx())).expect(200);
    assert_eq!(explained["name"], "transaction");
    assert_eq!(explained["values"], of_transaction());
    let said = s.cli(&["check", "psp.toml"]);
    assert!(said.code == 0 && said.out.contains("`tx` is a forbidden value of `psp_id`"), "{said:?}");
}

cases! {
    l038_quota_key_is_the_minute
    l117_quota_counts_in_one_step
    l048_a_thousand_requests_a_minute
    l039_transaction_limit_lives_five_minutes
    l049_ten_requests_in_five_minutes
    l043_minute_has_dashes
    l115_the_window_is_what_it_is_called
    l044_a_psp_is_not_called_tx
}
