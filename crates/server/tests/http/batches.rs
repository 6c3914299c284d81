//! Batches over HTTP, and the sweep that queues them by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::fixture::{Fixture, settings};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[queue.closed]
max_size = 3

[batch.camera]
by = "camera_id"
window = "90s"
idle = "30s"
to = "closed"
items = "detections"
items_as = "detection_ids"

[batch.brief]
key = "brief:{camera_id}:current"
by = "camera_id"
window = "300ms"
max_items = 3
to = "closed"
"#;

async fn start() -> Fixture {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    Fixture::serving(SCHEMA, settings("", &|_| None).server, engine).await
}

async fn post(server: &Fixture, verb: &str, body: &str) -> Value {
    let answer = server.post(&format!("/v1/batch/camera/{verb}"), body).await;
    assert_eq!(answer.status, 200, "{verb} {body}: {}", answer.text());
    answer.json()
}

async fn waiting(server: &Fixture) -> Vec<Value> {
    server.get("/v1/queue/closed/peek").await.json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn items_are_added_listed_and_closed_into_the_queue() {
    let server = start().await;
    let first = post(&server, "add", r#"{"key":{"camera_id":"front"},"item":{"a": 1.10}}"#).await;
    assert_eq!(first["size"], 1);
    assert_eq!(first.as_object().unwrap().len(), 2, "{first}");
    let id = first["batch_id"].as_str().unwrap();
    let named = r#"{"key":{"camera_id":"front"},"item":null,"id":"d-2"}"#;
    assert_eq!(post(&server, "add", named).await, json!({"batch_id": id, "size": 2}));
    assert_eq!(post(&server, "add", named).await, json!({"batch_id": id, "size": 2, "duplicate": true}));
    let listed = server.get("/v1/batch/camera/list").await.json();
    let open = &listed["batches"][0];
    assert_eq!(
        (&open["batch_id"], &open["key"], &open["size"]),
        (&json!(id), &json!({"camera_id": "front"}), &json!(2))
    );
    let closes = open["closes_in_ms"].as_u64().unwrap();
    assert!(closes > 0 && closes <= 30_000, "{open}");
    for name in ["started_at", "last_activity"] {
        let at = open[name].as_str().unwrap();
        assert!(at.len() == 27 && at.ends_with('Z'), "{at}");
    }
    assert_eq!(server.get("/v1/batch/camera/list?count=1&offset=1").await.json(), json!({"batches": []}));
    let close = r#"{"key":{"camera_id":"front"}}"#;
    assert_eq!(post(&server, "close", close).await, json!({"outcome": "closed", "batch_id": id}));
    assert_eq!(post(&server, "close", close).await, json!({"outcome": "none"}));
    let jobs = waiting(&server).await;
    assert_eq!((jobs.len(), &jobs[0]["batch_id"], &jobs[0]["camera_id"]), (1, &json!(id), &json!("front")));
    assert_eq!(jobs[0]["detection_ids"], json!([{"a": 1.10}, null]));
    assert_eq!(post(&server, "sweep", "{}").await, json!({"closed": 0, "waiting": 0, "expired": 0}));
}

#[tokio::test]
async fn a_batch_that_is_due_is_queued_without_anybody_asking() {
    let server = start().await;
    let body = r#"{"key":{"camera_id":"front"},"item":1}"#;
    let added = server.post("/v1/batch/brief/add", body).await.json();
    let begun = Instant::now();
    let jobs = loop {
        let jobs = waiting(&server).await;
        if !jobs.is_empty() {
            break jobs;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody sweeps");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&jobs[0]["batch_id"], &jobs[0]["items"]), (&added["batch_id"], &json!([1])));
    for size in 1..=3 {
        let added =
            server.post("/v1/batch/brief/add", r#"{"key":{"camera_id":"back"},"item":1}"#).await.json();
        assert_eq!((&added["size"], added["closed"] == true), (&json!(size), size == 3), "{added}");
    }
    assert_eq!(waiting(&server).await.len(), 2, "the last item closed it at once");
}

#[tokio::test]
async fn a_full_queue_is_told_and_its_batch_waits() {
    let server = start().await;
    assert_eq!(server.post("/v1/queue/closed/push", r#"{"payloads":[1,2,3]}"#).await.status, 200);
    post(&server, "add", r#"{"key":{"camera_id":"front"},"item":1}"#).await;
    let full = server.post("/v1/batch/camera/close", r#"{"key":{"camera_id":"front"}}"#).await;
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue.full")));
    assert_eq!(server.get("/v1/batch/camera/list").await.json()["batches"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused() {
    let server = start().await;
    let large = format!(r#"{{"key":{{"camera_id":"a"}},"item":"{}"}}"#, "x".repeat(256 << 10));
    for (verb, body, status, field) in [
        ("add", r#"{"key":{"camera_id":"a"}}"#, 400, "item"),
        ("add", r#"{"item":1}"#, 400, ""),
        ("add", r#"{"key":{"camera_id":"a"},"item":1,"id":""}"#, 400, ""),
        ("add", r#"{"key":{"camera_id":"a"},"item":1,"id":7}"#, 400, "id"),
        ("add", r#"{"key":{"camera_id":"a","b":"c"},"item":1}"#, 400, ""),
        ("add", r#"{"key":{"camera_id":"a"},"items":[1]}"#, 400, "items"),
        ("add", large.as_str(), 413, ""),
        ("close", "{}", 400, ""),
        ("close", r#"{"key":{"camera_id":"{"}}"#, 400, ""),
        ("sweep", r#"{"key":{}}"#, 400, "key"),
    ] {
        let answer = server.post(&format!("/v1/batch/camera/{verb}"), body).await;
        let shown = &body[..body.len().min(60)];
        assert_eq!(answer.status, status, "{verb} {shown}: {}", answer.text());
        if !field.is_empty() {
            assert_eq!(answer.json()["field"], field, "{verb} {shown}");
        }
    }
    for query in ["count=0", "count=1001", "count=x", "offset=-1", "limit=1"] {
        assert_eq!(server.get(&format!("/v1/batch/camera/list?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(server.post("/v1/batch/kamera/add", "{}").await.status, 404);
    assert_eq!(server.get("/v1/batch/camera/add").await.status, 405);
}
