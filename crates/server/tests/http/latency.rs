//! The store's latency in `/v1/status` and `/metrics`, and its threshold.

use std::time::Duration;

use quaymaster_server::config::Thresholds;

use crate::fixture::{Fixture, settings};

#[tokio::test]
async fn each_class_of_calls_has_its_p95_and_its_threshold() {
    let hour = Duration::from_secs(3_600);
    let all = Thresholds { p95_single: Duration::ZERO, p95_compound: hour, ..Thresholds::default() };
    let server = Fixture::warning(all).await;
    for id in 0..100 {
        let one = server.post("/v1/queue/jobs/push", r#"{"payload":1}"#).await;
        assert_eq!(one.status, 200, "{}", one.json());
        let body = format!(r#"{{"key":{{"id":"{id}","psp_id":"p{id}"}},"fingerprint":"f"}}"#);
        let both = server.post("/v1/guard/pay/enter", &body).await;
        assert_eq!(both.status, 200, "{}", both.json());
    }
    let status = server.get("/v1/status").await.json();
    let latency = status["store"]["latency"].as_array().unwrap();
    for (index, class) in ["single", "compound", "bulk"].into_iter().enumerate() {
        assert_eq!(latency[index]["class"], class);
        assert_eq!(latency[index]["p95_over"], false);
        let calls = latency[index]["calls"].as_u64().unwrap();
        assert_eq!(calls >= 100, class != "bulk", "{status}");
        assert_eq!(latency[index]["p95_us"].as_u64().is_some(), class != "bulk", "{status}");
    }
    assert!(status["store"]["latency_p95_us"].as_u64().is_some());
    let p95 = |text: &serde_json::Value| text.as_str().is_some_and(|text| text.starts_with("p95 "));
    let warned: Vec<_> = status["warnings"].as_array().unwrap().iter().filter(|text| p95(text)).collect();
    assert_eq!(warned.len(), 1, "{status}");
    assert!(warned[0].as_str().unwrap().contains("single calls"), "{status}");
    let metrics = server.get("/metrics").await.text();
    for line in [
        "quaymaster_threshold_exceeded{threshold=\"p95\"} 1",
        "quaymaster_store_recent_p95_seconds{class=\"single\"} 0.0",
        "quaymaster_store_recent_p95_seconds{class=\"compound\"} 0.0",
        "quaymaster_store_recent_calls{class=\"bulk\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("recent_p95_seconds{class=\"bulk\"}"), "no calls, no value");
}

#[test]
fn one_p95_is_for_both_classes_unless_one_has_its_own() {
    let ms = Duration::from_millis;
    for (text, single, compound) in [
        ("", 2, 2),
        ("[thresholds]\np95 = \"5ms\"", 5, 5),
        ("[thresholds]\np95 = \"5ms\"\np95_single = \"1ms\"", 1, 5),
        ("[thresholds]\np95_compound = \"9ms\"", 2, 9),
    ] {
        let found = settings(text, &|_| None).thresholds;
        assert_eq!((found.p95_single, found.p95_compound), (ms(single), ms(compound)), "{text}");
    }
}
