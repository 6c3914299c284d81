//! Cleaning up, and looking at keys.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{COUNTER, HOUR_MS, QUOTA, RUN, STATE, kind, show, start, take};

const OVER: [&str; 3] = [
    "courtlistener:rate_limit:2024-09-17_14",
    "courtlistener:counter:2024-09-17_14",
    "courtlistener:failed:2024-09-17_14",
];
const FOREIGN: [&str; 2] = ["other:rate_limit:2024-09-17_14", "courtlistener:unknown:2024-09-17_14"];
const OLD_TASK: &str = "courtlistener:task_start:manual_2024-09-17T14:30:00+00:00:process_docket";

/// Keys without an end: three of an hour that is over, three that may go on, two that are not the schema's.
fn plant(s: &Stage) {
    for key in OVER.iter().take(2).chain(&FOREIGN).chain(&[QUOTA]) {
        s.raw::<()>(&["SET", key, "1247"]);
    }
    s.raw::<()>(&["LPUSH", OVER[2], "12345"]);
    s.raw::<()>(&["HSET", STATE, "dag_run_id", RUN]);
    s.raw::<()>(&["SET", OLD_TASK, "2024-09-17T14:35:22.456789"]);
}

fn clean(s: &Stage, more: &[&str]) -> Value {
    let said = s.cli(&[&["clean", "--json"], more].concat());
    assert_eq!(said.code, 0, "{said:?}");
    said.json()
}

/// Keys of a report, with what was found.
fn found(report: &Value) -> BTreeMap<String, String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings.map(|finding| (text(&finding["key"]), text(&finding["what"]))).collect()
}

fn l250_clean_scans_the_declared_patterns(s: &Stage) {
    plant(s);
    let report = clean(s, &[]);
    let keys: BTreeSet<String> = found(&report).into_keys().collect();
    let declared = OVER.iter().chain(&[QUOTA, STATE, OLD_TASK]).map(|key| (*key).to_owned());
    assert_eq!(keys, declared.collect());
    assert_eq!(report["declared"], 6);
    let only = found(&clean(s, &["--only", "limit.courtlistener"]));
    assert_eq!(only.into_keys().collect::<Vec<_>>(), [OVER[0], QUOTA]);
    // Nothing was changed.
    for key in OVER.iter().chain(&FOREIGN).chain(&[QUOTA, STATE, OLD_TASK]) {
        assert_eq!(s.raw::<i64>(&["TTL", key]), -1, "{key}");
    }
}

fn l251_clean_knows_ages_by_the_name(s: &Stage) {
    // Two of these ended less than the two hours ago that a key may live.
    for hour in ["09", "10", "11", "12"] {
        s.raw::<()>(&["SET", &format!("courtlistener:rate_limit:2026-11-15_{hour}"), "5"]);
    }
    let what = |s: &Stage| -> Vec<String> { found(&clean(s, &[])).into_values().collect() };
    assert_eq!(what(s), ["stale", "immortal", "immortal", "immortal"]);
    // An end, as the document looks at it, says nothing of the age.
    s.raw::<()>(&["EXPIRE", "courtlistener:rate_limit:2026-11-15_09", "100000"]);
    assert_eq!(what(s), ["stale", "immortal", "immortal", "immortal"]);
    s.pass(HOUR_MS);
    assert_eq!(what(s), ["stale", "stale", "immortal", "immortal"]);
}

fn l253_clean_deletes_and_keeps(s: &Stage) {
    plant(s);
    let report = clean(s, &["--apply"]);
    assert_eq!((&report["stale"], &report["immortal"], &report["done"]), (&json!(3), &json!(3), &json!(6)));
    for key in OVER {
        assert_eq!(kind(s, key), "none", "{key}");
    }
    for key in FOREIGN {
        assert_eq!((s.text(key).as_deref(), s.raw::<i64>(&["TTL", key])), (Some("1247"), -1));
    }
    // What may go on keeps its value and is given its end.
    assert_eq!(s.text(QUOTA).as_deref(), Some("1247"));
    assert_eq!(s.field(STATE, "dag_run_id").as_deref(), Some(RUN));
    for (key, seconds) in [(QUOTA, 7200), (STATE, 90_000), (OLD_TASK, 90_000)] {
        s.lives(key, seconds);
    }
    assert_eq!(clean(s, &["--apply"])["findings"], json!([]));
}

fn l255_clean_reports_each_deletion(s: &Stage) {
    plant(s);
    let said = s.cli(&["clean", "--apply", "--log", "info"]);
    for key in OVER {
        let line = said.out.lines().find(|line| line.ends_with(key));
        assert!(line.is_some_and(|line| line.starts_with("stale, removed ")), "{key}: {said:?}");
    }
    let kept = said.out.lines().find(|line| line.ends_with(QUOTA)).unwrap();
    assert!(kept.starts_with("without an end, given one "), "{kept}");
    // The log has them too, a line a second: together they are three.
    let lines = said.err.lines().filter(|line| line.contains("keys that were over are deleted"));
    let deleted = lines.map(|line| {
        let count = line.split("deleted=").nth(1).unwrap().split(' ').next().unwrap();
        count.parse::<u32>().unwrap()
    });
    assert_eq!(deleted.sum::<u32>(), 3, "{said:?}");
}

fn l337_clean_runs_regularly(s: &Stage) {
    let plant = || s.raw::<()>(&["SET", OVER[0], "1247"]);
    let cleaned = || {
        s.address();
        s.until("it is cleaned up", || kind(s, OVER[0]) == "none");
    };
    plant();
    s.kill();
    s.settings("[clean]\nevery = \"1h\"");
    cleaned();
    // A server that starts before the hour is over leaves it to the next one.
    plant();
    s.kill();
    s.pass(HOUR_MS / 2);
    take(s);
    assert_eq!(kind(s, OVER[0]), "string");
    s.kill();
    s.pass(HOUR_MS / 2);
    cleaned();
    assert!(s.log().contains("cleaned up"), "{}", s.log());
}

fn l299_a_missing_key_is_explained(s: &Stage) {
    s.address();
    let explain = |key: &str| s.cli(&["explain", key, "--json"]);
    // The hour's format: this is no key of the schema.
    let wrong = explain("courtlistener:rate_limit:2024-9-17_14");
    assert_eq!((wrong.code, &wrong.json()["pattern"]), (1, &Value::Null), "{wrong:?}");
    // The TTL: it should live for two hours, and is not there.
    let missing = explain(QUOTA);
    let told = missing.json();
    assert_eq!((missing.code, &told["pattern"]), (0, &json!("courtlistener:rate_limit:{hour}")), "{told}");
    assert_eq!((&told["expected_ttl"], &told["actual"]["exists"]), (&json!("2h"), &json!(false)));
    take(s);
    let told = explain(QUOTA).json();
    assert_eq!((&told["actual"]["exists"], &told["actual"]["type"]), (&json!(true), &json!("string")));
    assert!((1..=7_200_000).contains(&told["actual"]["ttl_ms"].as_i64().unwrap()), "{told}");
    // The connection.
    if s.store() == Store::Redis {
        s.redis(|redis| redis.kill9());
        let away = explain(QUOTA);
        assert!(away.code == 3 && away.err.contains("store.refused"), "{away:?}");
    }
}

/// The first command about `part` that `MONITOR` shows while `act` runs.
fn monitored(s: &Stage, part: &str, act: impl Fn()) -> String {
    let mut stream = TcpStream::connect(s.redis(|redis| redis.address())).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    act();
    lines.find(|line| line.contains(part)).unwrap()
}

fn l318_keys_are_read_by_plain_commands(s: &Stage) {
    start(s);
    take(s);
    take(s);
    assert_eq!(s.raw::<String>(&["GET", QUOTA]), "2");
    let keys = s.keys("courtlistener:*");
    assert!(keys.contains(QUOTA) && keys.contains(STATE), "{keys:?}");
    let left: i64 = s.raw(&["TTL", STATE]);
    assert!((89_940..=90_000).contains(&left), "{left}");
    assert_eq!(s.raw::<i64>(&["TTL", COUNTER]), -2, "it is not there");
    assert_eq!(show(s)["calls_this_hour"], 2);
    if s.store() == Store::Redis {
        let seen = monitored(s, QUOTA, || drop(take(s)));
        assert!(seen.contains("\"EVALSHA\"") || seen.contains(" lua] "), "{seen}");
    }
}

fn l338_keys_are_documented_from_the_schema(s: &Stage) {
    let row = |key: &str| {
        let said = s.cli(&["docs"]);
        let line = said.out.lines().find(|line| line.contains(&format!(" `{key}` |"))).map(str::to_owned);
        let cells: Vec<String> = line.unwrap().split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells[4].clone(), cells[5].clone())
    };
    for (key, of, ttl) in [
        ("courtlistener:rate_limit:{hour}", "string", "2h"),
        ("courtlistener:pipeline:{dag_run_id}", "hash", "25h"),
        ("courtlistener:task_start:{dag_run_id}:{task_id}", "string", "25h"),
        ("courtlistener:counter:{hour}", "string", "2h"),
        ("courtlistener:failed:{hour}", "list", "2h"),
    ] {
        assert_eq!(row(key), (of.to_owned(), ttl.to_owned()), "{key}");
    }
    s.amend("courtlistener", "hour_ttl = \"2h\"", "hour_ttl = \"3h\"");
    assert_eq!(row("courtlistener:failed:{hour}").1, "3h");
}

cases! {
    l250_clean_scans_the_declared_patterns
    l251_clean_knows_ages_by_the_name
    l253_clean_deletes_and_keeps
    l255_clean_reports_each_deletion
    l337_clean_runs_regularly
    l299_a_missing_key_is_explained
    l318_keys_are_read_by_plain_commands
    l338_keys_are_documented_from_the_schema
}
