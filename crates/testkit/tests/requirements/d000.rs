//! Document 000: `systems/courtlistener`.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

const RUN: &str = "manual_2024-09-17T14:30:00+00:00";
/// The hour in which every stage begins.
const QUOTA: &str = "courtlistener:rate_limit:2026-11-15_12";

fn take(s: &Stage) -> Value {
    s.ok("limit/courtlistener/take", json!({"key": {}}))
}

fn l016_keys_are_prefix_category_and_id(s: &Stage) {
    take(s);
    s.ok("limit/courtlistener_counter/take", json!({"key": {}}));
    s.ok("run/courtlistener/start", json!({"run_id": RUN}));
    s.ok("run/courtlistener/task_start", json!({"run_id": RUN, "task_id": "process_docket"}));
    s.ok("run/courtlistener/failed", json!({"run_id": RUN, "item": "12345", "error": "timeout"}));
    let keys = s.keys("courtlistener:*");
    for documented in [
        QUOTA,
        "courtlistener:pipeline:manual_2024-09-17T14:30:00+00:00",
        "courtlistener:task_start:manual_2024-09-17T14:30:00+00:00:process_docket",
        "courtlistener:counter:2026-11-15_12",
        "courtlistener:failed:2026-11-15_12",
    ] {
        assert!(keys.contains(documented), "{documented} is not among {keys:?}");
    }
    let mut others = s.keys("*");
    others.retain(|key| !keys.contains(key) && !key.starts_with("quaymaster:"));
    assert_eq!(others, [].into(), "keys of the system outside of its prefix");
}

fn l034_quota_key_is_the_utc_hour(s: &Stage) {
    take(s);
    take(s);
    assert_eq!(s.text(QUOTA).as_deref(), Some("2"));
    assert_eq!(s.keys("courtlistener:rate_limit:*").len(), 1);
}

fn l036_quota_is_an_integer_in_a_string(s: &Stage) {
    take(s);
    assert_eq!(s.raw::<String>(&["TYPE", QUOTA]), "string");
    // Another program counts in it by the plain command.
    assert_eq!(s.raw::<i64>(&["INCR", QUOTA]), 2);
    if s.store() == Store::Redis {
        assert_eq!(s.raw::<String>(&["OBJECT", "ENCODING", QUOTA]), "int");
    }
}

fn l037_rate_limit_lives_two_hours(s: &Stage) {
    take(s);
    s.lives(QUOTA, 7200);
    s.pass(7_200_001);
    assert_eq!(s.text(QUOTA), None);
}

fn l198_counter_ttl_is_a_variable(s: &Stage) {
    s.var("REDIS_COUNTER_TTL_HOURS", "3");
    take(s);
    s.lives(QUOTA, 10_800);
    s.kill();
    s.var("REDIS_COUNTER_TTL_HOURS", "0.5");
    let said = s.cli(&["check"]);
    assert!(said.code == 1 && said.out.contains("`REDIS_COUNTER_TTL_HOURS` holds `0.5`"), "{said:?}");
}

fn l048_a_call_is_counted_with_its_check(s: &Stage) {
    s.var("CALL_LIMIT_PER_HOUR", "27");
    assert_eq!(take(s)["used"], 1);
    // What another program counts is seen, and ours by it.
    assert_eq!(s.raw::<i64>(&["INCR", QUOTA]), 2);
    let refused = take(s);
    assert_eq!((&refused["allowed"], &refused["used"]), (&json!(false), &json!(2)));
    assert_eq!(s.text(QUOTA).as_deref(), Some("2"), "a refused call is not counted");
}

fn l049_usage_is_read_without_counting(s: &Stage) {
    for used in 1..=3 {
        take(s);
        let peeked = s.get("/v1/limit/courtlistener/peek").expect(200);
        assert_eq!((&peeked["used"], &peeked["limit"]), (&json!(used), &json!(4975)));
        assert_eq!(s.text(QUOTA), Some(used.to_string()));
    }
}

fn l050_the_ttl_comes_with_the_count(s: &Stage) {
    // Another program's key, whose EXPIRE never came.
    s.raw::<i64>(&["INCR", QUOTA]);
    assert_eq!(s.raw::<i64>(&["TTL", QUOTA]), -1);
    assert_eq!(take(s)["used"], 2);
    s.lives(QUOTA, 7200);
}

cases! {
    l016_keys_are_prefix_category_and_id
    l034_quota_key_is_the_utc_hour
    l036_quota_is_an_integer_in_a_string
    l037_rate_limit_lives_two_hours
    l198_counter_ttl_is_a_variable
    l048_a_call_is_counted_with_its_check
    l049_usage_is_read_without_counting
    l050_the_ttl_comes_with_the_count
}
