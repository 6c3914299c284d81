//! Calls that wait have places of their own: they can neither take all places for requests, nor be without bound.

use std::time::Duration;

use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

const WAITS: [(&str, &str); 3] = [
    ("/v1/queue/jobs/claim", r#"{"wait_ms":3600000}"#),
    ("/v1/lock/door/acquire", r#"{"key":{"id":"a"},"wait_ms":30000}"#),
    ("/v1/idempotency/pay/begin", r#"{"key":{"id":"a"},"wait_ms":30000}"#),
];

async fn until_waiting(server: &Fixture, wanted: usize) {
    let line = format!("\nquaymaster_http_requests_waiting {wanted}\n");
    for _ in 0..5000 {
        if server.get("/metrics").await.text().contains(&line) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {line}");
}

fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, &[("content-type", "application/json")], body.as_bytes())
}

#[tokio::test]
async fn calls_that_wait_leave_the_places_of_others_and_are_bounded() {
    let toml = "[server]\nmax_requests = 2\nmax_waiting = 3";
    let server = Fixture::with(settings(toml, &|_| None).server).await;
    // What the lock and the claim of the operation are waited for.
    for (path, _) in &WAITS[1..] {
        assert_eq!(server.post(path, r#"{"key":{"id":"a"}}"#).await.status, 200, "{path}");
    }
    let mut waiters = Vec::new();
    for (path, body) in WAITS {
        let mut waiter = Connection::open(server.address).await;
        waiter.send(&post(path, body)).await;
        waiters.push(waiter);
        until_waiting(&server, waiters.len()).await;
    }
    for (path, body) in WAITS {
        let refused = server.post(path, body).await;
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (503, &json!("server.busy")), "{path}: {problem}");
        assert_eq!((refused.header("retry-after"), &problem["retry_after_ms"]), (Some("1"), &json!(1000)));
        assert!(problem["detail"].as_str().unwrap().contains("max_waiting"), "{problem}");
        assert!(problem.get("may_have_run").is_none(), "{problem}");
    }
    // More wait than requests may be answered at once, and requests are answered.
    let push = server.post("/v1/queue/jobs/push", r#"{"payload":7}"#).await;
    assert_eq!(push.status, 200, "{}", push.text());
    assert_eq!(waiters[0].receive().await.unwrap().json()["jobs"][0]["payload"], 7);
    until_waiting(&server, 2).await;
    assert_eq!(
        server.post("/v1/queue/jobs/claim", r#"{"wait_ms":1}"#).await.status,
        200,
        "its place is free"
    );
}
