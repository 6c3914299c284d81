//! Web pages that call: what a page of another origin can send without being asked, and what listed origins may do.

use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

const TAKE: &str = "/v1/limit/plain/take";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn server(toml: &str) -> Fixture {
    Fixture::with(settings(toml, &|name| Some(format!("{name}-is-long-enough"))).server).await
}

async fn used(server: &Fixture) -> u64 {
    server.get("/v1/limit/plain/peek").await.json()["used"].as_u64().unwrap()
}

/// A page on another port of this machine may send a POST without a content type, and no browser asks first.
#[tokio::test]
async fn a_body_without_a_content_type_is_refused_and_changes_nothing() {
    let server = server("").await;
    for more in ["content-length: 2\r\n\r\n{}", "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"] {
        for path in [TAKE, "/v1/queue/jobs/claim"] {
            let answer =
                server.raw(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{more}").as_bytes()).await;
            let problem = answer.json();
            assert_eq!(
                (answer.status, &problem["code"]),
                (415, &json!("request.media_type")),
                "{path} {more}"
            );
            assert_eq!(problem["field"], "content-type");
        }
    }
    assert_eq!(used(&server).await, 0);
    let empty = server.raw(&request("POST", "/v1/queue/jobs/claim", &[], b"")).await;
    assert_eq!((empty.status, empty.json()), (200, json!({"jobs": []})), "no body needs no type");
}

#[tokio::test]
async fn pages_of_another_port_of_this_machine_cannot_call() {
    for toml in ["", "[server]\ntokens = [{ env = \"T\" }]"] {
        let server = server(toml).await;
        let port = server.address.port();
        let token = ("authorization", "Bearer T-is-long-enough");
        let own = [format!("http://localhost:{port}"), format!("https://localhost:{port}")];
        let foreign = ["http://localhost:1", "http://localhost", "null", &format!("http://127.0.0.1:{port}")];
        let call = async |origin: &str| {
            let host = format!("POST {TAKE} HTTP/1.1\r\nhost: localhost:{port}\r\n");
            let rest = format!(
                "origin: {origin}\r\ncontent-type: application/json\r\nauthorization: {}\r\ncontent-length: 2\r\n\r\n{{}}",
                token.1
            );
            server.raw(format!("{host}{rest}").as_bytes()).await
        };
        for origin in foreign {
            let answer = call(origin).await;
            let problem = answer.json();
            assert_eq!((answer.status, &problem["code"]), (403, &json!("auth.forbidden")), "{origin}");
            assert_eq!(problem["field"], "origin");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        for origin in &own {
            assert_eq!(call(origin).await.status, 200, "{origin}");
        }
        let peek = request("GET", "/v1/limit/plain/peek", &[token], b"");
        assert_eq!(server.raw(&peek).await.json()["used"], own.len(), "{toml}");
    }
}

#[tokio::test]
async fn a_websocket_of_another_port_is_refused_and_a_listed_one_opens() {
    let server = server("[server]\norigins = [\"http://localhost:3000\"]").await;
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (origin, status) in [("http://localhost:3001", 403), ("http://localhost:3000", 101)] {
        let headers = [&upgrade[..], &[("origin", origin)]].concat();
        let answer = server.raw(&request("GET", "/v1/event/news/ws", &headers, b"")).await;
        assert_eq!(answer.status, status, "{origin}");
    }
}

#[tokio::test]
async fn a_page_of_a_listed_origin_may_send_every_header_that_an_operation_declares() {
    const PAGE: &str = "https://console.example";
    let server = server(&format!("[server]\norigins = [\"{PAGE}\"]")).await;
    let asks = [("origin", PAGE), ("access-control-request-method", "GET")];
    let told = server.raw(&request("OPTIONS", TAKE, &asks, b"")).await;
    let allowed = told.header("access-control-allow-headers").unwrap();
    let allowed: Vec<&str> = allowed.split(", ").collect();
    let document = server.get("/openapi.json").await.json();
    let operations = document["paths"].as_object().unwrap().iter();
    // A browser sends the headers of a WebSocket by itself.
    let operations = operations.filter(|(path, _)| !path.ends_with("/ws"));
    let operations = operations.flat_map(|(_, methods)| methods.as_object().unwrap().values());
    let parameters = operations.flat_map(|one| one["parameters"].as_array().into_iter().flatten());
    let headers = parameters.filter(|parameter| parameter["in"] == "header");
    let mut headers: Vec<String> = headers.map(|one| one["name"].as_str().unwrap().to_lowercase()).collect();
    assert!(headers.iter().any(|name| name == "if-match"), "{headers:?}");
    headers.extend(["authorization", "content-type", "traceparent", "x-request-id"].map(str::to_owned));
    for header in &headers {
        assert!(allowed.contains(&header.as_str()), "{header}: {allowed:?}");
    }
}

#[tokio::test]
async fn a_page_of_a_listed_origin_may_ask_call_and_read() {
    const PAGE: &str = "https://console.example";
    let toml = format!("[server]\norigins = [\"{PAGE}\"]\ntokens = [{{ env = \"T\" }}]");
    let server = server(&toml).await;
    let asks = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type"),
            ("access-control-request-private-network", "true"),
        ];
        request("OPTIONS", TAKE, &headers, b"")
    };
    // What browsers ask first has no token; the same connection goes on.
    let mut browser = Connection::open(server.address).await;
    browser.send(&asks(PAGE)).await;
    let told = browser.receive().await.unwrap();
    assert_eq!(told.status, 204, "{}", told.head);
    assert_eq!(told.header("access-control-allow-origin"), Some(PAGE));
    assert!(told.header("access-control-allow-methods").unwrap().contains("POST"));
    let sent = told.header("access-control-allow-headers").unwrap();
    assert!(sent.contains("authorization") && sent.contains("content-type"), "{sent}");
    assert_eq!(told.header("access-control-allow-private-network"), Some("true"));
    let page = [("origin", PAGE), ("sec-fetch-site", "cross-site"), JSON];
    let token = ("authorization", "Bearer T-is-long-enough");
    for (headers, status) in [(&[&page[..], &[token]].concat(), 200), (&page.to_vec(), 401)] {
        browser.send(&request("POST", TAKE, headers, b"{}")).await;
        let answer = browser.receive().await.unwrap();
        assert_eq!(answer.status, status, "{}", answer.head);
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "errors are readable too");
        assert_eq!(answer.header("vary"), Some("origin"));
        assert!(answer.header("access-control-expose-headers").unwrap().contains("retry-after"));
    }
    let refused = server.raw(&asks("https://evil.example")).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None));
    let plain = server.raw(&request("OPTIONS", TAKE, &[], b"")).await;
    assert_eq!(plain.status, 405, "no browser asks");
}

/// Without tokens a listed page may call a server on the loopback; others of its site may not.
#[tokio::test]
async fn listed_pages_may_call_without_tokens() {
    let server = server("[server]\norigins = [\"http://localhost:3000\"]").await;
    for (origin, status) in [("http://localhost:3000", 200), ("http://localhost:3001", 403)] {
        let headers = [("origin", origin), ("sec-fetch-site", "same-site"), JSON];
        assert_eq!(server.raw(&request("POST", TAKE, &headers, b"{}")).await.status, status, "{origin}");
    }
    assert_eq!(used(&server).await, 1);
}

#[test]
fn what_is_no_origin_is_refused_in_the_settings() {
    let wrong = |text: &str| {
        let toml = format!("[server]\norigins = [\"{text}\"]");
        let raw = quaymaster_server::config::RawConfig::parse("test.toml", &toml, "".as_ref(), &|_| None);
        raw.unwrap_err().to_string()
    };
    for text in ["*", "console.example", "https://console.example/"] {
        let told = wrong(text);
        assert!(told.contains("server.origins") && told.contains("is not an origin"), "{told}");
    }
}
