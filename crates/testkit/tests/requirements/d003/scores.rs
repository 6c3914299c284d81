//! The sorted set of jobs.

use quaymaster_testkit::foreign::{Foreign, Language};
use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{ack, claim, claimable, kind};

const QUEUE: &str = "priority_queue";

fn add(s: &Stage, payload: Value, priority: f64) {
    s.ok("queue/priority_queue/push", json!({"payload": payload, "priority": priority}));
}

/// `zadd` of another program.
fn they_add(s: &Stage, member: &str, score: f64) {
    s.address();
    if s.store() == Store::Redis {
        let members = json!({"do": "zadd", "queue": QUEUE, "members": {member: score}});
        assert_eq!(Foreign::start(Language::Python, &s.url()).ask(&members)["added"], 1);
    } else {
        s.raw::<i64>(&["ZADD", QUEUE, &score.to_string(), member]);
    }
}

/// Everything in the set, lowest score first: member and score.
fn members(s: &Stage) -> Vec<(String, f64)> {
    let all: Vec<String> = s.raw(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"]);
    all.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().unwrap())).collect()
}

fn range(s: &Stage, query: &str) -> Value {
    s.get(&format!("/v1/queue/priority_queue/range?{query}")).expect(200)
}

fn l367_add_with_a_score(s: &Stage) {
    add(s, json!("item_id"), 1_769_250_600.25);
    add(s, json!({"n": 1}), -3.0);
    assert_eq!(kind(s, QUEUE), "zset");
    let [(low, lowest), (high, highest)] = &members(s)[..] else { panic!("{:?}", members(s)) };
    assert_eq!((*lowest, *highest), (-3.0, 1_769_250_600.25));
    assert!(low.ends_with(r#":{"n":1}"#) && high.ends_with(r#":"item_id""#), "{low} {high}");
    let said = s.cli(&["queue", "push", QUEUE, "--payload", "7", "--priority", "5"]);
    assert_eq!((said.code, members(s)[1].1), (0, 5.0), "{said:?}");
}

fn l370_highest_score_comes_first(s: &Stage) {
    for (payload, priority) in [("low", 1.0), ("same", 5.0), ("same", 5.0), ("younger", 5.0), ("high", 9.0)] {
        add(s, json!(payload), priority);
    }
    they_add(s, "item_id", 7.0);
    assert_eq!(s.raw::<i64>(&["ZCARD", QUEUE]), 6, "equal items are two jobs");
    for payload in ["high", "item_id", "same"] {
        let job = claim(s, QUEUE);
        assert_eq!(job["payload"], payload);
        assert_eq!(ack(s, QUEUE, &job)["acked"], 1);
    }
    // `ZPOPMAX` of another program, with the number that keeps equal items apart in front.
    for payload in ["\"same\"", "\"younger\"", "\"low\""] {
        let popped: Vec<String> = s.raw(&["ZPOPMAX", QUEUE]);
        let (number, item) = popped[0].split_once(':').unwrap();
        assert!(number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_digit()), "{number}");
        assert_eq!(item, payload, "the oldest of a score first");
    }
    assert_eq!(claimable(s, QUEUE), 0);
}

fn l373_items_by_score_range(s: &Stage) {
    for n in [3, 1, 2, 4] {
        add(s, json!({"n": n}), f64::from(n));
    }
    they_add(s, "item_id", 2.5);
    let numbers = |told: &Value| -> Vec<f64> {
        told["items"].as_array().unwrap().iter().map(|item| item["priority"].as_f64().unwrap()).collect()
    };
    let middle = range(s, "min=2&max=3");
    let items = json!([
        {"priority": 2.0, "payload": {"n": 2}},
        {"priority": 2.5, "payload": "item_id"},
        {"priority": 3.0, "payload": {"n": 3}},
    ]);
    assert_eq!(middle, json!({"items": items, "length": 3}), "both ends are in it");
    assert_eq!(numbers(&range(s, "max=2")), [1.0, 2.0], "-inf");
    assert_eq!(numbers(&range(s, "min=3")), [3.0, 4.0], "+inf");
    assert_eq!(numbers(&range(s, "count=2&offset=1")), [2.0, 2.5]);
    assert_eq!(numbers(&range(s, "min=5")), [0.0; 0]);
    assert_eq!(s.raw::<i64>(&["ZCARD", QUEUE]), 5, "nothing is taken");
}

fn l376_old_items_are_removed(s: &Stage) {
    let cutoff = 1_769_250_600.0;
    for (payload, moment) in [("old", cutoff - 1.0), ("edge", cutoff), ("new", cutoff + 0.5)] {
        add(s, json!(payload), moment);
    }
    they_add(s, "item_id", 3.0);
    let removed = s.ok("queue/priority_queue/trim", json!({"max": cutoff}));
    assert_eq!(removed, json!({"removed": 3}));
    assert_eq!(claim(s, QUEUE)["payload"], "new");
    assert_eq!(s.raw::<i64>(&["ZCARD", QUEUE]), 0);
    add(s, json!(1), 1.0);
    add(s, json!(2), 2.0);
    let said = s.cli(&["queue", "trim", QUEUE, "--min", "2", "--max", "9", "--json"]);
    assert_eq!((said.json(), members(s)[0].1), (json!({"removed": 1}), 1.0));
    // A list has no scores.
    assert_eq!(s.post("queue/detection_queue/trim", json!({"max": 1})).expect(422)["field"], "max");
}

cases! {
    l367_add_with_a_score
    l370_highest_score_comes_first
    l373_items_by_score_range
    l376_old_items_are_removed
}
