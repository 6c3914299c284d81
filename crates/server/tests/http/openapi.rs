//! The OpenAPI document says what is served, no more and no less.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::request;
use crate::fixture::{Fixture, settings};
use crate::listening::{Sse, ws};

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect(reference),
        None => schema,
    }
}

/// The same with what stands beside the reference: a form of a union is what it holds and the word that tells it.
fn whole(document: &Value, schema: &Value) -> Value {
    let mut whole = resolve(document, schema).clone();
    if schema.get("$ref").is_some() {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            whole["properties"][name] = property.clone();
        }
        if let (Some(own), Some(beside)) = (whole["required"].as_array_mut(), schema["required"].as_array()) {
            own.extend(beside.iter().cloned());
        }
    }
    whole
}

/// Whether `value` is what `schema` says: every property there and of its type, none that is not described.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(why) = fits(document, schema, value, at) {
        panic!("{why}");
    }
}

fn fits(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = &whole(document, schema);
    if let Some(choices) = schema.get("oneOf").or(schema.get("anyOf")).and_then(Value::as_array) {
        let refusals = choices.iter().map(|choice| fits(document, choice, value, at).err());
        let refusals: Option<Vec<String>> = refusals.collect();
        return refusals.map_or(Ok(()), |whys| Err(format!("{at}: {value} is none of {whys:#?}")));
    }
    let right = |is: bool, why: String| if is { Ok(()) } else { Err(format!("{at}{why}")) };
    if let Some(word) = schema.get("const") {
        right(value == word, format!(": {value} is not {word}"))?;
    }
    if let Some(words) = schema["enum"].as_array() {
        right(words.contains(value), format!(": {value} is none of {words:?}"))?;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    right(types.iter().any(|name| is(name)), format!(": {value} is not {types:?}"))?;
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for name in object.keys() {
            right(properties.contains_key(name), format!(".{name} is served but not described"))?;
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            right(object.contains_key(name), format!(".{name} is described as always there"))?;
        }
        for (name, inner) in properties {
            if let Some(value) = object.get(name) {
                fits(document, inner, value, &format!("{at}.{name}"))?;
            }
        }
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item, &format!("{at}[]"))?;
    }
    Ok(())
}

#[tokio::test]
async fn every_answer_is_as_described_and_every_route_is_there() {
    let server = Fixture::start().await;
    let document = server.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let key = r#"{"key":{"psp_id":"a"}}"#;
    let mut seen = BTreeSet::new();
    for (method, template, path, body) in [
        ("post", "/v1/limit/{name}/take", "/v1/limit/psp/take", key),
        ("get", "/v1/limit/{name}/peek", "/v1/limit/psp/peek?key.psp_id=a", ""),
        ("post", "/v1/limit/{name}/refund", "/v1/limit/psp/refund", key),
        ("post", "/v1/limit/{name}/reset", "/v1/limit/psp/reset", key),
        ("post", "/v1/lock/{name}/acquire", "/v1/lock/door/acquire", r#"{"key":{"id":"a"}}"#),
        ("post", "/v1/lock/{name}/renew", "/v1/lock/door/renew", r#"{"key":{"id":"a"},"token":"x"}"#),
        ("post", "/v1/lock/{name}/release", "/v1/lock/door/release", r#"{"key":{"id":"a"},"token":"x"}"#),
        ("post", "/v1/idempotency/{name}/begin", "/v1/idempotency/pay/begin", r#"{"key":{"id":"a"}}"#),
        (
            "post",
            "/v1/idempotency/{name}/finish",
            "/v1/idempotency/pay/finish",
            r#"{"key":{"id":"a"},"token":"x"}"#,
        ),
        (
            "post",
            "/v1/idempotency/{name}/abandon",
            "/v1/idempotency/pay/abandon",
            r#"{"key":{"id":"a"},"token":"x"}"#,
        ),
        ("post", "/v1/cache/{name}/put", "/v1/cache/page/put", r#"{"key":{"id":"a"},"value":"v"}"#),
        ("get", "/v1/cache/{name}/get", "/v1/cache/page/get?key.id=a", ""),
        ("get", "/v1/cache/{name}/exists", "/v1/cache/page/exists?key.id=a", ""),
        ("post", "/v1/cache/{name}/delete", "/v1/cache/page/delete", r#"{"key":{"id":"a"}}"#),
        ("post", "/v1/dedupe/{name}/first", "/v1/dedupe/image/first", r#"{"key":{"id":"a"}}"#),
        ("post", "/v1/guard/{name}/enter", "/v1/guard/pay/enter", r#"{"key":{"id":"g","psp_id":"g"}}"#),
        (
            "post",
            "/v1/guard/{name}/leave",
            "/v1/guard/pay/leave",
            r#"{"key":{"id":"g","psp_id":"g"},"token":"x"}"#,
        ),
        (
            "post",
            "/v1/batch/{name}/add",
            "/v1/batch/camera/add",
            r#"{"key":{"camera_id":"a"},"item":1,"id":"x"}"#,
        ),
        (
            "post",
            "/v1/batch/{name}/add",
            "/v1/batch/camera/add",
            r#"{"key":{"camera_id":"a"},"item":1,"id":"x"}"#,
        ),
        ("get", "/v1/batch/{name}/list", "/v1/batch/camera/list", ""),
        ("post", "/v1/batch/{name}/close", "/v1/batch/camera/close", r#"{"key":{"camera_id":"a"}}"#),
        ("post", "/v1/batch/{name}/sweep", "/v1/batch/camera/sweep", "{}"),
        ("post", "/v1/event/{name}/publish", "/v1/event/news/publish", r#"{"data":1}"#),
        ("post", "/v1/event/{name}/report", "/v1/event/pulse/report", r#"{"data":{"a":1}}"#),
        ("post", "/v1/queue/{name}/push", "/v1/queue/jobs/push", r#"{"payloads":[{"a":1},2]}"#),
        ("post", "/v1/queue/{name}/claim", "/v1/queue/jobs/claim", "{}"),
        ("post", "/v1/queue/{name}/ack", "/v1/queue/jobs/ack", r#"{"leases":["1.1.x"],"claim":{}}"#),
        ("post", "/v1/queue/{name}/nack", "/v1/queue/jobs/nack", r#"{"lease":"1.1.x","error":"e"}"#),
        ("post", "/v1/queue/{name}/extend", "/v1/queue/jobs/extend", r#"{"lease":"1.1.x"}"#),
        ("get", "/v1/queue/{name}/pressure", "/v1/queue/jobs/pressure", ""),
        ("post", "/v1/queue/{name}/pause", "/v1/queue/jobs/pause", "{}"),
        ("post", "/v1/queue/{name}/resume", "/v1/queue/jobs/resume", "{}"),
        ("get", "/v1/queue/{name}/peek", "/v1/queue/jobs/peek?count=5", ""),
        ("get", "/v1/queue/{name}/range", "/v1/queue/ranked/range?min=-1.5&count=5", ""),
        ("post", "/v1/queue/{name}/trim", "/v1/queue/ranked/trim", r#"{"max":-1}"#),
        ("get", "/v1/queue/{name}/dead", "/v1/queue/jobs/dead", ""),
        ("post", "/v1/queue/{name}/redrive", "/v1/queue/jobs/redrive", "{}"),
        ("post", "/v1/queue/{name}/purge", "/v1/queue/jobs/purge", "{}"),
        ("post", "/v1/run/{name}/start", "/v1/run/pipeline/start", r#"{"run_id":"r"}"#),
        (
            "post",
            "/v1/run/{name}/task_start",
            "/v1/run/pipeline/task_start",
            r#"{"run_id":"r","task_id":"t"}"#,
        ),
        (
            "post",
            "/v1/run/{name}/task_finish",
            "/v1/run/pipeline/task_finish",
            r#"{"run_id":"r","task_id":"t"}"#,
        ),
        (
            "post",
            "/v1/run/{name}/processed",
            "/v1/run/pipeline/processed",
            r#"{"run_id":"r","items":["a",1]}"#,
        ),
        (
            "post",
            "/v1/run/{name}/failed",
            "/v1/run/pipeline/failed",
            r#"{"run_id":"r","item":"b","error":"e"}"#,
        ),
        (
            "post",
            "/v1/run/{name}/remaining",
            "/v1/run/pipeline/remaining",
            r#"{"run_id":"r","items":["a","c"]}"#,
        ),
        ("get", "/v1/run/{name}/failures", "/v1/run/pipeline/failures?count=5", ""),
        ("post", "/v1/run/{name}/retry", "/v1/run/pipeline/retry", "{}"),
        ("post", "/v1/run/{name}/update", "/v1/run/pipeline/update", r#"{"run_id":"r","fields":{"a":"b"}}"#),
        ("get", "/v1/run/{name}/show", "/v1/run/pipeline/show?run_id=r", ""),
        ("get", "/v1/run/{name}/list", "/v1/run/pipeline/list", ""),
        ("post", "/v1/run/{name}/sweep", "/v1/run/pipeline/sweep", "{}"),
        (
            "post",
            "/v1/run/{name}/finish",
            "/v1/run/pipeline/finish",
            r#"{"run_id":"r","status":"completed"}"#,
        ),
        (
            "post",
            "/v1/stats/{name}/record",
            "/v1/stats/web/record",
            r#"{"requests":[{"instance":"a","method":"GET","path":"/x","status":500,"duration_ms":1.5}],"connections":{"a":2}}"#,
        ),
        ("get", "/v1/stats/{name}/report", "/v1/stats/web/report", ""),
        ("get", "/v1/stats/{name}/report", "/v1/stats/web/report?hours=2", ""),
        ("post", "/v1/stats/{name}/sweep", "/v1/stats/web/sweep", "{}"),
        ("get", "/v1/key/explain", "/v1/key/explain?key=rl:a:2026-11-15-12-00", ""),
        ("get", "/v1/status", "/v1/status", ""),
        ("get", "/healthz", "/healthz", ""),
        ("get", "/readyz", "/readyz", ""),
        ("get", "/metrics", "/metrics", ""),
        ("get", "/openapi.json", "/openapi.json", ""),
    ] {
        let operation = &document["paths"][template][method];
        assert!(operation.is_object(), "{method} {template} is not described");
        let answer = if method == "get" { server.get(path).await } else { server.post(path, body).await };
        assert_eq!(answer.status, 200, "{path}");
        let content = &operation["responses"]["200"]["content"];
        if let Some(schema) = content.get("application/json").and_then(|json| json.get("schema")) {
            check(&document, schema, &answer.json(), template);
        } else {
            assert!(template == "/metrics" || template == "/openapi.json", "{template} has no schema");
        }
        seen.insert(template);
    }
    // Answers without end are heard, not read.
    let streams = [("/v1/event/{name}/stream", "200"), ("/v1/event/{name}/ws", "101")];
    for (template, status) in streams {
        assert!(document["paths"][template]["get"]["responses"][status].is_object(), "{template}");
        seen.insert(template);
    }
    drop(Sse::open(server.address, "/v1/event/news/stream", &[]).await);
    drop(ws(server.address, "/v1/event/news/ws").await);
    // What uploads answer is compared in `uploads`, where there are some.
    seen.extend(crate::uploads::TEMPLATES.iter().copied());
    let described: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(described, seen, "described but never served, or the other way round");
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
