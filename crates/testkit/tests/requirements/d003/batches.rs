//! A batch's keys, its end, and the images that are known.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{ANALYSIS, DETECTION, NOW, kind, list, parsed};

const CURRENT: &str = "batch:front_door:current";

/// Adds a detection of the front door; the batch's id.
fn detect(s: &Stage, id: u64) -> String {
    let added = s.ok("batch/camera/add", json!({"key": {"camera_id": "front_door"}, "item": id}));
    added["batch_id"].as_str().unwrap().to_owned()
}

/// A documented key that lives for an hour; its text.
fn hourly(s: &Stage, key: &str) -> String {
    assert_eq!(kind(s, key), "string", "{key}");
    s.lives(key, 3600);
    s.text(key).unwrap()
}

/// A time of the store, `ago` seconds before now.
fn assert_float(s: &Stage, text: &str, ago: f64) {
    let (told, now) = (text.parse::<f64>().unwrap(), s.clock().now_us() as f64 / 1e6 - ago);
    assert!(text.contains('.'), "{text} is no fraction of seconds");
    let off = now - told;
    assert!(
        if s.store() == Store::Redis { off.abs() < 1e-6 } else { (0.0..60.0).contains(&off) },
        "{text}, not {now}"
    );
}

fn l170_current_batch_of_a_camera(s: &Stage) {
    let id = detect(s, 1);
    assert_eq!(hourly(s, CURRENT), id);
    assert_eq!(detect(s, 2), id, "the second detection is in the same batch");
    s.ok("batch/camera/close", json!({"key": {"camera_id": "front_door"}}));
    assert_eq!(s.text(CURRENT), None);
}

fn l171_camera_of_a_batch(s: &Stage) {
    let id = detect(s, 1);
    assert_eq!(hourly(s, &format!("batch:{id}:camera_id")), "front_door");
}

fn l172_detections_of_a_batch(s: &Stage) {
    let key = format!("batch:{}:detections", detect(s, 1));
    assert_eq!(parsed(&hourly(s, &key)), json!([1]));
    detect(s, 2);
    assert_eq!(parsed(&s.text(&key).unwrap()), json!([1, 2]), "in the order in which they came");
}

fn l173_start_of_a_batch_is_a_float(s: &Stage) {
    let key = format!("batch:{}:started_at", detect(s, 1));
    let started = hourly(s, &key);
    assert_float(s, &started, 0.0);
    assert!((NOW..NOW + 60.0).contains(&started.parse().unwrap()), "{started}");
    s.pass(10_000);
    detect(s, 2);
    assert_eq!(s.text(&key).unwrap(), started, "the first detection began it");
}

fn l174_last_activity_of_a_batch_is_a_float(s: &Stage) {
    let key = format!("batch:{}:last_activity", detect(s, 1));
    let first = hourly(s, &key);
    assert_float(s, &first, 0.0);
    s.pass(10_000);
    detect(s, 2);
    let second = s.text(&key).unwrap();
    assert_float(s, &second, 0.0);
    let apart = second.parse::<f64>().unwrap() - first.parse::<f64>().unwrap();
    assert!((10.0..60.0).contains(&apart), "{first} {second}");
}

fn queued(s: &Stage) -> Vec<Value> {
    list(s, ANALYSIS).iter().map(|item| parsed(item)["detection_ids"].take()).collect()
}

fn l184_a_batch_ends_by_window_or_silence(s: &Stage) {
    // Silence: open after 20 s, over after 30.
    detect(s, 1);
    s.pass(20_000);
    let open = s.get("/v1/batch/camera/list").expect(200);
    let left = open["batches"][0]["closes_in_ms"].as_u64().unwrap();
    assert!(left <= 10_000 && (s.store() == Store::Embedded || left == 10_000), "{open}");
    s.pass(10_000);
    s.until("the silence ends it", || queued(s) == [json!([1])]);
    // A detection every 18 s: never silent, and over 90 s after the first.
    let id = detect(s, 2);
    for n in 3..=6 {
        s.pass(18_000);
        assert_eq!(detect(s, n), id);
    }
    s.pass(18_000);
    s.until("the window ends it", || queued(s) == [json!([1]), json!([2, 3, 4, 5, 6])]);
    assert_ne!(detect(s, 7), id);
}

fn l185_an_ended_batch_is_queued_and_cleaned(s: &Stage) {
    let id = detect(s, 1);
    let own =
        ["camera_id", "detections", "started_at", "last_activity"].map(|field| format!("batch:{id}:{field}"));
    let keys: Vec<&str> = own.iter().map(String::as_str).chain([CURRENT]).collect();
    assert!(keys.iter().all(|key| kind(s, key) == "string"));
    s.pass(30_000);
    s.until("it is queued", || queued(s) == [json!([1])]);
    for key in keys {
        assert_eq!(kind(s, key), "none", "{key}");
    }
    s.pass(90_000);
    s.ok("batch/camera/sweep", json!({}));
    assert_eq!(queued(s).len(), 1, "once");
}

const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const PATH: &str = "/export/foscam/Front Door/image_001.jpg";

fn first(s: &Stage, path: &str) -> Value {
    s.ok("dedupe/image/first", json!({"key": {"sha256_hash": HASH}, "value": path}))
}

fn l199_dedupe_key_has_path_and_ttl(s: &Stage) {
    let key = format!("dedupe:{HASH}");
    assert_eq!(first(s, PATH)["first"], true);
    assert_eq!((kind(s, &key), s.text(&key)), ("string".to_owned(), Some(PATH.to_owned())));
    s.lives(&key, 300);
    assert_eq!(first(s, "/copy.jpg"), json!({"first": false, "value": PATH}));
    s.pass(300_001);
    assert_eq!(s.text(&key), None);
    s.kill();
    s.var("DEDUPE_TTL_SECONDS", "60");
    assert_eq!(first(s, "/copy.jpg")["first"], true);
    s.lives(&key, 60);
}

fn l212_looking_and_marking_are_one_step(s: &Stage) {
    s.var("QUEUE_MAX_SIZE", "1");
    let key = format!("dedupe:{HASH}");
    let dedupe = json!({"name": "image", "key": {"sha256_hash": HASH}, "value": PATH});
    let deduped = |n: u32| s.post("queue/detection_queue/push", json!({"payload": n, "dedupe": dedupe}));
    s.ok("queue/detection_queue/push", json!({"payload": "other"}));
    assert_eq!(deduped(1).expect(429)["code"], "queue.full");
    assert_eq!(s.text(&key), None, "not queued, so not marked");
    s.ok("queue/detection_queue/claim", json!({}));
    assert_eq!(deduped(2).expect(200)["accepted"], 1);
    assert_eq!((s.text(&key).as_deref(), list(s, DETECTION)), (Some(PATH), vec!["2".to_owned()]));
    s.ok("queue/detection_queue/claim", json!({}));
    let again = deduped(3).expect(200);
    assert_eq!((&again["duplicate"], &again["accepted"]), (&json!(true), &json!(0)));
    // What a program of the document marked holds us off.
    s.raw::<()>(&["SET", "dedupe:theirs", "/theirs.jpg", "EX", "300"]);
    let theirs = s.ok("dedupe/image/first", json!({"key": {"sha256_hash": "theirs"}}));
    assert_eq!(theirs, json!({"first": false, "value": "/theirs.jpg"}));
}

cases! {
    l170_current_batch_of_a_camera
    l171_camera_of_a_batch
    l172_detections_of_a_batch
    l173_start_of_a_batch_is_a_float
    l174_last_activity_of_a_batch_is_a_float
    l184_a_batch_ends_by_window_or_silence
    l185_an_ended_batch_is_queued_and_cleaned
    l199_dedupe_key_has_path_and_ttl
    l212_looking_and_marking_are_one_step
}
