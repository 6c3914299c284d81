//! The hour's quota and its second counter.

use std::thread;

use quaymaster_testkit::stage::{NOW_US, Stage, Store};
use serde_json::{Value, json};

use super::{
    COUNTER, FAILED, HOUR_MS, QUOTA, STATE, failed, kind, on_a_node_ahead, show, start, take, take_second,
    task_start,
};

fn l016_keys_are_prefix_category_and_id(s: &Stage) {
    take(s);
    take_second(s);
    start(s);
    task_start(s, "process_docket");
    failed(s, "12345", "timeout");
    let keys = s.keys("courtlistener:*");
    let task = "courtlistener:task_start:manual_2024-09-17T14:30:00+00:00:process_docket";
    for documented in [QUOTA, STATE, task, COUNTER, FAILED] {
        assert!(keys.contains(documented), "{documented} is not among {keys:?}");
    }
    // What is no key of the pipeline: the mark of its schema's names, and the trial of readiness.
    let own = match s.store() {
        Store::Redis => "quaymaster:probe",
        Store::Embedded => "quaymaster:names:courtlistener",
    };
    s.until("the server has its own key", || s.keys("*").contains(own));
    let mut others = s.keys("*");
    others.retain(|key| !key.starts_with("courtlistener:") && key != own);
    assert_eq!(others, [].into(), "keys outside of the prefix");
    let rules = s.cli(&["docs"]).out;
    assert!(rules.contains(" ~courtlistener:pipeline:*\n") && rules.contains(" ~quaymaster:*\n"), "{rules}");
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

fn l054_second_counter_has_key_type_and_ttl(s: &Stage) {
    assert_eq!(take_second(s)["used"], 1);
    take_second(s);
    assert_eq!((s.text(COUNTER).as_deref(), kind(s, COUNTER).as_str()), (Some("2"), "string"));
    assert_eq!(s.keys("courtlistener:counter:*").len(), 1);
    s.lives(COUNTER, 7200);
    s.kill();
    s.var("REDIS_COUNTER_TTL_HOURS", "3");
    take_second(s);
    s.lives(COUNTER, 10_800);
}

fn l055_second_counter_is_no_fallback(s: &Stage) {
    s.var("CALL_LIMIT_PER_HOUR", "27");
    start(s);
    for allowed in [true, true, false] {
        assert_eq!(take(s)["allowed"], allowed);
    }
    assert_eq!(s.text(COUNTER), None, "a refused call does not go on in the second counter");
    // Who counts there has a quota of its own, which is none of the run's.
    assert_eq!(take_second(s)["used"], 1);
    assert_eq!(s.text(QUOTA).as_deref(), Some("2"));
    assert_eq!(show(s)["calls_this_hour"], 2);
}

fn l059_count_and_allowed_are_one_answer(s: &Stage) {
    s.var("CALL_LIMIT_PER_HOUR", "35");
    let take = |cost: u32| {
        let told = s.ok("limit/courtlistener_counter/take", json!({"key": {}, "cost": cost}));
        (told["used"].as_u64().unwrap(), told["allowed"].as_bool().unwrap())
    };
    assert_eq!((take(8), take(3), take(2), take(1)), ((8, true), (8, false), (10, true), (10, false)));
    assert_eq!(s.text(COUNTER).as_deref(), Some("10"));
    // Many at once: as many are told yes as there is room for.
    s.raw::<()>(&["SET", COUNTER, "3", "EX", "100"]);
    let allowed = thread::scope(|scope| {
        let asked: Vec<_> = (0..12).map(|_| scope.spawn(|| take(1).1)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).filter(|allowed| *allowed).count()
    });
    assert_eq!((allowed, s.text(COUNTER).as_deref()), (7, Some("10")));
    // Its end is set with each count.
    s.raw::<()>(&["SET", COUNTER, "3", "EX", "100"]);
    take(1);
    s.lives(COUNTER, 7200);
}

fn l200_safety_buffer_is_a_variable(s: &Stage) {
    s.var("CALL_LIMIT_PER_HOUR", "10");
    s.var("COURTLISTENER_SAFETY_BUFFER", "2");
    for used in 1..=8 {
        assert_eq!(take(s)["used"], used);
    }
    let refused = take(s);
    assert_eq!((&refused["allowed"], &refused["limit"]), (&json!(false), &json!(8)));
}

fn l201_hourly_limit_is_a_variable(s: &Stage) {
    assert_eq!(take(s)["limit"], 4975, "5000 less 25");
    s.kill();
    s.var("CALL_LIMIT_PER_HOUR", "100");
    assert_eq!((&take(s)["limit"], &take_second(s)["limit"]), (&json!(75), &json!(75)));
    s.kill();
    s.var("CALL_LIMIT_PER_HOUR", "many");
    let said = s.cli(&["check"]);
    assert!(said.code == 1 && said.out.contains("`CALL_LIMIT_PER_HOUR` holds `many`"), "{said:?}");
}

fn l146_the_hour_is_the_stores(s: &Stage) {
    take(s);
    // A node whose own clock is in the next hour counts in the hour of the others.
    let hour_us = i64::try_from(HOUR_MS).unwrap() * 1000;
    let said = on_a_node_ahead(s, hour_us, &["limit", "take", "courtlistener", "--json"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["used"], s.text(QUOTA).as_deref()), (&json!(2), Some("2")));
    assert_eq!(s.keys("courtlistener:rate_limit:*"), [QUOTA.to_owned()].into());
}

fn l207_localhost_is_the_default_of_a_redis_url(s: &Stage) {
    // Nobody named a store: it is the embedded one, and the call says so.
    let unnamed = s.command().args(["limit", "take", "courtlistener"]).output().unwrap();
    let told = String::from_utf8(unnamed.stderr).unwrap();
    assert!(unnamed.status.success() && told.starts_with("store: embedded in "), "{told}");
    // `redis://` alone. Where somebody has a server there it is looked at, and nothing more.
    let documented = s.command().args(["health", "--store", "redis://", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&documented.stdout).unwrap();
    let reason = told["reason"].as_str().unwrap_or_default();
    assert!(told["connected"] == true || reason.contains("localhost:6379: "), "{told}");
    if s.store() == Store::Redis {
        assert_eq!(take(s)["used"], 1);
        for (database, used) in [("0", 1), ("1", 0)] {
            let store = format!("{}/{database}", s.url());
            let peeked = s.cli(&["limit", "peek", "courtlistener", "--json", "--store", &store]);
            assert_eq!(peeked.json()["used"], used, "database {database}");
        }
    }
}

fn l227_a_call_over_the_limit_is_rejected(s: &Stage) {
    s.var("CALL_LIMIT_PER_HOUR", "27");
    s.address();
    // A script calls the API where this ends with 0.
    let gate = || s.cli(&["limit", "take", "courtlistener"]).code;
    assert_eq!([gate(), gate(), gate()], [0, 0, 1]);
    let refused = take(s);
    assert_eq!((&refused["allowed"], &refused["used"]), (&json!(false), &json!(2)));
    // It says when the next hour begins.
    let wait_ms = refused["retry_after_ms"].as_i64().unwrap();
    let left_ms = 3_580_000;
    let most = if s.store() == Store::Redis { 0 } else { 60_000 };
    assert!((left_ms - most..=left_ms).contains(&wait_ms), "{wait_ms}");
    s.pass(3_580_000);
    assert_eq!(gate(), 0);
}

/// Lines of the log with this text about the quota.
fn lines(s: &Stage, text: &str) -> Vec<String> {
    let log = s.log();
    let told = log.lines().filter(|line| line.contains(text) && line.contains("limit=\"courtlistener\""));
    told.map(str::to_owned).collect()
}

fn l231_taken_and_refused_calls_are_logged(s: &Stage) {
    const TAKEN: &str = "a take was allowed";
    const REFUSED: &str = "takes were refused";
    s.var("CALL_LIMIT_PER_HOUR", "28");
    s.serve(&["--log", "info"]);
    take(s);
    s.kill();
    s.serve(&["--log", "debug"]);
    for _ in 0..3 {
        take(s);
    }
    s.until("the refused one is told", || !lines(s, REFUSED).is_empty());
    let refused = &lines(s, REFUSED)[0];
    assert!(refused.contains(" INFO ") && refused.contains("refused=1 used=3 of=3"), "{refused}");
    let taken = lines(s, TAKEN);
    assert_eq!(taken.len(), 2, "at debug, and none at info: {taken:?}");
    assert!(taken[0].contains("used=2 of=3") && taken[1].contains("used=3 of=3"), "{taken:?}");
}

fn l241_a_new_hour_has_a_new_key(s: &Stage) {
    take(s);
    take(s);
    s.pass(3_580_000);
    assert_eq!(take(s)["used"], 1);
    assert_eq!(s.text("courtlistener:rate_limit:2026-11-15_13").as_deref(), Some("1"));
    s.lives("courtlistener:rate_limit:2026-11-15_13", 7200);
    assert_eq!(s.text(QUOTA).as_deref(), Some("2"), "the old hour is as it was");
    s.lives(QUOTA, 3620);
}

fn l242_keys_of_old_hours_expire(s: &Stage) {
    take(s);
    take_second(s);
    start(s);
    failed(s, "12345", "timeout");
    s.pass(HOUR_MS);
    take(s);
    s.pass(HOUR_MS + 1);
    for old in [QUOTA, COUNTER, FAILED] {
        assert_eq!(kind(s, old), "none", "{old}");
    }
    assert_eq!(s.text("courtlistener:rate_limit:2026-11-15_13").as_deref(), Some("1"));
}

fn l243_a_new_hour_is_logged(s: &Stage) {
    const TURNED: &str = "a new window has begun";
    // The time of an open embedded store cannot be set: there the hour has ten seconds left.
    if s.store() == Store::Embedded {
        s.clock().run_from(NOW_US + 3_570_000_000);
    }
    take(s);
    assert_eq!((s.text(QUOTA).as_deref(), lines(s, TURNED)), (Some("1"), vec![]));
    if s.store() == Store::Redis {
        s.pass(3_580_000);
    }
    s.until("the hour turns", || take(s)["used"] == 1);
    take(s);
    s.until("it is told", || !lines(s, TURNED).is_empty());
    let told = lines(s, TURNED);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(" INFO ") && told[0].contains("begins=\"2026-11-15T13:00:00"), "{told:?}");
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
    l054_second_counter_has_key_type_and_ttl
    l055_second_counter_is_no_fallback
    l059_count_and_allowed_are_one_answer
    l200_safety_buffer_is_a_variable
    l201_hourly_limit_is_a_variable
    l146_the_hour_is_the_stores
    l207_localhost_is_the_default_of_a_redis_url
    l227_a_call_over_the_limit_is_rejected
    l231_taken_and_refused_calls_are_logged
    l241_a_new_hour_has_a_new_key
    l242_keys_of_old_hours_expire
    l243_a_new_hour_is_logged
}
