//! What is counted of requests and their errors.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::{NOW_US, Stage, Store};
use serde_json::json;

use super::{CALLER, USERS, backend, count, fine, record, report, request, stays};

const HOUR_MS: i64 = 3_600_000;

fn l028_accepted_requests_leave_out_refused(s: &Stage) {
    let mut refused = fine("0");
    refused["accepted"] = json!(false);
    let of = |status| request("0", USERS, status, 1.0);
    record(s, &[of(200), of(404), of(500), of(429), refused]);
    assert_eq!((count(s, "ha:requests:accepted"), count(s, "ha:requests:total")), (3, 5));
    assert_eq!(report(s)["requests"]["accepted"], 3);
}

fn l031_total_requests_of_all_instances(s: &Stage) {
    record(s, &[fine("0"), request("1", "POST /api/auth/login", 401, 2.0)]);
    record(s, &[fine("1")]);
    // Sent again because its answer was lost.
    let sent = json!({ "requests": [fine("0"), fine("2")], "request_id": "0-17" });
    for _ in 0..2 {
        s.ok("stats/ha/record", sent.clone());
    }
    assert_eq!(s.text("ha:requests:total").as_deref(), Some("5"));
    assert_eq!(report(s)["requests"]["total"], 5);
}

fn l033_localhost_is_not_counted(s: &Stage) {
    let from = |remote: &str| {
        let mut request = fine("0");
        request["remote"] = json!(remote);
        request
    };
    let local = ["127.0.0.1", "::1", "::ffff:127.0.0.1"].map(from);
    let answer = s.ok("stats/ha/record", json!({ "requests": local }));
    assert_eq!((&answer["recorded"], &answer["ignored"]), (&json!(0), &json!(3)));
    assert_eq!(s.keys("ha:requests:*"), BTreeSet::new());
    record(s, &[from(CALLER)]);
    assert_eq!((count(s, "ha:requests:total"), count(s, "ha:requests:instance:0")), (1, 1));
}

fn l034_counters_never_expire(s: &Stage) {
    let counters = [
        "ha:requests:total".to_owned(),
        "ha:requests:accepted".to_owned(),
        format!("ha:requests:endpoint:{USERS}"),
    ];
    record(s, &[fine("0")]);
    for key in &counters {
        stays(s, key);
    }
    s.pass(40 * 24 * HOUR_MS.unsigned_abs());
    record(s, &[fine("0")]);
    for key in counters {
        assert_eq!(count(s, &key), 2, "{key}");
    }
}

fn l046_requests_by_method_and_path(s: &Stage) {
    let endpoints = [USERS, "POST /api/auth/login", "PUT /api/forum/questions/123"];
    record(s, &endpoints.map(|endpoint| request("0", endpoint, 200, 1.0)));
    record(s, &[fine("1")]);
    for (endpoint, times) in endpoints.iter().zip([2, 1, 1]) {
        let key = format!("ha:requests:endpoint:{endpoint}");
        assert_eq!(count(s, &key), times, "{key}");
        stays(s, &key);
    }
}

fn l058_requests_by_instance(s: &Stage) {
    let _backend = backend(s, Some("7"));
    record(s, &[fine("0"), fine("0")]);
    assert_eq!((count(s, "ha:requests:instance:7"), count(s, "ha:requests:instance:0")), (1, 2));
    stays(s, "ha:requests:instance:7");
}

fn l060_instance_name_without_pm_id(s: &Stage) {
    let _backend = backend(s, None);
    let names = s.keys("ha:requests:instance:*");
    let started: Vec<i64> = names
        .iter()
        .filter_map(|name| name.strip_prefix("ha:requests:instance:instance-")?.parse().ok())
        .collect();
    let [started] = started[..] else { panic!("{names:?}") };
    super::is_now(s, started);
    // One in Rust has a name of the same form.
    let name = quaymaster::stats::instance_id();
    let digits = name.strip_prefix("instance-").unwrap_or_default();
    assert!(digits.len() == 13 && digits.parse::<i64>().is_ok(), "{name}");
}

fn l065_instance_counters_last_while_it_lives(s: &Stage) {
    record(s, &[fine("0"), fine("instance-1672531200000")]);
    stays(s, "ha:requests:instance:instance-1672531200000");
    s.pass(23 * HOUR_MS.unsigned_abs());
    record(s, &[fine("0")]);
    s.pass(2 * HOUR_MS.unsigned_abs());
    s.ok("stats/ha/sweep", json!({}));
    assert_eq!(s.keys("ha:requests:instance:*"), ["ha:requests:instance:0".to_owned()].into());
    assert_eq!((count(s, "ha:requests:instance:0"), count(s, "ha:requests:total")), (2, 3));
}

fn l071_hourly_requests_live_a_day(s: &Stage) {
    let start = NOW_US / 1000 / HOUR_MS * HOUR_MS;
    let [this, next] = [start, start + HOUR_MS].map(|hour| format!("ha:requests:hourly:{hour}"));
    record(s, &[fine("0"), fine("1")]);
    assert_eq!(count(s, &this), 2);
    s.lives(&this, 86_400);
    s.pass(HOUR_MS.unsigned_abs());
    record(s, &[fine("0")]);
    assert_eq!((count(s, &this), count(s, &next)), (2, 1));
    s.lives(&this, 82_800);
    s.lives(&next, 86_400);
    s.pass(23 * HOUR_MS.unsigned_abs() + 1);
    assert_eq!(s.keys("ha:requests:hourly:*"), [next].into());
}

fn l085_errors_from_400_on(s: &Stage) {
    record(s, &[200, 301, 399, 400, 404, 429, 500].map(|status| request("0", USERS, status, 1.0)));
    record(s, &[request("1", USERS, 503, 1.0)]);
    assert_eq!(s.text("ha:errors:total").as_deref(), Some("5"));
    assert_eq!(report(s)["errors"]["total"], 5);
    stays(s, "ha:errors:total");
}

fn l094_errors_by_method_and_path(s: &Stage) {
    let login = "POST /api/auth/login";
    record(s, &[request("0", login, 401, 1.0), request("1", login, 429, 1.0), request("0", login, 200, 1.0)]);
    record(s, &[request("0", USERS, 500, 1.0), request("0", "GET /api/devices", 200, 1.0)]);
    let [of_login, of_users] = [login, USERS].map(|endpoint| format!("ha:errors:endpoint:{endpoint}"));
    assert_eq!((count(s, &of_login), count(s, &of_users)), (2, 1));
    assert_eq!(s.keys("ha:errors:endpoint:*"), [of_login.clone(), of_users].into(), "none without errors");
    stays(s, &of_login);
}

fn l105_errors_by_status(s: &Stage) {
    record(s, &[200, 400, 401, 404, 404, 500].map(|status| request("0", USERS, status, 1.0)));
    let counts = [("400", 1), ("401", 1), ("404", 2), ("500", 1)];
    for (status, times) in counts {
        assert_eq!(count(s, &format!("ha:errors:status:{status}")), times, "{status}");
    }
    assert_eq!(s.keys("ha:errors:status:*").len(), counts.len());
    assert_eq!(report(s)["errors"]["by_status"], json!({ "400": 1, "401": 1, "404": 2, "500": 1 }));
    stays(s, "ha:errors:status:404");
}

fn l220_a_flush_is_one_step(s: &Stage) {
    // The last of its counters cannot be added to: none of the others may be.
    s.raw::<()>(&["SET", "ha:errors:status:500", "many"]);
    let sent = json!({ "requests": [fine("0"), request("1", USERS, 500, 1.0)], "request_id": "0-1" });
    assert_eq!(s.post("stats/ha/record", sent.clone()).expect(409)["code"], "key.malformed");
    assert_eq!(s.keys("ha:*"), ["ha:errors:status:500".to_owned()].into());
    s.raw::<()>(&["DEL", "ha:errors:status:500"]);
    for _ in 0..2 {
        s.ok("stats/ha/record", sent.clone());
    }
    let keys =
        ["ha:requests:total", "ha:requests:endpoint:GET /api/users", "ha:response_count:GET /api/users"];
    assert_eq!(keys.map(|key| count(s, key)), [2, 2, 2]);
    if s.store() == Store::Redis {
        let before = scripts(s);
        record(s, &[fine("0"), request("1", "PUT /api/x", 404, 1.0)]);
        assert_eq!(scripts(s) - before, 1, "seven keys of two endpoints, one script");
    }
}

/// How many scripts Redis ran.
fn scripts(s: &Stage) -> i64 {
    let told: String = s.raw(&["INFO", "commandstats"]);
    let calls =
        |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<i64>().ok();
    told.lines().find_map(calls).unwrap_or(0)
}

fn l226_another_program_counts_beside(s: &Stage) {
    let (total, endpoint) = ("ha:requests:total", "ha:requests:endpoint:GET /api/users");
    let times = "ha:response_times:GET /api/users";
    record(s, &[fine("0")]);
    for key in [total, endpoint] {
        assert_eq!(s.raw::<i64>(&["INCRBY", key, "100"]), 101);
    }
    s.raw::<i64>(&["ZADD", times, "1672531200123", "150"]);
    record(s, &[fine("0")]);
    assert_eq!((count(s, total), count(s, endpoint)), (102, 102));
    assert_eq!(report(s)["requests"]["total"], 102);
    let held: Vec<String> = s.raw(&["ZRANGE", times, "0", "-1"]);
    assert_eq!((held.len(), held[0].as_str()), (3, "150"));
}

cases! {
    l028_accepted_requests_leave_out_refused
    l031_total_requests_of_all_instances
    l033_localhost_is_not_counted
    l034_counters_never_expire
    l046_requests_by_method_and_path
    l058_requests_by_instance
    l060_instance_name_without_pm_id
    l065_instance_counters_last_while_it_lives
    l071_hourly_requests_live_a_day
    l085_errors_from_400_on
    l094_errors_by_method_and_path
    l105_errors_by_status
    l220_a_flush_is_one_step
    l226_another_program_counts_beside
}
