//! The item of a closed batch, and ids.

use bytes::Bytes;

use super::answer::{Held, item};
use super::fresh_id;

#[test]
fn a_closed_batch_is_the_documented_item() {
    let held = Held {
        now_us: 1_769_250_690_000_000,
        by: "front_door".to_owned(),
        items: Bytes::from_static(b"[1,2,3]"),
        started_us: 1_769_250_600_000_000,
    };
    assert_eq!(
        item("camera_id", "detection_ids", "abc123-def456", &held),
        "{\"batch_id\":\"abc123-def456\",\"camera_id\":\"front_door\",\"detection_ids\":[1,2,3],\
         \"started_at\":\"2026-01-24T10:30:00.000000\",\"ended_at\":\"2026-01-24T10:31:30.000000\"}"
    );
    let odd = Held { by: "a\"b\\\u{e9}".to_owned(), ..held };
    let value: serde_json::Value = serde_json::from_str(&item("by", "items", "x", &odd)).unwrap_or_default();
    assert_eq!(value["by"], "a\"b\\\u{e9}");
}

#[test]
fn ids_differ_and_are_no_numbers_to_anybody() {
    let (one, two) = (fresh_id(), fresh_id());
    assert_ne!(one, two);
    assert_eq!(one.len(), 25);
    assert!(
        one.split('-').all(|half| half.len() == 12 && half.bytes().all(|c| c.is_ascii_hexdigit())),
        "{one}"
    );
    assert!(one.parse::<f64>().is_err());
}
