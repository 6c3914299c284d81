//! Events over HTTP: published, and heard by any number of readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::client::{Answer, request};
use crate::fixture::{Fixture, schema, settings};
use crate::listening::{PATIENCE, Sse, next, text, ws};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[event.news]

[event.progress]
channel = "progress:{id}"

[queue.jobs]
max_size = 100

[event.pulse]
status = { every = "1s", queues = ["jobs"] }
"#;

async fn memory() -> Arc<dyn Engine> {
    Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap())
}

async fn start(toml: &str) -> Fixture {
    let env = |name: &str| Some(format!("{name}-is-long-enough"));
    Fixture::serving(SCHEMA, settings(toml, &env).server, memory().await).await
}

async fn publish(server: &Fixture, body: &str) -> Answer {
    server.post("/v1/event/news/publish", body).await
}

/// A counter of `/metrics`.
async fn metric(server: &Fixture, name: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().unwrap().parse().unwrap()
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !done().await {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_message_reaches_streams_and_sockets_as_it_was_published() {
    let server = start("").await;
    let mut sse = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    let told = publish(&server, r#"{"data":{"b": 1.10,  "a":[12345678901234567890123]}}"#).await;
    assert_eq!((told.status, told.json()), (200, json!({"receivers": 1})), "one subscription for both");
    let data = r#"{"b": 1.10,  "a":[12345678901234567890123]}"#;
    let event = sse.block().await.unwrap();
    let (id, rest) = event.split_once('\n').unwrap();
    assert!(id.starts_with("id: ") && id.ends_with(".1"), "{event}");
    assert_eq!(rest, format!("data: {data}"));
    assert_eq!(text(&mut socket).await, data);
    for odd in ["null", "\"\u{e9}\\n\"", "[]"] {
        assert_eq!(publish(&server, &format!("{{\"data\":{odd}}}")).await.status, 200);
        assert_eq!((sse.data().await, text(&mut socket).await), (odd.to_owned(), odd.to_owned()));
    }
    // Other programs publish what they like.
    let foreign = async |bytes: &[u8]| {
        command(&*server.engine, b"news", &[b"PUBLISH", b"news", bytes]).await.unwrap();
    };
    foreign(b"{\n \"a\":1\r\n}").await;
    assert_eq!(sse.data().await, "{\n \"a\":1\n}");
    assert_eq!(text(&mut socket).await, "{\n \"a\":1\r\n}");
    foreign(b"\xff\x00").await;
    assert!(sse.block().await.unwrap().ends_with("event: binary\ndata: /wA="));
    assert_eq!(next(&mut socket).await, Message::Binary(vec![0xff, 0].into()));
}

#[tokio::test]
async fn a_channel_with_placeholders_is_heard_by_its_own_readers_alone() {
    let server = start("").await;
    let mut a = Sse::open(server.address, "/v1/event/progress/stream?key.id=a", &[]).await;
    let mut b = ws(server.address, "/v1/event/progress/ws?key.id=b%3Ac").await;
    for (id, data) in [("b:c", "1"), ("a", "2")] {
        let body = format!(r#"{{"key":{{"id":"{id}"}},"data":{data}}}"#);
        assert_eq!(server.post("/v1/event/progress/publish", &body).await.status, 200);
    }
    assert_eq!((a.data().await, text(&mut b).await), ("2".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn a_repeated_publish_is_heard_once() {
    let server = start("").await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    for _ in 0..3 {
        let told = publish(&server, r#"{"data":1,"request_id":"r-1"}"#).await;
        assert_eq!(told.json(), json!({"receivers": 1}));
    }
    publish(&server, r#"{"data":2}"#).await;
    assert_eq!((text(&mut socket).await, text(&mut socket).await), ("1".to_owned(), "2".to_owned()));
}

#[tokio::test]
async fn readers_hear_a_heartbeat_while_nothing_is_published() {
    let server = start("[server]\nheartbeat = \"500ms\"\n").await;
    let mut sse = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    let streamed = async {
        for _ in 0..3 {
            assert_eq!(sse.block().await.as_deref(), Some(": heartbeat"));
        }
    };
    // Whoever reads a socket answers its pings.
    let pinged = async {
        for _ in 0..3 {
            let beat = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            assert!(matches!(beat, Message::Ping(_)), "{beat:?}");
        }
    };
    futures_util::future::join(streamed, pinged).await;
    assert_eq!(publish(&server, r#"{"data":1}"#).await.json()["receivers"], 1);
    assert_eq!((sse.data().await, text(&mut socket).await), ("1".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn a_socket_that_answers_no_ping_is_cut() {
    let server = start("[server]\nheartbeat = \"100ms\"\n").await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await.into_inner();
    // Whoever reads raw bytes sends no pongs.
    let mut told = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut told)).await;
    ended.expect("it is never cut").unwrap();
    let close = [&[0x88, 14, 0x03, 0xf0][..], b"no pong came"].concat();
    assert!(told.ends_with(&close), "{told:?}");
    assert_eq!(metric(&server, "quaymaster_event_readers_cut_total").await, 1);
    until("its place is free", async || metric(&server, "quaymaster_event_readers").await == 0).await;
}

/// Publishes numbered messages of about `bytes` each, as fast as the quick reader takes them.
async fn flood(server: &Fixture, quick: &mut crate::listening::Socket, count: usize, bytes: usize) {
    let quaymaster = Quaymaster::new(schema(SCHEMA), server.engine.clone());
    let news = quaymaster.event("news").unwrap();
    let pad = "x".repeat(bytes);
    for first in (0..count).step_by(50) {
        for number in first..(first + 50).min(count) {
            news.publish(&[], format!("{{\"n\":{number},\"pad\":\"{pad}\"}}").as_bytes()).await.unwrap();
        }
        for number in first..(first + 50).min(count) {
            let told: Value = serde_json::from_str(&text(quick).await).unwrap();
            assert_eq!(told["n"], number, "a reader that keeps up misses nothing");
        }
    }
}

/// Counts what a reader that was slow gets and what it is told it missed.
fn tally(told: &str, got: &mut u64, missed: &mut u64, last: &mut i64) {
    let value: Value = serde_json::from_str(told).unwrap();
    if let Some(count) = value["missed"].as_u64() {
        assert!(count > 0, "{told}");
        *missed += count;
        *last += count as i64;
        return;
    }
    assert_eq!(value["n"], *last + 1, "what is missing is told in its place");
    *last += 1;
    *got += 1;
}

#[tokio::test]
async fn a_slow_reader_is_told_what_it_missed_and_holds_up_nobody() {
    const COUNT: usize = 4000;
    let server = start("[server]\nheartbeat = \"20s\"\n").await;
    let mut slow_stream = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let mut slow_socket = ws(server.address, "/v1/event/news/ws").await;
    let mut quick = ws(server.address, "/v1/event/news/ws").await;
    flood(&server, &mut quick, COUNT, 10_000).await;
    let (mut got, mut missed, mut last) = (0, 0, -1);
    while last + 1 < COUNT as i64 {
        tally(&text(&mut slow_socket).await, &mut got, &mut missed, &mut last);
    }
    assert_eq!(got + missed, COUNT as u64);
    assert!(missed > 0 && got > 0, "got {got}, missed {missed}");
    let (mut got, mut missed, mut last) = (0, 0, -1);
    while last + 1 < COUNT as i64 {
        let (name, told) = slow_stream.named().await;
        assert_eq!(name.as_deref(), told.starts_with(r#"{"missed":"#).then_some("missed"), "{told:.80}");
        tally(&told, &mut got, &mut missed, &mut last);
    }
    assert_eq!(got + missed, COUNT as u64);
    assert!(missed > 0 && got > 0, "got {got}, missed {missed}");
    assert!(metric(&server, "quaymaster_event_missed_total").await > 0);
    publish(&server, r#"{"data":"on"}"#).await;
    assert_eq!(
        (text(&mut slow_socket).await, slow_stream.data().await),
        ("\"on\"".to_owned(), "\"on\"".to_owned())
    );
}

#[tokio::test]
async fn readers_that_take_nothing_are_cut() {
    let server = start("[server]\nheartbeat = \"300ms\"\n").await;
    let stream = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let socket = ws(server.address, "/v1/event/news/ws").await;
    let cut = AtomicBool::new(false);
    let quaymaster = Quaymaster::new(schema(SCHEMA), server.engine.clone());
    let data = format!("\"{}\"", "x".repeat(100_000));
    let publishing = async {
        while !cut.load(Relaxed) {
            quaymaster.event("news").unwrap().publish(&[], data.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let watching = async {
        until("both are cut", async || {
            metric(&server, "quaymaster_event_readers_cut_total").await == 2
                && metric(&server, "quaymaster_event_readers").await == 0
        })
        .await;
        cut.store(true, Relaxed);
    };
    futures_util::future::join(publishing, watching).await;
    stream.rest().await;
    drop(socket);
}

#[tokio::test]
async fn a_stop_ends_streams_and_says_goodbye_to_sockets() {
    let mut server = start("[server]\nshutdown_grace = \"20s\"\n").await;
    let mut sse = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    publish(&server, r#"{"data":1}"#).await;
    assert_eq!((sse.data().await, text(&mut socket).await), ("1".to_owned(), "1".to_owned()));
    let begun = Instant::now();
    server.ask_to_stop();
    assert_eq!(sse.block().await, None, "the stream ends as HTTP wants it");
    match next(&mut socket).await {
        Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Away),
        other => panic!("{other:?}"),
    }
    let _ = socket.close(None).await;
    server.stopped().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "it does not wait for its readers");
}

#[tokio::test]
async fn readers_stay_through_an_outage_and_are_told_of_it() {
    let mut redis = RedisServer::start(RedisConfig::default());
    let store = RedisStore::connect(RedisOptions::from_url(&redis.url()).unwrap()).await.unwrap();
    let server = Fixture::serving(SCHEMA, settings("", &|_| None).server, Arc::new(store)).await;
    let mut sse = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    redis.restart();
    assert_eq!(sse.event("missed").await, r#"{"missed":0}"#);
    assert_eq!(text(&mut socket).await, r#"{"missed":0}"#);
    // A foreign program's message.
    redis.command::<i64>(&["PUBLISH", "news", "{\"after\": true}"]);
    assert_eq!(sse.data().await, "{\"after\": true}");
    assert_eq!(text(&mut socket).await, "{\"after\": true}");
    redis.kill9();
    let refused = server.get("/v1/event/progress/stream?key.id=x").await;
    assert_eq!(refused.status, 503, "nobody is subscribed to this one yet");
}

#[tokio::test]
async fn who_comes_again_is_told_what_it_missed() {
    let server = start("").await;
    let mut steady = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    publish(&server, r#"{"data":1}"#).await;
    let id = steady.block().await.unwrap().lines().next().unwrap().strip_prefix("id: ").unwrap().to_owned();
    publish(&server, r#"{"data":2}"#).await;
    publish(&server, r#"{"data":3}"#).await;
    steady.data().await;
    assert_eq!(steady.data().await, "3");
    let path = "/v1/event/news/stream";
    let mut again = Sse::open(server.address, path, &[("last-event-id", &id)]).await;
    assert_eq!(again.event("missed").await, r#"{"missed":2}"#);
    let mut elsewhere = Sse::open(server.address, path, &[("last-event-id", "abcdef.12")]).await;
    assert_eq!(elsewhere.data().await, r#"{"missed":0}"#, "nobody knows how many");
    publish(&server, r#"{"data":4}"#).await;
    assert_eq!((again.data().await, elsewhere.data().await), ("4".to_owned(), "4".to_owned()));
}

#[tokio::test]
async fn tokens_and_origins_guard_streams_as_they_guard_calls() {
    let tokens = "[server]\ntokens = [{ env = \"READER\", role = \"read\" }, { env = \"WRITER\" }]\n";
    let server = start(tokens).await;
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for path in ["/v1/event/news/stream", "/v1/event/news/ws"] {
        assert_eq!(server.raw(&request("GET", path, &upgrade, b"")).await.status, 401, "{path}");
    }
    let reader = ("authorization", "Bearer READER-is-long-enough");
    let mut sse = Sse::open(server.address, "/v1/event/news/stream", &[reader]).await;
    let mut headers = upgrade.to_vec();
    headers.push(reader);
    let answer = server.raw(&request("GET", "/v1/event/news/ws", &headers, b"")).await;
    assert_eq!(
        (answer.status, answer.header("sec-websocket-accept")),
        (101, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
    );
    let body = br#"{"data":1}"#;
    let publish =
        |token: &'static str| request("POST", "/v1/event/news/publish", &[("authorization", token)], body);
    assert_eq!(server.raw(&publish("Bearer READER-is-long-enough")).await.status, 403);
    assert_eq!(server.raw(&publish("Bearer WRITER-is-long-enough")).await.status, 200);
    assert_eq!(sse.data().await, "1");
    let open = start("").await;
    let mut foreign = upgrade.to_vec();
    foreign.push(("origin", "https://evil.example"));
    for path in ["/v1/event/news/stream", "/v1/event/news/ws"] {
        assert_eq!(open.raw(&request("GET", path, &foreign, b"")).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn places_for_readers_are_bounded_and_come_back() {
    let server = start("[server]\nmax_subscribers = 2\n").await;
    let first = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    let _second = ws(server.address, "/v1/event/news/ws").await;
    let refused = server.get("/v1/event/news/stream").await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("server.busy")));
    drop(first);
    until("its place is free", async || metric(&server, "quaymaster_event_readers").await == 1).await;
    let _third = Sse::open(server.address, "/v1/event/news/stream", &[]).await;
    assert_eq!(metric(&server, "quaymaster_event_readers_refused_total").await, 1);
}

#[tokio::test]
async fn what_clients_say_on_a_socket_is_bounded_and_ignored() {
    let server = start("").await;
    let mut socket = ws(server.address, "/v1/event/news/ws").await;
    for said in [Message::Text("hello".into()), Message::Binary(vec![1; 4000].into())] {
        socket.send(said).await.unwrap();
    }
    publish(&server, r#"{"data":1}"#).await;
    assert_eq!(text(&mut socket).await, "1");
    socket.send(Message::Binary(vec![1; 5000].into())).await.unwrap();
    match next(&mut socket).await {
        Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Size),
        other => panic!("{other:?}"),
    }
    let mut stray = ws(server.address, "/v1/event/news/ws").await.into_inner();
    stray.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut told = Vec::new();
    tokio::time::timeout(PATIENCE, stray.read_to_end(&mut told)).await.unwrap().unwrap();
    assert_eq!(&told[..4], [0x88, told.len() as u8 - 2, 0x03, 0xea], "1002: {told:?}");
    // A goodbye over bytes that were never read must not be taken back by a reset.
    let mut flood = ws(server.address, "/v1/event/news/ws").await.into_inner();
    let large = [vec![0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 0], vec![0; (128 << 10) + 4]].concat();
    flood.write_all(&large).await.unwrap();
    let mut told = Vec::new();
    tokio::time::timeout(PATIENCE, flood.read_to_end(&mut told)).await.unwrap().unwrap();
    assert_eq!(told[2..4], 1009_u16.to_be_bytes(), "{told:?}");
    drop(flood);
    let mut polite = ws(server.address, "/v1/event/news/ws").await;
    polite.close(None).await.unwrap();
    // Without it a browser calls the end unclean, and its code 1006.
    assert!(matches!(next(&mut polite).await, Message::Close(None)), "a goodbye is answered");
    until("all have gone", async || metric(&server, "quaymaster_event_readers").await == 0).await;
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused() {
    let server = start("").await;
    for (path, status, code) in [
        ("/v1/event/news/stream?x=1", 400, "request.field"),
        ("/v1/event/nws/stream", 404, "resource.unknown"),
        ("/v1/event/progress/stream", 400, "key.missing"),
        ("/v1/event/progress/stream?key.id=a%2A", 400, "key.value"),
        ("/v1/event/news/ws", 400, "request.invalid"),
        ("/v1/event/news/listen", 404, "route.unknown"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{path}");
    }
    let answer = server.post("/v1/event/news/stream", "{}").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
    let old = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "8")];
    let answer = server.raw(&request("GET", "/v1/event/news/ws", &old, b"")).await;
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("sec-websocket-version")));
    assert_eq!(answer.header("sec-websocket-version"), Some("13"), "the version that would be right");
    let huge = format!(r#"{{"data":"{}"}}"#, "x".repeat(1 << 20));
    for (body, status, field) in [
        ("{}", 400, "data"),
        (r#"{"data":1,"date":2}"#, 400, "date"),
        (r#"{"data":}"#, 400, "body"),
        (r#"{"data":1,"key":{"id":"x"}}"#, 400, ""),
        (r#"{"data":1,"request_id":""}"#, 400, ""),
        (r#"{"data":1,"request_id":7}"#, 400, "request_id"),
        (huge.as_str(), 413, ""),
    ] {
        let answer = publish(&server, body).await;
        let shown = &body[..body.len().min(40)];
        assert_eq!(answer.status, status, "{shown}: {}", answer.text());
        if !field.is_empty() {
            assert_eq!(answer.json()["field"], field, "{shown}");
        }
    }
    for (body, status) in [
        (r#"{"data":{}}"#, 400),
        (r#"{"data":[1]}"#, 400),
        (r#"{"data":{"timestamp":1}}"#, 400),
        (r#"{"data":{"a":1},"ttl_ms":0}"#, 400),
        (r#"{"data":{"a":1},"ttl_ms":86400001}"#, 400),
        (r#"{"data":{"a":1},"ttl_ms":1000}"#, 200),
    ] {
        let answer = server.post("/v1/event/pulse/report", body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    assert_eq!(server.post("/v1/event/news/report", r#"{"data":{"a":1}}"#).await.status, 422, "no status");
}

/// Seconds within the day of `2026-01-24T10:30:00.000000`, which is all that differs within a test.
fn seconds(status: &Value) -> f64 {
    let at = status["data"]["timestamp"].as_str().unwrap();
    let parts: Vec<f64> = at[11..].split(':').map(|part| part.parse().unwrap()).collect();
    parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]
}

#[tokio::test]
async fn one_status_an_interval_comes_from_any_number_of_servers() {
    let engine = memory().await;
    let config = || settings("", &|_| None).server;
    let servers = [
        Fixture::serving(SCHEMA, config(), engine.clone()).await,
        Fixture::serving(SCHEMA, config(), engine.clone()).await,
        Fixture::serving(SCHEMA, config(), engine.clone()).await,
    ];
    let told = servers[0]
        .post("/v1/event/pulse/report", r#"{"data":{"cameras_online":4,"gpu_utilization":45.2}}"#)
        .await;
    assert_eq!(told.json(), json!({"reported": 2}));
    command(&*engine, b"jobs", &[b"RPUSH", b"jobs", b"1", b"2"]).await.unwrap();
    let mut socket = ws(servers[1].address, "/v1/event/pulse/ws").await;
    let mut last: Option<f64> = None;
    for _ in 0..3 {
        let status: Value = serde_json::from_str(&text(&mut socket).await).unwrap();
        assert_eq!(status["type"], "status");
        assert_eq!(status["data"]["queue_depths"], json!({"jobs": 2}));
        assert_eq!(status["data"]["cameras_online"], 4);
        assert_eq!(status["data"]["gpu_utilization"], 45.2);
        let at = seconds(&status);
        if let Some(last) = last {
            let gap = (at - last).rem_euclid(86_400.0);
            assert!(gap >= 0.999, "two in one interval: {gap}");
        }
        last = Some(at);
    }
}

#[tokio::test]
async fn a_client_that_vanishes_gives_its_place_back() {
    let server = start("").await;
    for _ in 0..3 {
        let mut raw = TcpStream::connect(server.address).await.unwrap();
        raw.write_all(&request("GET", "/v1/event/news/stream", &[], b"")).await.unwrap();
        let mut some = [0; 10];
        raw.read_exact(&mut some).await.unwrap();
        drop(ws(server.address, "/v1/event/news/ws").await);
    }
    until("all have gone", async || metric(&server, "quaymaster_event_readers").await == 0).await;
}
