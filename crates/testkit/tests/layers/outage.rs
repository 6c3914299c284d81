//! While the store cannot be asked: every policy answers as it says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use quaymaster::Quaymaster;
use quaymaster::extract::{MaybeReady, Ready};
use quaymaster::layer::{Keyed, LimitLayer};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::bind;
use crate::client::{Answer, ask, listener};

const SCHEMA: &str = r#"
[limit.closed]
key = "closed:{id}"
algorithm = "fixed_window"
limit = 2
window = "1h"
on_outage = "deny"

[limit.open]
key = "open:{id}"
algorithm = "fixed_window"
limit = 2
window = "1h"
on_outage = "allow"

[limit.local]
key = "local:{id}"
algorithm = "fixed_window"
limit = 2
window = "1h"
on_outage = "local"
"#;

/// A Redis, and a server on it with a route behind each limit.
async fn scene() -> (RedisServer, Quaymaster, SocketAddr) {
    let redis = RedisServer::start(RedisConfig::default());
    let mut options = RedisOptions::from_url(&redis.url()).unwrap();
    options.backoff.base = Duration::from_millis(10);
    options.backoff.max = Duration::from_millis(100);
    options.breaker.cool_down = Duration::from_millis(50);
    options.deadline = Duration::from_secs(3);
    options.refresh = Duration::from_millis(200);
    let quaymaster = bind(SCHEMA, Arc::new(RedisStore::connect(options).await.unwrap()));
    let mut app = Router::new();
    for name in ["closed", "open", "local"] {
        let layer = LimitLayer::new(quaymaster.limit(name).unwrap().clone(), |_| Keyed::one("id", "a"));
        app = app.route(&format!("/{name}"), get(|| async { "ran" }).layer(layer));
    }
    let maybe = async |MaybeReady(handle): MaybeReady| {
        if handle.is_some() { "with the store" } else { "without it" }
    };
    let app = app
        .route("/ready", get(async |Ready(handle): Ready| format!("{}", handle.limits().count())))
        .route("/maybe", get(maybe))
        .with_state(quaymaster.clone());
    let (listener, address) = listener().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    (redis, quaymaster, address)
}

/// Asks until the answer is as it must become.
async fn until(what: &str, address: SocketAddr, path: &str, ready: impl Fn(&Answer) -> bool) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = ask(address, path, "").await;
        if ready(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long until {what}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_answers_and_says_so_and_the_store_counts_again_when_it_is_back() {
    let (mut redis, quaymaster, address) = scene().await;
    for name in ["closed", "open", "local"] {
        let answer = ask(address, &format!("GET /{name}"), "").await;
        assert_eq!((answer.status, answer.header("quaymaster-outage")), (200, None), "{name}");
    }
    redis.kill9();
    let closed = ask(address, "GET /closed", "").await;
    assert_eq!((closed.status, closed.header("retry-after")), (503, Some("1")));
    assert!(closed.code().starts_with("store."), "{closed:?}");
    assert_eq!(closed.headers("ratelimit").len(), 0, "nobody knows how it stands");
    for _ in 0..5 {
        let open = ask(address, "GET /open", "").await;
        assert_eq!((open.status, open.header("quaymaster-outage")), (200, Some("allow")));
        // Nothing is counted, so nothing is said of what is left.
        assert_eq!((open.headers("ratelimit-policy").len(), open.headers("ratelimit").len()), (1, 0));
    }
    for (status, left) in [(200, "r=1"), (200, "r=0"), (429, "r=0")] {
        let local = ask(address, "GET /local", "").await;
        assert_eq!((local.status, local.header("quaymaster-outage")), (status, Some("local")));
        assert!(local.header("ratelimit").unwrap().contains(left), "{local:?}");
    }
    redis.restart();
    let back = until("the store answers", address, "GET /closed", |answer| answer.status == 200).await;
    assert_eq!(back.header("quaymaster-outage"), None);
    // This Redis kept nothing; what was counted here in the meantime is told to it first.
    let local = ask(address, "GET /local", "").await;
    assert_eq!((local.status, local.header("quaymaster-outage")), (429, None), "{local:?}");
    drop(quaymaster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_get_the_handle_only_while_the_store_is_there() {
    let (mut redis, quaymaster, address) = scene().await;
    assert_eq!(ask(address, "GET /ready", "").await.body, "3");
    assert_eq!(ask(address, "GET /maybe", "").await.body, "with the store");
    // The store is looked at, not asked.
    let asked = quaymaster.engine().health().operations;
    for _ in 0..20 {
        assert_eq!(ask(address, "GET /ready", "").await.status, 200);
    }
    assert_eq!(quaymaster.engine().health().operations, asked);
    redis.kill9();
    let down = until("the store is missed", address, "GET /ready", |answer| answer.status != 200).await;
    assert_eq!((down.status, down.header("retry-after")), (503, Some("1")));
    assert!(down.code().starts_with("store."), "{down:?}");
    let maybe =
        until("the handle is gone", address, "GET /maybe", |answer| answer.body == "without it").await;
    assert_eq!(maybe.status, 200);
    redis.restart();
    until("the store is found again", address, "GET /ready", |answer| answer.status == 200).await;
    until("and by who does not need it", address, "GET /maybe", |answer| answer.body == "with the store")
        .await;
}
