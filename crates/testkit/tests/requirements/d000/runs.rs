//! Runs: the documented hash, tasks, and what failed.

use std::collections::{BTreeMap, BTreeSet};

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{
    COUNTER, FAILED, HOUR, HOUR_MS, QUOTA, RUN, STATE, failed, kind, list, processed, show, start, take,
    task_start,
};

const TASK: &str = "courtlistener:task_start:manual_2024-09-17T14:30:00+00:00:process_docket_123";
const DAY_MS: u64 = 24 * HOUR_MS;

fn field(s: &Stage, name: &str) -> String {
    s.field(STATE, name).unwrap_or_else(|| panic!("{STATE} has no {name}"))
}

fn update(s: &Stage, fields: Value) -> Value {
    s.ok("run/courtlistener/update", json!({"run_id": RUN, "fields": fields}))
}

/// A side key of the run.
fn side(role: &str) -> String {
    format!("courtlistener:{{{STATE}}}:{role}")
}

fn assert_missing(s: &Stage) {
    let told = s.get("/v1/run/courtlistener/show?run_id=manual_2024-09-17T14:30:00%2B00:00");
    assert_eq!(told.expect(404)["code"], "run.missing");
}

/// A moment of these minutes, in UTC with microseconds, without a zone.
fn assert_shape(told: &str) {
    let digits: String = told.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert!(told.starts_with("2026-11-15T12:0") && digits == "0000-00-00T00:00:00.000000", "{told}");
}

/// The store's time.
fn assert_now(s: &Stage, told: &str) {
    assert_shape(told);
    assert!(s.store() == Store::Embedded || told == "2026-11-15T12:00:20.000000", "{told}");
}

fn l081_run_is_a_hash_of_seven_fields(s: &Stage) {
    start(s);
    assert_eq!(kind(s, STATE), "hash");
    let fields: BTreeMap<String, String> = s.raw(&["HGETALL", STATE]);
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let documented = [
        "api_calls_this_hour",
        "current_hour",
        "dag_run_id",
        "dockets_processed",
        "redis_keys",
        "start_time",
        "status",
    ];
    assert_eq!(names, documented);
}

fn l084_run_lives_twenty_five_hours(s: &Stage) {
    start(s);
    s.lives(STATE, 90_000);
    s.pass(DAY_MS);
    processed(s, &["12345"]);
    s.lives(STATE, 90_000);
    s.pass(DAY_MS + HOUR_MS + 1);
    assert_eq!(kind(s, STATE), "none");
    assert_missing(s);
}

fn l199_state_ttl_is_a_variable(s: &Stage) {
    s.var("REDIS_STATE_TTL_HOURS", "5");
    start(s);
    task_start(s, "process_docket_123");
    s.lives(STATE, 18_000);
    s.lives(TASK, 18_000);
    s.pass(5 * HOUR_MS + 1);
    assert_missing(s);
    s.kill();
    s.var("REDIS_STATE_TTL_HOURS", "-1");
    let said = s.cli(&["check"]);
    assert!(said.code == 1 && said.out.contains("`REDIS_STATE_TTL_HOURS` holds `-1`"), "{said:?}");
}

fn l089_run_has_its_id(s: &Stage) {
    assert_eq!(start(s)["run_id"], RUN);
    assert_eq!(field(s, "dag_run_id"), RUN);
    // An id that nobody gave has the documented form.
    let made = s.ok("run/courtlistener/start", json!({}))["run_id"].as_str().unwrap().to_owned();
    let at = made.strip_prefix("manual_").and_then(|rest| rest.strip_suffix("+00:00"));
    assert_shape(at.unwrap_or_else(|| panic!("{made}")));
    assert_eq!(s.field(&format!("courtlistener:pipeline:{made}"), "dag_run_id"), Some(made));
}

fn l090_run_has_its_start_in_microseconds(s: &Stage) {
    let told = start(s);
    let begun = field(s, "start_time");
    assert_now(s, &begun);
    assert_eq!(told["start_time"], begun);
    s.pass(HOUR_MS);
    start(s);
    update(s, json!({"status": "processing"}));
    assert_eq!(field(s, "start_time"), begun, "a run begins once");
}

/// A field of the hash that a caller may not set, and that another program's value does not last in.
fn assert_rendered(s: &Stage, name: &str, foreign: &str, ours: &str) {
    let fields = json!({"run_id": RUN, "fields": {name: foreign}});
    assert_eq!(s.post("run/courtlistener/update", fields).expect(422)["code"], "run.field");
    assert_eq!(field(s, name), ours);
    s.raw::<()>(&["HSET", STATE, name, foreign]);
    show(s);
    assert_eq!(field(s, name), ours);
}

fn l091_run_shows_the_current_hour(s: &Stage) {
    start(s);
    assert_rendered(s, "current_hour", "2024-09-17_14", HOUR);
    s.pass(HOUR_MS);
    assert_eq!(show(s)["current_hour"], "2026-11-15_13");
    assert_eq!(field(s, "current_hour"), "2026-11-15_13");
}

fn l092_run_shows_the_calls_of_this_hour(s: &Stage) {
    start(s);
    assert_eq!(field(s, "api_calls_this_hour"), "0");
    take(s);
    take(s);
    s.raw::<()>(&["INCR", QUOTA]);
    assert_eq!(show(s)["calls_this_hour"], 3);
    assert_eq!(s.text(QUOTA).as_deref(), Some("3"));
    assert_rendered(s, "api_calls_this_hour", "1247", "3");
    s.pass(HOUR_MS);
    assert_eq!(show(s)["calls_this_hour"], 0);
    assert_eq!(field(s, "api_calls_this_hour"), "0");
}

fn l093_run_has_a_status(s: &Stage) {
    assert_eq!(start(s)["status"], "running");
    assert_eq!(field(s, "status"), "running");
    update(s, json!({"status": "processing"}));
    assert_eq!(field(s, "status"), "processing");
    s.ok("run/courtlistener/finish", json!({"run_id": RUN, "status": "completed"}));
    assert_eq!(field(s, "status"), "completed");
    // Another program's word is read.
    s.raw::<()>(&["HSET", STATE, "status", "failed"]);
    assert_eq!(show(s)["status"], "failed");
}

fn listed(s: &Stage) -> Vec<String> {
    serde_json::from_str(&field(s, "dockets_processed")).unwrap()
}

fn l094_run_lists_the_dockets_processed(s: &Stage) {
    start(s);
    assert_eq!(field(s, "dockets_processed"), "[]");
    assert_eq!(processed(s, &["12345", "12346"])["added"], 2);
    assert_eq!(processed(s, &["12346", "12347"])["added"], 1);
    assert_eq!(show(s)["processed"], json!(["12345", "12346", "12347"]));
    assert_eq!(listed(s), ["12345", "12346", "12347"]);
    // A run with a list as the document prints it is taken over.
    let theirs = "courtlistener:pipeline:theirs";
    s.raw::<()>(&["HSET", theirs, "dag_run_id", "theirs", "dockets_processed", "['1', '2']"]);
    s.ok("run/courtlistener/start", json!({"run_id": "theirs"}));
    let left = json!({"run_id": "theirs", "items": ["1", "2", "3"]});
    assert_eq!(s.ok("run/courtlistener/remaining", left)["items"], json!(["3"]));
}

fn l095_run_names_its_keys(s: &Stage) {
    start(s);
    let keys: Value = serde_json::from_str(&field(s, "redis_keys")).unwrap();
    assert_eq!(keys, json!({"state_key": STATE, "counter_key": QUOTA, "failed_key": FAILED}));
    take(s);
    failed(s, "12345", "timeout");
    for name in ["state_key", "counter_key", "failed_key"] {
        assert_ne!(kind(s, keys[name].as_str().unwrap()), "none", "{name}");
    }
}

fn l101_start_makes_the_state(s: &Stage) {
    assert_missing(s);
    assert_eq!(start(s)["outcome"], "started");
    s.lives(STATE, 90_000);
    processed(s, &["12345"]);
    update(s, json!({"status": "processing"}));
    let again = start(s);
    assert_eq!((&again["outcome"], &again["processed"]), (&json!("resumed"), &json!(["12345"])));
    let said = s.cli(&["run", "start", "courtlistener", "--run-id", "other", "--json"]);
    assert_eq!((said.code, &said.json()["outcome"]), (0, &json!("started")), "{said:?}");
    assert_eq!(kind(s, "courtlistener:pipeline:other"), "hash");
}

fn l101_start_takes_ttl_hours(s: &Stage) {
    let start = |hours: u32| s.post("run/courtlistener/start", json!({"run_id": RUN, "ttl_hours": hours}));
    start(30).expect(200);
    s.lives(STATE, 108_000);
    s.pass(DAY_MS);
    task_start(s, "process_docket_123");
    for key in [STATE, TASK] {
        s.lives(key, 108_000);
    }
    s.pass(26 * HOUR_MS);
    assert_eq!(show(s)["status"], "stale", "it is there after 25 hours");
    start(2).expect(200);
    s.lives(STATE, 7200);
    assert_eq!(start(0).expect(400)["field"], "ttl_hours");
}

fn l104_update_sets_status_and_dockets(s: &Stage) {
    start(s);
    let told = update(s, json!({"status": "processing", "dockets_processed": ["12345", "12346"]}));
    assert_eq!((&told["status"], &told["processed_count"]), (&json!("processing"), &json!(2)));
    assert_eq!(field(s, "status"), "processing");
    // Each worker tells its own; neither takes out what the other told.
    let told = update(s, json!({"dockets_processed": ["12347"]}));
    assert_eq!(told["processed"], json!(["12345", "12346", "12347"]));
    show(s);
    assert_eq!(listed(s), ["12345", "12346", "12347"]);
    s.lives(STATE, 90_000);
}

fn l113_task_start_has_key_type_and_value(s: &Stage) {
    start(s);
    let told = task_start(s, "process_docket_123");
    assert_eq!(kind(s, TASK), "string");
    let begun = s.text(TASK).unwrap();
    assert_now(s, &begun);
    assert_eq!(told["started_at"], format!("{begun}Z"));
}

fn l116_task_start_lives_twenty_five_hours(s: &Stage) {
    start(s);
    task_start(s, "process_docket_123");
    s.lives(TASK, 90_000);
    s.pass(DAY_MS + HOUR_MS + 1);
    assert_eq!(s.text(TASK), None);
}

fn l127_failures_are_a_list_of_two_hours(s: &Stage) {
    start(s);
    failed(s, "12345", "timeout");
    assert_eq!(kind(s, FAILED), "list");
    assert_eq!(list(s, FAILED), ["12345"]);
    s.lives(FAILED, 7200);
    s.pass(2 * HOUR_MS + 1);
    assert_eq!(kind(s, FAILED), "none");
}

fn l134_failures_are_pushed_to_the_left(s: &Stage) {
    start(s);
    for item in ["12345", "12346", "12347"] {
        failed(s, item, "timeout");
    }
    assert_eq!(list(s, FAILED), ["12347", "12346", "12345"]);
    s.pass(HOUR_MS);
    failed(s, "12348", "timeout");
    assert_eq!(list(s, "courtlistener:failed:2026-11-15_13"), ["12348"], "the hour in which it failed");
    assert_eq!(list(s, FAILED).len(), 3);
}

fn l128_failures_are_kept_for_retry(s: &Stage) {
    start(s);
    failed(s, "12345", "answered 502");
    failed(s, "12345", "answered 503");
    // Another program's entry.
    s.raw::<()>(&["LPUSH", FAILED, "99999"]);
    let listed = s.get("/v1/run/courtlistener/failures").expect(200);
    let told = |at: usize| (listed["items"][at]["item"].clone(), listed["items"][at]["attempts"].clone());
    assert_eq!((told(0), told(1)), ((json!("99999"), json!(1)), (json!("12345"), json!(2))));
    assert_eq!(listed["items"][1]["error"], "answered 503");
    let retry = || {
        let taken = s.ok("run/courtlistener/retry", json!({}))["items"].take();
        let items = taken.as_array().unwrap().iter();
        items.map(|one| one["item"].as_str().unwrap().to_owned()).collect::<BTreeSet<String>>()
    };
    let both = || ["12345".to_owned(), "99999".to_owned()].into();
    assert_eq!(retry(), both());
    assert_eq!(retry(), [].into(), "nobody else gets them");
    s.pass(300_001);
    assert_eq!(retry(), both(), "until the lease ends");
    // The run keeps them when the hour's list is gone.
    s.pass(2 * HOUR_MS);
    assert_eq!(kind(s, FAILED), "none");
    assert_eq!(processed(s, &["99999"])["failed_count"], 1);
    assert_eq!(retry(), ["12345".to_owned()].into());
}

fn l181_update_needs_a_run(s: &Stage) {
    let update = |fields: Value| s.post("run/courtlistener/update", json!({"run_id": RUN, "fields": fields}));
    assert_eq!(update(json!({"status": "processing"})).expect(404)["code"], "run.missing");
    assert_eq!(s.keys("courtlistener:*"), [].into());
    start(s);
    // The field, the end and the whole state come together.
    let told = update(json!({"status": "processing", "node": "a"})).expect(200);
    assert_eq!((&told["status"], &told["fields"]), (&json!("processing"), &json!({"node": "a"})));
    s.lives(STATE, 90_000);
    assert_eq!((field(s, "status").as_str(), field(s, "node").as_str()), ("processing", "a"));
    s.pass(DAY_MS + HOUR_MS + 1);
    assert_eq!(update(json!({"status": "late"})).expect(404)["code"], "run.missing");
    assert_eq!(kind(s, STATE), "none");
}

fn l217_run_start_makes_state_task_and_counter(s: &Stage) {
    start(s);
    task_start(s, "process_docket_123");
    take(s);
    let keys = s.keys("courtlistener:*");
    for key in [STATE, TASK, QUOTA] {
        assert!(keys.contains(key), "{key} is not among {keys:?}");
    }
    assert!(!keys.contains(COUNTER));
    // Everything ends by itself but the indexes, whose members do.
    let index = |key: &str| [":runs", ":live", ":kept"].iter().any(|end| key.ends_with(end));
    for key in keys.iter().filter(|key| !index(key)) {
        let left: i64 = s.raw(&["PTTL", key]);
        assert!((1..=90_000_000).contains(&left), "{key}: {left}");
    }
    s.pass(DAY_MS + HOUR_MS + 1);
    s.ok("run/courtlistener/sweep", json!({}));
    assert_eq!(s.keys("courtlistener:*"), [].into());
}

fn l334_a_change_of_many_keys_is_one_step(s: &Stage) {
    start(s);
    failed(s, "12345", "timeout");
    // One of the keys cannot be written: none is.
    let spoiled = side("retry_at");
    s.raw::<()>(&["RENAME", &spoiled, "kept"]);
    s.raw::<()>(&["SET", &spoiled, "no sorted set"]);
    let done = json!({"run_id": RUN, "items": ["12346", "12345"]});
    let told = s.post("run/courtlistener/processed", done).expect(409);
    assert_eq!(told["code"], "key.wrong_type");
    assert_eq!((kind(s, &side("processed")).as_str(), kind(s, &side("list")).as_str()), ("none", "none"));
    assert_eq!(s.raw::<i64>(&["HLEN", &side("failures")]), 1);
    // They can all be written: they are.
    s.raw::<()>(&["RENAME", "kept", &spoiled]);
    let told = processed(s, &["12346", "12345"]);
    assert_eq!(told, json!({"added": 2, "processed_count": 2, "failed_count": 0}));
    assert_eq!(s.raw::<i64>(&["SCARD", &side("processed")]), 2);
    for emptied in ["failures", "failed_at", "retry_at"] {
        assert_eq!(kind(s, &side(emptied)), "none", "{emptied}");
    }
}

cases! {
    l081_run_is_a_hash_of_seven_fields
    l084_run_lives_twenty_five_hours
    l199_state_ttl_is_a_variable
    l089_run_has_its_id
    l090_run_has_its_start_in_microseconds
    l091_run_shows_the_current_hour
    l092_run_shows_the_calls_of_this_hour
    l093_run_has_a_status
    l094_run_lists_the_dockets_processed
    l095_run_names_its_keys
    l101_start_makes_the_state
    l101_start_takes_ttl_hours
    l104_update_sets_status_and_dockets
    l113_task_start_has_key_type_and_value
    l116_task_start_lives_twenty_five_hours
    l127_failures_are_a_list_of_two_hours
    l134_failures_are_pushed_to_the_left
    l128_failures_are_kept_for_retry
    l181_update_needs_a_run
    l217_run_start_makes_state_task_and_counter
    l334_a_change_of_many_keys_is_one_step
}
