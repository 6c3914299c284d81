//! Channels, and who hears them.

use quaymaster_testkit::stage::{Ask, Stage, Wire};
use serde_json::json;

use super::service::Service;
use super::{ANALYSIS, assert_moment, fields, parsed, push, work};

const EVENT: &str = r#"{"type":"event","data":{"id":1,"event_id":1,"batch_id":"abc123","camera_id":"front_door","risk_score":75,"risk_level":"high","summary":"Person detected at front door","started_at":"2026-01-24T12:00:00.000000","detection_count":3}}"#;

fn l230_security_events_are_broadcast(s: &Stage) {
    // After the analysis: what the analyser answers.
    let analyser = Service::that_answers("200 OK", EVENT);
    s.var("ANALYSER_URL", &analyser.url);
    let heard = s.listen("security_events");
    let _worker = work(s, ANALYSIS);
    push(s, ANALYSIS, json!({"batch_id": "abc123"}));
    assert_eq!(analyser.next().body, r#"{"batch_id":"abc123"}"#);
    assert_eq!(heard.next(), EVENT);
    // And what a program publishes itself.
    s.ok("event/security_events/publish", json!({"data": parsed(EVENT)}));
    assert_eq!(parsed(&heard.next()), parsed(EVENT));
}

fn l255_system_status_is_broadcast(s: &Stage) {
    s.var("SYSTEM_STATUS_EVERY", "1s");
    s.clock().run_from(s.clock().now_us());
    push(s, "detection_queue", json!(1));
    s.ok("event/system_status/report", json!({"data": {"gpu_utilization": 45.2, "cameras_online": 4}}));
    let heard = s.listen("system_status");
    let told = parsed(&heard.next());
    assert_eq!((fields(&told), &told["type"]), (vec!["data", "type"], &json!("status")));
    let data = &told["data"];
    assert_eq!(fields(data), ["cameras_online", "gpu_utilization", "queue_depths", "timestamp"]);
    assert_moment(&data["timestamp"]);
    assert_eq!(data["queue_depths"], json!({"detection_queue": 1, "analysis_queue": 0}));
    assert_eq!((&data["gpu_utilization"], &data["cameras_online"]), (&json!(45.2), &json!(4)));
    push(s, "detection_queue", json!(2));
    s.until("the next ones tell more", || {
        parsed(&heard.next())["data"]["queue_depths"]["detection_queue"] == 2
    });
}

fn l282_channels_are_subscribed(s: &Stage) {
    let plain = s.listen("security_events");
    let listen = |event: &str| {
        let mut wire = Wire::open(s.address());
        assert_eq!(wire.open_answer(&Ask::new("GET", &format!("/v1/event/{event}/stream"))).status, 200);
        wire.hear(": listening\n\n");
        wire
    };
    let mut both = [listen("security_events"), listen("system_status")];
    // Ours to everybody, another program's to everybody.
    s.ok("event/security_events/publish", json!({"data": {"n": 1}}));
    assert_eq!(plain.next(), r#"{"n":1}"#);
    s.raw::<()>(&["PUBLISH", "security_events", r#"{"n":2}"#]);
    for n in 1..=2 {
        let heard = String::from_utf8(both[0].hear("\n\n")).unwrap();
        assert!(heard.contains(&format!("data: {{\"n\":{n}}}")), "{heard}");
    }
    s.raw::<()>(&["PUBLISH", "system_status", r#"{"type":"status"}"#]);
    let heard = String::from_utf8(both[1].hear(r#"data: {"type":"status"}"#)).unwrap();
    assert!(!heard.contains("\"n\""), "a channel of its own: {heard}");
}

cases! {
    l230_security_events_are_broadcast
    l255_system_status_is_broadcast
    l282_channels_are_subscribed
}
