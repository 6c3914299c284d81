//! The `Idempotency-Key` header on an axum server over TCP.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use quaymaster::idempotency::IdempotencyLayer;
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Code, Engine, Error, Quaymaster};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::servers::any_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What the handlers share.
struct Shop {
    runs: AtomicU64,
    entered: Semaphore,
    gate: Semaphore,
}

/// Does what the body says.
async fn order(State(shop): State<Arc<Shop>>, body: Bytes) -> Response {
    let run = shop.runs.fetch_add(1, SeqCst) + 1;
    let headers = [("location", "/orders/7"), ("etag", "\"7\""), ("x-run", "secret")];
    match &body[..] {
        b"fail" => (StatusCode::BAD_GATEWAY, format!("failed {run}")).into_response(),
        b"refuse" => (StatusCode::CONFLICT, format!("refused {run}")).into_response(),
        b"panic" => panic!("the handler was told to"),
        b"large" => vec![b'x'; 9000].into_response(),
        b"gate" => {
            shop.entered.add_permits(1);
            shop.gate.acquire().await.expect("open").forget();
            format!("run {run}").into_response()
        }
        _ => (StatusCode::CREATED, headers, format!("run {run}")).into_response(),
    }
}

struct Server {
    address: SocketAddr,
    shop: Arc<Shop>,
    engine: Arc<dyn Engine>,
}

impl Server {
    async fn start(fields: &str) -> Self {
        Self::with(fields, "orders:{key}", |orders| IdempotencyLayer::new(orders).expect("one placeholder"))
            .await
    }

    async fn with(
        fields: &str,
        pattern: &str,
        layer: impl FnOnce(quaymaster::idempotency::Idempotency) -> IdempotencyLayer,
    ) -> Self {
        let text = format!(
            "[schema]\nname = \"shop\"\nowner = \"tests\"\n[idempotency.orders]\nkey = \"{pattern}\"\nttl = \"1h\"\n{fields}\n"
        );
        let loaded = load(&[Source { name: "shop.toml", text: &text }], &|_| None);
        let schema = loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let engine: Arc<dyn Engine> =
            Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store"));
        let quaymaster = Quaymaster::new(Arc::new(schema), engine.clone());
        let layer = layer(quaymaster.idempotency("orders").expect("declared").clone());
        let shop =
            Arc::new(Shop { runs: AtomicU64::new(0), entered: Semaphore::new(0), gate: Semaphore::new(0) });
        let routes = Router::new().route("/orders", post(order).get(order)).route("/refunds", post(order));
        let router = routes.layer(layer).with_state(shop.clone());
        let listener = TcpListener::bind(any_port()).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shop, engine }
    }

    fn runs(&self) -> u64 {
        self.shop.runs.load(SeqCst)
    }

    async fn send(&self, line: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        let head = format!("{line} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.expect("write");
        stream
    }

    async fn ask(&self, line: &str, headers: &str, body: &str) -> Answer {
        Answer::read(self.send(line, headers, body).await).await
    }

    /// An order under a key.
    async fn order(&self, key: &str, body: &str) -> Answer {
        self.ask("POST /orders", &format!("idempotency-key: {key}\r\n"), body).await
    }
}

#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    async fn read(mut stream: TcpStream) -> Self {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(known, _)| *known == name).map(|(_, v)| v))
    }

    fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().expect("a code").to_owned()
    }
}

#[tokio::test]
async fn the_same_request_again_gets_the_same_answer_and_runs_nothing() {
    let server = Server::start("").await;
    let first = server.order("k-1", "buy").await;
    assert_eq!((first.status, &*first.body, first.header("x-run")), (201, "run 1", Some("secret")));
    assert_eq!(first.header("idempotency-replayed"), None);
    for key in ["k-1", "\"k-1\""] {
        let again = server.order(key, "buy").await;
        assert_eq!((again.status, &*again.body), (201, "run 1"));
        assert_eq!((again.header("location"), again.header("etag")), (Some("/orders/7"), Some("\"7\"")));
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_eq!((again.header("idempotency-replayed"), again.header("x-run")), (Some("true"), None));
    }
    assert_eq!(server.order("k-2", "buy").await.body, "run 2");
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn a_request_without_a_usable_key_is_refused_where_one_is_required() {
    let server = Server::start("").await;
    let long = format!("idempotency-key: {}\r\n", "k".repeat(600));
    for headers in ["", "idempotency-key: \r\n", "idempotency-key: a\r\nidempotency-key: b\r\n"] {
        let answer = server.ask("POST /orders", headers, "buy").await;
        assert_eq!((answer.status, &*answer.code()), (400, "idempotency.key"));
    }
    for headers in ["idempotency-key: a*\r\n", &long] {
        assert_eq!(server.ask("POST /orders", headers, "buy").await.code(), "idempotency.key");
    }
    assert_eq!(server.runs(), 0);
    assert_eq!(server.ask("GET /orders", "", "").await.status, 201, "reading needs no key");
    let lenient = Server::with("", "orders:{key}", |orders| {
        IdempotencyLayer::new(orders).expect("one placeholder").optional()
    });
    assert_eq!(lenient.await.ask("POST /orders", "", "buy").await.status, 201);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let server = Server::start("").await;
    assert_eq!(server.order("k", "buy").await.status, 201);
    let header = "idempotency-key: k\r\n";
    for (line, body) in [("POST /orders", "sell"), ("POST /refunds", "buy"), ("POST /orders?a=1", "buy")] {
        let answer = server.ask(line, header, body).await;
        assert_eq!((answer.status, &*answer.code()), (422, "idempotency.mismatch"), "{line} {body}");
    }
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn a_request_in_flight_is_told_to_come_back() {
    let server = Server::start("").await;
    let first = server.send("POST /orders", "idempotency-key: k\r\n", "gate").await;
    server.shop.entered.acquire().await.expect("open").forget();
    let answer = server.order("k", "gate").await;
    assert_eq!(
        (answer.status, &*answer.code(), answer.header("retry-after")),
        (409, "idempotency.in_progress", Some("1"))
    );
    assert_eq!(server.order("k", "other").await.status, 422, "a mismatch is told also while it runs");
    server.shop.gate.add_permits(1);
    assert_eq!(Answer::read(first).await.body, "run 1");
    assert_eq!(server.order("k", "gate").await.body, "run 1");
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn a_handler_whose_client_hung_up_goes_on_and_its_answer_is_there() {
    let server = Server::with("", "orders:{key}", |orders| {
        IdempotencyLayer::new(orders).expect("one placeholder").wait(Duration::from_secs(60))
    })
    .await;
    let first = server.send("POST /orders", "idempotency-key: k\r\n", "gate").await;
    server.shop.entered.acquire().await.expect("open").forget();
    drop(first);
    let second = server.send("POST /orders", "idempotency-key: k\r\n", "gate").await;
    server.shop.gate.add_permits(1);
    let answer = Answer::read(second).await;
    assert_eq!((&*answer.body, answer.header("idempotency-replayed")), ("run 1", Some("true")));
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn which_errors_are_final_is_as_declared() {
    for (fields, refused_runs, failed_runs) in
        [("", 1, 2), ("replay_errors = \"all\"", 1, 1), ("replay_errors = \"none\"", 2, 2)]
    {
        let server = Server::start(fields).await;
        for _ in 0..2 {
            assert_eq!(server.order("refused", "refuse").await.status, 409);
        }
        assert_eq!(server.runs(), refused_runs, "{fields}");
        for _ in 0..2 {
            assert_eq!(server.order("failed", "fail").await.status, 502);
        }
        assert_eq!(server.runs(), refused_runs + failed_runs, "{fields}");
    }
}

#[tokio::test]
async fn a_panic_is_answered_and_may_be_tried_again() {
    let server = Server::start("").await;
    for _ in 0..2 {
        let answer = server.order("k", "panic").await;
        assert_eq!((answer.status, &*answer.code()), (500, "internal"));
    }
    assert_eq!(server.runs(), 2);
}

#[tokio::test]
async fn an_answer_that_is_not_kept_passes_and_the_operation_is_not_run_again() {
    for fields in ["max_response = \"8KiB\"", "compact = true"] {
        let server = Server::start(fields).await;
        let first = server.order("k", "large").await;
        assert_eq!(
            (first.status, first.body.len(), first.header("content-length")),
            (200, 9000, Some("9000"))
        );
        let again = server.order("k", "large").await;
        assert_eq!((again.status, &*again.code()), (409, "idempotency.no_response"), "{fields}");
        assert_eq!(again.header("retry-after"), None, "waiting does not bring it back");
        assert_eq!(server.runs(), 1);
    }
}

#[tokio::test]
async fn what_another_program_noted_is_not_run_again() {
    let server = Server::start("").await;
    command(&*server.engine, b"orders:k", &[b"SET", b"orders:k", b"1"]).await.expect("set");
    assert_eq!(server.order("k", "buy").await.code(), "idempotency.no_response");
    command(&*server.engine, b"orders:k", &[b"SET", b"orders:k", b"f - abcdefgh r {\"paid\":true}"])
        .await
        .expect("set");
    let answer = server.order("k", "buy").await;
    assert_eq!(
        (answer.status, &*answer.body, answer.header("content-type")),
        (200, "{\"paid\":true}", Some("application/json"))
    );
    command(&*server.engine, b"orders:k", &[b"SET", b"orders:k", b"junk"]).await.expect("set");
    assert_eq!(server.order("k", "buy").await.code(), "key.malformed");
    assert_eq!(server.runs(), 0);
}

#[tokio::test]
async fn a_request_body_over_its_bound_is_refused_before_anything_is_begun() {
    let server = Server::with("", "orders:{key}", |orders| {
        IdempotencyLayer::new(orders).expect("one placeholder").max_request(10)
    })
    .await;
    let answer = server.order("k", "eleven byte").await;
    assert_eq!((answer.status, &*answer.code()), (413, "request.too_large"));
    let chunked = "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nidempotency-key: k\r\n\
                   transfer-encoding: chunked\r\n\r\n6\r\neleven\r\n6\r\n bytes\r\n0\r\n\r\n";
    let mut stream = TcpStream::connect(server.address).await.expect("connect");
    stream.write_all(chunked.as_bytes()).await.expect("write");
    assert_eq!(Answer::read(stream).await.code(), "request.too_large");
    assert_eq!(server.runs(), 0);
    assert_eq!(server.order("k", "ten bytes!").await.status, 201, "the key is still free");
}

#[tokio::test]
async fn a_closure_gives_every_placeholder_its_value() {
    let server = Server::with("", "orders:{customer}:{key}", |orders| {
        assert!(IdempotencyLayer::new(orders.clone()).is_err(), "one value for two placeholders");
        IdempotencyLayer::keyed(orders, |parts, key| {
            let customer = customer(&parts.headers)
                .ok_or_else(|| Error::new("idempotency.layer", Code::AuthRequired, "who are you?"))?;
            Ok(vec![("customer".to_owned(), customer), ("key".to_owned(), key.to_owned())])
        })
    })
    .await;
    assert_eq!(server.order("k", "buy").await.status, 401);
    for (customer, run) in [("ann", 1), ("bob", 2), ("ann", 1)] {
        let headers = format!("idempotency-key: k\r\nx-customer: {customer}\r\n");
        assert_eq!(server.ask("POST /orders", &headers, "buy").await.body, format!("run {run}"));
    }
}

fn customer(headers: &HeaderMap) -> Option<String> {
    headers.get("x-customer")?.to_str().ok().map(str::to_owned)
}

#[tokio::test]
async fn two_hundred_submissions_of_one_order_run_it_once_and_get_one_answer() {
    let server = Server::with("", "orders:{key}", |orders| {
        IdempotencyLayer::new(orders).expect("one placeholder").wait(Duration::from_secs(60))
    })
    .await;
    let answers = futures_util::future::join_all((0..200).map(|_| server.order("k", "buy"))).await;
    assert_eq!(server.runs(), 1);
    assert!(answers.iter().all(|answer| (answer.status, &*answer.body) == (201, "run 1")));
    let replayed = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_some()).count();
    assert_eq!(replayed, 199);
}

#[tokio::test]
async fn a_key_that_no_record_can_lie_under_is_the_clients_mistake() {
    let server = Server::start("").await;
    for key in ["*".to_owned(), "a{b".to_owned(), "x".repeat(513)] {
        let answer = server.order(&key, "buy").await;
        assert_eq!((answer.status, answer.code()), (400, "idempotency.key".to_owned()), "{key}");
    }
    assert_eq!(server.runs(), 0);
}

#[tokio::test]
async fn headers_count_towards_the_bound_of_what_is_kept() {
    // `run 1` with its status, content type, location and etag: 85 bytes.
    for (bound, kept) in [(85, true), (84, false), (10, false)] {
        let server = Server::start(&format!("max_response = {bound}")).await;
        let first = server.order("k", "buy").await;
        assert_eq!((first.status, first.body.as_str()), (201, "run 1"), "whole for who asked first");
        let again = server.order("k", "buy").await;
        if kept {
            assert_eq!((again.status, again.body.as_str()), (201, "run 1"), "{bound}");
        } else {
            assert_eq!((again.status, again.code()), (409, "idempotency.no_response".to_owned()), "{bound}");
        }
        assert_eq!(server.runs(), 1);
    }
}

#[tokio::test]
async fn a_wait_without_end_is_an_hour() {
    let server = Server::with("", "orders:{key}", |orders| {
        IdempotencyLayer::new(orders).expect("one placeholder").wait(Duration::MAX)
    })
    .await;
    assert_eq!(server.order("k", "buy").await.status, 201);
}

#[tokio::test]
async fn an_answer_under_allow_says_that_the_store_was_not_asked() {
    let server = Server::start("on_outage = \"allow\"").await;
    assert_eq!(server.order("k-1", "buy").await.header("quaymaster-outage"), None);
    server.engine.close().await.expect("it closes");
    let answer = server.order("k-2", "buy").await;
    assert_eq!((answer.status, answer.header("quaymaster-outage")), (201, Some("allow")), "{answer:?}");
    assert_eq!(server.order("k-3", "fail").await.header("quaymaster-outage"), Some("allow"));
}
