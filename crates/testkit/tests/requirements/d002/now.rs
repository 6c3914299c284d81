//! What is so now, and the most there was: connections and speed.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::json;

use super::{connected, count, fine, record, report, stays};

const CURRENT: &str = "ha:connections:http:current";
const MOST: &str = "ha:connections:http:max_since_startup";
const SPEED: &str = "ha:requests:speed_per_second";
const FASTEST: &str = "ha:requests:max_speed_per_second";

/// Instances are missed after a minute: that an embedded store is started anew meanwhile makes no difference.
fn patient(s: &Stage) {
    s.amend("home-assistant", "flush = \"1s\"", "flush = \"1s\"\nheartbeat = \"1m\"");
}

fn l021_current_connections(s: &Stage) {
    connected(s, json!({ "0": 12, "1": 3 }));
    assert_eq!(s.text(CURRENT).as_deref(), Some("15"));
    s.lives(CURRENT, 5);
    s.kill();
    patient(s);
    connected(s, json!({ "0": 2, "1": 3 }));
    assert_eq!(report(s)["connections"]["current"], 5, "ten were closed");
    // "1" is killed and closes nothing.
    s.pass(40_000);
    connected(s, json!({ "0": 2 }));
    s.pass(25_000);
    connected(s, json!({ "0": 2 }));
    assert_eq!(count(s, CURRENT), 2);
    s.pass(61_000);
    assert_eq!(s.text(CURRENT), None);
}

fn l025_most_connections_since_startup(s: &Stage) {
    patient(s);
    connected(s, json!({ "0": 12, "1": 11 }));
    connected(s, json!({ "0": 1 }));
    assert_eq!((count(s, MOST), count(s, CURRENT)), (23, 12), "what were open at once");
    stays(s, MOST);
    s.pass(61_000);
    assert_eq!(count(s, MOST), 23, "until somebody starts");
    connected(s, json!({ "0": 4 }));
    assert_eq!(count(s, MOST), 4);
}

fn l036_speed_per_second(s: &Stage) {
    let six = ["0", "1", "0", "1", "0", "1"].map(fine);
    match s.store() {
        Store::Redis => {
            // Half a second past the second: the server may tell the moment a little wrong.
            s.pass(500);
            record(s, &six);
            s.pass(2_000);
            // The newest second that every instance has told.
            connected(s, json!({ "0": 1 }));
            assert_eq!(s.text(SPEED).as_deref(), Some("6"));
        }
        Store::Embedded => {
            let speed = || report(s)["requests"]["speed_per_second"].as_i64().unwrap();
            s.until("a second is over", || {
                record(s, &six);
                speed() > 0
            });
            assert_eq!(speed() % 6, 0, "of both instances");
        }
    }
    s.lives(SPEED, 5);
    s.pass(6_000);
    assert_eq!(s.text(SPEED), None);
    assert_eq!(report(s)["requests"]["speed_per_second"], 0);
}

fn l039_most_speed_since_startup(s: &Stage) {
    patient(s);
    record(s, &["0", "0", "1", "1", "1", "1"].map(fine));
    s.pass(2_000);
    record(s, &["0", "1", "1", "1"].map(fine));
    assert_eq!(s.text(FASTEST).as_deref(), Some("6"));
    assert_eq!(report(s)["requests"]["max_speed_per_second"], 6);
    stays(s, FASTEST);
    s.pass(61_000);
    record(s, &[fine("0")]);
    assert_eq!(count(s, FASTEST), 1, "nobody was alive: a new startup");
}

cases! {
    l021_current_connections
    l025_most_connections_since_startup
    l036_speed_per_second
    l039_most_speed_since_startup
}
