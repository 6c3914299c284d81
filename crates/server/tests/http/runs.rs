//! Runs over HTTP, and the sweep that marks those nobody works on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::fixture::{Fixture, settings};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[limit.calls]
key = "calls:{hour}"
algorithm = "fixed_window"
limit = 10
window = "1h"

[run.pipeline]
key = "pipeline:{dag_run_id}"
state_ttl = "25h"
hour_ttl = "2h"
limit = "calls"

[run.brief]
key = "brief:{run_id}"
task_key = "brief_task:{run_id}:{task_id}"
failed_key = "brief_failed:{hour}"
state_ttl = "1h"
hour_ttl = "2h"
stale_after = "300ms"
"#;

async fn start() -> Fixture {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    Fixture::serving(SCHEMA, settings("", &|_| None).server, engine).await
}

async fn post(server: &Fixture, verb: &str, body: &Value) -> Value {
    let answer = server.post(&format!("/v1/run/pipeline/{verb}"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{verb} {body}: {}", answer.text());
    answer.json()
}

async fn get(server: &Fixture, path: &str) -> Value {
    let answer = server.get(&format!("/v1/run/pipeline/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_run_is_started_worked_on_and_finished() {
    let server = start().await;
    let id = "manual_2024-09-17T14:30:00+00:00";
    let begun = post(&server, "start", &json!({ "run_id": id })).await;
    assert_eq!((&begun["outcome"], &begun["run_id"]), (&json!("started"), &json!(id)));
    for _ in 0..3 {
        assert_eq!(server.post("/v1/limit/calls/take", r#"{"key":{}}"#).await.json()["allowed"], true);
    }
    let told = post(
        &server,
        "processed",
        &json!({ "run_id": id, "items": ["a", 12, "a", 9_007_199_254_740_993_u64] }),
    )
    .await;
    assert_eq!(told, json!({"added": 3, "processed_count": 3, "failed_count": 0}));
    let told = post(&server, "failed", &json!({ "run_id": id, "item": 13, "error": "HTTP 500" })).await;
    assert_eq!(told, json!({"listed": true, "attempts": 1, "processed_count": 3, "failed_count": 1}));
    let shown = get(&server, &format!("show?run_id={}", id.replace('+', "%2B"))).await;
    for (field, value) in [
        ("run_id", json!(id)),
        ("status", json!("running")),
        ("calls_this_hour", json!(3)),
        ("peak_calls", json!(3)),
        ("peak_hour", shown["current_hour"].clone()),
        ("processed", json!(["a", "12", "9007199254740993"])),
        ("processed_count", json!(3)),
        ("failed_count", json!(1)),
        ("tasks", json!([])),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(shown["start_time"].as_str().unwrap().len(), 26);
    let at = shown["last_activity"].as_str().unwrap();
    assert!(at.len() == 27 && at.ends_with('Z'), "{at}");
    let hour = shown["current_hour"].as_str().unwrap();
    let failures = get(&server, &format!("failures?hour={hour}")).await;
    let one = &failures["items"][0];
    assert_eq!(
        (&one["item"], &one["error"], &one["attempts"]),
        (&json!("13"), &json!("HTTP 500"), &json!(1))
    );
    assert_eq!((&one["run_id"], failures.get("next")), (&json!(id), None));
    assert_eq!(get(&server, "failures?hour=2001-01-01_00").await, json!({"items": []}));
    let left = post(&server, "remaining", &json!({ "run_id": id, "items": ["a", "b", 12] })).await;
    assert_eq!(left, json!({"items": ["b"]}));
    assert_eq!(post(&server, "retry", &json!({})).await["items"][0]["item"], "13");
    assert_eq!(post(&server, "retry", &json!({ "run_id": id })).await, json!({"items": []}));
    let began = post(&server, "task_start", &json!({ "run_id": id, "task_id": "t" })).await;
    let took =
        post(&server, "task_finish", &json!({ "run_id": id, "task_id": "t" })).await["duration_ms"].clone();
    let set = json!({ "run_id": id, "items": false,
        "fields": {"status": "storing", "pages": 7, "dockets_processed": ["a", "z"]} });
    let updated = post(&server, "update", &set).await;
    assert_eq!((&updated["status"], &updated["fields"]), (&json!("storing"), &json!({"pages": "7"})));
    assert_eq!((updated.get("processed"), &updated["processed_count"]), (None, &json!(4)));
    let ended = post(&server, "finish", &json!({ "run_id": id, "status": "completed" })).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["processed"], json!(["a", "12", "9007199254740993", "z"]));
    assert_eq!(
        ended["tasks"],
        json!([{"task_id": "t", "started_at": began["started_at"], "duration_ms": took}])
    );
    assert!(ended["finished_at"].is_string());
    let listed = get(&server, "list?count=1").await;
    assert_eq!((&listed["runs"][0]["run_id"], listed.get("next")), (&json!(id), None));
    assert_eq!(post(&server, "start", &json!({ "run_id": id, "items": false })).await["outcome"], "resumed");
    let metrics = server.get("/metrics").await.text();
    for line in [
        "quaymaster_run_starts_total{run=\"pipeline\",outcome=\"started\"} 1",
        "quaymaster_run_starts_total{run=\"pipeline\",outcome=\"resumed\"} 1",
        "quaymaster_run_items_total{run=\"pipeline\",outcome=\"processed\"} 4",
        "quaymaster_run_items_total{run=\"pipeline\",outcome=\"failed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let status = server.get("/v1/status").await.json();
    let run = status["runs"].as_array().unwrap().iter().find(|run| run["name"] == "pipeline").unwrap();
    assert_eq!((&run["run_id"], &run["processed"], &run["failed"]), (&json!(id), &json!(4), &json!(1)));
}

#[tokio::test]
async fn a_run_that_nobody_works_on_is_marked_without_anybody_asking() {
    let server = start().await;
    let body = r#"{"run_id":"r"}"#;
    assert_eq!(server.post("/v1/run/brief/start", body).await.status, 200);
    let begun = Instant::now();
    loop {
        let status = server.get("/v1/status").await.json();
        if status["warnings"].to_string().contains("run.brief: r gives no sign of life") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody notices");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while !server
        .get("/metrics")
        .await
        .text()
        .contains("quaymaster_run_ends_total{run=\"brief\",outcome=\"stale\"} 1")
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody sweeps");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let shown = server.get("/v1/run/brief/show?run_id=r").await.json();
    assert_eq!((&shown["status"], &shown["stale"]), (&json!("stale"), &json!(true)));
    assert_eq!(server.post("/v1/run/brief/processed", r#"{"run_id":"r","items":["1"]}"#).await.status, 200);
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_same_words_as_ever() {
    let server = start().await;
    post(&server, "start", &json!({"run_id": "r"})).await;
    for (verb, body, detail) in [
        ("finish", json!({"status": "done"}), "run_id is missing"),
        ("finish", json!({"run_id": "r", "status": null}), "status is missing"),
        ("update", json!({"run_id": "r"}), "fields is missing"),
        ("update", json!({"run_id": "r", "fields": null}), "fields must be an object"),
        ("update", json!({"run_id": "r", "fields": {}}), "fields has none"),
        (
            "update",
            json!({"run_id": "r", "fields": {"a": true}}),
            "fields.a must be a string or an integer, got \"true\"",
        ),
        ("processed", json!({"run_id": "r", "items": null}), "items is missing"),
        ("processed", json!({"run_id": "r", "items": "a"}), "items must be a list, got a string"),
        (
            "processed",
            json!({"run_id": "r", "items": ["a", null]}),
            "items[1] must be a string or an integer, got \"null\"",
        ),
        ("failed", json!({"run_id": "r"}), "item is missing"),
        ("failed", json!({"run_id": "r", "item": null}), "item must be a string or an integer, got \"null\""),
        ("task_start", json!({"run_id": "r"}), "task_id is missing"),
    ] {
        let told = server.post(&format!("/v1/run/pipeline/{verb}"), &body.to_string()).await.json();
        assert_eq!(told["detail"], detail, "{verb} {body}");
    }
}

/// The answer of `start` is the run with its outcome in front.
#[tokio::test]
async fn a_start_says_first_whether_it_is_a_new_run() {
    let server = start().await;
    for outcome in ["started", "resumed"] {
        let answer = server.post("/v1/run/pipeline/start", r#"{"run_id":"r"}"#).await;
        let begins = format!(r#"{{"outcome":"{outcome}","run_id":"r","status":"running","stale":false,"#);
        assert!(answer.text().starts_with(&begins), "{}", answer.text());
        assert!(answer.text().contains(r#","processed":[],"items_complete":true,"#), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_start_says_how_long_its_run_is_kept() {
    let server = start().await;
    for (body, seconds) in [
        (json!({"run_id": "a", "ttl_hours": 5}), 5 * 3600),
        (json!({"run_id": "b"}), 25 * 3600),
        (json!({"run_id": "b", "ttl_hours": 48}), 48 * 3600),
    ] {
        assert_eq!(post(&server, "start", &body).await["run_id"], body["run_id"]);
        let key = format!("pipeline:{}", body["run_id"].as_str().unwrap());
        let told = server.get(&format!("/v1/key/explain?key={key}")).await.json();
        let ttl_ms = told["actual"]["ttl_ms"].as_i64().unwrap();
        assert!(((seconds - 60) * 1000..=seconds * 1000).contains(&ttl_ms), "{body} {told}");
    }
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused() {
    let server = start().await;
    post(&server, "start", &json!({"run_id": "r"})).await;
    let long = "x".repeat(513);
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    for (verb, body, status, code) in [
        ("start", json!({"run_id": "a*"}), 400, "key.value"),
        ("start", json!({"run_id": 7}), 400, "request.invalid"),
        ("start", json!({"id": "r"}), 400, "request.field"),
        ("start", json!({"run_id": "r", "items": "no"}), 400, "request.invalid"),
        ("start", json!({"run_id": "r", "ttl_hours": 0}), 400, "request.invalid"),
        ("start", json!({"run_id": "r", "ttl_hours": 87_841}), 400, "request.invalid"),
        ("start", json!({"run_id": "r", "ttl_hours": "25h"}), 400, "request.invalid"),
        ("processed", json!({"items": ["a"]}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r"}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": []}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": "a"}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": [1.5]}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": [null]}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": [long]}), 400, "request.invalid"),
        ("processed", json!({"run_id": "r", "items": many}), 400, "request.invalid"),
        ("processed", json!({"run_id": "s", "items": ["a"]}), 404, "run.missing"),
        ("failed", json!({"run_id": "r"}), 400, "request.invalid"),
        ("failed", json!({"run_id": "r", "item": {}}), 400, "request.invalid"),
        ("failed", json!({"run_id": "r", "item": "a", "error": 7}), 400, "request.invalid"),
        ("update", json!({"run_id": "r"}), 400, "request.invalid"),
        ("update", json!({"run_id": "r", "fields": {}}), 400, "request.invalid"),
        ("update", json!({"run_id": "r", "fields": []}), 400, "request.invalid"),
        ("update", json!({"run_id": "r", "fields": {"a": true}}), 400, "request.invalid"),
        ("update", json!({"run_id": "r", "fields": {"status": "stale"}}), 422, "run.field"),
        ("update", json!({"run_id": "r", "fields": {"start_time": "x"}}), 422, "run.field"),
        ("update", json!({"run_id": "r", "fields": {"dag_run_id": "x"}}), 422, "run.field"),
        ("update", json!({"run_id": "r", "fields": {"dockets_processed": "['1']"}}), 422, "run.field"),
        ("update", json!({"run_id": "r", "fields": {"pages": ["1"]}}), 422, "run.field"),
        ("finish", json!({"run_id": "r"}), 400, "request.invalid"),
        ("task_start", json!({"run_id": "r", "task_id": "a:b"}), 400, "key.value"),
        ("task_finish", json!({"run_id": "r", "task_id": "never"}), 404, "run.task"),
        ("retry", json!({"count": 0}), 400, "request.invalid"),
        ("retry", json!({"lease_ms": 0}), 400, "request.invalid"),
        ("retry", json!({"request_id": "q"}), 400, "request.invalid"),
    ] {
        let answer = server.post(&format!("/v1/run/pipeline/{verb}"), &body.to_string()).await;
        let shown = body.to_string().chars().take(80).collect::<String>();
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{verb} {shown}");
    }
    for (query, status) in [
        ("show", 400),
        ("show?run_id=s", 404),
        ("show?run_id=r&items=maybe", 400),
        ("list?count=0", 400),
        ("list?cursor=x", 404),
        ("failures?hour=now", 400),
        ("failures?cursor=x", 404),
        ("failures?run_id=s", 404),
        ("failures?count=1001", 400),
    ] {
        let answer = server.get(&format!("/v1/run/pipeline/{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
    }
    assert_eq!(server.post("/v1/run/pipelin/start", "{}").await.status, 404);
    assert_eq!(server.get("/v1/run/pipeline/processed").await.status, 405);
    let done = post(&server, "finish", &json!({"run_id": "r", "status": "failed"})).await;
    assert_eq!(done["processed_count"], 0, "nothing of it was taken");
    let again = server.post("/v1/run/pipeline/finish", r#"{"run_id":"r","status":"completed"}"#).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("run.finished")));
}
