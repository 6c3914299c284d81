//! What operations and pages answer, as OpenAPI tells it: their own answers, refusals, and headers.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::{Access, Page, Place};
use crate::call::{Answers, Handler, Operation, Takes};

/// What several operations can answer besides their own.
const REFUSALS: &[(u16, &str)] = &[
    (400, "the request or a key value is not valid"),
    (401, "a token is needed"),
    (403, "this token, or this page, may not do this"),
    (404, "there is no such resource, or nothing of this id"),
    (408, "the request took too long to arrive"),
    (409, "the key, or what is kept under the id, holds something else"),
    (413, "the body, or a value, is too large"),
    (415, "the body is not JSON"),
    (429, "the caller is over a limit of the server"),
    (431, "the head of the request is too large"),
    (500, "a defect"),
    (503, "the store cannot be reached, or the server is full"),
];

/// What an operation refuses, and when; its own words come first.
pub(super) fn refusals(operation: &Operation) -> Vec<(u16, &'static str)> {
    let can = |status: u16| match status {
        404 => operation.is_on_resource(),
        // Who only listens looks at no key.
        409 => operation.is_on_resource() && !matches!(operation.handler, Handler::Stream(_)),
        408 | 413 | 415 => operation.takes != Takes::Query,
        _ => true,
    };
    let own = |status: u16| operation.refusals.iter().any(|(known, _)| *known == status);
    let shared = REFUSALS.iter().filter(|(status, _)| can(*status) && !own(*status));
    let mut all: Vec<_> = shared.chain(operation.refusals).copied().collect();
    all.sort_by_key(|(status, _)| *status);
    all
}

/// All answers of an operation, by status.
pub(super) fn of(operation: &Operation, answers: &mut SchemaGenerator) -> Value {
    let mut all = own(operation, answers);
    for (_, answer) in &mut all {
        with_headers(answer, &LIMITED);
    }
    all.extend(
        refusals(operation)
            .into_iter()
            .map(|(status, when)| (status.to_string(), refusal(status, when, true))),
    );
    if matches!(operation.answers, Answers::Bytes) {
        all["416"]["headers"]["Content-Range"] = text_header("The bytes there are, `bytes */size`.");
    }
    Value::Object(all)
}

/// The answers that are no refusals.
fn own(operation: &Operation, answers: &mut SchemaGenerator) -> Map<String, Value> {
    let json_of = |schema: fn(&mut SchemaGenerator) -> schemars::Schema, answers: &mut SchemaGenerator| json!({ "application/json": { "schema": schema(answers) } });
    let one = |status: &str, answer: Value| Map::from_iter([(status.to_owned(), answer)]);
    match operation.answers {
        Answers::Json(schema) => one(
            "200",
            json!({ "description": "The answer, also when it is no.", "content": json_of(schema, answers) }),
        ),
        Answers::JsonOrEvents(schema, about) => {
            let about = format!(
                "The answer. To callers whose `accept` begins with `text/event-stream`, events. {about}"
            );
            let mut content = json_of(schema, answers);
            content["text/event-stream"] = event_stream();
            one("200", json!({ "description": about, "content": content }))
        }
        Answers::Events(about) => {
            one("200", json!({ "description": about, "content": { "text/event-stream": event_stream() } }))
        }
        Answers::Socket(about) => one("101", json!({ "description": format!("A WebSocket: {about}") })),
        Answers::Bytes => bytes(),
    }
}

fn bytes() -> Map<String, Value> {
    let some = |about: &str, ranged: bool| {
        // Named twice: openapi-python-client does not read `*/*`.
        let body = json!({ "schema": { "type": "string", "format": "binary" } });
        let mut answer = json!({
            "description": about,
            "headers": {
                "ETag": text_header("The object's."),
                "Last-Modified": text_header("When it was completed."),
                "Content-Disposition": text_header("`attachment`, with the upload's name."),
            },
            "content": { "*/*": body, "application/octet-stream": body },
        });
        if ranged {
            answer["headers"]["Content-Range"] = text_header("Which bytes these are, `bytes from-to/size`.");
        }
        answer
    };
    let unchanged = json!({
        "description": "The caller has it.",
        "headers": {
            "ETag": text_header("The object's."), "Last-Modified": text_header("When it was completed."),
        },
    });
    Map::from_iter([
        ("200".to_owned(), some("All bytes, under the MIME type of the upload.", false)),
        ("206".to_owned(), some("The bytes of the range.", true)),
        ("304".to_owned(), unchanged),
    ])
}

fn event_stream() -> Value {
    // Before OpenAPI 3.2 there is no other place to say what one event is.
    json!({ "schema": {
        "type": "object", "description": "One event.",
        "properties": {
            "event": { "type": "string", "description": "Its kind, where there are several." },
            "id": { "type": "string", "description": "Its number, where events have one." },
            "data": { "type": "string", "contentMediaType": "application/json", "description": "Its JSON." },
        },
        "required": ["data"],
    } })
}

/// All answers of a page, by status.
pub(super) fn of_page(page: &Page, about: &str, content: &Value, own: &[(u16, &'static str)]) -> Value {
    let limited = page.place == Place::Needed;
    let mut answer = json!({ "description": format!("{about}."), "content": content });
    if limited {
        with_headers(&mut answer, &LIMITED);
    }
    let mut all = Map::from_iter([("200".to_owned(), answer)]);
    let shared = REFUSALS.iter().filter(|(status, _)| match status {
        400 | 431 | 500 => true,
        401 | 403 => page.access == Access::Token,
        429 | 503 => limited,
        _ => false,
    });
    for (status, when) in shared.chain(own) {
        all.insert(status.to_string(), refusal(*status, when, limited));
    }
    Value::Object(all)
}

/// Headers of what has passed the limit in front of the server, or has not.
const LIMITED: [&str; 2] = ["RateLimit", "RateLimit-Policy"];

fn refusal(status: u16, when: &str, limited: bool) -> Value {
    if status == 431 {
        // Answered before anything is known of the request.
        return json!({ "description": when });
    }
    let mut response = json!({
        "description": when,
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    if matches!(status, 408 | 409 | 429 | 503) {
        with_headers(&mut response, &["Retry-After"]);
    }
    if limited {
        with_headers(&mut response, &LIMITED);
    }
    response
}

fn with_headers(answer: &mut Value, names: &[&str]) {
    for name in names {
        answer["headers"][*name] = json!({ "$ref": format!("#/components/headers/{name}") });
    }
}

/// Says of every answer that can come from a policy that its header names it.
pub(super) fn tell_outages(paths: &mut Map<String, Value>, schemas: &Map<String, Value>) {
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let Some(answer) = operation["responses"].get_mut("200") else { continue };
        if leads_to(&answer["content"]["application/json"]["schema"], "OutagePolicy", schemas) {
            with_headers(answer, &["Quaymaster-Outage"]);
        }
    }
}

/// Whether a schema, or one that it refers to, refers to the schema `name`.
fn leads_to(schema: &Value, name: &str, schemas: &Map<String, Value>) -> bool {
    let (mut left, mut seen) = (vec![schema], Vec::new());
    while let Some(one) = left.pop() {
        let found = one.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        if found == Some(name) {
            return true;
        }
        if let Some(found) = found.filter(|found| !seen.contains(found)) {
            seen.push(found);
            left.extend(schemas.get(found));
        }
        left.extend(one.as_array().into_iter().flatten());
        left.extend(one.as_object().into_iter().flat_map(Map::values));
    }
    false
}

/// Headers that many answers have.
pub(super) fn headers() -> Value {
    json!({
        "Retry-After": {
            "description": "Seconds to wait, where waiting helps.", "schema": { "type": "integer", "minimum": 1 },
        },
        "RateLimit": text_header(
            "Units left of the limit in front of the server, `\"name\";r=0;t=30`; absent where there is none.",
        ),
        "RateLimit-Policy": text_header("That limit's units and window, `\"name\";q=100;w=60`."),
        "Quaymaster-Outage": {
            "description": "The policy that answered while the store could not be asked; absent when the store did.",
            "schema": { "$ref": "#/components/schemas/OutagePolicy" },
        },
    })
}

fn text_header(about: &str) -> Value {
    json!({ "description": about, "schema": { "type": "string" } })
}
