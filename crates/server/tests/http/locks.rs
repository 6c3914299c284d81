//! `lock acquire`, `renew` and `release` over HTTP.

use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

const KEY: &str = r#""key":{"id":"a"}"#;

async fn post(server: &Fixture, verb: &str, fields: &str) -> serde_json::Value {
    let answer = server.post(&format!("/v1/lock/door/{verb}"), &format!("{{{KEY}{fields}}}")).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()
}

/// A call as it goes over the wire.
fn acquire(fields: &str) -> Vec<u8> {
    let body = format!("{{{KEY}{fields}}}");
    request("POST", "/v1/lock/door/acquire", &[("content-type", "application/json")], body.as_bytes())
}

/// The value of a metric.
async fn metric(server: &Fixture, name: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Waits until a metric has this value.
async fn until(server: &Fixture, name: &str, wanted: u64) {
    for _ in 0..3000 {
        if metric(server, name).await == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{name} never was {wanted}");
}

const WAITING: &str = "quaymaster_lock_waiting{lock=\"door\"}";

#[tokio::test]
async fn a_lock_is_taken_renewed_and_given_back() {
    let server = Fixture::start().await;
    let ours = post(&server, "acquire", r#","owner":"web-1""#).await;
    let token = ours["token"].as_str().unwrap();
    let fence = ours["fence"].as_u64().unwrap();
    assert_eq!(ours, json!({"outcome": "ours", "token": token, "fence": fence, "expires_in_ms": 30_000}));
    let held = post(&server, "acquire", r#","wait_ms":0"#).await;
    assert_eq!(held, json!({"outcome": "held", "retry_after_ms": 30_000, "owner": "web-1"}));
    let renewed = post(&server, "renew", &format!(r#","token":"{token}","ttl_ms":500"#)).await;
    assert_eq!(renewed, json!({"outcome": "ours", "token": token, "fence": fence, "expires_in_ms": 500}));
    let with_token = format!(r#","token":"{token}""#);
    assert_eq!(post(&server, "release", &with_token).await, json!({"outcome": "released"}));
    assert_eq!(post(&server, "release", &with_token).await, json!({"outcome": "lost"}));
    assert_eq!(post(&server, "renew", &with_token).await, json!({"outcome": "lost"}));
    assert!(post(&server, "acquire", "").await["fence"].as_u64().unwrap() > fence);
    let calls = "quaymaster_lock_calls_total{lock=\"door\",verb=\"acquire\",outcome=\"ours\"}";
    assert_eq!(metric(&server, calls).await, 2);
}

#[tokio::test]
async fn a_repeated_acquire_finds_its_lease_and_a_repeated_release_its_answer() {
    let server = Fixture::start().await;
    let first = post(&server, "acquire", r#","request_id":"r1""#).await;
    assert_eq!(post(&server, "acquire", r#","request_id":"r1""#).await, first);
    let release = format!(r#","token":{},"request_id":"r2""#, first["token"]);
    assert_eq!(post(&server, "release", &release).await, json!({"outcome": "released"}));
    assert_eq!(post(&server, "release", &release).await, json!({"outcome": "released"}));
}

#[tokio::test]
async fn a_wait_ends_with_the_release() {
    let server = Fixture::start().await;
    let first = post(&server, "acquire", "").await;
    let mut waiter = Connection::open(server.address).await;
    waiter.send(&acquire(r#","wait_ms":60000"#)).await;
    until(&server, WAITING, 1).await;
    post(&server, "release", &format!(r#","token":{}"#, first["token"])).await;
    let ours = waiter.receive().await.unwrap().json();
    assert_eq!(ours["outcome"], "ours");
    assert!(ours["fence"].as_u64() > first["fence"].as_u64());
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Fixture::start().await;
    for (verb, fields, field) in [
        ("acquire", r#","ttl_ms":0"#, "ttl_ms"),
        ("acquire", r#","ttl_ms":30001"#, "ttl_ms"),
        ("acquire", r#","ttl_ms":-1"#, "ttl_ms"),
        ("acquire", r#","wait_ms":3600001"#, "wait_ms"),
        ("acquire", r#","wait_ms":"5""#, "wait_ms"),
        ("acquire", r#","owner":"a b""#, "owner"),
        ("acquire", r#","request_id":"""#, "request_id"),
        ("renew", "", "token"),
        ("renew", r#","token":"x","ttl_ms":30001"#, "ttl_ms"),
        ("release", r#","token":"a b""#, "token"),
        ("release", r#","token":7"#, "token"),
        ("release", r#","token":"x","ttl_ms":5"#, "ttl_ms"),
    ] {
        let answer = server.post(&format!("/v1/lock/door/{verb}"), &format!("{{{KEY}{fields}}}")).await;
        let status = if fields.contains("30001") { 422 } else { 400 };
        assert_eq!((answer.status, &answer.json()["field"]), (status, &json!(field)), "{verb} {fields}");
    }
    let missing = server.post("/v1/lock/door/acquire", "{}").await;
    assert_eq!((missing.status, missing.json()["code"].clone()), (400, json!("key.missing")));
}

#[tokio::test]
async fn a_stop_tells_who_waits_to_come_again() {
    let mut server = Fixture::with(settings("[server]\nshutdown_grace = \"10m\"", &|_| None).server).await;
    let _ = post(&server, "acquire", "").await;
    let mut waiting = Connection::open(server.address).await;
    waiting.send(&acquire(r#","wait_ms":3600000"#)).await;
    until(&server, WAITING, 1).await;
    server.ask_to_stop();
    let answer = waiting.receive().await.expect("an answer");
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("held")), "{}", answer.json());
    server.stopped().await;
}
