//! Requests of one caller.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::Stage;
use serde_json::json;

use super::{is_now, members, take};

const IP: &str = "192.168.1.100";
const MINUTE_MS: u64 = 60_000;

/// A sorted set of moments that lives as long as its window.
fn is_a_log_of_its_window(s: &Stage, limit: &str, key: &str) {
    s.var("RATE_LIMIT_MAX", "2");
    let allowed = [(); 3].map(|()| take(s, limit, IP)["allowed"].clone());
    assert_eq!(allowed, [json!(true), json!(true), json!(false)]);
    assert_eq!(s.raw::<String>(&["TYPE", key]), "zset");
    let held = members(s, key);
    assert_eq!(held.len(), 2, "what was refused is not in it: {held:?}");
    for (_, score) in &held {
        is_now(s, *score);
    }
    s.lives(key, 900);
    // Another window has another TTL.
    s.kill();
    s.var("RATE_LIMIT_WINDOW_MS", "120000");
    take(s, limit, "203.0.113.9");
    s.lives(&key.replace(IP, "203.0.113.9"), 120);
    s.pass(15 * MINUTE_MS + 1);
    assert_eq!(s.raw::<i64>(&["EXISTS", key]), 0);
}

fn l154_the_window_slides(s: &Stage) {
    s.var("RATE_LIMIT_MAX", "2");
    take(s, "ha", IP);
    s.pass(10 * MINUTE_MS);
    take(s, "ha", IP);
    let refused = take(s, "ha", IP);
    let wait = refused["retry_after_ms"].as_u64().unwrap();
    assert!(wait <= 5 * MINUTE_MS && wait > 4 * MINUTE_MS, "{refused}");
    s.pass(5 * MINUTE_MS);
    // A window that begins anew would let two through.
    let allowed = [(); 2].map(|()| take(s, "ha", IP)["allowed"].clone());
    assert_eq!(allowed, [json!(true), json!(false)], "only the first one has left");
}

fn l157_rate_limit_is_a_zset_of_its_window(s: &Stage) {
    is_a_log_of_its_window(s, "ha", "ha:rate_limit:192.168.1.100");
}

fn l160_members_of_a_limit_are_unique(s: &Stage) {
    s.var("RATE_LIMIT_MAX", "5");
    // Of one millisecond.
    let key = json!({ "identifier": IP });
    s.ok("limit/ha/take", json!({ "key": key, "cost": 3 }));
    take(s, "ha", IP);
    let last = take(s, "ha", IP);
    assert_eq!((&last["used"], &last["remaining"]), (&json!(5), &json!(0)));
    let held = members(s, "ha:rate_limit:192.168.1.100");
    assert_eq!(held.len(), 5);
    for (member, score) in held {
        assert!(member.starts_with(&format!("{score}-")), "{member} at {score}");
    }
    assert_eq!(take(s, "ha", IP)["allowed"], false);
}

fn l161_identifiers_are_addresses_or_users(s: &Stage) {
    s.var("RATE_LIMIT_MAX", "1");
    let callers = [IP, "user:123", "user:124", "2001:db8::7"];
    for caller in callers {
        assert_eq!(take(s, "ha", caller)["allowed"], true, "{caller}");
        assert_eq!(take(s, "ha", caller)["allowed"], false, "{caller}");
    }
    let keys: BTreeSet<String> = callers.map(|caller| format!("ha:rate_limit:{caller}")).into();
    assert_eq!(s.keys("ha:rate_limit:*"), keys);
}

fn l171_sliding_limit_is_a_zset_of_its_window(s: &Stage) {
    is_a_log_of_its_window(s, "ha_sliding", "ha:sliding_limit:192.168.1.100");
    // Moment and something random; the other limit is another.
    take(s, "ha_sliding", IP);
    let held = members(s, "ha:sliding_limit:192.168.1.100");
    let (moment, random) = held[0].0.split_once('-').unwrap();
    assert!(moment == held[0].1.to_string() && random.len() >= 8, "{held:?}");
    assert_eq!(s.keys("ha:rate_limit:*"), BTreeSet::new());
}

cases! {
    l154_the_window_slides
    l157_rate_limit_is_a_zset_of_its_window
    l160_members_of_a_limit_are_unique
    l161_identifiers_are_addresses_or_users
    l171_sliding_limit_is_a_zset_of_its_window
}
