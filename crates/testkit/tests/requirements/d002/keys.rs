//! Names, lives and number of keys.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{USERS, connected, count, fine, keys_of_schemas, record, request, stays, take};

/// Something of everything.
fn everything(s: &Stage) {
    record(s, &[fine("0"), request("1", "POST /api/auth/login", 401, 1.0)]);
    connected(s, json!({ "0": 2 }));
    take(s, "ha", "192.168.1.100");
    let kept = json!({ "key": { "identifier": "user:123" }, "request_id": "R1" });
    s.ok("limit/ha_sliding/take", kept);
}

fn l013_keys_begin_with_the_prefix(s: &Stage) {
    everything(s);
    let all = keys_of_schemas(s);
    assert_eq!(all, s.keys("ha:*"));
    let documented = [
        "ha:connections:http:current",
        "ha:requests:total",
        "ha:requests:endpoint:GET /api/users",
        "ha:errors:total",
        "ha:response_times:GET /api/users",
        "ha:rate_limit:192.168.1.100",
        "ha:sliding_limit:user:123",
    ];
    for key in documented {
        assert!(all.contains(key), "{key} is not among {all:?}");
    }
}

fn l014_prefix_is_a_variable(s: &Stage) {
    s.var("REDIS_KEY_PREFIX", "myapp:");
    everything(s);
    assert_eq!(count(s, "myapp:requests:total"), 2);
    assert_eq!(s.raw::<i64>(&["ZCARD", "myapp:rate_limit:192.168.1.100"]), 1);
    assert_eq!(keys_of_schemas(s), s.keys("myapp:*"));
}

fn l193_every_key_has_the_documented_ttl(s: &Stage) {
    everything(s);
    let (mut ending, mut lasting) = (0, 0);
    for key in s.keys("ha:[a-z]*") {
        let seconds = match key.split(':').collect::<Vec<_>>()[1..] {
            ["requests", "hourly", _] => 86_400,
            ["rate_limit" | "sliding_limit", ..] => 900,
            // What is so now is not so when nobody says it any more.
            ["connections", "http", "current"] | ["requests", "speed_per_second"] => 5,
            _ => {
                lasting += 1;
                stays(s, &key);
                continue;
            }
        };
        ending += 1;
        s.lives(&key, seconds);
    }
    // Three totals, two of the most, two instances, a status, and two endpoints, of which one had an error.
    assert_eq!((ending, lasting), (5, 17));
}

fn l204_all_keys_lie_under_the_prefix(s: &Stage) {
    s.raw::<()>(&["SET", "other:requests:total", "7"]);
    everything(s);
    let ours = s.keys("ha:*");
    assert!(ours.iter().any(|key| key.starts_with("ha:{")), "what no document names is among {ours:?}");
    // The server's own: that it could write, and in its own folder how keys are spelled.
    let own = match s.store() {
        Store::Redis => "quaymaster:probe",
        Store::Embedded => "quaymaster:names:home-assistant",
    };
    let others = [own.to_owned(), "other:requests:total".to_owned()].into();
    assert_eq!(s.keys("*").difference(&ours).cloned().collect::<BTreeSet<_>>(), others);
    // Regular clean-ups keep two more: when the last one ended, and how often there was one.
    s.kill();
    s.settings("[clean]\nevery = \"6h\"");
    cleaned_up(s, "quaymaster:");
    let kept = ["quaymaster:cleaned", "quaymaster:{quaymaster:clean}:fence"];
    let others = &others | &kept.map(str::to_owned).into();
    assert_eq!(s.keys("*").difference(&ours).cloned().collect::<BTreeSet<_>>(), others);
    // A second application on the same store has everything for itself.
    s.kill();
    s.var("REDIS_KEY_PREFIX", "hb:");
    everything(s);
    assert_eq!((count(s, "ha:requests:total"), count(s, "hb:requests:total")), (2, 2));
    assert_eq!(s.raw::<i64>(&["ZCARD", "hb:rate_limit:192.168.1.100"]), 1);
    assert_eq!((s.keys("ha:*").is_subset(&ours), count(s, "other:requests:total")), (true, 7));
    if s.store() == Store::Redis {
        s.kill();
        s.settings("[store]\nown_prefix = \"hb:own:\"");
        for key in [own, kept[0], kept[1]] {
            s.raw::<()>(&["DEL", key]);
        }
        assert_eq!(s.get("/readyz").status, 200);
        cleaned_up(s, "hb:own:");
        let own = ["hb:own:cleaned", "hb:own:probe", "hb:own:{hb:own:clean}:fence"].map(str::to_owned);
        assert_eq!((s.keys("hb:own:*"), s.keys("quaymaster:*")), (own.into(), [].into()));
    }
}

/// Waits until a server with `[clean]` has cleaned up and let go of the lock.
fn cleaned_up(s: &Stage, own_prefix: &str) {
    s.address();
    let key = |last: &str| format!("{own_prefix}{last}");
    s.until("it was cleaned up", || {
        let keys = s.keys(&key("clean*"));
        keys.contains(&key("cleaned")) && !keys.contains(&key("clean"))
    });
}

fn l208_memory_is_bounded(s: &Stage) {
    s.amend("home-assistant", "max_endpoints = 500", "max_endpoints = 5");
    s.amend("home-assistant", "samples = 1000", "samples = 40");
    let scanned: Vec<Value> = (0..20).map(|n| request("0", &format!("GET /{n}"), 404, 1.0)).collect();
    record(s, &scanned);
    assert_eq!(s.keys("ha:requests:endpoint:*").len(), 6);
    assert_eq!(count(s, "ha:requests:endpoint:overflow"), 15);
    record(s, &[(); 60].map(|()| request("0", "GET /0", 200, 1.0)));
    assert_eq!(s.raw::<i64>(&["ZCARD", "ha:response_times:GET /0"]), 40);
    take(s, "ha", "192.168.1.100");
    take(s, "ha_sliding", "192.168.1.100");
    s.pass(25 * 3_600_000);
    for gone in
        ["ha:requests:hourly:*", "ha:*_limit:*", "ha:{ha:stats}:sketch_hour:*", "ha:{ha:stats}:seconds"]
    {
        assert!(s.keys(gone).is_empty(), "{gone}");
    }
    assert_eq!((count(s, "ha:requests:total"), count(s, "ha:errors:total")), (80, 20), "these stay");
    assert_eq!(count(s, &format!("ha:requests:endpoint:{USERS}")), 0);
}

cases! {
    l013_keys_begin_with_the_prefix
    l014_prefix_is_a_variable
    l193_every_key_has_the_documented_ttl
    l204_all_keys_lie_under_the_prefix
    l208_memory_is_bounded
}
