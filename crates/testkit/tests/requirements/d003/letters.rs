//! Dead letters, and the attempts before them.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::json;

use super::service::Service;
use super::{
    ANALYSIS, DETECTION, IMAGE, ack, assert_moment, claim, fail, fields, kind, list, parsed, pressure, push,
    work,
};

/// Fails the only job until it is dead, in its own time.
fn bury(s: &Stage, queue: &str) {
    loop {
        let told = fail(s, queue, "Connection refused: detector service unavailable");
        if told["outcome"] == "dead" {
            return;
        }
        s.pass(told["retry_in_ms"].as_u64().unwrap());
    }
}

fn assert_buried_in(s: &Stage, queue: &str, key: &str) {
    push(s, queue, json!({"n": 1}));
    bury(s, queue);
    assert_eq!((kind(s, key).as_str(), kind(s, queue).as_str()), ("list", "none"));
    let letter = parsed(&list(s, key)[0]);
    assert_eq!((&letter["original_job"], &letter["queue_name"]), (&json!({"n": 1}), &json!(queue)));
    assert_eq!(s.raw::<i64>(&["TTL", key]), -1, "it waits for somebody");
}

fn l093_failed_detections_have_a_list(s: &Stage) {
    assert_buried_in(s, DETECTION, "dlq:detection_queue");
}

fn l101_failed_analyses_have_a_list(s: &Stage) {
    assert_buried_in(s, ANALYSIS, "dlq:analysis_queue");
}

fn l107_dead_item_has_six_fields(s: &Stage) {
    push(s, DETECTION, parsed(IMAGE));
    bury(s, DETECTION);
    let text = list(s, "dlq:detection_queue").remove(0);
    assert!(text.starts_with(&format!(r#"{{"original_job":{IMAGE},"#)), "{text}");
    let letter = parsed(&text);
    let names = ["attempt_count", "error", "first_failed_at", "last_failed_at", "original_job", "queue_name"];
    assert_eq!(fields(&letter), names);
    assert_eq!(letter["error"], "Connection refused: detector service unavailable");
    assert_eq!((&letter["attempt_count"], &letter["queue_name"]), (&json!(3), &json!(DETECTION)));
    let [first, last] = [&letter["first_failed_at"], &letter["last_failed_at"]];
    assert_moment(first);
    assert_moment(last);
    assert!(first.as_str() < last.as_str(), "{first} {last}");
    if s.store() == Store::Redis {
        assert_eq!(first, "2026-11-15T12:00:20.000000");
    }
}

fn l097_jobs_die_after_max_attempts(s: &Stage) {
    let detector = Service::that_answers("503 Service Unavailable", "the detector is down");
    s.var("DETECTOR_URL", &detector.url);
    s.amend("cameras", "base = \"1s\"", "base = \"10ms\"");
    let _worker = work(s, DETECTION);
    push(s, DETECTION, parsed(IMAGE));
    for attempt in ["1", "2", "3"] {
        let call = detector.next();
        assert_eq!((call.attempt.as_str(), call.body.as_str()), (attempt, IMAGE));
    }
    s.until("it is dead", || pressure(s, DETECTION)["dead"] == 1);
    assert!(detector.is_quiet(), "no fourth attempt");
    let letter = parsed(&list(s, "dlq:detection_queue")[0]);
    assert_eq!(letter["attempt_count"], 3);
    let error = letter["error"].as_str().unwrap();
    assert!(error.contains("503") && error.contains("the detector is down"), "{error}");
}

fn l089_dead_jobs_are_reviewed_and_sent_again(s: &Stage) {
    for n in [1, 2] {
        push(s, DETECTION, json!({"n": n}));
        let job = claim(s, DETECTION);
        s.ok("queue/detection_queue/nack", json!({"lease": job["lease"], "error": "broken", "dead": true}));
    }
    let review = s.get("/v1/queue/detection_queue/dead").expect(200);
    assert_eq!((&review["length"], &review["items"][0]["original_job"]["n"]), (&json!(2), &json!(1)));
    let table = s.cli(&["queue", "dead", DETECTION]);
    assert!(table.out.contains("broken") && table.out.contains(r#"{"n":2}"#), "{table:?}");
    let moved = s.cli(&["queue", "redrive", DETECTION, "--count", "1", "--json"]);
    assert_eq!((&moved.json()["moved"], list(s, "dlq:detection_queue").len()), (&json!(1), 1), "{moved:?}");
    let again = claim(s, DETECTION);
    assert_eq!((&again["payload"]["n"], &again["attempt"]), (&json!(1), &json!(1)), "the oldest, as if new");
    ack(s, DETECTION, &again);
    assert_eq!(s.ok("queue/detection_queue/purge", json!({}))["removed"], 1);
    assert_eq!(kind(s, "dlq:detection_queue"), "none");
}

/// The wait that the document has for an attempt: at least this many milliseconds, and up to a quarter more.
const WAITS: [u64; 6] = [1000, 2000, 4000, 8000, 16_000, 30_000];

fn l412_jobs_wait_by_the_documented_table(s: &Stage) {
    s.amend("cameras", "max_attempts = 3", "max_attempts = 8");
    for queue in [DETECTION, ANALYSIS] {
        push(s, queue, json!(1));
    }
    for (attempt, wait) in (1..).zip(WAITS) {
        let told = [DETECTION, ANALYSIS].map(|queue| {
            let told = fail(s, queue, "down");
            assert_eq!(told["attempt"], attempt);
            let told = told["retry_in_ms"].as_u64().unwrap();
            assert!((wait..=wait + wait / 4).contains(&told), "{told} ms before attempt {}", attempt + 1);
            told
        });
        if s.store() == Store::Redis {
            s.pass(wait - 1);
            assert_eq!(super::claimable(s, DETECTION), 0, "nobody gets it before");
        }
        s.pass(told[0].max(told[1]));
    }
    waits_of_a_worker(s);
}

/// The same when a worker asks: what its service refuses lies as long in `delayed`.
fn waits_of_a_worker(s: &Stage) {
    for queue in [DETECTION, ANALYSIS] {
        let last = claim(s, queue);
        assert_eq!(last["attempt"], 7);
        ack(s, queue, &last);
    }
    let detector = Service::that_answers("500 Internal Server Error", "");
    s.kill();
    s.var("DETECTOR_URL", &detector.url);
    let _worker = work(s, DETECTION);
    let before = s.clock().now_us() / 1000;
    push(s, DETECTION, json!(1));
    assert_eq!(detector.next().attempt, "1");
    s.until("it waits", || pressure(s, DETECTION)["delayed"] == 1);
    let after = s.clock().now_us() / 1000;
    let key = s.keys("*detection_queue*delayed").pop_first().unwrap();
    let due: Vec<String> = s.raw(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]);
    let due: i64 = due[1].parse().unwrap();
    assert!((before + 1000..=after + 1250).contains(&due), "{due}: asked between {before} and {after}");
    assert_eq!(detector.next().attempt, "2", "and then it comes");
}

cases! {
    l093_failed_detections_have_a_list
    l101_failed_analyses_have_a_list
    l107_dead_item_has_six_fields
    l097_jobs_die_after_max_attempts
    l089_dead_jobs_are_reviewed_and_sent_again
    l412_jobs_wait_by_the_documented_table
}
