//! Every request of a service is recorded once: by its route, with its status, however it ends.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use quaymaster::Quaymaster;
use quaymaster::layer::{Keyed, LimitLayer, Peer, Refused, Route, StatsLayer, Trust};
use quaymaster::stats::{Endpoint, Recorder, Report, ReportAsk, UNMATCHED};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore};

use crate::client::{ask, ask_from, connect_from, listener, send};
use crate::in_memory;

/// Loopback callers count here: there are no others.
const SCHEMA: &str = r#"
[stats.web]
key = "web:"
ignore_remote = []

[limit.all]
key = "all:{what}"
algorithm = "fixed_window"
limit = 2
window = "1h"
"#;

struct Scene {
    quaymaster: Quaymaster,
    recorder: Recorder,
    address: SocketAddr,
}

impl Scene {
    async fn start(app: impl FnOnce(&Quaymaster, &Recorder) -> Router) -> Self {
        Self::with(SCHEMA, app).await
    }

    async fn with(schema: &str, app: impl FnOnce(&Quaymaster, &Recorder) -> Router) -> Self {
        let quaymaster = in_memory(schema).await;
        let recorder = quaymaster.stats("web").unwrap().recorder("one");
        let app = app(&quaymaster, &recorder).into_make_service_with_connect_info::<Peer>();
        let (listener, address) = listener().await;
        let counted = recorder.listener(listener);
        tokio::spawn(async move { axum::serve(counted, app).await });
        Self { quaymaster, recorder, address }
    }

    /// What the store has after a flush.
    async fn report(&self) -> Report {
        self.recorder.flush().await.unwrap();
        self.quaymaster.stats("web").unwrap().report(ReportAsk::default()).await.unwrap()
    }

    /// Waits until so many requests are recorded: those that end without an answer are so at no moment a client sees.
    async fn recorded(&self, total: u64) -> Report {
        for _ in 0..10_000 {
            let report = self.report().await;
            if report.total >= total {
                assert_eq!(report.total, total, "{report:?}");
                return report;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{total} requests were never recorded")
    }

    async fn connections(&self, open: u64) {
        for _ in 0..10_000 {
            if self.recorder.connections() == open {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{} connections, not {open}", self.recorder.connections())
    }
}

/// Endpoints by name: requests and errors.
fn endpoints(report: &Report) -> Vec<(&str, u64, u64)> {
    let mut all: Vec<_> = report
        .endpoints
        .iter()
        .map(|Endpoint { name, count, errors, .. }| (name.as_str(), *count, *errors))
        .collect();
    all.sort_unstable();
    all
}

async fn user(Path(id): Path<String>) -> Response {
    match id.as_str() {
        "missing" => StatusCode::NOT_FOUND.into_response(),
        "broken" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "busy" => StatusCode::TOO_MANY_REQUESTS.into_response(),
        "refused" => {
            let mut response = StatusCode::FORBIDDEN.into_response();
            response.extensions_mut().insert(Refused);
            response
        }
        "panic" => panic!("the handler was told to"),
        _ => id.into_response(),
    }
}

#[tokio::test]
async fn routes_are_templates_and_statuses_are_the_responses() {
    let scene = Scene::start(|_, recorder| {
        let nested = Router::new().route("/answers/{answer}", get(async || "answer"));
        Router::new()
            .route("/users/{id}", get(user).post(user))
            .nest("/questions/{question}", nested)
            .layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    for line in [
        "GET /users/1",
        "GET /users/2?x=1",
        "POST /users/3",
        "GET /users/missing",
        "GET /users/broken",
        "GET /users/busy",
        "GET /users/refused",
        "GET /questions/7/answers/8",
        "PURGE /users/1",
    ] {
        ask(scene.address, line, "").await;
    }
    for path in 0..50 {
        assert_eq!(ask(scene.address, &format!("GET /scan/{path}.php"), "").await.status, 404);
    }
    let report = scene.recorded(59).await;
    assert_eq!(
        endpoints(&report),
        [
            ("GET /questions/:question/answers/:answer", 1, 0),
            ("GET /users/:id", 6, 4),
            // axum answers 405 for a route it has matched.
            ("OTHER /users/:id", 1, 1),
            ("POST /users/:id", 1, 0),
            (UNMATCHED, 50, 50),
        ]
    );
    assert_eq!(report.by_status, [(403, 1), (404, 51), (405, 1), (429, 1), (500, 1)]);
    // 429 and what says so itself was not let in; a 404 was.
    assert_eq!((report.accepted, report.errors), (57, 55));
    assert_eq!(report.instances, [("one".to_owned(), 59)]);
}

#[tokio::test]
async fn what_the_limit_layer_refuses_is_not_accepted_and_did_not_run() {
    let scene = Scene::start(|quaymaster, recorder| {
        let limit = quaymaster.limit("all").unwrap().clone();
        Router::new()
            .route("/", get(async || "ran"))
            .layer(LimitLayer::new(limit, |request| match request.headers.get("x-bad") {
                Some(_) => Keyed::bad("told to"),
                None => Keyed::one("what", "requests"),
            }))
            .layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    for status in [200, 200, 429, 429, 429] {
        assert_eq!(ask(scene.address, "GET /", "").await.status, status);
    }
    assert_eq!(ask(scene.address, "GET /", "x-bad: 1\r\n").await.status, 400);
    let report = scene.recorded(6).await;
    assert_eq!((report.accepted, report.errors), (2, 4));
    assert_eq!(report.by_status, [(400, 1), (429, 3)]);
    assert_eq!(endpoints(&report), [("GET /", 6, 4)]);
}

#[tokio::test]
async fn a_panic_is_a_500_whoever_catches_it() {
    let scene = Scene::start(|_, recorder| {
        Router::new().route("/users/{id}", get(user)).layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    // hyper lets the connection go; nobody is answered.
    let mut stream = connect_from("127.0.0.1", scene.address).await;
    send(&mut stream, "GET /users/panic", "").await;
    let mut nothing = Vec::new();
    let _ = stream.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty(), "{nothing:?}");
    let report = scene.recorded(1).await;
    assert_eq!(report.by_status, [(500, 1)]);
    // Caught outside, the future is dropped when no panic is on its way any more.
    use futures_util::FutureExt as _;
    use tower_service::Service as _;
    let mut service = tower_layer::Layer::layer(&StatsLayer::new(scene.recorder.clone()), Panics);
    let future = Box::pin(service.call(http::Request::new(())));
    let mut future = std::panic::AssertUnwindSafe(future);
    assert!(std::panic::AssertUnwindSafe(async { (&mut *future).await }).catch_unwind().await.is_err());
    drop(future);
    assert_eq!(scene.recorded(2).await.by_status, [(500, 2)]);
}

/// A service whose answer panics when it is asked for.
#[derive(Clone)]
struct Panics;

impl tower_service::Service<http::Request<()>> for Panics {
    type Response = http::Response<()>;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<http::Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        Box::pin(async { panic!("told to") })
    }
}

#[tokio::test]
async fn a_client_that_goes_away_is_a_499() {
    let entered = Arc::new(Semaphore::new(0));
    let begun = entered.clone();
    let scene = Scene::start(|_, recorder| {
        let handler = async move || {
            begun.add_permits(1);
            std::future::pending::<()>().await;
        };
        Router::new().route("/slow/{id}", get(handler)).layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    let mut stream = connect_from("127.0.0.1", scene.address).await;
    send(&mut stream, "GET /slow/1", "").await;
    entered.acquire().await.unwrap().forget();
    drop(stream);
    let report = scene.recorded(1).await;
    assert_eq!(report.by_status, [(499, 1)]);
    assert_eq!(endpoints(&report), [("GET /slow/:id", 1, 1)]);
    assert_eq!(report.accepted, 1);
}

#[tokio::test]
async fn a_service_that_fails_is_a_500() {
    use tower_service::Service as _;
    let quaymaster = in_memory(SCHEMA).await;
    let recorder = quaymaster.stats("web").unwrap().recorder("one");
    let mut service = tower_layer::Layer::layer(&StatsLayer::new(recorder.clone()), Fails);
    assert!(service.call(http::Request::new(())).await.is_err());
    recorder.flush().await.unwrap();
    let report = quaymaster.stats("web").unwrap().report(ReportAsk::default()).await.unwrap();
    assert_eq!((report.total, report.by_status), (1, vec![(500, 1)]));
}

struct Fails;

impl tower_service::Service<http::Request<()>> for Fails {
    type Response = http::Response<()>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<http::Response<()>, &'static str>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), &'static str>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        std::future::ready(Err("no"))
    }
}

/// A body of two pieces, the second of which waits.
fn slow_body(more: Arc<Notify>) -> Body {
    let pieces = futures_util::stream::unfold(0, move |piece| {
        let more = more.clone();
        async move {
            match piece {
                0 => Some((Ok::<_, Infallible>(Bytes::from_static(b"first ")), 1)),
                1 => {
                    more.notified().await;
                    Some((Ok(Bytes::from_static(b"second")), 2))
                }
                _ => None,
            }
        }
    });
    Body::from_stream(pieces)
}

#[tokio::test]
async fn to_the_end_means_the_bodys_end_and_otherwise_the_heads() {
    for whole in [false, true] {
        let more = Arc::new(Notify::new());
        let waiting = more.clone();
        let scene = Scene::start(|_, recorder| {
            let app = Router::new().route("/slow", get(async move || slow_body(waiting)));
            let layer = StatsLayer::new(recorder.clone());
            if whole { app.layer(layer.to_the_end()) } else { app.layer(layer) }
        })
        .await;
        let mut stream = connect_from("127.0.0.1", scene.address).await;
        send(&mut stream, "GET /slow", "connection: close\r\n").await;
        let mut text = String::new();
        while !text.contains("first") {
            let mut some = [0; 1024];
            let read = stream.read(&mut some).await.unwrap();
            assert!(read > 0, "{text}");
            text.push_str(std::str::from_utf8(&some[..read]).unwrap());
        }
        assert_eq!(scene.report().await.total, u64::from(!whole), "while the body goes on");
        more.notify_one();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("second"), "{text}");
        let report = scene.recorded(1).await;
        assert_eq!((report.accepted, report.errors), (1, 0));
    }
}

#[tokio::test]
async fn a_body_nobody_reads_to_its_end_is_recorded_when_it_is_dropped() {
    let more = Arc::new(Notify::new());
    let scene = Scene::start(|_, recorder| {
        let app = Router::new().route("/slow", get(async move || slow_body(more)));
        app.layer(StatsLayer::new(recorder.clone()).to_the_end())
    })
    .await;
    let mut stream = connect_from("127.0.0.1", scene.address).await;
    send(&mut stream, "GET /slow", "").await;
    stream.read_u8().await.unwrap();
    assert_eq!(scene.report().await.total, 0);
    drop(stream);
    let report = scene.recorded(1).await;
    assert_eq!((endpoints(&report), report.errors), (vec![("GET /slow", 1, 0)], 0));
}

#[tokio::test]
async fn connections_are_open_until_they_close() {
    let scene = Scene::start(|_, recorder| {
        Router::new().route("/", get(async || "")).layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    let mut open = Vec::new();
    for count in 1..=5 {
        open.push(connect_from("127.0.0.1", scene.address).await);
        scene.connections(count).await;
    }
    // A request neither opens nor closes one.
    send(&mut open[0], "GET /", "").await;
    open[0].read_u8().await.unwrap();
    scene.connections(5).await;
    let report = scene.report().await;
    assert_eq!((report.connections, report.connections_max), (5, 5));
    open.truncate(2);
    scene.connections(2).await;
    let report = scene.report().await;
    assert_eq!((report.connections, report.connections_max), (2, 5));
    // What is half open counts too: nothing but an end ends it.
    open[0].write_all(b"GET / HT").await.unwrap();
    assert_eq!(scene.recorder.connections(), 2);
    drop(open);
    scene.connections(0).await;
}

#[tokio::test]
async fn callers_that_the_schema_ignores_are_not_there() {
    let schema = "[stats.web]\nkey = \"web:\"\nignore_remote = [\"127.0.0.1\", \"127.0.0.7\"]\n";
    let scene = Scene::with(schema, |_, recorder| {
        let trust = Trust::x_forwarded_for(["127.0.0.9"]).unwrap();
        Router::new().route("/", get(async || "")).layer(StatsLayer::new(recorder.clone()).trust(trust))
    })
    .await;
    for (from, said) in [
        ("127.0.0.1", ""),
        ("127.0.0.7", ""),
        ("127.0.0.2", ""),
        // Nobody hides by saying so himself.
        ("127.0.0.2", "x-forwarded-for: 127.0.0.7\r\n"),
        ("127.0.0.9", "x-forwarded-for: 127.0.0.7\r\n"),
        ("127.0.0.9", "x-forwarded-for: 192.0.2.1\r\n"),
    ] {
        assert_eq!(ask_from(from, scene.address, "GET /", said).await.status, 200);
    }
    assert_eq!(scene.recorded(3).await.accepted, 3);
    let ignored = connect_from("127.0.0.7", scene.address).await;
    let counted = connect_from("127.0.0.2", scene.address).await;
    scene.connections(1).await;
    drop((ignored, counted));
    scene.connections(0).await;
}

/// Without axum: hyper's own loop, a connection counted by hand, the route named by the service.
#[tokio::test]
async fn a_hyper_loop_is_recorded_alike() {
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tower_layer::Layer as _;
    use tower_service::Service as _;

    type Request = http::Request<hyper::body::Incoming>;

    /// Names its route where it answers.
    #[derive(Clone)]
    struct Inner;
    impl tower_service::Service<Request> for Inner {
        type Response = http::Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request) -> Self::Future {
            let mut response = http::Response::new(Full::from("inner"));
            if request.uri().path().starts_with("/items/") {
                response.extensions_mut().insert(Route(Cow::Borrowed("/items/{item}")));
            }
            std::future::ready(Ok(response))
        }
    }

    let quaymaster = in_memory(SCHEMA).await;
    let recorder = quaymaster.stats("web").unwrap().recorder("one");
    let (listener, address) = listener().await;
    let plain = StatsLayer::new(recorder.clone());
    let named = plain
        .clone()
        .route(|head| head.uri.path().strip_prefix("/named/").map(|_| Cow::Borrowed("/named/{name}")));
    let accepting = recorder.clone();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let open = accepting.connected();
            let (plain, named) = (plain.layer(Inner), named.layer(Inner));
            let service = service_fn(move |mut request: Request| {
                request.extensions_mut().insert(Peer(peer));
                let mut service =
                    if request.headers().contains_key("x-named") { named.clone() } else { plain.clone() };
                async move { service.call(request).await }
            });
            tokio::spawn(async move {
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                let _ = serving.await;
                drop(open);
            });
        }
    });
    for (line, headers) in [
        ("GET /items/1", ""),
        ("GET /items/2", ""),
        ("GET /else", ""),
        ("PUT /named/1", "x-named: 1\r\n"),
        ("GET /items/3", "x-named: 1\r\n"),
    ] {
        assert_eq!(ask(address, line, headers).await.body, "inner");
    }
    recorder.shutdown().await;
    let report = quaymaster.stats("web").unwrap().report(ReportAsk::default()).await.unwrap();
    assert_eq!(report.total, 5, "what was recorded before the end is in the store: {report:?}");
    // A route function that knows none leaves the response to tell.
    assert_eq!(
        endpoints(&report),
        [("GET /items/:item", 3, 0), ("PUT /named/:name", 1, 0), (UNMATCHED, 1, 0)]
    );
    assert_eq!(report.connections_max, 1);
}

/// Many requests at once over several connections, counted apart: not one more, not one less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_agree_with_a_separate_count() {
    let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = served.clone();
    let scene = Scene::start(|_, recorder| {
        let handler = async move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        };
        Router::new().route("/items/{id}", get(handler)).layer(StatsLayer::new(recorder.clone()))
    })
    .await;
    let address = scene.address;
    let crowd: Vec<_> = (0..8)
        .map(|client| {
            tokio::spawn(async move {
                let mut stream = connect_from("127.0.0.1", address).await;
                let mut buffer = [0; 4096];
                for request in 0..250 {
                    send(&mut stream, &format!("GET /items/{client}-{request}"), "").await;
                    let mut seen = Vec::new();
                    while !seen.ends_with(b"\r\n\r\n") {
                        let read = stream.read(&mut buffer).await.unwrap();
                        assert!(read > 0);
                        seen.extend_from_slice(&buffer[..read]);
                    }
                    assert!(seen.starts_with(b"HTTP/1.1 200"));
                }
            })
        })
        .collect();
    for client in crowd {
        client.await.unwrap();
    }
    let report = scene.recorded(2000).await;
    assert_eq!(served.load(std::sync::atomic::Ordering::SeqCst), 2000);
    assert_eq!(endpoints(&report), [("GET /items/:id", 2000, 0)]);
}
