//! Document 001: `systems/uploads`.

mod chunks;
mod completion;
mod failing;
mod messages;
mod operating;
mod s3;
#[path = "../../../../upload/tests/support/seaweed.rs"]
#[allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "other tests use the rest")]
mod seaweed;
mod state;
#[path = "../../../../upload/tests/support/tamper.rs"]
#[allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "other tests use the rest")]
mod tamper;

use std::path::PathBuf;

use quaymaster_testkit::stage::{Ask, Stage, Store};
use serde_json::{Value, json};

pub(crate) const CASES: &[&[crate::Case]] =
    &[state::CASES, chunks::CASES, messages::CASES, completion::CASES, failing::CASES, operating::CASES];

const NODE: &str = "550e8400-e29b-41d4-a716-446655440000";
/// As long as S3 wants every part but the last.
const LONG: usize = 5 << 20;

/// Chunks may be as short as the examples here.
fn short(s: &Stage) {
    s.amend("uploads", "chunk_min = \"5MiB\"", "chunk_min = 1");
}

/// Begins an upload; its id.
fn create(s: &Stage, body: Value) -> String {
    s.ok("upload/documents/create", body)["upload_id"].as_str().unwrap().to_owned()
}

fn file(s: &Stage) -> String {
    create(s, json!({"name": "a.pdf"}))
}

/// Sends chunk `n`, which is received.
fn send(s: &Stage, id: &str, n: u32, bytes: &[u8], last: bool) -> Value {
    let end = if last { "?last=true" } else { "" };
    s.put(&format!("upload/documents/{id}/chunk/{n}{end}"), bytes).expect(200)
}

fn status(s: &Stage, id: &str) -> Value {
    s.get(&format!("/v1/upload/documents/{id}")).expect(200)
}

/// Waits until an upload is what it is wanted to be.
fn until(s: &Stage, id: &str, wanted: &str) -> Value {
    s.until(wanted, || status(s, id)["status"] == wanted);
    status(s, id)
}

/// Waits until so many chunks are durable.
fn until_durable(s: &Stage, id: &str, chunks: u32) {
    s.until("chunks are durable", || status(s, id)["durable_chunks"] == chunks);
}

/// An upload of these chunks that is COMPLETED; its id.
fn whole(s: &Stage, chunks: &[&str]) -> String {
    let id = file(s);
    for (n, chunk) in (0..).zip(chunks) {
        send(s, &id, n, chunk.as_bytes(), n as usize + 1 == chunks.len());
    }
    until(s, &id, "COMPLETED");
    id
}

fn call_off(s: &Stage, id: &str) -> Value {
    s.ask(&Ask::new("DELETE", &format!("/v1/upload/documents/{id}"))).expect(200)
}

fn content(s: &Stage, id: &str) -> Vec<u8> {
    let content = s.get(&format!("/v1/upload/documents/{id}/content"));
    assert_eq!(content.status, 200, "{}", content.text());
    content.body
}

/// What the outbox tells of an upload.
fn events(s: &Stage, id: &str) -> Vec<Value> {
    let told = s.get("/v1/upload/documents/events").expect(200);
    let of_it = told["events"].as_array().unwrap().iter().filter(|event| event["upload_id"] == id);
    of_it.cloned().collect()
}

fn key(id: &str, last: &str) -> String {
    format!("upload:{id}:{last}")
}

fn kind(s: &Stage, key: &str) -> String {
    s.raw(&["TYPE", key])
}

/// A field of the documented state.
fn field(s: &Stage, id: &str, name: &str) -> Option<String> {
    s.field(&key(id, "state"), name)
}

fn is(s: &Stage, id: &str, name: &str, value: &str) {
    assert_eq!(field(s, id, name).as_deref(), Some(value), "{name}");
}

/// The files in which the embedded store keeps the chunks of an upload.
fn spooled(s: &Stage, id: &str) -> Vec<PathBuf> {
    let folder = s.folder().join("quaymaster-data/spool/documents").join(id);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The bytes of chunk 0, the only one, while they wait.
fn waiting(s: &Stage, id: &str) -> Option<Vec<u8>> {
    match s.store() {
        Store::Redis => s.raw(&["GET", &key(id, "chunks:0")]),
        Store::Embedded => spooled(s, id).first().map(|file| std::fs::read(file).unwrap()),
    }
}

/// Chunk 0 waits for its next attempt, after one that failed: this many milliseconds, as told in `todo`.
fn waits(s: &Stage, id: &str, ms: std::ops::RangeInclusive<i64>) {
    s.until("the next attempt is due", || {
        let due: Option<i64> = s.raw(&["ZSCORE", &key(id, "todo"), "0"]);
        due.is_some_and(|due| ms.contains(&(due - s.clock().now_us() / 1000)))
    });
}

/// After the first attempt that failed.
const FIRST: std::ops::RangeInclusive<i64> = 1..=1250;

/// From now on time passes by itself, on Redis too.
fn let_time_run(s: &Stage) {
    s.clock().run_from(s.clock().now_us());
}
