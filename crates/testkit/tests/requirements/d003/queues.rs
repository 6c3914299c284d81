//! The two queues: their lists, items, bounds and pressure.

use quaymaster_testkit::foreign::{Foreign, Language};
use quaymaster_testkit::stage::{Ask, Stage, Store};
use serde_json::{Value, json};

use super::{
    ANALYSIS, DETECTION, IMAGE, ack, assert_moment, claim, claimable, fields, kind, list, parsed, pressure,
    push,
};

fn l029_detection_queue_is_a_fifo_list(s: &Stage) {
    for n in 1..=3 {
        push(s, DETECTION, json!({"n": n}));
    }
    assert_eq!(kind(s, DETECTION), "list");
    assert_eq!(list(s, DETECTION), [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    for n in 1..=3 {
        assert_eq!(claim(s, DETECTION)["payload"]["n"], n, "the oldest first");
    }
}

fn l037_another_program_pushes(s: &Stage) {
    s.address();
    if s.store() == Store::Redis {
        for language in Language::ALL {
            Foreign::start(language, &s.url()).push(DETECTION, &[parsed(IMAGE)]);
        }
    } else {
        for _ in Language::ALL {
            s.raw::<i64>(&["RPUSH", DETECTION, IMAGE]);
        }
    }
    for _ in Language::ALL {
        let job = claim(s, DETECTION);
        assert_eq!((&job["payload"], &job["attempt"]), (&parsed(IMAGE), &json!(1)));
        assert_eq!(ack(s, DETECTION, &job)["acked"], 1);
    }
    assert_eq!(claimable(s, DETECTION), 0);
}

/// `BLPOP` of another program, or the same on a store that has no such programs.
fn pop(s: &Stage) -> Value {
    match s.store() {
        Store::Redis => Foreign::start(Language::Python, &s.url()).pop(DETECTION).0,
        Store::Embedded => parsed(&s.raw::<String>(&["LPOP", DETECTION])),
    }
}

fn l038_a_claim_is_a_lease(s: &Stage) {
    push(s, DETECTION, json!({"n": 1}));
    push(s, DETECTION, json!({"n": 2}));
    let stale = claim(s, DETECTION);
    assert_eq!(stale["payload"]["n"], 1);
    assert_eq!(list(s, DETECTION), [r#"{"n":2}"#], "nobody else finds it in the list");
    assert_eq!(pop(s)["n"], 2, "a consumer of the document takes what waits");
    // The claim's owner dies, and nobody acks.
    s.pass(30_001);
    let again = claim(s, DETECTION);
    assert_eq!((&again["payload"]["n"], &again["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(ack(s, DETECTION, &stale)["lost"], 1);
    assert_eq!(ack(s, DETECTION, &again)["acked"], 1);
    s.pass(30_001);
    assert_eq!(claimable(s, DETECTION), 0, "what was popped is its consumer's, what was acked is gone");
}

fn l042_detection_item_is_kept_byte_for_byte(s: &Stage) {
    // As a program of another language spells it.
    let spaced = IMAGE.replace("\":", "\": ").replace(',', ", ").replace("Front", "Fr\\u00f6nt");
    for item in [IMAGE, &spaced] {
        let body = format!(r#"{{"payload": {item}}}"#);
        s.ask(&Ask::new("POST", "/v1/queue/detection_queue/push").json(&body)).expect(200);
        assert_eq!(list(s, DETECTION), [item]);
        let claimed = s.post("queue/detection_queue/claim", json!({}));
        assert!(claimed.text().contains(item), "{}", claimed.text());
    }
    let declared = s.cli(&["docs"]).out;
    for field in ["camera_id", "file_path", "timestamp"] {
        assert!(declared.contains(&format!("`{field}`")), "{field} is not in the schema's pages");
    }
}

fn l054_queue_size_is_bounded(s: &Stage) {
    let all: Vec<u32> = (0..10_000).collect();
    assert_eq!(s.ok("queue/detection_queue/push", json!({"payloads": all}))["queue_length"], 10_000);
    let refused = s.post("queue/detection_queue/push", json!({"payload": 1})).expect(429);
    assert_eq!(refused["code"], "queue.full");
    assert_eq!(s.raw::<i64>(&["LLEN", DETECTION]), 10_000);
    s.kill();
    s.var("QUEUE_MAX_SIZE", "1");
    push(s, ANALYSIS, json!(1));
    for queue in [DETECTION, ANALYSIS] {
        s.post(&format!("queue/{queue}/push"), json!({"payload": 1})).expect(429);
        assert_eq!(pressure(s, queue)["max_size"], 1);
    }
}

fn l055_overflow_policy_is_a_variable(s: &Stage) {
    assert_eq!(pressure(s, DETECTION)["overflow_policy"], "reject");
    // The document has them in both spellings.
    for policy in ["dlq", "drop_oldest", "reject", "DLQ", "DROP_OLDEST", "REJECT"] {
        s.kill();
        s.var("QUEUE_OVERFLOW_POLICY", policy);
        for queue in [DETECTION, ANALYSIS] {
            assert_eq!(pressure(s, queue)["overflow_policy"], policy.to_lowercase());
        }
    }
    s.kill();
    s.var("QUEUE_OVERFLOW_POLICY", "drop");
    let said = s.cli(&["check"]);
    assert!(said.code == 1 && said.out.contains("drop_oldest"), "{said:?}");
}

fn l056_pressure_begins_at_a_threshold(s: &Stage) {
    s.var("QUEUE_MAX_SIZE", "10");
    s.ok("queue/detection_queue/push", json!({"payloads": [1, 2, 3, 4, 5, 6, 7]}));
    assert_eq!(pressure(s, DETECTION)["is_at_pressure_threshold"], false);
    push(s, DETECTION, json!(8));
    assert_eq!(pressure(s, DETECTION)["is_at_pressure_threshold"], true);
    assert_eq!(s.metric(r#"quaymaster_queue_at_pressure{queue="detection_queue"}"#), Some(1.0));
    s.kill();
    s.var("QUEUE_BACKPRESSURE_THRESHOLD", "0.9");
    assert_eq!(pressure(s, DETECTION)["is_at_pressure_threshold"], false);
}

fn l062_analysis_queue_has_its_item(s: &Stage) {
    let added = s.ok("batch/camera/add", json!({"key": {"camera_id": "front_door"}, "item": 1}));
    s.ok("batch/camera/add", json!({"key": {"camera_id": "front_door"}, "item": 2}));
    s.ok("batch/camera/close", json!({"key": {"camera_id": "front_door"}}));
    push(s, ANALYSIS, json!("later"));
    assert_eq!(kind(s, ANALYSIS), "list");
    let item = parsed(&list(s, ANALYSIS)[0]);
    assert_eq!(fields(&item), ["batch_id", "camera_id", "detection_ids", "ended_at", "started_at"]);
    assert_eq!(item["batch_id"], added["batch_id"]);
    assert_eq!((&item["camera_id"], &item["detection_ids"]), (&json!("front_door"), &json!([1, 2])));
    assert_moment(&item["started_at"]);
    assert_moment(&item["ended_at"]);
    assert_eq!(claim(s, ANALYSIS)["payload"], item, "the oldest first");
}

fn l426_pressure_has_six_fields(s: &Stage) {
    s.var("QUEUE_MAX_SIZE", "4");
    s.ok("queue/detection_queue/push", json!({"payloads": [1, 2, 3]}));
    let told = pressure(s, DETECTION);
    let documented = |told: &Value| {
        let names = [
            "current_length",
            "max_size",
            "fill_ratio",
            "is_at_pressure_threshold",
            "is_full",
            "overflow_policy",
        ];
        Value::from(names.map(|name| told[name].clone()).to_vec())
    };
    assert_eq!(documented(&told), json!([3, 4, 0.75, false, false, "reject"]));
    push(s, DETECTION, json!(4));
    assert_eq!(documented(&pressure(s, DETECTION)), json!([4, 4, 1.0, true, true, "reject"]));
    let said = s.cli(&["queue", "pressure", DETECTION, "--json"]);
    assert_eq!(documented(&said.json()), json!([4, 4, 1.0, true, true, "reject"]));
}

cases! {
    l029_detection_queue_is_a_fifo_list
    l037_another_program_pushes
    l038_a_claim_is_a_lease
    l042_detection_item_is_kept_byte_for_byte
    l054_queue_size_is_bounded
    l055_overflow_policy_is_a_variable
    l056_pressure_begins_at_a_threshold
    l062_analysis_queue_has_its_item
    l426_pressure_has_six_fields
}
