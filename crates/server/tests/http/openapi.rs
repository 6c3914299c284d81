//! The OpenAPI document says what is served, no more and no less.

use quaymaster_testkit::described::{check, resolve};
use serde_json::{Value, json};

use crate::client::request;
use crate::fixture::{Fixture, settings};
use crate::listening::ws;

/// Pages tell of the process. What calls answer is recorded, and the records are compared with the document (`corpus`).
#[tokio::test]
async fn every_page_answers_as_described() {
    let server = Fixture::start().await;
    let document = server.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let pages = document["paths"].as_object().unwrap().keys().filter(|path| !path.contains("{name}"));
    for path in pages {
        let query = if path == "/v1/key/explain" { "?key=rl:a:2026-11-15-12-00" } else { "" };
        let answer = server.get(&format!("{path}{query}")).await;
        assert_eq!(answer.status, 200, "{path}");
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        match content.get("application/json").and_then(|json| json.get("schema")) {
            Some(schema) => check(&document, schema, &answer.json(), path),
            None => assert!(path == "/metrics" || path == "/openapi.json", "{path} has no schema"),
        }
    }
}

/// The answer without end that is no HTTP, and has no record.
#[tokio::test]
async fn a_websocket_is_described_and_opens() {
    let server = Fixture::start().await;
    let document = server.get("/openapi.json").await.json();
    assert!(document["paths"]["/v1/event/{name}/ws"]["get"]["responses"]["101"].is_object());
    drop(ws(server.address, "/v1/event/news/ws").await);
}

#[tokio::test]
async fn requests_and_problems_are_described_as_they_are_taken() {
    let server = Fixture::start().await;
    let document = server.get("/openapi.json").await.json();
    for verb in ["take", "refund", "reset"] {
        let operation = &document["paths"][format!("/v1/limit/{{name}}/{verb}")]["post"];
        let schema = resolve(&document, &operation["requestBody"]["content"]["application/json"]["schema"]);
        for field in schema["properties"].as_object().unwrap().keys() {
            let body = format!(r#"{{"{field}":[]}}"#);
            let problem = server.post(&format!("/v1/limit/psp/{verb}"), &body).await.json();
            assert_ne!(problem["code"], "request.field", "{verb}: {field} is described but not taken");
        }
        let stranger = server.post(&format!("/v1/limit/psp/{verb}"), r#"{"zzz":1}"#).await;
        let described = &operation["responses"]["400"]["content"]["application/problem+json"]["schema"];
        check(&document, described, &stranger.json(), verb);
        let listed = stranger.json()["detail"].as_str().unwrap().to_owned();
        for field in schema["properties"].as_object().unwrap().keys() {
            assert!(listed.contains(field.as_str()), "{verb} {field}: {listed}");
        }
    }
}

/// Each form of `then` with all it may have is taken, and without what it needs, or with a field of another one, it is not.
#[tokio::test]
async fn what_follows_from_an_ack_is_described_by_its_call() {
    let server = Fixture::start().await;
    let document = server.get("/openapi.json").await.json();
    let then = &document["components"]["schemas"]["QueueAck"]["properties"]["then"]["items"];
    let union = resolve(&document, then);
    assert_eq!(union["discriminator"]["propertyName"], "call");
    let given = |form: &Value, field: &str| match (field, form["properties"]["call"]["const"].as_str()) {
        ("call", Some(call)) => json!(call),
        ("name", Some("batch.add")) => json!("camera"),
        ("name", Some("event.publish")) => json!("news"),
        ("name", _) => json!("jobs"),
        ("key", _) => json!({"camera_id": "a"}),
        ("id", _) => json!("x"),
        // The queue of the fixture has no priorities.
        ("priority", _) => Value::Null,
        _ => json!(1),
    };
    let ack = async |then: &Value| {
        let body = json!({"leases": ["1.1.x"], "then": [then]}).to_string();
        let answer = server.post("/v1/queue/jobs/ack", &body).await;
        (answer.status, answer.json())
    };
    let forms = union["oneOf"].as_array().unwrap();
    assert_eq!(forms.len(), 3);
    for form in forms {
        let form = resolve(&document, form);
        let fields: Vec<&String> = form["properties"].as_object().unwrap().keys().collect();
        let mut whole = json!({});
        for field in &fields {
            whole[field.as_str()] = given(form, field);
        }
        assert_eq!(ack(&whole).await, (200, json!({"acked": 0, "lost": 1})), "{whole}");
        for field in form["required"].as_array().unwrap().iter().filter_map(Value::as_str) {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(field);
            let (status, told) = ack(&less).await;
            assert_eq!((status, &told["field"]), (400, &json!(format!("then[0].{field}"))), "{less}: {told}");
        }
        for field in ["key", "item", "id", "data", "payload", "delay_ms"] {
            if !fields.iter().any(|known| *known == field) {
                let mut more = whole.clone();
                more[field] = if field == "key" { json!({}) } else { given(form, field) };
                let (status, told) = ack(&more).await;
                assert_eq!((status, &told["code"]), (400, &json!("request.field")), "{more}: {told}");
            }
        }
    }
}

/// The role in the document is the one that is asked for, whatever the method: `run.remaining` is a POST that only looks.
#[tokio::test]
async fn a_token_that_may_read_opens_what_the_document_says_and_nothing_else() {
    let tokens = "[server]\ntokens = [{ env = \"READER\", role = \"read\" }, { env = \"WRITER\" }]\n";
    let env = |name: &str| Some(format!("{name}-is-long-enough"));
    let server = Fixture::with(settings(tokens, &env).server).await;
    let document = server.get("/openapi.json").await.json();
    let reader = ("authorization", "Bearer READER-is-long-enough");
    let mut opened = 0;
    for (template, methods) in document["paths"].as_object().unwrap() {
        let path = template.replace("{name}", "none").replace("{upload_id}", "x").replace("{n}", "0");
        for (method, operation) in methods.as_object().unwrap() {
            let Some(role) = operation["x-quaymaster-role"].as_str() else { continue };
            let body: &[u8] = if method == "post" { b"{}" } else { b"" };
            let asked = request(&method.to_uppercase(), &path, &[reader], body);
            let answer = server.raw(&asked).await;
            assert_eq!(
                answer.status == 403,
                role != "read",
                "{method} {template} needs {role}: {}",
                answer.text()
            );
            opened += usize::from(role == "read" && method == "post");
        }
    }
    assert_eq!(opened, 1);
    let writer = ("authorization", "Bearer WRITER-is-long-enough");
    let start = request("POST", "/v1/run/pipeline/start", &[writer], br#"{"run_id":"r"}"#);
    assert_eq!(server.raw(&start).await.status, 200);
    let remaining = br#"{"run_id":"r","items":["a"]}"#;
    let asked = request("POST", "/v1/run/pipeline/remaining", &[reader], remaining);
    let answer = server.raw(&asked).await;
    assert_eq!((answer.status, &answer.json()["items"]), (200, &json!(["a"])), "{}", answer.text());
}
