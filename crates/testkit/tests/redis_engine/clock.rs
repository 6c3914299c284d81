use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quaymaster_store::{Code, Engine};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

use crate::support::{connect, count, until};

const HOUR_US: i64 = 3_600_000_000;

fn node_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

async fn offset_follows_a_clock_that_is_set(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary).faked());
    let store = connect(&server.url()).await;
    let health = store.health();
    assert!(health.clock_offset_us.abs() <= health.clock_error_us as i64 + 2_000, "{health:?}");
    for hours in [5, -3] {
        server.clock().set_offset_ms(hours * HOUR_US / 1000);
        let told = || async { store.time_us().await.unwrap() - node_us() };
        until("the server's clock has jumped", async || {
            (told().await - hours * HOUR_US).abs() < HOUR_US / 60
        })
        .await;
        // One question is enough for what now_us says.
        assert!((store.now_us() - node_us() - hours * HOUR_US).abs() < HOUR_US / 60);
    }
    // And without any question the background notices.
    server.clock().set_offset_ms(7_200_000);
    until("the offset is followed", async || {
        (store.health().clock_offset_us - 2 * HOUR_US).abs() < HOUR_US / 60
    })
    .await;
}

#[tokio::test]
async fn the_offset_follows_a_clock_that_is_set_on_valkey() {
    offset_follows_a_clock_that_is_set(Binary::Valkey9).await;
}

#[tokio::test]
async fn the_offset_follows_a_clock_that_is_set_on_redis_6_2() {
    offset_follows_a_clock_that_is_set(Binary::Redis62).await;
}

#[tokio::test]
async fn a_clock_past_what_scripts_count_with_runs_nothing_until_it_is_right_again() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9).faked());
    let store = connect(&server.url()).await;
    let run = || async { store.run(count("late")).await };
    run().await.unwrap();
    server.clock().set_offset_ms(300 * 365 * 24 * HOUR_US / 1000);
    until("calls are refused", async || {
        run().await.is_err_and(|error| {
            assert_eq!(error.code, Code::StoreClock, "{error}");
            true
        })
    })
    .await;
    let ready = || async { store.ready(Duration::from_secs(5)).await };
    assert_eq!(ready().await.unwrap_err().code, Code::StoreClock, "writes are refused");
    server.clock().set_offset_ms(0);
    until("calls are made again", async || run().await.is_ok()).await;
    ready().await.unwrap();
}
