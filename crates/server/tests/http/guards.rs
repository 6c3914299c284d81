//! `guard enter` and `leave` over HTTP.

use serde_json::{Value, json};

use crate::fixture::Fixture;

async fn post(server: &Fixture, verb: &str, body: Value) -> Value {
    let answer = server.post(&format!("/v1/guard/pay/{verb}"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.json());
    answer.json()
}

async fn refused(server: &Fixture, verb: &str, body: Value, field: &str) {
    let answer = server.post(&format!("/v1/guard/pay/{verb}"), &body.to_string()).await;
    let problem = answer.json();
    let declared = body["ttl_ms"].as_u64().is_some_and(|ttl| ttl > 30_000);
    assert_eq!(answer.status, if declared { 422 } else { 400 }, "{body}: {problem}");
    let named = problem["field"].as_str().unwrap_or_default().contains(field);
    assert!(named || problem["detail"].as_str().unwrap().contains(field), "{body}: {problem}");
}

fn key(id: &str, psp: &str) -> Value {
    json!({"id": id, "psp_id": psp})
}

fn quota(allowed: bool, used: u64, retry_after_ms: u64) -> Value {
    json!({"allowed": allowed, "limit": 3, "used": used, "remaining": 3 - used, "reset_after_ms": 40_000,
        "retry_after_ms": retry_after_ms})
}

#[tokio::test]
async fn a_guard_is_entered_left_and_replayed() {
    let server = Fixture::start().await;
    let entered = post(&server, "enter", json!({"key": key("a", "p"), "fingerprint": "10 EUR"})).await;
    let (token, fence) = (entered["token"].as_str().unwrap(), entered["fence"].as_u64().unwrap());
    assert_eq!(
        entered,
        json!({"outcome": "entered", "token": token, "fence": fence, "expires_in_ms": 30_000,
            "limits": {"psp": quota(true, 1, 0)}})
    );
    let other = post(&server, "enter", json!({"key": key("a", "p"), "fingerprint": "99 EUR"})).await;
    assert_eq!(other, json!({"outcome": "mismatch"}));
    let busy = post(&server, "enter", json!({"key": key("a", "p"), "fingerprint": "10 EUR"})).await;
    assert_eq!(busy, json!({"outcome": "in_progress", "retry_after_ms": 60_000}));

    let response = json!({"status": "paid", "list": [1, 2.50, null]});
    let left =
        post(&server, "leave", json!({"key": key("a", "p"), "token": token, "response": response})).await;
    assert_eq!(
        left,
        json!({"outcome": "finished", "idempotency": "finished", "lock": "released", "kept": true})
    );
    let again = post(&server, "enter", json!({"key": key("a", "p"), "fingerprint": "10 EUR"})).await;
    assert_eq!(again, json!({"outcome": "finished", "response": response, "kept": true}));
    let late = post(&server, "leave", json!({"key": key("a", "p"), "token": "stolen"})).await;
    assert_eq!(late, json!({"outcome": "lost", "idempotency": "lost", "lock": "lost"}));

    let text = server.get("/metrics").await.text();
    for (verb, outcome, count) in [
        ("enter", "entered", 1),
        ("enter", "mismatch", 1),
        ("enter", "in_progress", 1),
        ("enter", "finished", 1),
        ("leave", "left", 1),
        ("leave", "lost", 1),
    ] {
        let line = format!(
            "quaymaster_guard_calls_total{{guard=\"pay\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(text.contains("quaymaster_limit_takes_total{limit=\"psp\",outcome=\"allowed\"} 1\n"), "{text}");
}

#[tokio::test]
async fn a_full_limit_and_a_held_lock_say_when_to_come_again() {
    let server = Fixture::start().await;
    for id in ["a", "b", "c"] {
        let entered = post(&server, "enter", json!({"key": key(id, "p"), "ttl_ms": 5000})).await;
        assert_eq!(entered["outcome"], "entered");
        assert_eq!(entered["expires_in_ms"], 5000);
    }
    let limited = post(&server, "enter", json!({"key": key("d", "p")})).await;
    assert_eq!(
        limited,
        json!({"outcome": "limited", "limited_by": "psp", "allowed": false, "limit": 3, "used": 3, "remaining": 0,
            "reset_after_ms": 40_000, "retry_after_ms": 40_000, "limits": {"psp": quota(false, 3, 40_000)}})
    );
    // Somebody holds the door without the guard.
    let taken = server.post("/v1/lock/door/acquire", r#"{"key":{"id":"e"}}"#).await.json();
    assert_eq!(taken["outcome"], "ours");
    let held = post(&server, "enter", json!({"key": key("e", "p")})).await;
    assert_eq!(held, json!({"outcome": "held", "retry_after_ms": 30_000}));
}

#[tokio::test]
async fn an_abandoned_guard_is_entered_again_and_repetitions_are_known() {
    let server = Fixture::start().await;
    let body = json!({"key": key("a", "p"), "request_id": "r-1"});
    let first = post(&server, "enter", body.clone()).await;
    assert_eq!(post(&server, "enter", body).await, first, "repeated");
    let leave = json!({"key": key("a", "p"), "token": first["token"], "abandon": true, "request_id": "r-1"});
    let left = json!({"outcome": "abandoned", "idempotency": "abandoned", "lock": "released"});
    for _ in 0..2 {
        assert_eq!(post(&server, "leave", leave.clone()).await, left);
    }
    let second = post(&server, "enter", json!({"key": key("a", "p")})).await;
    assert_eq!(second["limits"]["psp"]["used"], 2);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_by_its_field() {
    let server = Fixture::start().await;
    refused(&server, "enter", json!({"key": {"id": "a"}}), "psp_id").await;
    refused(&server, "enter", json!({"key": {"id": "a", "psp_id": "p", "what": 1}}), "what").await;
    refused(&server, "enter", json!({"key": key("a", "p"), "fingerprint": 7}), "fingerprint").await;
    refused(&server, "enter", json!({"key": key("a", "p"), "ttl_ms": 0}), "ttl_ms").await;
    refused(&server, "enter", json!({"key": key("a", "p"), "ttl_ms": 30_001}), "ttl_ms").await;
    refused(&server, "enter", json!({"key": key("a", "p"), "request_id": ""}), "request_id").await;
    refused(&server, "enter", json!({"key": key("a", "p"), "cost": 2}), "cost").await;
    refused(&server, "leave", json!({"key": key("a", "p")}), "token").await;
    refused(&server, "leave", json!({"key": key("a", "p"), "token": "a b"}), "token").await;
    let both = json!({"key": key("a", "p"), "token": "t", "abandon": true, "response": 1});
    refused(&server, "leave", both, "response").await;
    let answer = server.post("/v1/guard/pey/enter", r#"{"key":{}}"#).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("resource.unknown")));
}
