//! Percentiles of several instances against an exact computation over every single request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scene::{Part, Scene, Store, ask, count, reported};

/// The error the report states for itself.
const ERROR: f64 = 1.0 / 128.0;
const PERCENTS: [(&str, u64); 3] = [("p50_ms", 50), ("p95_ms", 95), ("p99_ms", 99)];

fn nearest_rank(values: &mut [f64], percent: u64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as u64 * percent).div_ceil(100).max(1);
    values[rank as usize - 1]
}

/// Durations that a program recorded by itself: many equal ones and a long tail, from three instances.
async fn told(store: Store) {
    let scene = Scene::new(store);
    let server = scene.server().await;
    let mut random = fastrand::Rng::with_seed(3);
    let mut all = Vec::new();
    for instance in ["a", "b", "c"] {
        for _ in 0..5 {
            let requests: Vec<Value> = (0..1000)
                .map(|_| {
                    let ms = match random.u32(0..100) {
                        0..70 => 12.0,
                        70..90 => f64::from(random.u32(1..400)) / 8.0,
                        90..99 => f64::from(random.u32(100..2_000)),
                        // Up to a quarter of an hour.
                        _ => 2_000.0 * 1.5_f64.powi(random.i32(0..15)),
                    };
                    let ms = (ms * 1000.0).round() / 1000.0;
                    all.push(ms);
                    json!({
                        "instance": instance, "method": "GET", "path": "/api/users/:id", "status": 200,
                        "duration_ms": ms, "remote": "203.0.113.7",
                    })
                })
                .collect();
            let body = json!({ "requests": requests }).to_string();
            let answer = ask(&server.address, "POST", "/v1/stats/ha/record", &body, "").await.unwrap();
            assert_eq!((answer.status, &answer.json()["recorded"]), (200, &json!(1000)), "{answer:?}");
        }
    }
    let report = server.report().await;
    let endpoint = &report["endpoints"][0];
    assert_eq!((&endpoint["endpoint"], &endpoint["count"]), (&json!("GET /api/users/:id"), &json!(15_000)));
    for (name, percent) in PERCENTS {
        let (said, exact) = (endpoint[name].as_f64().unwrap(), nearest_rank(&mut all, percent));
        // A report's milliseconds have three decimals.
        assert!((said - exact).abs() <= exact * ERROR + 0.001, "{name}: {said} instead of {exact}");
    }
    let exact = all.iter().sum::<f64>() / all.len() as f64;
    let said = endpoint["avg_ms"].as_f64().unwrap();
    assert!((said - exact).abs() < 0.002, "the average is exact: {said} and {exact}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_durations_match_an_exact_computation_on_redis() {
    told(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_durations_match_an_exact_computation_on_a_cluster() {
    told(Store::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_durations_match_an_exact_computation_on_the_embedded_store() {
    told(Store::Embedded).await;
}

/// What the layer measured itself. Every request is timed once more just inside and just outside of it: each of its
/// own measurements lies between these two, so each percentile lies between theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn percentiles_of_three_instances_lie_between_exact_ones_measured_inside_and_outside() {
    let requests = count(3_000, 30_000);
    let scene = Scene::new(Store::redis());
    let server = scene.server().await;
    let journal = scene.folder.path().join("journal").display().to_string();
    let mut instances = Vec::new();
    for name in ["0", "1", "2"] {
        instances.push(scene.instance_with(name, &["--journal", &journal]).await);
    }
    let all: Vec<&Part> = instances.iter().collect();
    let counted = scene.load(&all, requests, &[]).count().await;
    let report =
        server.report_when("all is reported", |report| reported(report).number("requests") == requests).await;
    let mut times: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for line in std::fs::read_to_string(&journal).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let endpoint = match line["route"].as_str() {
            Some(route) => {
                format!("{} {}", line["method"].as_str().unwrap(), route.replace("{id}", ":id"))
            }
            None => "unmatched".to_owned(),
        };
        let (inner, outer) = times.entry(endpoint).or_default();
        inner.push(line["inner_us"].as_f64().unwrap() / 1000.0);
        outer.push(line["outer_us"].as_f64().unwrap() / 1000.0);
    }
    assert_eq!(times.len(), counted.endpoints().len());
    for endpoint in report["endpoints"].as_array().unwrap() {
        let (inner, outer) = times.get_mut(endpoint["endpoint"].as_str().unwrap()).unwrap();
        assert_eq!(endpoint["count"], inner.len());
        for (name, percent) in PERCENTS {
            let said = endpoint[name].as_f64().unwrap();
            let (least, most) = (nearest_rank(inner, percent), nearest_rank(outer, percent));
            let possible = least * (1.0 - ERROR) - 0.002..=most * (1.0 + ERROR) + 0.002;
            assert!(possible.contains(&said), "{name} of {endpoint}: not in {possible:?}");
        }
    }
    // The mix has its waits: a percentile that forgot them would not get through.
    let device = report["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["endpoint"] == "GET /api/devices/:id/state");
    assert!(device.unwrap()["p99_ms"].as_f64().unwrap() >= 59.0, "{device:?}");
}
