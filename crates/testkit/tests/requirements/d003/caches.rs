//! Limits of addresses, cached values, and the keys' names.

use quaymaster_testkit::stage::{Ask, Stage, Store};
use serde_json::{Value, json};

use super::{NOW, fail, kind, push};

fn put(s: &Stage, value: Value) -> Value {
    s.ok("cache/key/put", json!({"key": {"key": "key"}, "value": value}))
}

fn look_up(s: &Stage) -> Value {
    s.get("/v1/cache/key/get?key.key=key").expect(200)
}

fn l326_rate_limit_is_a_sorted_set(s: &Stage) {
    let key = "ratelimit:api:192.168.1.1";
    let take =
        || s.ok("limit/endpoint/take", json!({"key": {"endpoint": "api", "client_ip": "192.168.1.1"}}));
    for used in 1..=60 {
        assert_eq!(take()["used"], used, "two requests of one moment are two");
    }
    assert_eq!((take()["allowed"].as_bool(), kind(s, key).as_str()), (Some(false), "zset"));
    assert_eq!(s.raw::<i64>(&["ZCARD", key]), 60, "a refused request is not counted");
    let members: Vec<String> = s.raw(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
    for score in members.iter().skip(1).step_by(2) {
        let seconds = score.parse::<f64>().unwrap() / 1e3;
        let most = if s.store() == Store::Redis { 0.0 } else { 60.0 };
        assert!((NOW..=NOW + most).contains(&seconds), "{score} is no moment of now");
    }
    s.lives(key, 60);
    s.pass(60_001);
    assert_eq!(take()["used"], 1);
    let ipv6 = json!({"key": {"endpoint": "api", "client_ip": "2001:db8::1"}});
    assert_eq!(s.ok("limit/endpoint/take", ipv6)["used"], 1);
    assert_eq!(kind(s, "ratelimit:api:2001:db8::1"), "zset");
}

fn l342_set_with_expiry(s: &Stage) {
    assert_eq!(put(s, json!({"data": "value"}))["stored"], true);
    assert_eq!(s.text("cache:key").as_deref(), Some(r#"{"data":"value"}"#));
    s.lives("cache:key", 3600);
    s.ok("cache/key/put", json!({"key": {"key": "key"}, "value": 1, "ttl_ms": 90_000}));
    s.lives("cache:key", 90);
    s.pass(90_001);
    assert_eq!(look_up(s), json!({"hit": false}));
}

fn l345_set_if_absent(s: &Stage) {
    for stored in [true, false] {
        let told = s.ok("cache/key/put", json!({"key": {"key": "key"}, "value": stored, "if_absent": true}));
        assert_eq!(told["stored"], stored);
    }
    assert_eq!(s.text("cache:key").as_deref(), Some("true"), "the second one changes nothing");
    let theirs = || s.raw::<Option<String>>(&["SET", "lock:key", "1", "NX", "EX", "30"]);
    let acquire = || s.ok("lock/key/acquire", json!({"key": {"key": "key"}}));
    assert!(theirs().is_some());
    assert_eq!(acquire()["outcome"], "held", "another program's lock holds us off");
    s.pass(30_001);
    assert_eq!(acquire()["outcome"], "ours");
    s.lives("lock:key", 30);
    assert_eq!(theirs(), None, "and ours holds it off");
}

fn l348_get_reads_json(s: &Stage) {
    for value in [json!({"data": "value"}), json!(42), json!("42"), json!([1, null, {"a": 1.5}]), json!(true)]
    {
        put(s, value.clone());
        assert_eq!(look_up(s), json!({"hit": true, "value": value}));
        assert_eq!(s.text("cache:key").as_deref(), Some(value.to_string().as_str()), "as json.dumps has it");
    }
    s.raw::<()>(&["SET", "cache:key", r#"{"data": "theirs"}"#]);
    assert_eq!(look_up(s)["value"], json!({"data": "theirs"}));
    s.raw::<()>(&["SET", "cache:key", "no JSON"]);
    assert_eq!(look_up(s)["value"], "no JSON");
    let said = s.cli(&["cache", "get", "key", "--key", "key=key", "--json"]);
    assert_eq!(said.json()["value"], "no JSON");
}

fn l351_delete_a_key(s: &Stage) {
    put(s, json!(1));
    let delete = || s.ok("cache/key/delete", json!({"key": {"key": "key"}}));
    assert_eq!(delete(), json!({"deleted": true}));
    assert_eq!((kind(s, "cache:key").as_str(), look_up(s)), ("none", json!({"hit": false})));
    assert_eq!(delete(), json!({"deleted": false}));
}

fn l354_a_key_exists_or_not(s: &Stage) {
    let exists = || s.get("/v1/cache/key/exists?key.key=key").expect(200)["exists"].as_bool().unwrap();
    assert!(!exists());
    put(s, json!(null));
    assert!(exists(), "also with nothing in it");
    s.raw::<i64>(&["DEL", "cache:key"]);
    assert!(!exists());
}

/// Makes a key of each row of the document's table by the calls that make it.
fn make_every_key(s: &Stage) -> String {
    s.var("QUEUE_MAX_SIZE", "2");
    s.var("QUEUE_OVERFLOW_POLICY", "dlq");
    s.ok("queue/detection_queue/push", json!({"payloads": [1, 2]}));
    push(s, "detection_queue", json!(3));
    let job = super::claim(s, "detection_queue");
    s.ok("queue/detection_queue/nack", json!({"lease": job["lease"], "error": "broken", "dead": true}));
    fail(s, "detection_queue", "broken");
    push(s, "detection_queue", json!(4));
    s.ok("dedupe/image/first", json!({"key": {"sha256_hash": "a1b2c3d4"}}));
    s.ok("cache/camera/put", json!({"key": {"namespace": "camera", "key": "front_door"}, "value": 1}));
    s.ok("limit/endpoint/take", json!({"key": {"endpoint": "api", "client_ip": "192.168.1.1"}}));
    let added = s.ok("batch/camera/add", json!({"key": {"camera_id": "front_door"}, "item": 1}));
    added["batch_id"].as_str().unwrap().to_owned()
}

fn l444_keys_follow_the_naming_table(s: &Stage) {
    let id = make_every_key(s);
    let detections = format!("batch:{id}:detections");
    let table = [
        ("detection_queue", "queue", "detection_queue"),
        ("dlq:detection_queue", "queue", "detection_queue"),
        ("dlq:overflow:detection_queue", "queue", "detection_queue"),
        ("batch:front_door:current", "batch", "camera"),
        (&detections, "batch", "camera"),
        ("dedupe:a1b2c3d4", "dedupe", "image"),
        ("cache:camera:front_door", "cache", "camera"),
        ("ratelimit:api:192.168.1.1", "limit", "endpoint"),
    ];
    for (key, kind, name) in table {
        let ask = Ask::new("GET", &format!("/v1/key/explain?key={key}"));
        let told = s.ask(&ask).expect(200);
        assert_eq!((&told["kind"], &told["name"]), (&json!(kind), &json!(name)), "{key}");
        assert_eq!(told["actual"]["exists"], true, "{key}: {told}");
        assert_eq!(told["actual"]["type"], told["type"], "{key}");
    }
}

cases! {
    l326_rate_limit_is_a_sorted_set
    l342_set_with_expiry
    l345_set_if_absent
    l348_get_reads_json
    l351_delete_a_key
    l354_a_key_exists_or_not
    l444_keys_follow_the_naming_table
}
