//! What a status looks like, and what is no message.

use std::collections::BTreeMap;

use super::status::render;
use super::{MAX_BYTES, check_data};
use crate::Code;

#[test]
fn a_status_is_the_documented_message() {
    let reported = BTreeMap::from([
        ("gpu_utilization".to_owned(), "45.2".to_owned()),
        ("cameras_online".to_owned(), " 4 ".to_owned()),
    ]);
    assert_eq!(
        render(1_769_256_000_000_000, &[("detection_queue", 5), ("analysis_queue", 2)], &reported),
        "{\"type\":\"status\",\"data\":{\"timestamp\":\"2026-01-24T12:00:00.000000\",\
         \"queue_depths\":{\"detection_queue\":5,\"analysis_queue\":2},\
         \"cameras_online\":4,\"gpu_utilization\":45.2}}"
    );
    assert_eq!(
        render(0, &[], &BTreeMap::new()),
        "{\"type\":\"status\",\"data\":{\"timestamp\":\"1970-01-01T00:00:00.000000\",\"queue_depths\":{}}}"
    );
}

#[test]
fn a_message_is_json_of_a_bounded_length() {
    for data in [&b"{}"[..], b"1", b" [1, 2] ", b"null", b"\"text\""] {
        assert!(check_data("event.publish", data).is_ok(), "{data:?}");
    }
    for data in [&b""[..], b"{", b"1 2", b"text", b"\xff", b"\"\xff\""] {
        assert_eq!(check_data("event.publish", data).map_err(|error| error.code), Err(Code::RequestInvalid));
    }
    let long = format!("\"{}\"", "x".repeat(MAX_BYTES - 2));
    assert!(check_data("event.publish", long.as_bytes()).is_ok());
    let longer = format!("{long} ");
    assert_eq!(
        check_data("event.publish", longer.as_bytes()).map_err(|error| error.code),
        Err(Code::RequestTooLarge)
    );
}
