//! Document 000: `systems/courtlistener`.

mod cleaning;
mod health;
mod quota;
mod runs;

use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use crate::Case;

pub(crate) const CASES: &[&[Case]] = &[quota::CASES, runs::CASES, cleaning::CASES, health::CASES];

const RUN: &str = "manual_2024-09-17T14:30:00+00:00";
const STATE: &str = "courtlistener:pipeline:manual_2024-09-17T14:30:00+00:00";
/// The hour in which every stage begins.
const HOUR: &str = "2026-11-15_12";
const QUOTA: &str = "courtlistener:rate_limit:2026-11-15_12";
const COUNTER: &str = "courtlistener:counter:2026-11-15_12";
const FAILED: &str = "courtlistener:failed:2026-11-15_12";
const HOUR_MS: u64 = 3_600_000;

fn take(s: &Stage) -> Value {
    s.ok("limit/courtlistener/take", json!({"key": {}}))
}

fn take_second(s: &Stage) -> Value {
    s.ok("limit/courtlistener_counter/take", json!({"key": {}}))
}

fn start(s: &Stage) -> Value {
    s.ok("run/courtlistener/start", json!({"run_id": RUN}))
}

fn task_start(s: &Stage, task: &str) -> Value {
    s.ok("run/courtlistener/task_start", json!({"run_id": RUN, "task_id": task}))
}

fn processed(s: &Stage, items: &[&str]) -> Value {
    s.ok("run/courtlistener/processed", json!({"run_id": RUN, "items": items}))
}

fn failed(s: &Stage, item: &str, error: &str) -> Value {
    s.ok("run/courtlistener/failed", json!({"run_id": RUN, "item": item, "error": error}))
}

fn show(s: &Stage) -> Value {
    s.get("/v1/run/courtlistener/show?run_id=manual_2024-09-17T14:30:00%2B00:00").expect(200)
}

fn kind(s: &Stage, key: &str) -> String {
    s.raw(&["TYPE", key])
}

fn list(s: &Stage, key: &str) -> Vec<String> {
    s.raw(&["LRANGE", key, "0", "-1"])
}

/// Runs a command on the stage's store in the time of a node whose own clock is ahead; its standard output.
fn on_a_node_ahead(s: &Stage, ahead_us: i64, words: &[&str]) -> String {
    s.address();
    let now_us = s.clock().now_us() + ahead_us;
    let clock = match s.store() {
        Store::Redis => HeldClock::frozen(now_us),
        Store::Embedded => HeldClock::running(now_us),
    };
    let mut command = s.command();
    command.args(words).env("QUAYMASTER_STORE", s.url()).envs(clock.environment());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
