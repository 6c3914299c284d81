//! What a topic holds of uploads' events, read by a client that shares no code with ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::process::said;

pub(crate) const TOPIC: &str = "repository.uploads.completed";

/// What a topic holds of one event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) headers: Value,
    pub(crate) timestamp: i64,
}

/// Everything on a topic, by event id, in the order it came.
pub(crate) fn read(brokers: &str, topic: &str) -> BTreeMap<String, Vec<Record>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tools = std::env::var_os("QUAYMASTER_TEST_TOOLS");
    let tools = tools.map_or_else(|| here.join("target/test-tools"), Into::into);
    let mut reader = Command::new(tools.join("venv/bin/python"));
    reader.arg(here.join("crates/testkit/foreign/kafka_reader.py"));
    let told = said(reader.arg(brokers).arg(topic));
    assert_eq!(told.code, 0, "run scripts/test-tools: {told:?}");
    let mut records: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for line in told.out.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let record = Record {
            key: line["key"].as_str().unwrap().to_owned(),
            value: serde_json::from_str(line["value"].as_str().unwrap()).unwrap(),
            headers: line["headers"].clone(),
            timestamp: line["timestamp"].as_i64().unwrap(),
        };
        let id = record.headers["event_id"].as_str().unwrap().to_owned();
        records.entry(id).or_default().push(record);
    }
    records
}

/// Every field of the documented event, held against what the upload's state says.
pub(crate) fn check(record: &Record, state: &Value, size: u64, since: SystemTime) {
    let value = record.value.as_object().unwrap();
    let fields: BTreeSet<&str> = value.keys().map(String::as_str).collect();
    let documented = BTreeSet::from(["node_id", "s3_key", "etag", "size", "timestamp"]);
    let recognised = BTreeSet::from(["event_id", "upload_id", "resource"]);
    assert_eq!(fields, documented.union(&recognised).copied().collect());
    assert_eq!(value["node_id"], state["node_id"]);
    assert_eq!(value["s3_key"], state["s3_key"]);
    assert_eq!(value["etag"], state["final_etag"]);
    assert_eq!((&value["size"], &value["size"]), (&json!(size), &state["final_size"]));
    let ms = |moment: SystemTime| moment.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let told = value["timestamp"].as_i64().unwrap();
    assert!((ms(since)..=ms(SystemTime::now())).contains(&told), "milliseconds since 1970: {told}");
    assert_eq!((record.timestamp, record.key.as_str()), (told, state["node_id"].as_str().unwrap()));
    let id = state["upload_id"].as_str().unwrap();
    assert_eq!(value["upload_id"], json!(id));
    assert_eq!(value["event_id"], json!(format!("{id}.completed")));
    assert_eq!(record.headers, json!({ "event_id": value["event_id"], "upload_id": id }));
}
