//! Whatever is sent: a 4xx that names the field, and a store that was not asked.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::json;

use crate::client::{Connection, request};
use crate::engines::{Act, Stage};
use crate::fixture::{Fixture, settings};

const TAKE: &str = "/v1/limit/psp/take";

/// A server on a store that counts what reaches it and would never answer.
async fn watched() -> (Fixture, std::sync::Arc<Stage>) {
    let memory = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let stage = Stage::new(std::sync::Arc::new(memory), Act::Wait);
    (
        Fixture::on(settings("[server]\nmax_body_bytes = \"64KiB\"", &|_| None).server, stage.clone()).await,
        stage,
    )
}

#[tokio::test]
async fn bad_bodies_name_the_field_and_never_reach_the_store() {
    let (server, stage) = watched().await;
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let deep_key = format!(r#"{{"key":{}1{}}}"#, r#"{"a":"#.repeat(200), "}".repeat(200));
    let many: Vec<String> = (0..40).map(|n| format!(r#""p{n}":"v""#)).collect();
    let many = format!(r#"{{"key":{{{}}}}}"#, many.join(","));
    let value = |text: &str| format!(r#"{{"key":{{"psp_id":{text}}}}}"#);
    let long = value(&format!("\"{}\"", "x".repeat(600)));
    let cost = |text: &str| format!(r#"{{"key":{{"psp_id":"a"}},"cost":{text}}}"#);
    let request_id = |text: &str| format!(r#"{{"key":{{"psp_id":"a"}},"request_id":{text}}}"#);
    let table: Vec<(String, &str, &str)> = vec![
        (String::new(), "request.invalid", "body"),
        ("   ".into(), "request.invalid", "body"),
        ("nonsense".into(), "request.invalid", "body"),
        ("{".into(), "request.invalid", "body"),
        (r#"{"key":{"psp_id":"a"}} trailing"#.into(), "request.invalid", "body"),
        (r#"{"key":{"psp_id":"a"},}"#.into(), "request.invalid", "body"),
        ("{'key':1}".into(), "request.invalid", "body"),
        ("[]".into(), "request.invalid", "body"),
        ("null".into(), "request.invalid", "body"),
        ("7".into(), "request.invalid", "body"),
        ("\"text\"".into(), "request.invalid", "body"),
        (deep, "request.invalid", "body"),
        (deep_key, "request.invalid", "body"),
        ("{}".into(), "key.missing", "key.psp_id"),
        (r#"{"key":{}}"#.into(), "key.missing", "key.psp_id"),
        (r#"{"key":null}"#.into(), "request.invalid", "key"),
        (r#"{"key":"psp_id"}"#.into(), "request.invalid", "key"),
        (r#"{"key":["a"]}"#.into(), "request.invalid", "key"),
        (r#"{"key":[]}"#.into(), "request.invalid", "key"),
        (r#"{"keys":{"psp_id":"a"}}"#.into(), "request.field", "keys"),
        (r#"{"key":{"psp_id":"a"},"amount":2}"#.into(), "request.field", "amount"),
        (r#"{"key":{"psp_id":"a"},"key":{"psp_id":"b"}}"#.into(), "request.invalid", "key"),
        (r#"{"key":{"psp_id":"a","psp_id":"b"}}"#.into(), "request.invalid", "key.psp_id"),
        (r#"{"key":{"psp_id":"a","psp_\u0069d":"b"}}"#.into(), "request.invalid", "key.psp_id"),
        (r#"{"key":{"pspid":"a"}}"#.into(), "key.", "key.psp_id"),
        (r#"{"key":{"psp_id":"a","more":"b"}}"#.into(), "key.unknown", "key.more"),
        (r#"{"key":{"psp_id":"a","minute":"b"}}"#.into(), "key.unknown", "key.minute"),
        (many, "request.invalid", "key"),
        (value("true"), "request.invalid", "key.psp_id"),
        (value("null"), "request.invalid", "key.psp_id"),
        (value("1.5"), "request.invalid", "key.psp_id"),
        (value("99999999999999999999999"), "request.invalid", "key.psp_id"),
        (value("1e999"), "request.invalid", "body"),
        (value("[\"a\"]"), "request.invalid", "key.psp_id"),
        (value("[]"), "request.invalid", "key.psp_id"),
        (value("{\"a\":1}"), "request.invalid", "key.psp_id"),
        (value("{}"), "request.invalid", "key.psp_id"),
        (value("\"\""), "key.value", "key.psp_id"),
        (long, "key.value", "key.psp_id"),
        (value("\"a*\""), "key.value", "key.psp_id"),
        (value("\"a?\""), "key.value", "key.psp_id"),
        (value("\"[a]\""), "key.value", "key.psp_id"),
        (value("\"{a}\""), "key.value", "key.psp_id"),
        (value("\"a\\u0000b\""), "key.value", "key.psp_id"),
        (value("\"a\\nb\""), "key.value", "key.psp_id"),
        (value("\"a\\u007fb\""), "key.value", "key.psp_id"),
        (value("\"a\\u0085b\""), "key.value", "key.psp_id"),
        (value("\"\\ud800\""), "request.invalid", "body"),
        (value("\"a\u{0}b\""), "request.invalid", "body"),
        (cost("0"), "limit.cost", "cost"),
        (cost("-1"), "limit.cost", "cost"),
        (cost("1.5"), "limit.cost", "cost"),
        (cost("\"1\""), "limit.cost", "cost"),
        (cost("true"), "limit.cost", "cost"),
        (cost("null"), "limit.cost", "cost"),
        (cost("[1]"), "limit.cost", "cost"),
        (cost("{}"), "limit.cost", "cost"),
        (cost("99999999999999999999"), "limit.cost", "cost"),
        (request_id("7"), "request.invalid", "request_id"),
        (request_id("\"\""), "request.invalid", "request_id"),
        (request_id("{}"), "request.invalid", "request_id"),
        (request_id(&format!("\"{}\"", "x".repeat(129))), "request.invalid", "request_id"),
        (request_id("\"a*b\""), "request.invalid", "request_id"),
    ];
    for verb in ["take", "refund", "reset"] {
        for (body, code, field) in &table {
            if verb == "reset" && *field == "cost" {
                continue;
            }
            let shown: String = body.chars().take(100).collect();
            let answer = server.post(&format!("/v1/limit/psp/{verb}"), body).await;
            assert_eq!(answer.status, 400, "{verb} {shown}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            let problem = answer.json();
            assert!(problem["code"].as_str().unwrap().starts_with(code), "{verb} {shown}: {problem}");
            assert_eq!(problem["field"], *field, "{verb} {shown}: {problem}");
            let detail = problem["detail"].as_str().unwrap();
            let named = if code.starts_with("key.") { "`" } else { field.split('.').next_back().unwrap() };
            assert!(detail.contains(named), "{verb} {shown}: {detail}");
            assert!(detail.len() < 400, "{verb} {shown}: {detail}");
            assert_eq!(problem["status"], 400);
            assert_eq!(
                problem["type"],
                format!("urn:quaymaster:error:{}", problem["code"].as_str().unwrap())
            );
            assert!(problem["title"].is_string() && problem.get("retry_after_ms").is_none(), "{problem}");
        }
    }
    let unknown = server.post("/v1/limit/psp/reset", r#"{"key":{"psp_id":"a"},"cost":1}"#).await;
    assert_eq!((unknown.status, unknown.json()["field"].clone()), (400, json!("cost")), "reset has no cost");
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn an_unknown_field_is_told_with_the_nearest_one() {
    let (server, _) = watched().await;
    let detail = |answer: crate::client::Answer| answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail(server.post(TAKE, r#"{"kye":{}}"#).await).contains("did you mean \"key\"?"));
    assert!(detail(server.post(TAKE, r#"{"requestid":"a"}"#).await).contains("did you mean \"request_id\"?"));
    assert!(detail(server.post(TAKE, r#"{"zzz":1}"#).await).contains("key, cost, request_id"));
    assert!(detail(server.get("/v1/limit/pspp/peek?key.psp_id=a").await).contains("did you mean \"psp\"?"));
    assert!(detail(server.get("/v1/limits/psp/peek").await).contains("did you mean \"limit\"?"));
    assert!(detail(server.get("/v1/limit/psp/peak").await).contains("did you mean \"peek\"?"));
    assert!(detail(server.get("/helthz").await).contains("did you mean \"/healthz\"?"));
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_refused_everywhere() {
    let (server, stage) = watched().await;
    let json = [("content-type", "application/json")];
    let answer = server.raw(&request("POST", TAKE, &json, b"{\"key\":{\"psp_id\":\"\xff\"}}")).await;
    assert_eq!((answer.status, answer.json()["field"].clone()), (400, json!("body")));
    assert!(answer.json()["detail"].as_str().unwrap().contains("UTF-8 at byte 18"), "{}", answer.text());
    for path in ["/v1/limit/%ff/peek", "/v1/limit/%zz/peek", "/v1/limit/psp%/peek"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.json()["field"].clone()), (400, json!("name")), "{path}");
    }
    let raw = server.raw(b"GET /v1/limit/\xff/peek HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(raw.status / 100, 4);
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn bad_queries_name_the_parameter() {
    let (server, stage) = watched().await;
    for (query, code, field) in [
        ("?key.psp_id=", "key.value", "key.psp_id"),
        ("?key.psp_id", "key.value", "key.psp_id"),
        ("?key.psp_id=a*", "key.value", "key.psp_id"),
        ("?key.psp_id=%00", "key.value", "key.psp_id"),
        ("?key.psp_id=%0a", "key.value", "key.psp_id"),
        ("?key.psp_id=%ff", "request.invalid", "key.psp_id"),
        ("?key.psp_id=%f", "request.invalid", "key.psp_id"),
        ("?key.psp_id=a&key.psp_id=b", "request.invalid", "key.psp_id"),
        ("?key.psp_id=a&cost=1", "request.field", "cost"),
        ("?psp_id=a", "request.field", "psp_id"),
        ("?key=a", "request.field", "key"),
        ("?key.other=a", "key.", "key.psp_id"),
        ("", "key.missing", "key.psp_id"),
    ] {
        let answer = server.get(&format!("/v1/limit/psp/peek{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        let problem = answer.json();
        assert!(problem["code"].as_str().unwrap().starts_with(code), "{query}: {problem}");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
    for (query, field) in
        [("", "key"), ("?key=", "key"), ("?kee=1", "kee"), ("?key=%ff", "key"), ("?key=a&key=b", "key")]
    {
        let answer = server.get(&format!("/v1/key/explain{query}")).await;
        assert_eq!((answer.status, answer.json()["field"].clone()), (400, json!(field)), "{query}");
    }
    let answer = server.post(&format!("{TAKE}?cost=2"), r#"{"key":{"psp_id":"a"}}"#).await;
    assert_eq!(
        (answer.status, answer.json()["field"].clone()),
        (400, json!("cost")),
        "a POST takes no query"
    );
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn a_body_over_its_bound_is_refused_whether_it_says_so_or_not() {
    let (server, stage) = watched().await;
    let announced = format!(
        "POST {TAKE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10000000000\r\n\r\n"
    );
    let answer = server.raw(announced.as_bytes()).await;
    assert_eq!((answer.status, answer.json()["code"].clone()), (413, json!("request.too_large")));
    let mut connection = Connection::open(server.address).await;
    let head = format!(
        "POST {TAKE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    for _ in 0..17 {
        let chunk = format!("{:x}\r\n{}\r\n", 4096, " ".repeat(4096));
        connection.send(chunk.as_bytes()).await;
    }
    let answer = connection.receive().await.unwrap();
    assert_eq!((answer.status, answer.json()["field"].clone()), (413, json!("body")));
    assert_eq!(stage.asked.load(SeqCst), 0);
}

/// Most clients are like this; who closes the connection under them is all they see.
#[tokio::test]
async fn a_client_that_listens_only_when_all_is_sent_hears_why_it_was_refused() {
    let (server, stage) = watched().await;
    let megabyte = " ".repeat(1 << 20);
    let head = |path: &str, length: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        )
    };
    for (path, status) in [(TAKE, 413), ("/v1/limit/psp/nothing", 404)] {
        let mut announced = Connection::open(server.address).await;
        announced.send(head(path, "content-length: 52428800").as_bytes()).await;
        let mut chunked = Connection::open(server.address).await;
        chunked.send(head(path, "transfer-encoding: chunked").as_bytes()).await;
        for _ in 0..50 {
            announced.send(megabyte.as_bytes()).await;
            chunked.send(format!("100000\r\n{megabyte}\r\n").as_bytes()).await;
        }
        chunked.send(b"0\r\n\r\n").await;
        assert_eq!(announced.receive().await.unwrap().status, status);
        assert_eq!(chunked.receive().await.unwrap().status, status);
    }
    // Whoever asks first is told before it sends anything.
    let mut asking = Connection::open(server.address).await;
    asking.send(head(TAKE, "expect: 100-continue\r\ncontent-length: 52428800").as_bytes()).await;
    assert_eq!(asking.receive().await.unwrap().status, 413);
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn content_types_other_than_json_are_415_and_none_is_taken_as_json() {
    let server = Fixture::start().await;
    let body = br#"{"key":{"psp_id":"a"}}"#;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "",
        "multipart/form-data; a=b",
    ] {
        let answer = server.raw(&request("POST", TAKE, &[("content-type", kind)], body)).await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (415, json!("request.media_type")),
            "{kind}"
        );
        assert_eq!(answer.json()["field"], "content-type");
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
        assert_eq!(
            server.raw(&request("POST", TAKE, &[("content-type", kind)], body)).await.status,
            200,
            "{kind}"
        );
    }
    let used = server.get("/v1/limit/psp/peek?key.psp_id=a").await.json()["used"].clone();
    assert_eq!(used, 3, "what was refused was not counted");
    assert_eq!(server.raw(&request("POST", TAKE, &[], body)).await.status, 200);
}

#[tokio::test]
async fn packed_bodies_are_415() {
    let (server, stage) = watched().await;
    for packing in ["gzip", "br", "identity, gzip", ""] {
        let answer = server.raw(&request("POST", TAKE, &[("content-encoding", packing)], b"{}")).await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (415, json!("request.media_type")),
            "{packing}"
        );
        assert_eq!(answer.json()["field"], "content-encoding");
    }
    let plain = server.raw(&request("POST", TAKE, &[("content-encoding", "identity")], b"{}")).await;
    assert_eq!(plain.json()["code"], "key.missing", "it was read");
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn a_key_nobody_could_name_is_told_as_key() {
    let (server, _) = watched().await;
    for name in ["x".repeat(40), "a`b".into(), "a b".into(), "a\\nb".into(), String::new()] {
        let answer = server.post(TAKE, &format!(r#"{{"key":{{"psp_id":"a","{name}":"b"}}}}"#)).await;
        assert_eq!(answer.status, 400, "{name}");
        assert_eq!(answer.json()["code"], "key.unknown", "{name}");
        assert!(answer.json()["field"].as_str().unwrap().starts_with("key"), "{}", answer.text());
        assert!(
            !answer.json()["field"].as_str().unwrap().contains(['…', '\n', ' ', '\\']),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn wrong_methods_say_which_is_right() {
    let (server, stage) = watched().await;
    for (method, path, allow) in [
        ("GET", TAKE, "POST"),
        ("PUT", TAKE, "POST"),
        ("DELETE", TAKE, "POST"),
        ("OPTIONS", TAKE, "POST"),
        ("BREW", TAKE, "POST"),
        ("POST", "/v1/limit/psp/peek", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("POST", "/v1/key/explain", "GET, HEAD"),
    ] {
        let answer = server.raw(&request(method, path, &[], b"")).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        assert_eq!(answer.json()["code"], "route.method");
    }
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn what_is_not_there_is_404_and_kinds_without_calls_say_so() {
    let (server, stage) = watched().await;
    for (path, code) in [
        ("/v1", "route.unknown"),
        ("/v1/", "route.unknown"),
        ("/v1/limit", "route.unknown"),
        ("/v1/limit/psp", "route.unknown"),
        ("/v1/limit/psp/peek/more", "route.unknown"),
        ("/v1/limit/psp/peek/", "route.unknown"),
        ("/v1/nonsense/a/b", "route.unknown"),
        ("/v1/key/door/start", "route.unknown"),
        ("/../etc/passwd", "route.unknown"),
        ("//", "route.unknown"),
        ("/v1/limit/nobody/peek", "resource.unknown"),
        ("/v1/limit/door/peek", "resource.unknown"),
        ("/v1/limit//peek", "resource.unknown"),
        ("/v1/stats/nobody/report", "resource.unknown"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.json()["code"].clone()), (404, json!(code)), "{path}");
    }
    let owned = server.post("/v1/key/door/start", "{}").await.json();
    assert!(owned["detail"].as_str().unwrap().contains("\"key\" has no calls"), "{owned}");
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_call_without_a_token() {
    let (server, stage) = watched().await;
    let body = br#"{"key":{"psp_id":"a"}}"#;
    for origin in ["https://example.com", "null", "http://127.0.0.1.example.com"] {
        let answer = server.raw(&request("POST", TAKE, &[("origin", origin)], body)).await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (403, json!("auth.forbidden")),
            "{origin}"
        );
        assert_eq!(answer.json()["field"], "origin");
    }
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn names_made_to_point_at_this_machine_are_not_answered_without_a_token() {
    let (server, stage) = watched().await;
    let port = server.address.port();
    let gets = ["/v1/limit/psp/peek?key.psp_id=a", "/v1/status", "/v1/key/explain?key=x", "/metrics"];
    for path in gets {
        for (host, more, field, code) in [
            ("evil.example", "", "host", "auth.host"),
            (&format!("evil.example:{port}"), "", "host", "auth.host"),
            ("localhost", "sec-fetch-site: cross-site\r\n", "sec-fetch-site", "auth.forbidden"),
        ] {
            let answer =
                server.raw(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n").as_bytes()).await;
            assert_eq!(
                (answer.status, answer.json()["code"].clone()),
                (403, json!(code)),
                "{path} {host} {more}"
            );
            assert_eq!(answer.json()["field"], field);
        }
        let absolute = format!("GET http://evil.example{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(server.raw(absolute.as_bytes()).await.status, 403, "{path}");
    }
    assert_eq!(stage.asked.load(SeqCst), 0);
    for host in ["localhost", "127.0.0.1", "127.1.2.3:1", "[::1]:7420"] {
        let bytes = format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\nsec-fetch-site: same-origin\r\n\r\n");
        assert_eq!(server.raw(bytes.as_bytes()).await.status, 200, "{host}");
    }
    assert_eq!(server.raw(b"GET /v1/status HTTP/1.0\r\n\r\n").await.status, 200, "HTTP/1.0 names no host");
    let probe = server.raw(b"GET /healthz HTTP/1.1\r\nhost: pod-7.cluster\r\n\r\n").await;
    assert_eq!(probe.status, 200, "probes tell nothing about the data");
}

#[tokio::test]
async fn http_1_1_names_exactly_one_host() {
    let (server, stage) = watched().await;
    for hosts in ["", "host: localhost\r\nhost: localhost\r\n", "host: local\u{e9}\r\n"] {
        for path in ["/healthz", "/v1/limit/psp/peek?key.psp_id=a"] {
            let answer = server.raw(format!("GET {path} HTTP/1.1\r\n{hosts}\r\n").as_bytes()).await;
            assert_eq!((answer.status, answer.json()["code"].clone()), (400, json!("request.invalid")));
            assert_eq!(answer.json()["field"], "host", "{path} {hosts:?}");
        }
    }
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn what_is_not_http_is_refused_and_the_server_lives() {
    let (server, stage) = watched().await;
    for bytes in [
        b"nonsense\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"POST /v1/limit/psp/take HTTP/1.1\r\ncontent-length: -5\r\n\r\n".to_vec(),
        b"POST /v1/limit/psp/take HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).into_bytes(),
        format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)).into_bytes(),
    ] {
        let mut connection = Connection::open(server.address).await;
        connection.send(&bytes).await;
        if let Some(answer) = connection.receive().await {
            assert_eq!(answer.status / 100, 4, "{}", answer.head);
        }
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(stage.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let toml = "[server]\nrequest_timeout = \"50ms\"";
    let server = Fixture::with(settings(toml, &|_| None).server).await;
    let head = format!(
        "POST {TAKE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 30\r\n\r\n{{"
    );
    let asked = server.raw(head.as_bytes());
    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap();
    assert_eq!((answer.status, answer.json()["code"].clone()), (408, json!("request.timeout")));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["retry_after_ms"], 1000);
}
