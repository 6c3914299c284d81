//! Document 002: `systems/home-assistant`.

mod keys;
mod limits;
mod now;
mod requests;
mod times;

use std::collections::BTreeSet;
use std::path::Path;

use quaymaster_testkit::servers::Process;
use quaymaster_testkit::stage::{Ask, Stage, Store, Wire};
use serde_json::{Value, json};

/// The cases of every file.
pub(crate) const CASES: &[&[crate::Case]] =
    &[keys::CASES, requests::CASES, now::CASES, times::CASES, limits::CASES];

const USERS: &str = "GET /api/users";
/// Somebody who is counted.
const CALLER: &str = "203.0.113.7";

/// An answered request, as instances record it.
fn request(instance: &str, endpoint: &str, status: u16, ms: f64) -> Value {
    let (method, path) = endpoint.split_once(' ').unwrap();
    json!({ "instance": instance, "method": method, "path": path, "status": status, "duration_ms": ms, "remote": CALLER })
}

/// One that nothing is wrong with.
fn fine(instance: &str) -> Value {
    request(instance, USERS, 200, 150.0)
}

/// Records them in one call; all of them must be counted.
fn record(s: &Stage, requests: &[Value]) {
    let answer = s.ok("stats/ha/record", json!({ "requests": requests }));
    assert_eq!(answer["recorded"], requests.len(), "{answer}");
}

/// Instances tell how many connections they have.
fn connected(s: &Stage, open: Value) {
    s.ok("stats/ha/record", json!({ "connections": open }));
}

fn report(s: &Stage) -> Value {
    s.get("/v1/stats/ha/report").expect(200)
}

/// Takes from a limit.
fn take(s: &Stage, limit: &str, identifier: &str) -> Value {
    s.ok(&format!("limit/{limit}/take"), json!({ "key": { "identifier": identifier } }))
}

/// The counter at `key`; 0 when there is none.
fn count(s: &Stage, key: &str) -> i64 {
    s.raw::<Option<i64>>(&["GET", key]).unwrap_or(0)
}

/// Checks that nothing ends the key.
fn stays(s: &Stage, key: &str) {
    assert_eq!(s.raw::<i64>(&["TTL", key]), -1, "{key}");
}

/// All keys but those that belong to no schema.
fn keys_of_schemas(s: &Stage) -> BTreeSet<String> {
    let mut keys = s.keys("*");
    keys.retain(|key| !key.starts_with("quaymaster:"));
    keys
}

/// Members of a sorted set with their scores.
fn members(s: &Stage, key: &str) -> Vec<(String, i64)> {
    s.raw(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
}

/// Checks a moment in milliseconds that the server told: it knows the store's clock to within a round trip.
fn is_now(s: &Stage, ms: i64) {
    let now = s.clock().now_us() / 1000;
    let (late, early) = if s.store() == Store::Redis { (1_000, 1_000) } else { (60_000, 0) };
    assert!((now - late..=now + early).contains(&ms), "{ms}, where it is {now}");
}

/// The backend in Node, which records into the stage's server, after one request of somebody's was counted.
fn backend(s: &Stage, pm_id: Option<&str>) -> Process {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/home-assistant/examples/node/server.mjs");
    let (server, log) = (format!("http://{}", s.address()), s.folder().join("node"));
    let mut env = s.clock().environment();
    env.extend([("HA_SERVER".to_owned(), server), ("HA_PROXIES".to_owned(), "127.0.0.1".to_owned())]);
    env.extend(pm_id.map(|id| ("pm_id".to_owned(), id.to_owned())));
    let words = [program.display().to_string(), "0".to_owned()];
    let process = Process::spawn(Path::new("node"), &words, &env, &log);
    let mut address = None;
    s.until("the backend listens", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let rest = text.split_once("http://").and_then(|(_, rest)| rest.split_once(' '));
        address = rest.map(|(address, _)| address.parse().unwrap());
        address.is_some()
    });
    let asked = Ask::new("GET", "/api/users").with("x-forwarded-for", CALLER);
    assert_eq!(Wire::open(address.unwrap()).ask(&asked).0.status, 200);
    s.until("its request is counted", || report(s)["requests"]["total"] == 1);
    process
}
