//! Claims that wait: woken by a push, ended by a stop, and by a caller that hangs up.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

async fn server(toml: &str) -> Fixture {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    Fixture::on(settings(toml, &|_| None).server, Arc::new(store)).await
}

fn claim(body: &str) -> Vec<u8> {
    request("POST", "/v1/queue/jobs/claim", &[("content-type", "application/json")], body.as_bytes())
}

async fn depth(server: &Fixture, name: &str) -> u64 {
    server.get("/v1/queue/jobs/pressure").await.json()[name].as_u64().unwrap()
}

async fn until_waiting(server: &Fixture, wanted: usize) {
    let line = format!("quaymaster_queue_waiting_claims{{queue=\"jobs\"}} {wanted}");
    for _ in 0..5000 {
        if server.get("/metrics").await.text().contains(&line) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {line}");
}

#[tokio::test]
async fn a_wait_ends_with_the_push() {
    let server = server("").await;
    let mut waiter = Connection::open(server.address).await;
    waiter.send(&claim(r#"{"wait_ms":60000}"#)).await;
    until_waiting(&server, 1).await;
    assert_eq!(server.post("/v1/queue/jobs/push", r#"{"payload":7}"#).await.status, 200);
    assert_eq!(waiter.receive().await.unwrap().json()["jobs"][0]["payload"], 7);
}

/// Whoever waits has nothing to lose, and need not be told of a store that was away between two looks.
#[tokio::test]
async fn a_wait_goes_on_when_the_store_restarts() {
    let mut redis = RedisServer::start(RedisConfig::default());
    let store = RedisStore::connect(RedisOptions::from_url(&redis.url()).unwrap()).await.unwrap();
    let server = Fixture::on(settings("", &|_| None).server, Arc::new(store)).await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let mut waiter = Connection::open(server.address).await;
        waiter.send(&claim(r#"{"wait_ms":60000}"#)).await;
        waiters.push(waiter);
    }
    until_waiting(&server, 5).await;
    redis.restart();
    let push = r#"{"payloads":[1,2,3,4,5]}"#;
    while server.post("/v1/queue/jobs/push", push).await.status != 200 {}
    for mut waiter in waiters {
        let told = waiter.receive().await.unwrap();
        assert_eq!(told.status, 200, "{}", told.json());
        assert_eq!(told.json()["jobs"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_stop_ends_the_wait_at_once_without_a_job() {
    let mut server = server("[server]\nshutdown_grace = \"10m\"").await;
    let mut waiter = Connection::open(server.address).await;
    waiter.send(&claim(r#"{"wait_ms":3600000}"#)).await;
    until_waiting(&server, 1).await;
    server.ask_to_stop();
    let answer = waiter.receive().await.expect("an answer");
    assert_eq!((answer.status, answer.json()), (200, json!({"jobs": []})));
    server.stopped().await;
}

#[tokio::test]
async fn nothing_is_claimed_for_a_caller_that_hung_up() {
    let server = server("").await;
    for _ in 0..5 {
        let mut waiter = Connection::open(server.address).await;
        waiter.send(&claim(r#"{"wait_ms":3600000}"#)).await;
        until_waiting(&server, 1).await;
        drop(waiter);
        until_waiting(&server, 0).await;
    }
    assert_eq!(server.post("/v1/queue/jobs/push", r#"{"payload":7}"#).await.status, 200);
    assert_eq!((depth(&server, "current_length").await, depth(&server, "leased").await), (1, 0));
    let job = server.post("/v1/queue/jobs/claim", "{}").await.json()["jobs"][0].clone();
    assert_eq!((&job["payload"], &job["attempt"]), (&json!(7), &json!(1)));
}

/// The caller goes at the very moment the job comes: whichever is first, no attempt is lost.
#[tokio::test]
async fn a_job_that_meets_a_caller_hanging_up_is_given_back() {
    let server = server("").await;
    for round in 0..50 {
        let mut waiter = Connection::open(server.address).await;
        waiter.send(&claim(r#"{"wait_ms":3600000,"lease_ms":86400000}"#)).await;
        until_waiting(&server, 1).await;
        let push = server.post("/v1/queue/jobs/push", r#"{"payload":7}"#);
        let ((), pushed) = tokio::join!(async { drop(waiter) }, push);
        assert_eq!(pushed.status, 200);
        let body = r#"{"wait_ms":10000}"#;
        let job = server.post("/v1/queue/jobs/claim", body).await.json()["jobs"][0].clone();
        assert_eq!(job["attempt"], 1, "round {round}: {job}");
        let ack = json!({"leases": [job["lease"]]}).to_string();
        assert_eq!(server.post("/v1/queue/jobs/ack", &ack).await.json(), json!({"acked": 1, "lost": 0}));
    }
}

/// A caller that only closed its sending side still gets what is there.
#[tokio::test]
async fn a_half_closed_caller_gets_what_is_there() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = server("").await;
    assert_eq!(server.post("/v1/queue/jobs/push", r#"{"payload":7}"#).await.status, 200);
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&claim("{}")).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"payload\":7"), "{answer}");
}
