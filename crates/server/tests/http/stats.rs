//! Stats over HTTP, in Prometheus' format and in the status.

use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::fixture::{Fixture, settings};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[stats.web]
key = "web:"
max_endpoints = 3

[stats.idle]
key = "idle:"
"#;

async fn start() -> Fixture {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    Fixture::serving(SCHEMA, settings("", &|_| None).server, engine).await
}

async fn record(server: &Fixture, body: &Value) -> Value {
    let answer = server.post("/v1/stats/web/record", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

fn request(path: &str, status: u16, ms: f64) -> Value {
    json!({"instance": "0", "method": "GET", "path": path, "status": status, "duration_ms": ms})
}

#[tokio::test]
async fn what_is_recorded_is_reported_in_the_documented_shape() {
    let server = start().await;
    let mut refused = request("/x", 200, 0.5);
    refused["accepted"] = json!(false);
    let mut ignored = request("/x", 200, 1.0);
    ignored["remote"] = json!("::1");
    let requests =
        json!([request("/users/{id}", 200, 10.0), request("/users/:id?a=1", 500, 20.25), refused, ignored]);
    let told =
        record(&server, &json!({"requests": requests, "connections": {"0": 5, "1": 2}, "request_id": "r"}))
            .await;
    assert_eq!(told, json!({"recorded": 3, "ignored": 1}));
    let again = json!({"requests": requests, "connections": {"0": 5, "1": 2}, "request_id": "r"});
    assert_eq!(record(&server, &again).await, told);
    let report = server.get("/v1/stats/web/report").await.json();
    let requests = &report["requests"];
    assert_eq!((&requests["total"], &requests["accepted"]), (&json!(3), &json!(2)));
    assert_eq!((&requests["speed_per_second"], &requests["max_speed_per_second"]), (&json!(0), &json!(3)));
    assert_eq!(report["connections"], json!({"current": 7, "max_since_startup": 7}));
    assert_eq!(report["errors"], json!({"total": 1, "by_status": {"500": 1}}));
    let users = &report["endpoints"][0];
    assert_eq!(
        (&users["endpoint"], &users["count"], &users["errors"]),
        (&json!("GET /users/:id"), &json!(2), &json!(1))
    );
    assert_eq!(users["avg_ms"], json!(15.125));
    for (name, exact) in [("p50_ms", 10.0), ("p95_ms", 20.25), ("p99_ms", 20.25)] {
        let told = users[name].as_f64().unwrap();
        assert!(
            (told - exact).abs() <= exact * report["percentile_error"].as_f64().unwrap(),
            "{name} {told}"
        );
    }
    assert_eq!(report["instances"], json!({"0": 3, "1": 0}));
    assert_eq!(
        report["hourly"].as_array().unwrap().iter().map(|hour| hour["count"].as_u64().unwrap()).sum::<u64>(),
        3
    );
    assert_eq!(report["hourly"][0]["hour_ms"].as_i64().unwrap() % 3_600_000, 0);
    for name in ["started_at", "generated_at"] {
        assert!(report[name].as_str().unwrap().ends_with('Z'), "{report}");
    }
    let hour = server.get("/v1/stats/web/report?hours=24&endpoints=1").await.json();
    assert_eq!((hour["endpoints"].as_array().unwrap().len(), &hour["endpoints_total"]), (1, &json!(2)));
    assert_eq!(server.post("/v1/stats/web/sweep", "{}").await.json(), json!({"left": 0}));
}

#[tokio::test]
async fn what_is_wrong_is_named_and_nothing_of_it_counts() {
    let server = start().await;
    let with = |name: &str, value: Value| {
        let mut wrong = request("/x", 200, 1.0);
        wrong[name] = value;
        json!({"requests": [request("/x", 200, 1.0), wrong]})
    };
    let without = |name: &str| {
        let mut wrong = request("/x", 200, 1.0);
        wrong.as_object_mut().unwrap().remove(name);
        json!({"requests": [request("/x", 200, 1.0), wrong]})
    };
    for (body, field) in [
        (with("status", json!(99)), "requests[1].status"),
        (with("status", json!("200")), "requests[1].status"),
        (with("duration_ms", json!(-1)), "requests[1].duration_ms"),
        (with("duration_ms", json!(1e300)), "requests[1].duration_ms"),
        (with("accepted", json!(1)), "requests[1].accepted"),
        (with("colour", json!(1)), "requests[1].colour"),
        (without("instance"), "requests[1].instance"),
        (without("path"), "requests[1].path"),
        (without("duration_ms"), "requests[1].duration_ms"),
        (json!({"connections": {"0": -1}}), "connections"),
        (json!({"connections": [1]}), "connections"),
        (json!({"requests": 5}), "requests"),
    ] {
        let answer = server.post("/v1/stats/web/record", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.json()["field"], field, "{}", answer.text());
    }
    for body in [with("path", json!("x")), with("instance", json!("a*")), with("method", json!(""))] {
        let answer = server.post("/v1/stats/web/record", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    let many = vec![request("/", 200, 1.0); 10_001];
    assert_eq!(server.post("/v1/stats/web/record", &json!({"requests": many}).to_string()).await.status, 413);
    for query in ["hours=0", "hours=25", "hours=x", "endpoints=-1", "colour=1"] {
        assert_eq!(server.get(&format!("/v1/stats/web/report?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(server.get("/v1/stats/wep/report").await.status, 404);
    assert_eq!(server.get("/v1/stats/web/report").await.json()["requests"]["total"], 0);
}

#[tokio::test]
async fn prometheus_and_the_status_tell_the_same() {
    let server = start().await;
    let requests: Vec<Value> = (0..6).map(|number| request(&format!("/{number}"), 404, 1.0)).collect();
    record(&server, &json!({"requests": requests, "connections": {"a \"b\"": 3}})).await;
    let text = server.get("/metrics").await.text();
    for line in [
        "quaymaster_stats_requests_total{stats=\"web\"} 6",
        "quaymaster_stats_requests_total{stats=\"idle\"} 0",
        "quaymaster_stats_connections{stats=\"web\"} 3",
        "quaymaster_stats_processes{stats=\"web\"} 2",
        "quaymaster_stats_errors_total{stats=\"web\",status=\"404\"} 6",
        "quaymaster_stats_endpoint_requests_total{stats=\"web\",endpoint=\"overflow\"} 3",
        "quaymaster_stats_endpoint_requests_total{stats=\"web\",endpoint=\"GET /0\"} 1",
        "quaymaster_stats_instance_requests_total{stats=\"web\",instance_id=\"a \\\"b\\\"\"} 0",
        "quaymaster_stats_recorded_total{stats=\"web\",outcome=\"recorded\"} 6",
        "quaymaster_stats_kept_out_total{stats=\"web\"} 3",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}\n{text}");
    }
    assert!(text.contains("# TYPE quaymaster_stats_endpoint_duration_seconds summary\n"));
    assert!(text.contains(
        "quaymaster_stats_endpoint_duration_seconds{stats=\"web\",endpoint=\"GET /0\",quantile=\"0.5\"} 0.001"
    ));
    let status = server.get("/v1/status").await.json();
    let told = status["stats"].as_array().unwrap();
    assert_eq!(told.len(), 1, "nobody counts into the other: {told:?}");
    assert_eq!((&told[0]["name"], &told[0]["requests"]["total"]), (&json!("web"), &json!(6)));
}
