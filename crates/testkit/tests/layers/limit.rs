//! Limits in front of handlers: what is let through, what is said, and what is counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use axum::Router;
use axum::routing::get;
use quaymaster::layer::{Keyed, LimitLayer, Peer, Refused, Trust};
use quaymaster::limit::Limit;
use quaymaster::{Code, Error, Quaymaster};
use serde_json::json;

use crate::client::{Answer, ask, ask_from, listener};
use crate::in_memory;

const SCHEMA: &str = r#"
[limit.address]
key = "address:{identifier}"
algorithm = "sliding_log"
limit = 3
window = "15m"

[limit.user]
key = "user:{user}"
algorithm = "fixed_window"
limit = 10
safety_buffer = 2
window = "1h"

[limit.bucket]
key = "bucket:{user}"
algorithm = "token_bucket"
limit = 5
window = "2500ms"

[limit.everybody]
key = "all:{what}:{day}"
algorithm = "fixed_window"
limit = 4
window = "1d"
"#;

/// A server behind a layer, and how often its handler ran.
struct Scene {
    quaymaster: Quaymaster,
    address: SocketAddr,
    runs: Arc<AtomicU64>,
}

impl Scene {
    async fn start(layer: impl FnOnce(&Quaymaster) -> LimitLayer) -> Self {
        let quaymaster = in_memory(SCHEMA).await;
        let runs = Arc::new(AtomicU64::new(0));
        let ran = runs.clone();
        let handler = get(move || async move { format!("run {}", ran.fetch_add(1, SeqCst) + 1) });
        let app = Router::new().route("/", handler.clone().post(handler)).layer(layer(&quaymaster));
        let (listener, address) = listener().await;
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { quaymaster, address, runs }
    }

    async fn ask(&self, headers: &str) -> Answer {
        ask(self.address, "GET /", headers).await
    }

    async fn ask_as(&self, user: &str) -> Answer {
        self.ask(&format!("x-user: {user}\r\n")).await
    }

    async fn used(&self, limit: &str, placeholder: &str, value: &str) -> u64 {
        limit_of(&self.quaymaster, limit).peek(&[(placeholder, value)]).await.unwrap().quota().used
    }
}

fn limit_of(quaymaster: &Quaymaster, name: &str) -> Limit {
    quaymaster.limit(name).unwrap().clone()
}

/// By the header `x-user`: nobody is let through uncounted who says who he is.
fn user(request: &http::request::Parts) -> Keyed {
    match request.headers.get("x-user").map(|value| value.to_str()) {
        Some(Ok(user)) => Keyed::one("user", user),
        Some(Err(_)) => Keyed::bad("x-user holds something other than visible ASCII"),
        None => Keyed::Pass,
    }
}

/// `"name";a=1;b=2`, as a structured field reads.
fn field(value: &str) -> (String, Vec<(String, u64)>) {
    let mut parts = value.split(';');
    let name = parts.next().unwrap().strip_prefix('"').unwrap().strip_suffix('"').unwrap();
    let parameters = parts.map(|part| part.split_once('=').unwrap());
    (name.to_owned(), parameters.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect())
}

#[tokio::test]
async fn a_limit_lets_its_number_through_and_says_how_it_stands() {
    let scene =
        Scene::start(|quaymaster| LimitLayer::by_address(limit_of(quaymaster, "address")).unwrap()).await;
    for left in [2, 1, 0] {
        let answer = scene.ask("").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"address\";q=3;w=900"));
        let (name, standing) = field(answer.header("ratelimit").unwrap());
        assert_eq!((&*name, &standing[0], &*standing[1].0), ("address", &("r".to_owned(), left), "t"));
        assert!((1..=900).contains(&standing[1].1), "{standing:?}");
        assert_eq!((answer.header("retry-after"), answer.header("quaymaster-outage")), (None, None));
    }
    let refused = scene.ask("").await;
    assert_eq!((refused.status, scene.runs.load(SeqCst)), (429, 3));
    let problem = refused.problem();
    assert_eq!(problem["code"], "limit.exceeded");
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["violated-policies"], json!(["address"]));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"address\";q=3;w=900"));
    let (_, standing) = field(refused.header("ratelimit").unwrap());
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    // Retry-After must not name a moment before the end of the effective window.
    assert_eq!((standing[0].1, standing[1].1), (0, wait));
    assert_eq!(problem["retry_after_ms"].as_u64().unwrap().div_ceil(1000), wait);
    // Somebody else has a limit of his own.
    assert_eq!(ask_from("127.0.0.9", scene.address, "GET /", "").await.status, 200);
    assert_eq!(scene.used("address", "identifier", "127.0.0.1").await, 3);
}

#[tokio::test]
async fn the_safety_buffer_is_no_part_of_the_policy_and_windows_are_whole_seconds() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "user"), user).and(limit_of(quaymaster, "bucket"), user)
    })
    .await;
    let answer = scene.ask_as("ann").await;
    assert_eq!(answer.headers("ratelimit-policy"), ["\"user\";q=8;w=3600", "\"bucket\";q=5;w=3"]);
    let standing: Vec<_> = answer.headers("ratelimit").into_iter().map(field).collect();
    assert_eq!((&*standing[0].0, standing[0].1[0].1), ("user", 7));
    assert_eq!((&*standing[1].0, standing[1].1[0].1), ("bucket", 4));
}

#[tokio::test]
async fn a_request_without_a_key_passes_uncounted_and_a_bad_one_is_refused() {
    let scene = Scene::start(|quaymaster| LimitLayer::new(limit_of(quaymaster, "user"), user)).await;
    for _ in 0..12 {
        let answer = scene.ask("").await;
        assert_eq!((answer.status, answer.headers("ratelimit").len()), (200, 0));
    }
    let bad = scene.ask("x-user: \u{e9}\r\n").await;
    assert_eq!((bad.status, &*bad.code()), (400, "request.invalid"));
    // A value that no key can hold is the caller's mistake too.
    let bad = scene.ask_as("{ann}").await;
    assert_eq!((bad.status, &*bad.code()), (400, "key.value"));
    assert_eq!(bad.header("retry-after"), None);
    assert_eq!(scene.runs.load(SeqCst), 12);
}

#[tokio::test]
async fn a_key_the_pattern_does_not_have_is_our_mistake_not_the_callers() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "user"), |_| Keyed::one("nobody", "1"))
    })
    .await;
    let answer = scene.ask("").await;
    assert_eq!((answer.status, scene.runs.load(SeqCst)), (500, 0));
}

#[tokio::test]
async fn of_several_limits_all_count_or_none_does() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "user"), user)
            .and(limit_of(quaymaster, "everybody"), |_| Keyed::one("what", "requests"))
    })
    .await;
    for _ in 0..4 {
        assert_eq!(scene.ask_as("ann").await.status, 200);
    }
    let refused = scene.ask_as("bob").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.problem()["violated-policies"], json!(["everybody"]));
    assert_eq!(refused.headers("ratelimit-policy").len(), 2);
    // Only who refused says how it stands: Retry-After speaks of it alone.
    assert_eq!(
        refused.headers("ratelimit").into_iter().map(|value| field(value).0).collect::<Vec<_>>(),
        ["everybody"]
    );
    assert_eq!(scene.used("user", "user", "ann").await, 4);
    assert_eq!(scene.used("user", "user", "bob").await, 0, "refused by the other, counted by none");
    // Whom only the full limit concerns is refused; the layer has no limit without a key.
    assert_eq!(scene.ask("").await.status, 429);
    assert_eq!(scene.runs.load(SeqCst), 4);
}

#[tokio::test]
async fn a_cost_is_what_the_request_says_nothing_for_nothing() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "user"), user).cost(|request| {
            let cost = request.headers.get("x-cost").and_then(|value| value.to_str().ok());
            cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
        })
    })
    .await;
    let with = async |cost: &str| scene.ask(&format!("x-user: ann\r\nx-cost: {cost}\r\n")).await;
    assert_eq!(with("5").await.status, 200);
    assert_eq!(scene.used("user", "user", "ann").await, 5);
    let free = with("0").await;
    assert_eq!((free.status, free.headers("ratelimit").len()), (200, 0));
    assert_eq!(scene.used("user", "user", "ann").await, 5);
    let later = with("4").await;
    assert_eq!((later.status, later.header("retry-after").is_some()), (429, true));
    // More than the whole limit never passes, and nobody is told to wait for it.
    let never = with("9").await;
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert_eq!(never.problem().get("retry_after_ms"), None);
    assert_eq!(scene.used("user", "user", "ann").await, 5);
}

#[tokio::test]
async fn a_layer_around_another_adds_its_fields() {
    let quaymaster = in_memory(SCHEMA).await;
    let inner = LimitLayer::new(limit_of(&quaymaster, "user"), user);
    let outer = LimitLayer::by_address(limit_of(&quaymaster, "address")).unwrap();
    let app = Router::new().route("/", get(|| async { "" })).layer(inner).layer(outer);
    let (listener, address) = listener().await;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let answer = ask(address, "GET /", "x-user: ann\r\n").await;
    assert_eq!(answer.headers("ratelimit-policy"), ["\"user\";q=8;w=3600", "\"address\";q=3;w=900"]);
    assert_eq!(answer.headers("ratelimit").len(), 2);
}

#[tokio::test]
async fn an_address_that_is_not_known_is_not_let_through() {
    let quaymaster = in_memory(SCHEMA).await;
    let layer = LimitLayer::by_address(limit_of(&quaymaster, "address")).unwrap();
    let app = Router::new().route("/", get(|| async { "" })).layer(layer);
    let (listener, address) = listener().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    let answer = ask(address, "GET /", "").await;
    assert_eq!((answer.status, &*answer.code()), (500, "internal"));
}

#[tokio::test]
async fn only_trusted_proxies_say_for_whom_they_ask() {
    let trust = || Trust::x_forwarded_for(["127.0.0.2", "10.0.0.0/8"]).unwrap();
    let scene = Scene::start(|quaymaster| {
        LimitLayer::by_address_behind(limit_of(quaymaster, "address"), trust()).unwrap()
    })
    .await;
    let said = "x-forwarded-for: 203.0.113.7, 198.51.100.1, 10.1.2.3\r\n";
    for (from, counted) in [("127.0.0.2", "198.51.100.1"), ("127.0.0.3", "127.0.0.3")] {
        assert_eq!(ask_from(from, scene.address, "GET /", said).await.status, 200);
        assert_eq!(scene.used("address", "identifier", counted).await, 1, "{from}");
    }
    for nobody in ["203.0.113.7", "127.0.0.2", "10.1.2.3"] {
        assert_eq!(scene.used("address", "identifier", nobody).await, 0, "{nobody}");
    }
}

#[tokio::test]
async fn ipv6_callers_are_counted_by_their_first_64_bits() {
    let scene = Scene::start(|quaymaster| {
        let trust = Trust::forwarded(["127.0.0.1"]).unwrap();
        LimitLayer::by_address_behind(limit_of(quaymaster, "address"), trust).unwrap()
    })
    .await;
    for host in ["1", "2", "ffff:1"] {
        let said = format!("forwarded: for=\"[2001:db8:1:2::{host}]:4711\";proto=https\r\n");
        assert_eq!(scene.ask(&said).await.status, 200);
    }
    let said = "forwarded: for=\"[2001:db8:1:2::9]\"\r\n";
    assert_eq!(scene.ask(said).await.status, 429);
    assert_eq!(scene.ask("forwarded: for=\"[2001:db8:1:3::9]\"\r\n").await.status, 200);
}

#[tokio::test]
async fn a_pattern_with_more_than_an_address_is_refused_when_it_is_wired() {
    let quaymaster = in_memory(
        "[limit.two]\nkey = \"two:{a}:{b}\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1m\"\n",
    )
    .await;
    let refused = LimitLayer::by_address(limit_of(&quaymaster, "two")).unwrap_err();
    assert_eq!(refused.code, Code::ConfigInvalid);
    assert_eq!(Trust::forwarded(["10.0.0.0/33"]).unwrap_err().code, Code::ConfigInvalid);
    assert_eq!(Trust::forwarded(["example.org"]).unwrap_err().code, Code::ConfigInvalid);
}

/// A hundred callers at once on a limit of four.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_limit_runs_however_many_ask_at_once() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "everybody"), |_| Keyed::one("what", "crowd"))
    })
    .await;
    let crowd: Vec<_> =
        (0..100).map(|_| tokio::spawn(async move { ask(scene.address, "GET /", "").await.status })).collect();
    let mut statuses = Vec::new();
    for one in crowd {
        statuses.push(one.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!((statuses[3], statuses[4], statuses[99]), (200, 429, 429));
    assert_eq!(scene.runs.load(SeqCst), 4);
}

/// The same layer without axum: hyper's own loop, with the caller noted by hand.
#[tokio::test]
async fn a_hyper_loop_is_limited_alike() {
    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tower_layer::Layer as _;
    use tower_service::Service as _;

    let quaymaster = in_memory(SCHEMA).await;
    let layer = LimitLayer::by_address(limit_of(&quaymaster, "address")).unwrap();
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let limited = layer.layer(Inner);
            let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(Peer(peer));
                let answer = limited.clone().call(request);
                async move {
                    let answer = answer.await?;
                    // What the layer answers itself is marked for whoever counts requests.
                    let refused = answer.extensions().get::<Refused>().is_some();
                    assert_eq!(refused, answer.status() == 429);
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    for status in [200, 200, 200, 429] {
        let answer = ask(address, "GET /", "").await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.headers("ratelimit").len(), 1);
    }

    #[derive(Clone)]
    struct Inner;
    impl tower_service::Service<http::Request<hyper::body::Incoming>> for Inner {
        type Response = http::Response<Full<Bytes>>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<hyper::body::Incoming>) -> Self::Future {
            std::future::ready(Ok(http::Response::new(Full::from("inner"))))
        }
    }
}

/// What a key function refuses is answered under its own code.
#[tokio::test]
async fn a_refusal_of_the_key_function_keeps_its_code() {
    let scene = Scene::start(|quaymaster| {
        LimitLayer::new(limit_of(quaymaster, "user"), |_| {
            Keyed::Refuse(Error::new("test", Code::AuthRequired, "who are you?"))
        })
    })
    .await;
    let answer = scene.ask("").await;
    assert_eq!((answer.status, &*answer.code()), (401, "auth.required"));
    assert_eq!(answer.problem()["detail"], "who are you?");
}
