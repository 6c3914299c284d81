use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Engine, Message, Reply};
use quaymaster_testkit::servers::{RedisConfig, RedisServer, Sentinel, SentinelConfig};

use crate::support::{connect, count, count_once, counted, fake_server, options, until};

#[tokio::test]
async fn the_primary_is_found_and_found_again_after_a_failover_under_load() {
    let mut group = Sentinel::start(SentinelConfig::default());
    let store = Arc::new(connect(&group.url()).await);
    assert_eq!(store.deployment().await.unwrap().mode, "sentinel");
    assert_eq!(counted(&*store, "k").await, 1);
    let mut reader = store.subscribe(b"c").await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answered = 0;
                for number in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    if let Ok(Reply::Int(_)) = store.run(count_once("k", &format!("{worker}:{number}"))).await
                    {
                        answered += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                answered
            })
        })
        .collect();
    until("there is load", async || store.health().operations > 100).await;
    let old = group.primary_port();
    group.servers[0].kill9();
    until("calls succeed again", async || store.run(count("after")).await.is_ok()).await;
    // The sentinel that is asked here may hear of it last.
    until("every sentinel knows", async || group.primary_port() != old).await;
    let after = store.health().operations;
    until("the load goes on", async || store.health().operations > after + 100).await;
    stop.store(true, Relaxed);
    for worker in workers {
        assert!(worker.await.unwrap() > 0);
    }
    let seen: i64 = group.servers[1].command(&["SCARD", "{k}:seen"]);
    let total: i64 = group.servers[1].command(&["GET", "k"]);
    assert_eq!(total, seen + 1, "every repeated call counted once");
    // Subscriptions moved along.
    loop {
        group.servers[1].command::<i64>(&["PUBLISH", "c", "x"]);
        if let Ok(Some(Message::Data(_))) =
            tokio::time::timeout(Duration::from_millis(100), reader.next()).await
        {
            break;
        }
    }
}

#[tokio::test]
async fn a_primary_that_was_demoted_in_good_order_is_left() {
    let group = Sentinel::start(SentinelConfig::default());
    let store = connect(&group.url()).await;
    assert_eq!(counted(&store, "k").await, 1);
    let old = group.primary_port();
    let replica = group.servers[1].address().port();
    assert_ne!(old, replica);
    // What an operator does before maintenance; the old primary lives on as a replica.
    until("the sentinels agree to fail over", async || group.fail_over()).await;
    until("another is primary", async || group.primary_port() == replica).await;
    until("calls go to the new primary", async || {
        store.run(count("k")).await.is_ok()
            && group.servers[1].try_command::<i64>(&["GET", "k"]).is_ok_and(|n| n >= 2)
    })
    .await;
}

#[tokio::test]
async fn a_service_that_no_sentinel_knows_is_named() {
    let group = Sentinel::start(SentinelConfig { replicas: 0, ..SentinelConfig::default() });
    let url = group.url().replace("/quay", "/nowhere");
    let mut config = options(&url);
    config.deadline = Duration::from_millis(300);
    let error = RedisStore::connect(config).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code, Code::StoreRefused);
    assert!(error.detail.contains("nowhere"), "{error}");
}

#[tokio::test]
async fn a_replica_that_a_sentinel_still_names_is_not_taken_for_the_primary() {
    let primary = RedisServer::start(RedisConfig::default());
    let replica = RedisServer::start(RedisConfig::default().line(primary.followed_by()));
    let (ip, port) = (replica.address().ip().to_string(), replica.address().port().to_string());
    let stale = fake_server(move |words| match words[0].as_str() {
        "SENTINEL" => format!("*2\r\n${}\r\n{ip}\r\n${}\r\n{port}\r\n", ip.len(), port.len()),
        _ => "+OK\r\n".to_owned(),
    })
    .await;
    let mut config = options(&format!("redis+sentinel://{stale}/quay"));
    config.deadline = Duration::from_secs(2);
    let error = RedisStore::connect(config).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code, Code::StoreReadOnly, "even reads would be of the past");
}
