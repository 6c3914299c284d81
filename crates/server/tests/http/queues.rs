//! The calls on queues over HTTP.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::{Value, json};

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

async fn post(server: &Fixture, queue: &str, verb: &str, body: &str) -> Value {
    let answer = server.post(&format!("/v1/queue/{queue}/{verb}"), body).await;
    assert_eq!(answer.status, 200, "{verb} {body}: {}", answer.json());
    answer.json()
}

async fn get(server: &Fixture, path: &str) -> Value {
    let answer = server.get(&format!("/v1/queue/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
    answer.json()
}

async fn claim(server: &Fixture, body: &str) -> Vec<Value> {
    post(server, "jobs", "claim", body).await["jobs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn jobs_are_pushed_claimed_extended_and_acked() {
    let server = Fixture::start().await;
    let one = post(&server, "jobs", "push", r#"{"payload":{"n":1}}"#).await;
    assert_eq!(one, json!({"accepted": 1, "queue_length": 1, "moved_to_dlq": 0, "dropped": 0}));
    let many = post(&server, "jobs", "push", r#"{"payloads":[2,"three",null]}"#).await;
    assert_eq!(many["queue_length"], 4);
    let jobs = claim(&server, r#"{"count":2,"worker":"w1","lease_ms":5000}"#).await;
    assert_eq!((&jobs[0]["payload"], &jobs[1]["payload"]), (&json!({"n": 1}), &json!(2)));
    let job = &jobs[0];
    assert_eq!((&job["attempt"], &job["lease_expires_in_ms"]), (&json!(1), &json!(5000)));
    let lease = job["lease"].as_str().unwrap();
    assert!(lease.starts_with(&format!("{}.1.", job["id"].as_str().unwrap())), "{job}");
    let extend = format!(r#"{{"lease":"{lease}","lease_ms":9000}}"#);
    let ours = json!({"outcome": "ours", "lease_expires_in_ms": 9000});
    assert_eq!(post(&server, "jobs", "extend", &extend).await, ours);
    let ack = format!(r#"{{"leases":["{lease}",{}],"claim":{{"count":5}}}}"#, jobs[1]["lease"]);
    let acked = post(&server, "jobs", "ack", &ack).await;
    assert_eq!((&acked["acked"], &acked["lost"]), (&json!(2), &json!(0)));
    let payloads: Vec<&Value> = acked["jobs"].as_array().unwrap().iter().map(|job| &job["payload"]).collect();
    assert_eq!(payloads, [&json!("three"), &Value::Null]);
    let plain = format!(r#"{{"leases":["{lease}"]}}"#);
    assert_eq!(post(&server, "jobs", "ack", &plain).await, json!({"acked": 0, "lost": 1}));
    assert_eq!(post(&server, "jobs", "extend", &extend).await, json!({"outcome": "lost"}));
}

/// Typed clients send every field they know of.
#[tokio::test]
async fn a_field_that_is_null_is_one_that_is_not_there() {
    let server = Fixture::start().await;
    let rest = r#""priority":null,"delay_ms":null,"id":null,"dedupe":null,"request_id":null"#;
    let length = async |payload: &str| post(&server, "jobs", "push", &format!("{{{payload},{rest}}}")).await;
    assert_eq!(length(r#""payload":1,"payloads":null"#).await["queue_length"], 1);
    assert_eq!(length(r#""payload":null,"payloads":[2,3]"#).await["queue_length"], 3);
    assert_eq!(length(r#""payload":null,"payloads":null"#).await["queue_length"], 4, "null is a job");
    let none = r#"{"count":null,"lease_ms":null,"wait_ms":null,"worker":null,"request_id":null}"#;
    let jobs = claim(&server, none).await;
    let ack = format!(r#"{{"leases":[{}],"then":null,"claim":null,"request_id":null}}"#, jobs[0]["lease"]);
    assert_eq!(post(&server, "jobs", "ack", &ack).await, json!({"acked": 1, "lost": 0}));
    let both = server.post("/v1/queue/jobs/push", r#"{"payload":1,"payloads":[2]}"#).await;
    assert_eq!((both.status, &both.json()["field"]), (400, &json!("payloads")));
}

/// What is stored is what was written: order of fields, white space inside, numbers no float can hold.
#[tokio::test]
async fn a_payload_is_kept_as_it_was_written() {
    let server = Fixture::start().await;
    let payload = r#"{"z": 1.10,  "a":[ 12345678901234567890123 , "\u00e9\/"]}"#;
    post(&server, "jobs", "push", &format!("{{\"payload\" : \n {payload} \n}}")).await;
    let answer = server.get("/v1/queue/jobs/peek").await;
    assert_eq!(answer.text(), format!("{{\"items\":[{payload}]}}"));
    let claimed = server.post("/v1/queue/jobs/claim", "").await;
    assert!(claimed.text().contains(payload), "{}", claimed.text());
}

#[tokio::test]
async fn failures_come_again_or_are_listed_redriven_and_purged() {
    let server = Fixture::start().await;
    post(&server, "jobs", "push", r#"{"payloads":[1,2,3]}"#).await;
    let jobs = claim(&server, r#"{"count":3}"#).await;
    let nack = format!(r#"{{"lease":{},"error":"boom"}}"#, jobs[0]["lease"]);
    let told = post(&server, "jobs", "nack", &nack).await;
    assert_eq!(told, json!({"outcome": "retry", "attempt": 1, "retry_in_ms": 1000}));
    assert_eq!(post(&server, "jobs", "nack", &nack).await, json!({"outcome": "lost"}));
    for job in &jobs[1..] {
        let nack = format!(r#"{{"lease":{},"error":"no way","dead":true}}"#, job["lease"]);
        assert_eq!(post(&server, "jobs", "nack", &nack).await, json!({"outcome": "dead", "attempt": 1}));
    }
    let dead = get(&server, "jobs/dead?count=1&offset=1").await;
    let moment = "2026-11-15T12:00:20.000000";
    assert_eq!(
        dead,
        json!({"length": 2, "items": [{"original_job": 3, "error": "no way", "attempt_count": 1,
            "first_failed_at": moment, "last_failed_at": moment, "queue_name": "jobs"}]})
    );
    let pressure = get(&server, "jobs/pressure").await;
    let depths = ["current_length", "leased", "delayed", "dead"].map(|name| pressure[name].as_u64().unwrap());
    assert_eq!(depths, [0, 0, 1, 2]);
    let moved = post(&server, "jobs", "redrive", r#"{"count":1}"#).await;
    assert_eq!(moved, json!({"moved": 1, "left": 0, "full": false}));
    assert_eq!(post(&server, "jobs", "purge", r#"{"older_than_ms":1000}"#).await, json!({"removed": 0}));
    assert_eq!(post(&server, "jobs", "purge", "{}").await, json!({"removed": 1}));
    assert_eq!(claim(&server, "{}").await[0]["payload"], 2, "the redriven one");
}

#[tokio::test]
async fn a_full_queue_is_429_and_nothing_is_added() {
    let server = Fixture::start().await;
    post(&server, "tiny", "push", r#"{"payload":1}"#).await;
    let full = server.post("/v1/queue/tiny/push", r#"{"payloads":[2,3]}"#).await;
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue.full")));
    assert!(full.header("retry-after").is_some() && full.json()["retry_after_ms"].is_u64());
    let pressure = get(&server, "tiny/pressure").await;
    assert_eq!((&pressure["current_length"], &pressure["is_full"]), (&json!(1), &json!(false)));
    // An ack whose result does not fit is refused whole, and can be tried again.
    post(&server, "jobs", "push", r#"{"payload":"j"}"#).await;
    let lease = claim(&server, "{}").await[0]["lease"].clone();
    let then = json!([{"call": "queue.push", "name": "tiny", "payload": 1}, {"call": "queue.push", "name": "tiny", "payload": 2}]);
    let ack = json!({"leases": [lease], "then": then}).to_string();
    let full = server.post("/v1/queue/jobs/ack", &ack).await;
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue.full")));
    post(&server, "tiny", "claim", "{}").await;
    assert_eq!(post(&server, "jobs", "ack", &ack).await, json!({"acked": 1, "lost": 0}));
    assert_eq!(get(&server, "tiny/peek").await, json!({"items": [1, 2]}));
}

#[tokio::test]
async fn ids_dedupes_and_request_ids_make_a_push_harmless_to_repeat() {
    let server = Fixture::start().await;
    for (body, accepted) in [
        (r#"{"payload":1,"id":"a"}"#, 1),
        (r#"{"payload":1,"id":"a"}"#, 0),
        (r#"{"payload":2,"dedupe":{"name":"image","key":{"id":7},"value":"/1.jpg"}}"#, 1),
        (r#"{"payload":2,"dedupe":{"name":"image","key":{"id":"7"}}}"#, 0),
    ] {
        let told = post(&server, "jobs", "push", body).await;
        assert_eq!(told["accepted"], accepted, "{body}");
        assert_eq!(told.get("duplicate"), (accepted == 0).then_some(&json!(true)), "{body}");
    }
    let first = post(&server, "jobs", "push", r#"{"payload":3,"request_id":"r"}"#).await;
    assert_eq!(post(&server, "jobs", "push", r#"{"payload":3,"request_id":"r"}"#).await, first);
    assert_eq!(get(&server, "jobs/pressure").await["current_length"], 3);
    let seen = server.post("/v1/dedupe/image/first", r#"{"key":{"id":"7"}}"#).await.json();
    assert_eq!(seen, json!({"first": false, "value": "/1.jpg"}));
    let jobs = claim(&server, r#"{"request_id":"c"}"#).await;
    assert_eq!(claim(&server, r#"{"request_id":"c"}"#).await, jobs);
}

#[tokio::test]
async fn priorities_come_highest_first_and_oldest_first_among_equals() {
    let server = Fixture::start().await;
    for (payload, priority) in [("low", "-1.5"), ("a", "2"), ("b", "2"), ("top", "1e3")] {
        let body = format!(r#"{{"payload":"{payload}","priority":{priority}}}"#);
        post(&server, "ranked", "push", &body).await;
    }
    let items = get(&server, "ranked/peek").await;
    assert_eq!(items, json!({"items": ["top", "a", "b", "low"]}));
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_and_takes_everything() {
    let server = Fixture::start().await;
    assert_eq!(post(&server, "jobs", "pause", "").await, json!({"paused": true}));
    post(&server, "jobs", "push", r#"{"payload":1}"#).await;
    assert!(claim(&server, "{}").await.is_empty());
    assert_eq!(get(&server, "jobs/pressure").await["paused"], true);
    assert_eq!(post(&server, "jobs", "resume", "{}").await, json!({"paused": false}));
    assert_eq!(claim(&server, "{}").await.len(), 1);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Fixture::start().await;
    for (verb, body, status, field) in [
        ("push", "{}", 400, "payload"),
        ("push", r#"{"payload":1,"payloads":[2]}"#, 400, "payloads"),
        ("push", r#"{"payloads":[]}"#, 400, "payloads"),
        ("push", r#"{"payloads":{}}"#, 400, "payloads"),
        ("push", r#"{"payload":1,"priority":1}"#, 422, "priority"),
        ("push", r#"{"payload":1,"priority":"1"}"#, 400, "priority"),
        ("push", r#"{"payload":1,"delay_ms":-1}"#, 400, "delay_ms"),
        ("push", r#"{"payload":1,"delay_ms":99999999999999}"#, 400, "delay_ms"),
        ("push", r#"{"payload":1,"id":7}"#, 400, "id"),
        ("push", r#"{"payload":1,"id":""}"#, 400, "id"),
        ("push", r#"{"payload":1,"dedupe":7}"#, 400, "dedupe"),
        ("push", r#"{"payload":1,"dedupe":{"key":{}}}"#, 400, "dedupe.name"),
        ("push", r#"{"payload":1,"dedupe":{"name":"image","key":{"id":1.5}}}"#, 400, "dedupe.key.id"),
        ("push", r#"{"payload":1,"dedupe":{"name":"image","keys":{}}}"#, 400, "dedupe.keys"),
        ("push", r#"{"payload":1,"prio":1}"#, 400, "prio"),
        ("claim", r#"{"count":0}"#, 400, "count"),
        ("claim", r#"{"count":1001}"#, 400, "count"),
        ("claim", r#"{"count":"1"}"#, 400, "count"),
        ("claim", r#"{"lease_ms":0}"#, 400, "lease_ms"),
        ("claim", r#"{"wait_ms":3600001}"#, 400, "wait_ms"),
        ("claim", r#"{"worker":"a b"}"#, 400, "worker"),
        ("claim", r#"{"request_id":"a*"}"#, 400, "request_id"),
        ("ack", "{}", 400, "leases"),
        ("ack", r#"{"leases":"x"}"#, 400, "leases"),
        ("ack", r#"{"leases":[1]}"#, 400, "leases"),
        ("ack", r#"{"leases":["x"]}"#, 400, "leases"),
        ("ack", r#"{"leases":[],"claim":{"count":0}}"#, 400, "claim.count"),
        ("ack", r#"{"leases":[],"claim":{"cont":0}}"#, 400, "claim.cont"),
        ("ack", r#"{"leases":["1.1.x"],"then":{}}"#, 400, "then"),
        ("ack", r#"{"leases":["1.1.x"],"then":[7]}"#, 400, "then[0]"),
        ("ack", r#"{"leases":["1.1.x"],"then":[{}]}"#, 400, "then[0].call"),
        ("ack", r#"{"leases":["1.1.x"],"then":[{"call":"lock.acquire"}]}"#, 400, "then[0].call"),
        ("ack", r#"{"leases":["1.1.x"],"then":[{"call":"queue.push"}]}"#, 400, "then[0].name"),
        (
            "ack",
            r#"{"leases":["1.1.x"],"then":[{"call":"queue.push","name":"tiny"}]}"#,
            400,
            "then[0].payload",
        ),
        (
            "ack",
            r#"{"leases":["1.1.x"],"then":[{"call":"queue.push","name":"tiny","data":1}]}"#,
            400,
            "then[0].data",
        ),
        ("nack", r#"{"error":"e"}"#, 400, "lease"),
        ("nack", r#"{"lease":"1.1.x"}"#, 400, "error"),
        ("nack", r#"{"lease":"zzz","error":"e"}"#, 400, "lease"),
        ("nack", r#"{"lease":"1.1.x","error":"e","dead":1}"#, 400, "dead"),
        ("extend", "{}", 400, "lease"),
        ("extend", r#"{"lease":"1.1.x","lease_ms":0}"#, 400, "lease_ms"),
        ("redrive", r#"{"count":-1}"#, 400, "count"),
        ("purge", r#"{"older_than_ms":"1d"}"#, 400, "older_than_ms"),
        ("pause", r#"{"paused":true}"#, 400, "paused"),
    ] {
        let answer = server.post(&format!("/v1/queue/jobs/{verb}"), body).await;
        let told = answer.json();
        assert_eq!((answer.status, &told["field"]), (status, &json!(field)), "{verb} {body}: {told}");
    }
    for (query, field) in [
        ("peek?count=x", "count"),
        ("peek?count=0", "count"),
        ("dead?count=1001", "count"),
        ("dead?offset=-1", "offset"),
        ("pressure?x=1", "x"),
    ] {
        let answer = server.get(&format!("/v1/queue/jobs/{query}")).await;
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{query}");
    }
    let unknown = server.post("/v1/queue/job/push", r#"{"payload":1}"#).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("\"jobs\""));
    let elsewhere = server
        .post("/v1/queue/jobs/push", r#"{"payload":1,"dedupe":{"name":"nobody","key":{"id":"1"}}}"#)
        .await;
    assert_eq!(elsewhere.status, 404, "{}", elsewhere.json());
    assert_eq!(get(&server, "jobs/pressure").await["current_length"], 0, "nothing of it was added");
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_same_words_as_ever() {
    let server = Fixture::start().await;
    let then = |body: &str| ("ack", format!(r#"{{"leases":["1.1.x"],"then":[{body}]}}"#));
    let plain = |verb: &'static str, body: &str| (verb, body.to_owned());
    for ((verb, body), detail) in [
        (plain("push", "{}"), "payload is missing; give one, or a list as payloads"),
        (
            plain("push", r#"{"payload":1,"payloads":[2]}"#),
            "payload and payloads are both given; one of them is enough",
        ),
        (
            plain("push", r#"{"payload":1,"dedupe":{"key":{}}}"#),
            "dedupe.name is missing; it is a dedupe of the schema",
        ),
        (plain("push", r#"{"payload":1,"dedupe":[]}"#), "dedupe must be a JSON object, got a list"),
        (plain("ack", "{}"), "leases is missing; claim answered them"),
        (plain("ack", r#"{"leases":null}"#), "leases must be a list of strings, got null"),
        (plain("nack", r#"{"lease":null,"error":"e"}"#), "lease is missing; claim answered it"),
        (plain("nack", r#"{"lease":"1.1.x"}"#), "error is missing; say what went wrong"),
        (then("{}"), "then[0].call is missing"),
        (
            then(r#"{"call":"lock.acquire"}"#),
            "then[0].call: call \"lock.acquire\" is unknown; there are batch.add, event.publish, queue.push",
        ),
        (
            then(r#"{"call":"batch.add","payload":1}"#),
            "then[0].payload is no field of batch.add; there are key, item, id",
        ),
        (
            then(r#"{"call":"event.publish","name":"news","data":1,"key":{}}"#),
            "then[0].key is no field of event.publish; there are data",
        ),
        (then(r#"{"call":"batch.add","id":null}"#), "then[0].name is missing"),
        (then(r#"{"call":"batch.add","name":"camera"}"#), "then[0].item is missing"),
    ] {
        let told = server.post(&format!("/v1/queue/jobs/{verb}"), &body).await.json();
        assert_eq!(told["detail"], detail, "{verb} {body}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_413_and_told_where_the_bound_is_set() {
    let server = Fixture::start().await;
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1 << 20));
    let told = server.post("/v1/queue/jobs/push", &large).await;
    let detail = told.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(told.status, 413, "{detail}");
    assert!(detail.contains("1048576") && detail.contains("max_payload_bytes in [queues]"), "{detail}");
    // Fifty megabytes are refused by their announcement: not a byte of them is waited for.
    let mut connection = Connection::open(server.address).await;
    let head = request("POST", "/v1/queue/jobs/push", &[("content-type", "application/json")], b"");
    let head = String::from_utf8(head).unwrap().replace("content-length: 0", "content-length: 52428800");
    connection.send(head.as_bytes()).await;
    let told = connection.receive().await.unwrap();
    let detail = told.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!((told.status, &told.json()["code"]), (413, &json!("request.too_large")));
    assert!(detail.contains("4194304") && detail.contains("max_body_bytes in [server]"), "{detail}");
}

#[tokio::test]
async fn the_bound_on_bodies_can_be_set() {
    let server = Fixture::with(settings("[server]\nmax_body_bytes = \"1KiB\"", &|_| None).server).await;
    let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1024));
    assert_eq!(server.post("/v1/queue/jobs/push", &body).await.status, 413);
    let other = Fixture::with(settings("[server]\nmax_body_bytes = \"2KiB\"", &|_| None).server).await;
    assert_eq!(other.post("/v1/queue/jobs/push", &body).await.status, 200);
}

/// `zrangebyscore` and `zremrangebyscore` of the documents.
#[tokio::test]
async fn items_of_a_priority_queue_are_listed_and_deleted_by_score() {
    let server = Fixture::start().await;
    for (payload, priority) in [(r#"{"a":1}"#, 5), (r#""b""#, -2), ("3", 9)] {
        post(&server, "ranked", "push", &format!(r#"{{"payload":{payload},"priority":{priority}}}"#)).await;
    }
    for (score, member) in [(b"7".as_slice(), b"item_id".as_slice()), (b"inf", b"\xff")] {
        command(&*server.engine, b"ranked", &[b"ZADD", b"ranked", score, member]).await.unwrap();
    }
    let items = json!([
        {"priority": -2.0, "payload": "b"},
        {"priority": 5.0, "payload": {"a": 1}},
        {"priority": 7.0, "payload": "item_id"},
        {"priority": 9.0, "payload": 3},
    ]);
    let told = get(&server, "ranked/range?max=9").await;
    assert_eq!(told, json!({"items": items, "length": 4}));
    let told = get(&server, "ranked/range?min=5&max=9&count=1&offset=1").await;
    assert_eq!(told, json!({"items": [items[2]], "length": 3}));
    let told = get(&server, "ranked/range?min=1e300").await;
    assert_eq!(
        (&told["items"][0]["priority"], &told["items"][0]["item"]["raw_base64"]),
        (&json!(null), &json!("/w=="))
    );
    assert_eq!(post(&server, "ranked", "trim", r#"{"max":5,"count":1}"#).await, json!({"removed": 1}));
    assert_eq!(post(&server, "ranked", "trim", r#"{"min":6,"max":7.5}"#).await, json!({"removed": 1}));
    let left = get(&server, "ranked/range?max=100").await;
    assert_eq!(left, json!({"items": [items[1], items[3]], "length": 2}));
    for (method, path, body, status, field) in [
        ("get", "ranked/range?min=low", "", 400, "min"),
        ("get", "ranked/range?max=inf", "", 400, "max"),
        ("get", "ranked/range?max=nan", "", 400, "max"),
        ("get", "ranked/range?count=0", "", 400, "count"),
        ("get", "jobs/range?min=1", "", 422, "min"),
        ("post", "ranked/trim", "{}", 400, "max"),
        ("post", "ranked/trim", r#"{"max":"9"}"#, 400, "max"),
        ("post", "ranked/trim", r#"{"max":1e999}"#, 400, "body"),
        ("post", "jobs/trim", r#"{"max":9}"#, 422, "max"),
    ] {
        let path = format!("/v1/queue/{path}");
        let answer = if method == "get" { server.get(&path).await } else { server.post(&path, body).await };
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (status, &json!(field)),
            "{path} {body}: {}",
            answer.text()
        );
    }
}

/// `add_to_queue_safe(max_size=…, overflow_policy=…)` and `set(key, value, expire=…)` of the documents.
#[tokio::test]
async fn what_the_schema_declares_is_not_overridden_by_a_call_and_the_field_is_named() {
    let server = Fixture::start().await;
    for (path, body, status, field) in [
        ("queue/jobs/push", r#"{"payload":1,"max_size":5}"#, 400, "max_size"),
        ("queue/jobs/push", r#"{"payload":1,"overflow":"dlq"}"#, 400, "overflow"),
        ("queue/jobs/push", r#"{"payload":1,"overflow_policy":"dlq"}"#, 400, "overflow_policy"),
        ("queue/jobs/push", r#"{"payload":1,"request_id":"r","max_size":5}"#, 400, "max_size"),
        ("cache/page/put", r#"{"key":{"id":"a"},"value":1,"ttl_ms":3600001}"#, 422, "ttl_ms"),
        ("cache/page/put", r#"{"key":{"id":"a"},"value":1,"expire":60}"#, 400, "expire"),
        ("dedupe/image/first", r#"{"key":{"id":"a"},"ttl_ms":1}"#, 400, "ttl_ms"),
    ] {
        let problem = server.post(&format!("/v1/{path}"), body).await;
        assert_eq!((problem.status, &problem.json()["field"]), (status, &json!(field)), "{path} {body}");
        let detail = problem.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(field), "{detail}");
    }
    let pressure = get(&server, "jobs/pressure").await;
    assert_eq!((&pressure["current_length"], &pressure["max_size"]), (&json!(0), &json!(1000)));
}

/// The last worker died, or failed, with all there was: the list is empty, and somebody should look.
#[tokio::test]
async fn a_queue_of_nothing_but_retries_that_are_due_is_unattended() {
    let server = Fixture::start().await;
    let unattended = async || {
        let text = server.get("/metrics").await.text();
        text.lines().any(|line| line == "quaymaster_queue_unattended{queue=\"jobs\"} 1")
    };
    post(&server, "jobs", "push", r#"{"payload":1}"#).await;
    for (delay_ms, due) in [(0, true), (60_000, false)] {
        let jobs = claim(&server, "{}").await;
        let nack = json!({"lease": jobs[0]["lease"], "error": "broken", "delay_ms": delay_ms}).to_string();
        assert_eq!(post(&server, "jobs", "nack", &nack).await["outcome"], "retry");
        let told = get(&server, "jobs/pressure").await;
        assert_eq!((&told["current_length"], &told["delayed"]), (&json!(0), &json!(1)));
        assert_eq!(told["oldest_age_ms"].is_u64(), due, "{told}");
        for _ in 0..500 {
            // What is told of queues is asked for now and then, not for every scrape.
            if unattended().await == due {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(unattended().await, due, "due: {due}");
        let jobs = claim(&server, "{}").await;
        let leases: Vec<&Value> = jobs.iter().map(|job| &job["lease"]).collect();
        post(&server, "jobs", "ack", &json!({"leases": leases}).to_string()).await;
        post(&server, "jobs", "push", r#"{"payload":2}"#).await;
    }
}

#[tokio::test]
async fn the_metrics_and_the_status_tell_how_full_queues_are() {
    let server = Fixture::start().await;
    post(&server, "tiny", "push", r#"{"payloads":[1,2]}"#).await;
    post(&server, "jobs", "push", r#"{"payload":1}"#).await;
    claim(&server, "{}").await;
    let text = server.get("/metrics").await.text();
    for line in [
        "quaymaster_queue_length{queue=\"tiny\"} 2",
        "quaymaster_queue_length{queue=\"jobs\"} 0",
        "quaymaster_queue_leased{queue=\"jobs\"} 1",
        "quaymaster_queue_max_size{queue=\"tiny\"} 2",
        "quaymaster_queue_full{queue=\"tiny\"} 1",
        "quaymaster_queue_unattended{queue=\"tiny\"} 1",
        "quaymaster_queue_unattended{queue=\"jobs\"} 0",
        "quaymaster_queue_oldest_age_seconds{queue=\"jobs\"} 0.000000",
        "quaymaster_queue_jobs_total{queue=\"tiny\",what=\"pushed\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let status = server.get("/v1/status").await.json();
    let queues = status["queues"].as_array().unwrap();
    let tiny = queues.iter().find(|queue| queue["name"] == "tiny").unwrap();
    assert_eq!((&tiny["current_length"], &tiny["unattended"]), (&json!(2), &json!(true)));
    let warned = status["warnings"].as_array().unwrap().iter().any(|warning| {
        warning.as_str().is_some_and(|text| text.contains("queue.tiny") && text.contains("refused"))
    });
    assert!(warned, "{}", status["warnings"]);
}

#[tokio::test]
async fn pressure_of_a_store_that_hangs_is_told_within_the_callers_own_time() {
    let redis = RedisServer::start(RedisConfig::default());
    let mut options = RedisOptions::from_url(&redis.url()).unwrap();
    // Longer than any test: what ends the call is its own `timeout_ms`.
    (options.deadline, options.pools.queue.response_timeout) =
        (Duration::from_secs(600), Duration::from_secs(600));
    let engine = Arc::new(RedisStore::connect(options).await.unwrap());
    let server = Fixture::on(settings("", &|_| None).server, engine).await;
    let asked = "/v1/queue/jobs/pressure?timeout_ms=50";
    assert_eq!(get(&server, "jobs/pressure?timeout_ms=60000").await["current_length"], 0);
    redis.pause();
    let problem = tokio::time::timeout(Duration::from_secs(60), server.get(asked)).await.expect("it is told");
    redis.resume();
    assert_eq!(
        (problem.status, &problem.json()["code"]),
        (503, &json!("store.timed_out")),
        "{}",
        problem.text()
    );
    assert_eq!(server.get("/v1/queue/jobs/pressure?timeout_ms=0").await.status, 400);
}
