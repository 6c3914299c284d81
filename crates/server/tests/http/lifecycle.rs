//! Starting, stopping, and a store that is away.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Code, Engine};
use quaymaster_server::doctor::{self, Eviction};
use quaymaster_server::open_store;
use quaymaster_testkit::servers::{RedisConfig, RedisServer, any_port};
use serde_json::json;

use crate::client::{Connection, request};
use crate::engines::{Act, Stage};
use crate::fixture::{Fixture, SCHEMA, schema, settings};

/// A call whose bucket ended while it waited is made once more.
const PLENTY: usize = 100;

const BODY: &str = r#"{"key":{"psp_id":"a"}}"#;

async fn staged(act: Act, toml: &str) -> (Fixture, Arc<Stage>) {
    let memory = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let stage = Stage::new(Arc::new(memory), act);
    (Fixture::on(settings(toml, &|_| None).server, stage.clone()).await, stage)
}

fn take() -> Vec<u8> {
    request("POST", "/v1/limit/psp/take", &[("content-type", "application/json")], BODY.as_bytes())
}

#[tokio::test]
async fn a_stop_lets_the_request_in_flight_finish_and_takes_no_new_ones() {
    let (mut server, stage) = staged(Act::Wait, "[server]\nshutdown_drain = \"20ms\"").await;
    let mut connection = Connection::open(server.address).await;
    let mut idle = Connection::open(server.address).await;
    idle.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(idle.receive().await.unwrap().status, 200);
    connection.send(&take()).await;
    stage.arrived.acquire().await.unwrap().forget();
    server.ask_to_stop();
    assert!(idle.receive().await.is_none(), "an idle connection is closed when the drain is over");
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err(), "nobody new is let in");
    assert_eq!(stage.closed.load(SeqCst), 0, "the store is still needed");
    stage.released.add_permits(PLENTY);
    let answer = connection.receive().await.expect("the request in flight is answered");
    assert_eq!((answer.status, answer.json()["used"].clone()), (200, json!(1)));
    server.stopped().await;
    assert_eq!(stage.closed.load(SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_keep_the_server_up() {
    let (mut server, stage) = staged(Act::Wait, "[server]\nshutdown_grace = \"20ms\"").await;
    let mut connection = Connection::open(server.address).await;
    connection.send(&take()).await;
    stage.arrived.acquire().await.unwrap().forget();
    server.ask_to_stop();
    server.stopped().await;
    assert_eq!(stage.closed.load(SeqCst), 1);
}

#[tokio::test]
async fn a_panic_is_a_500_problem_and_the_server_lives() {
    let (server, _) = staged(Act::Panic, "").await;
    let mut connection = Connection::open(server.address).await;
    for _ in 0..2 {
        connection.send(&take()).await;
        let answer = connection.receive().await.unwrap();
        assert_eq!((answer.status, answer.json()["code"].clone()), (500, json!("internal")));
        assert!(!answer.text().contains("as told"), "what the panic said stays in the log");
    }
    assert!(server.get("/metrics").await.text().contains("quaymaster_http_panics_total 2"));
}

#[tokio::test]
async fn a_store_that_is_away_is_503_with_a_reason_and_when_to_come_back() {
    let (server, _) = staged(Act::Away(Code::StoreRefused), "").await;
    for answer in [server.post("/v1/limit/psp/take", BODY).await, server.get("/readyz").await] {
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        let problem = answer.json();
        assert_eq!((&problem["code"], &problem["retry_after_ms"]), (&json!("store.refused"), &json!(1000)));
        assert_eq!(problem["detail"], "nobody is there");
        assert!(problem.get("may_have_run").is_none());
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    let status = server.get("/v1/status").await;
    assert_eq!((status.status, status.json()["store"]["connected"].clone()), (200, json!(false)));
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("quaymaster_store_up 0"));
    assert!(metrics.contains(r#"quaymaster_limit_takes_total{limit="psp",outcome="error"} 1"#), "{metrics}");
}

#[tokio::test]
async fn a_lost_reply_says_that_the_call_may_have_run() {
    for code in [Code::StoreTimedOut, Code::StoreLost, Code::StoreProtocol, Code::StoreReply] {
        let (server, _) = staged(Act::Away(code), "").await;
        let answer = server.post("/v1/limit/psp/take", BODY).await;
        let problem = answer.json();
        assert_eq!(answer.status, code.http_status(), "{problem}");
        assert_eq!((&problem["code"], &problem["may_have_run"]), (&json!(code.name()), &json!(true)));
    }
}

#[tokio::test]
async fn a_question_that_got_no_answer_cannot_have_run() {
    for code in [Code::StoreTimedOut, Code::StoreLost, Code::StoreDisk, Code::StoreProtocol] {
        let (server, _) = staged(Act::Away(code), "").await;
        for path in ["/readyz", "/v1/limit/psp/peek?key.psp_id=a", "/v1/key/explain?key=x"] {
            let answer = server.get(path).await;
            let problem = answer.json();
            assert_eq!((answer.status, &problem["code"]), (503, &json!(code.name())), "{path}");
            assert!(problem.get("may_have_run").is_none(), "{path}: {problem}");
            let advice = problem["advice"].as_str().unwrap();
            assert!(!advice.contains("request_id") && !advice.contains("this call"), "{path}: {advice}");
            assert_eq!(problem["retry_after_ms"], 1000, "{path}");
        }
    }
}

#[tokio::test]
async fn a_store_that_knows_it_failed_is_not_ready_although_it_answers() {
    let (server, _) = staged(Act::Unwell, "").await;
    let ready = server.get("/readyz").await;
    assert_eq!(
        (ready.status, ready.json()["code"].clone()),
        (503, json!("store.refused")),
        "{}",
        ready.text()
    );
    let store = server.get("/v1/status").await.json()["store"].clone();
    assert_eq!(store["connected"], false, "{store}");
    assert!(store["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{store}");
    assert!(server.get("/metrics").await.text().contains("\nquaymaster_store_up 0"));
}

#[tokio::test]
async fn a_store_that_never_says_whether_it_accepts_writes_is_not_ready() {
    let (server, _) = staged(Act::Silent, "").await;
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["code"].clone()), (503, json!("store.timed_out")));
    assert!(server.get("/metrics").await.text().contains("\nquaymaster_store_ready 0"));
}

#[tokio::test]
async fn half_a_request_head_does_not_hold_a_stop_up() {
    let (mut server, stage) =
        staged(Act::Wait, "[server]\nshutdown_grace = \"10m\"\nshutdown_drain = \"20ms\"").await;
    let mut half = Connection::open(server.address).await;
    let mut second = Connection::open(server.address).await;
    second.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(second.receive().await.unwrap().status, 200);
    for connection in [&mut half, &mut second] {
        connection.send(b"GET /healthz HTTP/1.1\r\nhost: local").await;
    }
    let mut busy = Connection::open(server.address).await;
    busy.send(&take()).await;
    stage.arrived.acquire().await.unwrap().forget();
    server.ask_to_stop();
    assert!(half.receive().await.is_none() && second.receive().await.is_none());
    stage.released.add_permits(PLENTY);
    assert_eq!(busy.receive().await.expect("the request in flight is answered").status, 200);
    server.stopped().await;
}

#[tokio::test]
async fn calls_for_a_redis_that_never_answered_have_not_run() {
    // Accepts, and says nothing.
    let silent = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let url = format!("redis://{}?deadline_ms=200", silent.local_addr().unwrap());
    let options = StoreOptions::from_url(&url, ".".as_ref()).unwrap();
    let engine = open_store(options, schema(SCHEMA), Eviction::Refused, Backoff::default())
        .await
        .expect("it starts anyway");
    let server = Fixture::on(settings("", &|_| None).server, engine).await;
    let problem = server.post("/v1/limit/psp/take", BODY).await.json();
    assert_eq!(problem["code"], "store.refused", "{problem}");
    assert!(problem.get("may_have_run").is_none(), "{problem}");
}

#[tokio::test]
async fn requests_beyond_the_bound_are_told_so_at_once() {
    let (server, stage) = staged(Act::Wait, "[server]\nmax_requests = 1").await;
    let mut first = Connection::open(server.address).await;
    first.send(&take()).await;
    stage.arrived.acquire().await.unwrap().forget();
    for path in ["/v1/status", "/", "/nowhere", "/v1/limit/psp/peek?key.psp_id=a"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.json()["code"].clone()), (503, json!("server.busy")), "{path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(server.get(path).await.status, 200, "{path}: a busy server is not a dead one");
    }
    stage.released.add_permits(PLENTY);
    assert_eq!(first.receive().await.unwrap().status, 200);
    assert_eq!(server.get("/v1/status").await.status, 200, "the place is free again");
}

#[tokio::test]
async fn connections_beyond_the_bound_are_told_so_and_closed() {
    let (server, _) = staged(Act::Wait, "[server]\nmax_connections = 1").await;
    let mut first = Connection::open(server.address).await;
    first.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(first.receive().await.unwrap().status, 200);
    let mut second = Connection::open(server.address).await;
    let answer = second.receive().await.unwrap();
    assert_eq!((answer.status, answer.json()["code"].clone()), (503, json!("server.busy")));
    assert!(second.receive().await.is_none());
    first.send(&request("GET", "/metrics", &[], b"")).await;
    let metrics = first.receive().await.unwrap().text();
    assert!(metrics.contains("quaymaster_http_connections_refused_total 1"), "{metrics}");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let (server, _) = staged(Act::Wait, "[server]\nidle_timeout = \"20ms\"").await;
    let mut silent = Connection::open(server.address).await;
    let mut dribbling = Connection::open(server.address).await;
    dribbling.send(b"GET / HTTP/1.1\r\nhost:").await;
    for connection in [&mut silent, &mut dribbling] {
        let ended = tokio::time::timeout(Duration::from_secs(20), connection.receive()).await;
        assert!(ended.expect("the connection stays open").is_none());
    }
}

#[tokio::test]
async fn health_answers_name_the_version_of_redis_and_none_for_an_embedded_store() {
    let redis = RedisServer::start(RedisConfig::default());
    let said = redis.command::<String>(&["INFO", "server"]);
    let version = said.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap().to_owned();
    let options = StoreOptions::from_url(&redis.url(), ".".as_ref()).unwrap();
    let engine = open_store(options, schema(SCHEMA), Eviction::Refused, Backoff::default()).await.unwrap();
    let server = Fixture::on(settings("", &|_| None).server, engine).await;
    assert_eq!(server.get("/readyz").await.json()["redis_version"], *version);
    assert_eq!(server.get("/v1/status").await.json()["store"]["redis_version"], *version);
    assert!(server.get("/healthz").await.json().get("redis_version").is_none(), "it asks no store");
    let embedded = Fixture::start().await;
    assert!(embedded.get("/readyz").await.json().get("redis_version").is_none());
    assert!(embedded.get("/v1/status").await.json()["store"]["redis_version"].is_null());
}

#[tokio::test]
async fn a_server_started_without_its_redis_recovers_when_it_comes() {
    let mut redis = RedisServer::start(RedisConfig::default());
    let url = redis.url();
    redis.kill9();
    let mut options = StoreOptions::from_url(&url, ".".as_ref()).unwrap();
    if let StoreOptions::Redis(redis) = &mut options {
        redis.deadline = Duration::from_millis(300);
    }
    let engine = open_store(options, schema(SCHEMA), Eviction::Refused, Backoff::default())
        .await
        .expect("it starts anyway");
    let server = Fixture::on(settings("", &|_| None).server, engine).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    let ready = server.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.json()["code"].as_str().unwrap().starts_with("store."), "{}", ready.text());
    assert_eq!(server.post("/v1/limit/psp/take", BODY).await.status, 503);
    redis.restart();
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while server.get("/readyz").await.status != 200 {
        assert!(
            tokio::time::Instant::now() < until,
            "it does not recover: {}",
            server.get("/readyz").await.text()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.post("/v1/limit/psp/take", BODY).await.json()["used"], 1);
}

#[tokio::test]
async fn a_cluster_that_would_part_what_one_step_joins_is_refused() {
    let parted = schema(
        r#"
[schema]
name = "parted"

[queue.a]
max_size = 9
push = { url = "http://localhost", result_to = "queue.b" }

[queue.b]
max_size = 9
"#,
    );
    let memory: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let on = async |act| {
        let stage = Stage::new(memory.clone(), act);
        doctor::refusal(&doctor::examine(&parted, &*stage, Eviction::Refused).await.unwrap())
    };
    assert!(on(Act::Wait).await.is_none(), "one server has no slots");
    let refused = on(Act::Cluster).await.unwrap();
    assert_eq!(refused.code, Code::StoreUnsafe);
    assert!(refused.detail.contains("cluster-slots") && refused.detail.contains("colocate"), "{refused}");
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused_unless_accepted() {
    let redis = RedisServer::start(RedisConfig::default().line("maxmemory-policy allkeys-lru"));
    let options = || StoreOptions::from_url(&redis.url(), ".".as_ref()).unwrap();
    let error =
        open_store(options(), schema(SCHEMA), Eviction::Refused, Backoff::default()).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnsafe);
    assert!(error.detail.contains("allkeys-lru") && error.detail.contains("limit.psp"), "{error}");
    assert!(error.detail.contains("--accept-eviction"), "{error}");
    let engine = open_store(options(), schema(SCHEMA), Eviction::Accepted, Backoff::default()).await.unwrap();
    let server = Fixture::on(settings("", &|_| None).server, engine).await;
    let metrics = server.get("/metrics").await.text();
    assert!(
        metrics.contains("\nredis_memory_used_bytes ") && metrics.contains("\nredis_connected_clients "),
        "{metrics}"
    );
}
