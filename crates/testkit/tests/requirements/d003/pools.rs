//! Connections of Redis, by what they are for.

use std::collections::BTreeMap;

use quaymaster_testkit::stage::{Ask, Stage, Wire};
use serde_json::json;

/// How many connections of each name the server has, without its process id.
fn pools(s: &Stage) -> BTreeMap<String, usize> {
    let suffix = format!(":{}", s.pid());
    let mut pools = BTreeMap::new();
    for name in s.redis(|server| server.client_names()) {
        let pool = name.strip_prefix("quaymaster:").and_then(|name| name.strip_suffix(&suffix));
        if let Some(pool) = pool {
            *pools.entry(pool.to_owned()).or_default() += 1;
        }
    }
    pools
}

/// Calls until there are `count` connections of `pool`, and never more.
fn grows_to(s: &Stage, pool: &str, count: usize, call: impl Fn(&Stage)) {
    s.until(&format!("{count} connections of {pool}"), || {
        call(s);
        let now = pools(s).get(pool).copied().unwrap_or(0);
        assert!(now <= count, "{pool} has {now} connections");
        now == count
    });
}

fn look_up(s: &Stage) {
    s.get("/v1/cache/key/get?key.key=a").expect(200);
}

fn look_at_queue(s: &Stage) {
    s.get("/v1/queue/detection_queue/peek").expect(200);
}

fn take(s: &Stage) {
    s.ok("limit/endpoint/take", json!({"key": {"endpoint": "api", "client_ip": "192.168.1.1"}}));
}

fn lock(s: &Stage) {
    s.ok("lock/key/acquire", json!({"key": {"key": "a"}}));
}

fn l017_cache_has_its_pool(s: &Stage) {
    s.settings("[store.pools.cache]\nsize = 3");
    lock(s);
    assert_eq!(pools(s).get("cache"), None, "opened by the first call that needs it");
    grows_to(s, "cache", 3, look_up);
}

fn l018_queues_have_their_pool(s: &Stage) {
    s.settings("[store.pools.queue]\nsize = 2");
    grows_to(s, "queue", 2, look_at_queue);
    let address = s.address();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let body = json!({"wait_ms": 3_600_000}).to_string();
            Wire::open(address).ask(&Ask::new("POST", "/v1/queue/detection_queue/claim").json(&body)).0
        });
        // What blocks has a connection besides, and holds nobody up.
        s.until("a third connection", || pools(s)["queue"] == 3);
        look_at_queue(s);
        s.ok("queue/detection_queue/push", json!({"payload": 7}));
        assert_eq!(waiting.join().unwrap().expect(200)["jobs"][0]["payload"], 7);
    });
}

fn l019_subscriptions_have_their_pool(s: &Stage) {
    lock(s);
    assert_eq!(pools(s).get("pubsub"), None);
    let stream = |event: &str| {
        let mut wire = Wire::open(s.address());
        let ask = Ask::new("GET", &format!("/v1/event/{event}/stream"));
        assert_eq!(wire.open_answer(&ask).status, 200);
        wire
    };
    let _streams = [stream("security_events"), stream("system_status"), stream("security_events")];
    assert_eq!(pools(s)["pubsub"], 1, "all subscriptions of a process share it");
    let clients: String = s.raw(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert!(clients.contains(" name=quaymaster:pubsub:") && clients.lines().count() == 1, "{clients}");
}

fn l020_limits_have_their_pool(s: &Stage) {
    s.settings("[store.pools.ratelimit]\nsize = 3");
    lock(s);
    assert_eq!(pools(s).get("ratelimit"), None);
    grows_to(s, "ratelimit", 3, take);
}

fn l021_default_pool_has_a_size(s: &Stage) {
    s.settings("[store.pools.default]\nsize = 7");
    grows_to(s, "default", 7, lock);
    assert_eq!(pools(s).get("cache"), None, "a lock has no pool of its own");
}

fn l021_default_pool_serves_where_others_are_disabled(s: &Stage) {
    s.settings("[store.pools]\ndedicated = false\ndefault = { size = 2 }\ncache = { size = 5 }");
    for call in [look_up, look_at_queue, take, lock].repeat(6) {
        call(s);
    }
    assert_eq!(pools(s), [("default".to_owned(), 2)].into());
}

cases! {
    l017_cache_has_its_pool
    l018_queues_have_their_pool
    l019_subscriptions_have_their_pool
    l020_limits_have_their_pool
    l021_default_pool_has_a_size
    l021_default_pool_serves_where_others_are_disabled
}
