//! A store that goes away and comes back, with calls waiting, failing fast and resuming by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Class, Code, Engine, Retry};
use quaymaster_testkit::proxy::{Cut, FaultProxy};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{code, connect, count, counted, options, until};

#[tokio::test]
async fn the_breaker_opens_after_consecutive_failures_and_closes_by_itself() {
    let mut server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    counted(&store, "k").await;
    assert!(store.health().connected && !store.health().breaker_open);
    server.kill9();
    until("the breaker is open", async || {
        let _ = store.run(count("k")).await;
        store.health().breaker_open
    })
    .await;
    let health = store.health();
    assert!(!health.connected);
    assert!(health.connect_failures >= 4 && health.consecutive_failures >= 5, "{health:?}");
    assert!(health.success_rate() < 1.0);
    let began = Instant::now();
    for _ in 0..100 {
        let error = store.run(count("k")).await.unwrap_err();
        assert_eq!(error.code, Code::StoreBreaker);
        assert_eq!(error.code.retry(), Retry::Later);
        assert!(error.detail.contains(&server.address().to_string()), "the cause is named: {error}");
    }
    assert!(began.elapsed() < options("redis://x").deadline, "a hundred calls failed without waiting");
    server.restart();
    until("calls resume", async || store.run(count("k")).await.is_ok()).await;
    assert!(store.health().connected && !store.health().breaker_open);
    assert_eq!(store.health().consecutive_failures, 0);
}

#[tokio::test]
async fn calls_that_the_breaker_refuses_do_not_hide_that_the_store_was_slow() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let store = connect(&proxy.url()).await;
    proxy.latency(Duration::from_millis(20));
    for _ in 0..50 {
        store.run(count("k")).await.unwrap();
    }
    proxy.refuse();
    proxy.cut(Cut::Rst);
    until("the breaker is open", async || {
        let _ = store.run(count("k")).await;
        store.health().breaker_open
    })
    .await;
    let failures = store.health().failures;
    for _ in 0..1_000 {
        assert_eq!(code(store.run(count("k")).await), Code::StoreBreaker);
    }
    let health = store.health();
    assert_eq!(health.failures, failures + 1_000);
    let p95 = health.recent(Class::Single).quantile(0.95).unwrap();
    assert!(p95.at_least_us() >= 20_000, "{p95:?} of {} calls", health.recent(Class::Single).calls());
    assert!(health.mean_latency_us() >= 20_000, "{health:?}");
}

#[tokio::test]
async fn a_lost_connection_is_one_failure_however_many_calls_it_carried() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let store = Arc::new(connect(&proxy.url()).await);
    counted(&*store, "k").await;
    server.pause();
    let calls: Vec<_> = (0..32)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.run(count("k")).await })
        })
        .collect();
    let asked = proxy.passed(quaymaster_testkit::proxy::Way::Request);
    until("the calls are on their way", async || {
        proxy.passed(quaymaster_testkit::proxy::Way::Request) > asked + 32 * 60
    })
    .await;
    proxy.cut(Cut::Rst);
    for call in calls {
        assert_eq!(code(call.await.unwrap()), Code::StoreLost);
    }
    assert!(!store.health().breaker_open);
    server.resume();
    // Waits for the new connection instead of failing fast.
    assert_eq!(counted(&*store, "k").await, 34, "each of them ran once");
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_restarts() {
    let mut server =
        RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
    let mut config = options(&server.url());
    config.breaker.failures = u32::MAX;
    let store = Arc::new(RedisStore::connect(config).await.unwrap());
    counted(&*store, "k").await;
    server.kill9();
    until("the loss is noticed", async || !store.health().connected).await;
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { counted(&*store, "k").await }
    });
    until("the call is waiting", async || store.health().connect_failures > 0).await;
    server.restart();
    assert_eq!(waiting.await.unwrap(), 2);
}

#[tokio::test]
async fn a_closed_store_refuses_at_once() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    store.close().await.unwrap();
    let refused =
        tokio::time::timeout(Duration::from_secs(10), store.run(count("k"))).await.expect("at once");
    assert_eq!(code(refused), Code::StoreRefused);
}

#[tokio::test]
async fn connections_that_a_firewall_forgot_are_found_without_a_call() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let mut config = options(&proxy.url());
    config.pools.default.response_timeout = Duration::from_millis(200);
    config.pools.default.connect_timeout = Duration::from_millis(200);
    config.refresh = Duration::from_millis(50);
    let store = RedisStore::connect(config).await.unwrap();
    proxy.silence();
    until("the dead connection is noticed", async || !store.health().connected).await;
    proxy.heal();
    until("it is made again", async || store.health().connected).await;
    assert_eq!(counted(&store, "k").await, 1);
}
