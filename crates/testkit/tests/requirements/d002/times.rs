//! Response times.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::Value;

use super::{USERS, count, fine, is_now, members, record, report, request, stays};

const TIMES: &str = "ha:response_times:GET /api/users";
const SUM: &str = "ha:avg_response:GET /api/users";
const COUNT: &str = "ha:response_count:GET /api/users";

/// Requests for users that took so long.
fn took(s: &Stage, instance: &str, times: impl IntoIterator<Item = f64>) {
    let requests: Vec<Value> = times.into_iter().map(|ms| request(instance, USERS, 200, ms)).collect();
    record(s, &requests);
}

/// The milliseconds of a member, as JavaScript's `parseFloat` reads them.
fn milliseconds(member: &str) -> f64 {
    member.split('#').next().unwrap().parse().unwrap()
}

/// What the report says of users.
fn of_users(s: &Stage) -> Value {
    let report = report(s);
    let found = report["endpoints"].as_array().unwrap().iter().find(|one| one["endpoint"] == USERS);
    found.cloned().unwrap_or_else(|| panic!("{report}"))
}

fn l120_response_times_are_a_zset_by_ms(s: &Stage) {
    took(s, "0", [150.5]);
    assert_eq!(s.raw::<String>(&["TYPE", TIMES]), "zset");
    let held = members(s, TIMES);
    let [(member, score)] = &held[..] else { panic!("{held:?}") };
    is_now(s, *score);
    assert!((milliseconds(member) - 150.5).abs() < 1e-9, "{member}");
    stays(s, TIMES);
}

fn l121_percentiles_of_response_times(s: &Stage) {
    took(s, "0", (1..=50).map(f64::from));
    took(s, "1", (51..=100).map(f64::from));
    let users = of_users(s);
    for (field, exact) in [("p50_ms", 50.0), ("p95_ms", 95.0), ("p99_ms", 99.0)] {
        let told = users[field].as_f64().unwrap();
        assert!((told - exact).abs() <= exact / 128.0, "{field} {told}");
    }
}

fn l123_members_are_the_times(s: &Stage) {
    took(s, "0", [150.0, 150.0, 89.25]);
    took(s, "1", [150.0]);
    let held = members(s, TIMES);
    let mut times: Vec<String> =
        held.iter().map(|(member, _)| member.split_once('#').unwrap().0.to_owned()).collect();
    times.sort();
    assert_eq!(times, ["150.000", "150.000", "150.000", "89.250"], "equal ones stay apart");
}

fn l125_one_spelling_of_an_endpoint(s: &Stage) {
    record(s, &[fine("0"), request("0", "POST /api/auth_login", 500, 1.0)]);
    let endpoints = |kind: &str| -> BTreeSet<String> {
        let keys = s.keys(&format!("ha:{kind}:*"));
        keys.iter().map(|key| key.strip_prefix(&format!("ha:{kind}:")).unwrap().to_owned()).collect()
    };
    let both: BTreeSet<String> = [USERS.to_owned(), "POST /api/auth_login".to_owned()].into();
    for kind in ["requests:endpoint", "response_times", "avg_response", "response_count"] {
        assert_eq!(endpoints(kind), both, "{kind}");
    }
}

fn l127_the_last_thousand_times_stay(s: &Stage) {
    for batch in 1..=12 {
        took(s, "0", (0..100).map(|_| f64::from(batch)));
        if s.store() == Store::Redis {
            s.pass(10);
        }
    }
    let held = members(s, TIMES);
    let oldest = held.iter().map(|(member, _)| milliseconds(member)).fold(f64::MAX, f64::min);
    assert_eq!((held.len(), oldest as i64), (1000, 3), "the first two hundred are gone");
    assert_eq!(count(s, COUNT), 1200);
    // One flush of a busy endpoint brings a sample.
    let busy: Vec<Value> = (0..1500).map(|_| request("0", "GET /busy", 200, 1.0)).collect();
    record(s, &busy);
    assert_eq!(s.raw::<i64>(&["ZCARD", "ha:response_times:GET /busy"]), 100);
}

fn l134_sum_of_response_times(s: &Stage) {
    took(s, "0", [150.005, 150.005]);
    took(s, "1", [150.005]);
    assert_eq!(s.text(SUM).as_deref(), Some("450.015"));
    assert_eq!(s.text("ha:avg_response:GET /api/other"), None);
    stays(s, SUM);
}

fn l143_count_of_response_times(s: &Stage) {
    took(s, "0", [1.0, 2.0]);
    took(s, "1", [0.0]);
    record(s, &[request("0", "GET /api/other", 200, 1.0)]);
    assert_eq!(s.text(COUNT).as_deref(), Some("3"));
    stays(s, COUNT);
}

fn l148_average_is_sum_by_count(s: &Stage) {
    took(s, "0", (0..60).map(|_| 150.0));
    took(s, "1", (0..39).map(|_| 150.0).chain([150.5]));
    assert_eq!((s.text(SUM).as_deref(), s.text(COUNT).as_deref()), (Some("15000.5"), Some("100")));
    assert_eq!(of_users(s)["avg_ms"], 150.005);
}

cases! {
    l120_response_times_are_a_zset_by_ms
    l121_percentiles_of_response_times
    l123_members_are_the_times
    l125_one_spelling_of_an_endpoint
    l127_the_last_thousand_times_stay
    l134_sum_of_response_times
    l143_count_of_response_times
    l148_average_is_sum_by_count
}
