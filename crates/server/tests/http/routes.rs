//! Every route answers what the contract says.

use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

#[tokio::test]
async fn take_counts_until_the_limit_and_then_says_when_to_come_back() {
    let server = Fixture::start().await;
    let body = r#"{"key":{"psp_id":"PSP001"}}"#;
    for used in 1..=3 {
        let answer = server.post("/v1/limit/psp/take", body).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let wanted = json!({
            "allowed": true, "limit": 3, "used": used, "remaining": 3 - used,
            "reset_after_ms": 40_000, "retry_after_ms": 0,
        });
        assert_eq!(answer.json(), wanted);
    }
    let answer = server.post("/v1/limit/psp/take", body).await;
    assert_eq!(answer.status, 200, "no is an answer");
    let wanted = json!({
        "allowed": false, "limit": 3, "used": 3, "remaining": 0, "reset_after_ms": 40_000, "retry_after_ms": 40_000,
    });
    assert_eq!(answer.json(), wanted);
}

#[tokio::test]
async fn a_cost_over_the_limit_is_no_and_waiting_never_helps() {
    let server = Fixture::start().await;
    for cost in ["4", "18446744073709551615"] {
        let body = format!(r#"{{"key":{{"psp_id":"a"}},"cost":{cost}}}"#);
        let answer = server.post("/v1/limit/psp/take", &body).await;
        assert_eq!(answer.status, 200);
        let told = answer.json();
        assert_eq!((&told["allowed"], &told["used"]), (&json!(false), &json!(0)));
        assert!(told.as_object().unwrap().contains_key("retry_after_ms"));
        assert_eq!(told["retry_after_ms"], json!(null));
    }
}

#[tokio::test]
async fn peek_refund_and_reset_answer_like_take() {
    let server = Fixture::start().await;
    let take = r#"{"key":{"b":"x:y","a":7},"cost":4}"#;
    assert_eq!(server.post("/v1/limit/pair/take", take).await.json()["used"], 4);
    let peek = server.get("/v1/limit/pair/peek?key.b=x%3Ay&key.a=7").await;
    assert_eq!((peek.status, peek.json()["used"].clone()), (200, json!(4)));
    assert_eq!(server.get("/v1/limit/pair/peek?key.a=7&key.b=x:y").await.json(), peek.json());
    let refund = server.post("/v1/limit/pair/refund", r#"{"key":{"a":"7","b":"x:y"},"cost":3}"#).await;
    assert_eq!((refund.status, refund.json()["used"].clone()), (200, json!(1)));
    let reset = server.post("/v1/limit/pair/reset", r#"{"key":{"a":"7","b":"x:y"}}"#).await;
    assert_eq!((reset.status, reset.json()["used"].clone()), (200, json!(0)));
    for answer in [peek, refund, reset] {
        let told = answer.json();
        for field in ["allowed", "limit", "used", "remaining", "reset_after_ms", "retry_after_ms"] {
            assert!(told.as_object().unwrap().contains_key(field), "{field}: {told}");
        }
    }
}

#[tokio::test]
async fn the_same_request_id_gets_the_same_answer_and_counts_once() {
    let server = Fixture::start().await;
    let body = r#"{"key":{"psp_id":"a"},"request_id":"r1"}"#;
    let first = server.post("/v1/limit/psp/take", body).await.json();
    assert_eq!(server.post("/v1/limit/psp/take", body).await.json(), first);
    let fresh = server.post("/v1/limit/psp/take", r#"{"key":{"psp_id":"a"},"request_id":null}"#).await.json();
    assert_eq!(fresh["used"], 2);
}

#[tokio::test]
async fn a_limit_without_placeholders_needs_no_key() {
    let server = Fixture::start().await;
    assert_eq!(server.post("/v1/limit/plain/take", "{}").await.json()["used"], 1);
    assert_eq!(server.post("/v1/limit/plain/take", r#"{"key":{}}"#).await.json()["used"], 2);
    assert_eq!(server.get("/v1/limit/plain/peek").await.json()["used"], 2);
}

#[tokio::test]
async fn escapes_and_names_in_the_path_are_decoded() {
    let server = Fixture::start().await;
    let body = r#"{"\u006bey":{"psp_id":"\u0050SP é"}}"#;
    assert_eq!(server.post("/v1/limit/%70sp/take", body).await.json()["used"], 1);
    assert_eq!(server.get("/v1/limit/psp/peek?key.psp_id=PSP+%C3%A9").await.json()["used"], 1);
}

#[tokio::test]
async fn explain_says_what_a_key_is_and_what_is_there() {
    let server = Fixture::start().await;
    server.post("/v1/limit/psp/take", r#"{"key":{"psp_id":"PSP001"}}"#).await;
    let told = server.get("/v1/key/explain?key=rl:PSP001:2026-11-15-12-00").await.json();
    assert_eq!(told["pattern"], "rl:{psp_id}:{minute}");
    assert_eq!((&told["kind"], &told["name"]), (&json!("limit"), &json!("psp")));
    assert_eq!(told["values"]["psp_id"], "PSP001");
    assert_eq!((&told["owner"], &told["type"]), (&json!("tests"), &json!("string")));
    assert_eq!((&told["expected_ttl"], &told["expected_ttl_ms"]), (&json!("1m"), &json!(60_000)));
    assert_eq!((&told["actual"]["exists"], &told["actual"]["type"]), (&json!(true), &json!("string")));
    assert!(
        told["actual"]["ttl_ms"].as_u64().unwrap() <= 60_000 && told["actual"]["bytes"].is_u64(),
        "{told}"
    );

    let nobody = server.get("/v1/key/explain?key=somebody:elses").await;
    assert_eq!(nobody.status, 200);
    assert_eq!(nobody.json()["pattern"], json!(null));
    assert_eq!(
        nobody.json()["actual"],
        json!({"exists": false, "type": null, "ttl_ms": null, "bytes": null})
    );
}

#[tokio::test]
async fn probes_answer_and_take_head() {
    let server = Fixture::start().await;
    assert_eq!(server.get("/healthz").await.json()["status"], "up");
    assert_eq!(server.get("/readyz?verbose=1").await.json()["status"], "ready");
    let mut connection = Connection::open(server.address).await;
    connection.send(&request("HEAD", "/healthz", &[], b"")).await;
    let head = connection.receive_head().await.unwrap();
    assert_eq!((head.status, head.header("content-length").is_some()), (200, true));
    connection.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(connection.receive().await.unwrap().json()["status"], "up", "no body came with the head");
}

#[tokio::test]
async fn metrics_count_by_route_status_and_answer() {
    let server = Fixture::start().await;
    for _ in 0..4 {
        server.post("/v1/limit/psp/take", r#"{"key":{"psp_id":"a"}}"#).await;
    }
    server.post("/v1/limit/psp/take", "nonsense").await;
    server.get("/some/scanner/path").await;
    server.get("/some/other/path").await;
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let text = metrics.text();
    for line in [
        r#"quaymaster_http_requests_total{route="/v1/limit/{name}/take",status="200"} 4"#,
        r#"quaymaster_http_requests_total{route="/v1/limit/{name}/take",status="400"} 1"#,
        r#"quaymaster_http_requests_total{route="unmatched",status="404"} 2"#,
        r#"quaymaster_limit_takes_total{limit="psp",outcome="allowed"} 3"#,
        r#"quaymaster_limit_takes_total{limit="psp",outcome="limited"} 1"#,
        r#"quaymaster_limit_stale_total{limit="psp"} 0"#,
        "quaymaster_store_up 1",
        "quaymaster_store_clock_offset_seconds 0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("scanner"), "paths are not labels");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let family = name.split('{').next().unwrap();
        let family = family.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
        assert!(text.contains(&format!("# TYPE {family} ")), "{family} has no type");
    }
}

#[tokio::test]
async fn status_lists_store_limits_and_resources() {
    let server = Fixture::start().await;
    server.post("/v1/limit/psp/take", r#"{"key":{"psp_id":"a"}}"#).await;
    let told = server.get("/v1/status").await.json();
    assert_eq!((&told["store"]["connected"], &told["store"]["product"]), (&json!(true), &json!("embedded")));
    let psp = told["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "psp").unwrap();
    assert_eq!((&psp["allowed"], &psp["limit"], &psp["window_ms"]), (&json!(1), &json!(3), &json!(60_000)));
    let door = told["resources"].as_array().unwrap().iter().find(|found| found["name"] == "door").unwrap();
    assert_eq!((&door["kind"], &door["keys"][0]["pattern"]), (&json!("lock"), &json!("door:{id}")));
}

#[tokio::test]
async fn the_dashboard_loads_only_from_here_and_has_no_inline_script() {
    let server = Fixture::start().await;
    for (path, kind) in
        [("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")]
    {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("content-type").unwrap().starts_with(kind));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let text = answer.text();
        assert!(!text.contains("http://") && !text.contains("https://"), "{path} names another host");
        assert!(
            !text.contains("innerHTML") && !text.contains(" onclick") && !text.contains(" onload"),
            "{path}"
        );
    }
}

#[test]
fn the_dashboard_shows_characters_that_would_turn_a_row_around() {
    // The part of the script that makes a cell, on a page that is none.
    let run = r#"
        const source = require("fs").readFileSync(0, "utf8");
        const part = source.slice(source.indexOf("function cell("), source.indexOf("function duration("));
        const shown = source.match(/const shown = [^;]*;/)?.[0] ?? "";
        const document = { createElement: () => ({ appendChild: (inside) => inside }) };
        const cell = new Function("document", `${shown}\n${part}\nreturn cell;`)(document);
        console.log(cell("a\u202eb\u2066c\u061c\u200fd\u0007e שלום").textContent, cell(7).textContent, cell(null).textContent);
    "#;
    let mut node = std::process::Command::new("node");
    let mut node = node
        .args(["-e", run])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let script = include_bytes!("../../assets/dashboard.js");
    std::io::Write::write_all(&mut node.stdin.take().unwrap(), script).unwrap();
    let told = String::from_utf8(node.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(told.trim(), "a\\u{202e}b\\u{2066}c\\u{61c}\\u{200f}d\\u{7}e שלום 7 –");
}

#[tokio::test]
async fn tokens_open_what_their_role_allows() {
    let env = |name: &str| match name {
        "READER" => Some("reader-reader-reader".to_owned()),
        "WRITER" => Some("writer-writer-writer".to_owned()),
        _ => None,
    };
    let toml = "[server]\ntokens = [{ env = \"READER\", role = \"read\" }, { env = \"WRITER\" }]";
    let server = Fixture::with(settings(toml, &env).server).await;
    let before = server.engine.health().operations;
    let call = |path: &'static str, method: &'static str, token: Option<&'static str>| {
        let value = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", "application/json")];
        if let Some(value) = &value {
            headers.push(("authorization", value));
        }
        let body: &[u8] = if method == "POST" { br#"{"key":{"psp_id":"a"}}"# } else { b"" };
        request(method, path, &headers, body)
    };
    let (take, peek) = ("/v1/limit/psp/take", "/v1/limit/psp/peek?key.psp_id=a");
    for (bytes, status, code) in [
        (call(take, "POST", None), 401, "auth.required"),
        (call(take, "POST", Some("wrong-wrong-wrong-wrong")), 401, "auth.required"),
        (call(take, "POST", Some("reader-reader-reader")), 403, "auth.forbidden"),
        (call(peek, "GET", None), 401, "auth.required"),
        (call("/metrics", "GET", None), 401, "auth.required"),
        (call("/v1/status", "GET", None), 401, "auth.required"),
        (call("/v1/key/explain?key=x", "GET", None), 401, "auth.required"),
    ] {
        let answer = server.raw(&bytes).await;
        assert_eq!((answer.status, answer.json()["code"].as_str().unwrap()), (status, code));
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
    }
    assert_eq!(server.engine.health().operations, before, "nobody reached the store");
    assert_eq!(server.raw(&call(take, "POST", Some("writer-writer-writer"))).await.status, 200);
    assert_eq!(server.raw(&call(peek, "GET", Some("reader-reader-reader"))).await.json()["used"], 1);
    for open in ["/healthz", "/readyz", "/openapi.json", "/"] {
        assert_eq!(server.get(open).await.status, 200, "{open}");
    }
}
