//! Document 003: `systems/cameras`.

mod batches;
mod caches;
mod compression;
mod events;
mod letters;
mod overflow;
mod pools;
mod queues;
mod repeating;
mod running;
mod scores;
mod service;

use std::process::Child;

use quaymaster_testkit::stage::Stage;
use serde_json::{Value, json};

use crate::Case;

pub(crate) const CASES: &[&[Case]] = &[
    pools::CASES,
    queues::CASES,
    letters::CASES,
    overflow::CASES,
    batches::CASES,
    events::CASES,
    compression::CASES,
    caches::CASES,
    scores::CASES,
    repeating::CASES,
    running::CASES,
];

/// The documented item of the detection queue.
const IMAGE: &str = r#"{"camera_id":"front_door","file_path":"/export/foscam/Front Door/image_001.jpg","timestamp":"2026-01-24T10:30:00.000000"}"#;
const DETECTION: &str = "detection_queue";
const ANALYSIS: &str = "analysis_queue";
/// The second in which every stage begins.
const NOW: f64 = 1_794_744_020.0;

fn push(s: &Stage, queue: &str, payload: Value) -> Value {
    s.ok(&format!("queue/{queue}/push"), json!({ "payload": payload }))
}

/// The next job; panics when there is none.
fn claim(s: &Stage, queue: &str) -> Value {
    let jobs = s.ok(&format!("queue/{queue}/claim"), json!({}))["jobs"].take();
    assert!(jobs[0].is_object(), "{queue} has no job");
    jobs[0].clone()
}

/// How many jobs are there to claim.
fn claimable(s: &Stage, queue: &str) -> usize {
    let jobs = s.ok(&format!("queue/{queue}/claim"), json!({"count": 100}))["jobs"].take();
    jobs.as_array().unwrap().len()
}

fn ack(s: &Stage, queue: &str, job: &Value) -> Value {
    s.ok(&format!("queue/{queue}/ack"), json!({"leases": [job["lease"]]}))
}

/// Claims the next job and says that it failed.
fn fail(s: &Stage, queue: &str, error: &str) -> Value {
    let job = claim(s, queue);
    s.ok(&format!("queue/{queue}/nack"), json!({"lease": job["lease"], "error": error}))
}

fn pressure(s: &Stage, queue: &str) -> Value {
    s.get(&format!("/v1/queue/{queue}/pressure")).expect(200)
}

/// A list from its head, as another program reads it.
fn list(s: &Stage, key: &str) -> Vec<String> {
    s.raw(&["LRANGE", key, "0", "-1"])
}

fn kind(s: &Stage, key: &str) -> String {
    s.raw(&["TYPE", key])
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The names of an object's fields, sorted.
fn fields(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// `2026-01-24T10:30:05.000000`.
fn assert_moment(value: &Value) {
    let text = value.as_str().unwrap();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "9999-99-99T99:99:99.999999", "{text}");
}

/// A running `quaymaster worker`; killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a worker of one queue beside `serve`; it writes to `worker.log`. Time runs from here on.
fn work(s: &Stage, queue: &str) -> Worker {
    s.clock().run_from(s.clock().now_us());
    s.address();
    let log = std::fs::File::create(s.folder().join("worker.log")).unwrap();
    let mut command = s.command();
    command.args(["worker", "--queue", queue]).env("QUAYMASTER_STORE", s.url());
    Worker(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

fn worker_log(s: &Stage) -> String {
    std::fs::read_to_string(s.folder().join("worker.log")).unwrap_or_default()
}
