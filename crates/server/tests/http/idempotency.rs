//! `idempotency` over HTTP: the contract's shapes, and JSON that comes back as it was written.

use std::time::Duration;

use quaymaster_testkit::conformance::command;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const A: &str = r#"{"key":{"id":"a"}}"#;

async fn begin(server: &Fixture, body: &str) -> Value {
    let answer = server.post("/v1/idempotency/pay/begin", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn started(server: &Fixture, body: &str) -> String {
    let told = begin(server, body).await;
    assert_eq!((&told["outcome"], &told["expires_in_ms"]), (&json!("started"), &json!(60_000)), "{told}");
    told["token"].as_str().unwrap().to_owned()
}

async fn finish(server: &Fixture, token: &str, response: &str) -> Value {
    let body = format!(r#"{{"key":{{"id":"a"}},"token":"{token}"{response}}}"#);
    let answer = server.post("/v1/idempotency/pay/finish", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn an_operation_is_begun_finished_and_replayed() {
    let server = Fixture::start().await;
    let body = r#"{"key":{"id":"a"},"fingerprint":"pay 100"}"#;
    let token = started(&server, body).await;
    let told = begin(&server, body).await;
    assert_eq!(told, json!({"outcome": "in_progress", "retry_after_ms": 60_000}));
    let other = r#"{"key":{"id":"a"},"fingerprint":"pay 900"}"#;
    assert_eq!(begin(&server, other).await, json!({"outcome": "mismatch"}));
    let told = finish(&server, &token, r#","response":{"status":"paid"}"#).await;
    assert_eq!(told, json!({"outcome": "finished", "kept": true}));
    assert_eq!(finish(&server, "another", "").await, json!({"outcome": "lost"}));
    let told = begin(&server, body).await;
    assert_eq!(told, json!({"outcome": "finished", "response": {"status": "paid"}, "kept": true}));
    assert_eq!(begin(&server, other).await, json!({"outcome": "mismatch"}));
    let metrics = server.get("/metrics").await.text();
    for line in [
        "quaymaster_idempotency_calls_total{idempotency=\"pay\",verb=\"begin\",outcome=\"started\"} 1",
        "quaymaster_idempotency_calls_total{idempotency=\"pay\",verb=\"begin\",outcome=\"mismatch\"} 2",
        "quaymaster_idempotency_calls_total{idempotency=\"pay\",verb=\"begin\",outcome=\"finished\"} 1",
        "quaymaster_idempotency_calls_total{idempotency=\"pay\",verb=\"finish\",outcome=\"finished\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn any_json_comes_back_as_it_was_written() {
    let server = Fixture::start().await;
    let long = format!("[{}]", vec!["\"again\""; 2000].join(","));
    for json in [
        "null",
        "0",
        "-1.50e3",
        "12345678901234567890123",
        "\"\\u00e9\"",
        "{ \"a\" : [1, {}], \"b\":null }",
        &long,
    ] {
        let token = started(&server, A).await;
        let told = finish(&server, &token, &format!(",\"response\":{json}")).await;
        assert_eq!(told["kept"], true, "{json}");
        let replay = server.post("/v1/idempotency/pay/begin", A).await.text();
        assert!(replay.contains(&format!("\"response\":{json}")), "{replay}");
        command(&*server.engine, b"pay:a", &[b"DEL", b"pay:a"]).await.unwrap();
    }
    let token = started(&server, A).await;
    assert_eq!(finish(&server, &token, "").await, json!({"outcome": "finished", "kept": false}));
    assert_eq!(begin(&server, A).await, json!({"outcome": "finished", "response": null, "kept": false}));
}

#[tokio::test]
async fn a_waiting_begin_is_answered_by_the_finish() {
    let server = Fixture::start().await;
    let token = started(&server, A).await;
    let waiting = begin(&server, r#"{"key":{"id":"a"},"wait_ms":20000}"#);
    let finishing = async {
        // Told apart from a begin that came too late by the counter of those who waited.
        loop {
            let metrics = server.get("/metrics").await.text();
            if metrics.contains("quaymaster_idempotency_waits_total{idempotency=\"pay\"} 1") {
                break;
            }
            tokio::task::yield_now().await;
        }
        finish(&server, &token, r#","response":"paid""#).await
    };
    let both = async { tokio::join!(waiting, finishing) };
    let (begun, _) =
        tokio::time::timeout(Duration::from_secs(15), Box::pin(both)).await.expect("nobody was woken");
    assert_eq!(begun["response"], "paid");
}

#[tokio::test]
async fn an_abandoned_operation_may_be_begun_again_and_the_answer_repeats() {
    let server = Fixture::start().await;
    let token = started(&server, A).await;
    let body = format!(r#"{{"key":{{"id":"a"}},"token":"{token}","request_id":"r1"}}"#);
    for _ in 0..2 {
        let answer = server.post("/v1/idempotency/pay/abandon", &body).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"outcome": "abandoned"})));
    }
    let again = r#"{"key":{"id":"a"},"request_id":"r2"}"#;
    assert_eq!(started(&server, again).await, started(&server, again).await);
    let body = format!(r#"{{"key":{{"id":"a"}},"token":"{token}"}}"#);
    let answer = server.post("/v1/idempotency/pay/abandon", &body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"outcome": "lost"})));
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_the_field_is_named() {
    let server = Fixture::start().await;
    for (verb, body, field) in [
        ("begin", r#"{"key":{}}"#, "key.id"),
        ("begin", r#"{"key":{"id":"a"},"wait_ms":-1}"#, "wait_ms"),
        ("begin", r#"{"key":{"id":"a"},"wait_ms":1.5}"#, "wait_ms"),
        ("begin", r#"{"key":{"id":"a"},"fingerprint":7}"#, "fingerprint"),
        ("begin", r#"{"key":{"id":"a"},"request_id":""}"#, "request_id"),
        ("begin", r#"{"key":{"id":"a"},"token":"x"}"#, "token"),
        ("finish", r#"{"key":{"id":"a"}}"#, "token"),
        ("finish", r#"{"key":{"id":"a"},"token":"a b"}"#, "token"),
        ("finish", r#"{"key":{"id":"a"},"token":"a","response":}"#, "body"),
        ("abandon", r#"{"key":{"id":"a"},"token":null}"#, "token"),
    ] {
        let answer = server.post(&format!("/v1/idempotency/pay/{verb}"), body).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!(field)),
            "{verb} {body}: {}",
            answer.text()
        );
    }
    assert_eq!(server.post("/v1/idempotency/nothing/begin", A).await.status, 404);
}

#[tokio::test]
async fn finish_needs_no_request_id_and_refuses_one_that_no_call_takes() {
    let server = Fixture::start().await;
    let token = started(&server, A).await;
    for id in ["", "a{b}", "a\\u0000b", &"x".repeat(129)] {
        let body = format!(r#"{{"key":{{"id":"a"}},"token":"{token}","request_id":"{id}"}}"#);
        let refused = server.post("/v1/idempotency/pay/finish", &body).await;
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("request_id")), "{id}");
    }
    assert_eq!(finish(&server, &token, r#","request_id":"r1""#).await["outcome"], "finished");
}
