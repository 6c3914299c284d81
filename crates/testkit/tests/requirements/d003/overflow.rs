//! A queue that is full, by its policy.

use quaymaster_testkit::stage::Stage;
use serde_json::json;

use super::service::Service;
use super::{ANALYSIS, DETECTION, kind, list, pressure, push, work, worker_log};

const OVERFLOW: &str = "dlq:overflow:detection_queue";

/// Queues with room for two and this policy; two wait.
fn fill(s: &Stage, policy: &str) {
    s.var("QUEUE_MAX_SIZE", "2");
    s.var("QUEUE_OVERFLOW_POLICY", policy);
    s.ok("queue/detection_queue/push", json!({"payloads": [1, 2]}));
}

fn l126_overflow_has_a_list(s: &Stage) {
    fill(s, "dlq");
    push(s, DETECTION, json!({"n": 3}));
    s.ok("queue/detection_queue/push", json!({"payloads": [4, 5]}));
    assert_eq!(kind(s, OVERFLOW), "list");
    assert_eq!(list(s, OVERFLOW), ["1", "2", r#"{"n":3}"#], "items as they were, oldest first");
    assert_eq!(pressure(s, DETECTION)["overflowed"], 3);
    s.ok("queue/detection_queue/claim", json!({"count": 2}));
    let moved = s.ok("queue/detection_queue/redrive", json!({"overflow": true, "count": 1}));
    assert_eq!((&moved["moved"], list(s, DETECTION)), (&json!(1), vec!["1".to_owned()]));
    push(s, ANALYSIS, json!(1));
    s.ok("queue/analysis_queue/push", json!({"payloads": [2, 3]}));
    assert_eq!(list(s, "dlq:overflow:analysis_queue"), ["1"]);
}

fn l142_reject_adds_nothing(s: &Stage) {
    fill(s, "reject");
    for body in [json!({"payload": 3}), json!({"payloads": [3, 4, 5]})] {
        let refused = s.post("queue/detection_queue/push", body).expect(429);
        assert_eq!(refused["code"], "queue.full");
        assert_eq!(list(s, DETECTION), ["1", "2"]);
    }
    s.ok("queue/detection_queue/claim", json!({}));
    s.post("queue/detection_queue/push", json!({"payloads": [3, 4]})).expect(429);
    assert_eq!(list(s, DETECTION), ["2"], "a part of it would fit");
    assert_eq!(kind(s, OVERFLOW), "none");
}

fn l143_dlq_moves_the_oldest(s: &Stage) {
    fill(s, "dlq");
    let told = push(s, DETECTION, json!(3));
    assert_eq!(
        (&told["accepted"], &told["moved_to_dlq"], &told["dropped"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!((list(s, OVERFLOW), list(s, DETECTION)), (vec!["1".into()], vec!["2".into(), "3".into()]));
}

/// Warnings of items that were dropped, by queue.
fn warnings(log: &str, queue: &str) -> Vec<String> {
    let about = format!("queue=\"{queue}\"");
    let lines =
        log.lines().filter(|line| line.contains("WARN") && line.contains("dropped") && line.contains(&about));
    lines.map(str::to_owned).collect()
}

fn l144_drop_oldest_warns_and_trims(s: &Stage) {
    // A worker's answers go into the next queue.
    let detector = Service::that_answers("200 OK", "9");
    s.var("DETECTOR_URL", &detector.url);
    s.amend("cameras", "result_to = \"batch.camera\"", "result_to = \"queue.analysis_queue\"");
    fill(s, "drop_oldest");
    assert_eq!(warnings(&s.log(), DETECTION), [""; 0]);
    assert_eq!(push(s, DETECTION, json!(3))["dropped"], 1);
    assert_eq!((list(s, DETECTION), kind(s, OVERFLOW)), (vec!["2".into(), "3".into()], "none".into()));
    s.until("a warning", || warnings(&s.log(), DETECTION).len() == 1);
    assert!(warnings(&s.log(), DETECTION)[0].contains("dropped=1"));
    s.ok("queue/analysis_queue/push", json!({"payloads": [1, 2]}));
    let _worker = work(s, DETECTION);
    s.until("both answers are queued", || list(s, ANALYSIS) == ["9", "9"]);
    s.until("the worker warns", || !warnings(&worker_log(s), ANALYSIS).is_empty());
    // A batch that closes is a job, too.
    s.ok("batch/camera/add", json!({"key": {"camera_id": "front_door"}, "item": 1}));
    s.ok("batch/camera/close", json!({"key": {"camera_id": "front_door"}}));
    assert_eq!(list(s, ANALYSIS).len(), 2);
    s.until("the server warns", || {
        warnings(&s.log(), ANALYSIS).iter().any(|line| line.contains("dropped=1"))
    });
}

fn l154_bounds_are_the_schemas(s: &Stage) {
    for field in ["max_size", "overflow_policy", "overflow"] {
        let body = json!({"payload": 1, field: if field == "max_size" { json!(1) } else { json!("dlq") }});
        let refused = s.post("queue/detection_queue/push", body).expect(400);
        assert_eq!((&refused["code"], &refused["field"]), (&json!("request.field"), &json!(field)));
    }
    assert_eq!(kind(s, DETECTION), "none", "nothing was pushed");
    let longer = json!({"key": {"key": "a"}, "value": 1, "ttl_ms": 3_600_001});
    assert_eq!(s.post("cache/key/put", longer).expect(422)["field"], "ttl_ms");
    assert_eq!(kind(s, "cache:a"), "none");
}

fn l157_push_tells_success_length_and_moved(s: &Stage) {
    fill(s, "dlq");
    assert_eq!(
        push(s, DETECTION, json!(3)),
        json!({"accepted": 1, "queue_length": 2, "moved_to_dlq": 1, "dropped": 0})
    );
    let many = s.ok("queue/detection_queue/push", json!({"payloads": [4, 5]}));
    assert_eq!((&many["accepted"], &many["moved_to_dlq"]), (&json!(2), &json!(2)));
    s.kill();
    s.var("QUEUE_OVERFLOW_POLICY", "reject");
    let refused = s.post("queue/detection_queue/push", json!({"payload": 6})).expect(429);
    assert_eq!(refused["code"], "queue.full", "no success, with the reason");
    let said = s.cli(&["queue", "push", DETECTION, "--payload", "6", "--json"]);
    assert_eq!((said.code, &said.json()["code"]), (1, &json!("queue.full")), "{said:?}");
}

cases! {
    l126_overflow_has_a_list
    l142_reject_adds_nothing
    l143_dlq_moves_the_oldest
    l144_drop_oldest_warns_and_trims
    l154_bounds_are_the_schemas
    l157_push_tells_success_length_and_moved
}
