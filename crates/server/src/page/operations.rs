//! The calls of the table, as OpenAPI and `describe` tell them.

use quaymaster::schema::Kind;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::explain::KeyExplained;
use super::health::Alive;
use super::status::Status;
use crate::call::event::EventListen;
use crate::call::upload::LOOKS;
use crate::call::upload::chunk::UploadChunk;
use crate::call::upload::state::UploadState;
use crate::call::{CALLS, Call, Effect, Needs, No, Repeat, Row};
use crate::http::problem::ProblemBody;
use crate::request::{Field, Holds, Request as _, schema};

/// All paths of the server, and the schemas they refer to.
pub(super) struct Operations {
    pub(super) paths: Map<String, Value>,
    pub(super) schemas: Map<String, Value>,
}

impl Operations {
    pub(super) fn all() -> Self {
        let mut schemas = Map::new();
        let mut answers = generator();
        let mut paths = Map::new();
        for (call, row) in rows() {
            let method = if call.effect == Effect::Reads { "get" } else { "post" };
            let operation = operation(call, row, &mut schemas, &mut answers);
            paths.insert(call.template.to_owned(), json!({ method: operation }));
        }
        for (path, method, operation) in others(&mut schemas, &mut answers) {
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[method] = operation;
        }
        answers.subschema_for::<ProblemBody<'_>>();
        schemas.extend(answers.take_definitions(true));
        Self { paths, schemas }
    }

    /// Whether an operation has this tag.
    pub(super) fn has_tag(&self, tag: &str) -> bool {
        let operations = self.paths.values().filter_map(Value::as_object).flat_map(Map::values);
        operations.into_iter().any(|operation| operation["tags"][0] == tag)
    }
}

fn rows() -> impl Iterator<Item = (&'static Call, &'static Row)> {
    CALLS.iter().map(|call| (call, &call.row))
}

/// Makes schemas of what is answered.
fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::openapi3().for_serialize();
    let settings = settings.with(|settings| {
        settings.transforms.clear();
        settings.definitions_path = "/components/schemas".into();
    });
    settings.with_transform(Plain).into_generator()
}

/// Leaves out what JSON Schema does not know: `format: uint64`. A minimum of 0 says the same.
/// Writes "any value" as `{}`: generators of clients refuse `true`.
#[derive(Debug, Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        let unknown = |format: &Value| {
            format.as_str().is_some_and(|name| name.starts_with("uint") || name.starts_with("int"))
        };
        if schema.get("format").is_some_and(unknown) {
            schema.remove("format");
        }
        schema.ensure_object();
        transform_subschemas(self, schema);
    }
}

fn operation(
    call: &'static Call,
    row: &'static Row,
    schemas: &mut Map<String, Value>,
    answers: &mut SchemaGenerator,
) -> Value {
    let kind = call.kind.name();
    let mut parameters = vec![json!({
        "name": "name", "in": "path", "required": true, "schema": name(),
        "description": format!("The {kind}'s name in the schema."),
    })];
    let mut operation = json!({
        "operationId": format!("{kind}.{}", call.verb),
        "tags": [kind],
        "summary": call.about,
        "description": description(call, row),
        "responses": responses(row, answers),
    });
    match call.effect {
        Effect::Reads => {
            parameters.extend(row.request.fields.iter().map(|field| parameter(field, schemas)));
        }
        Effect::Writes => {
            let request = schema::shape(row.request, schemas);
            operation["requestBody"] = json!({
                "required": !row.request.is_optional(),
                "content": { "application/json": { "schema": request } },
            });
        }
    }
    operation["parameters"] = json!(parameters);
    operation["x-quaymaster-role"] = json!(row.needs.name());
    operation
}

fn parameter(field: &'static Field, schemas: &mut Map<String, Value>) -> Value {
    let style = if field.spec.holds == Holds::Key { "deepObject" } else { "form" };
    json!({
        "name": field.name, "in": "query", "required": field.spec.required, "style": style, "explode": true,
        "description": field.about().trim(),
        "schema": schema::parameter(field, schemas),
    })
}

fn description(call: &Call, row: &Row) -> String {
    let repeat = match (call.effect, row.repeat) {
        (Effect::Reads, _) => "It changes nothing.",
        (_, Repeat::Safe) => "It is safe to repeat.",
        (_, Repeat::WithRequestId) => "Repeat it with the `request_id` it carried.",
    };
    format!("{}. {repeat} Role: `{}`.", call.about, row.needs.name())
}

/// What every call can answer besides its own.
const REFUSALS: &[(u16, &str)] = &[
    (400, "the request or a key value is not valid"),
    (401, "a token is needed"),
    (403, "this token, or this page, may not do this"),
    (404, "there is no such resource or call"),
    (405, "the call has another method"),
    (408, "the request took too long to arrive"),
    (409, "the key holds something else"),
    (413, "the body is too large"),
    (415, "the body is not JSON"),
    (422, "the schema does not declare the resource for this"),
    (429, "the caller is over a limit of the server"),
    (431, "the head of the request is too large"),
    (500, "a defect"),
    (503, "the store cannot be reached, or the server is full"),
];

fn responses(row: &Row, answers: &mut SchemaGenerator) -> Value {
    let answer = json!({
        "description": "The answer, also when it is no.",
        "content": { "application/json": { "schema": (row.answer)(answers) } },
    });
    refusable(Map::from_iter([("200".to_owned(), answer)]), row.refusals)
}

/// The same with what every call can answer besides its own.
fn refusable(mut responses: Map<String, Value>, own: &[(u16, &str)]) -> Value {
    for (status, when) in REFUSALS.iter().chain(own) {
        responses.insert(status.to_string(), problem(*status, when));
    }
    Value::Object(responses)
}

fn problem(status: u16, when: &str) -> Value {
    let mut response = json!({
        "description": when,
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    if status == 431 {
        // Answered before anything is known of the request.
        return json!({ "description": when });
    }
    if matches!(status, 408 | 409 | 429 | 503) {
        response["headers"] = json!({ "Retry-After": {
            "description": "Seconds to wait, where waiting helps.", "schema": { "type": "integer", "minimum": 1 },
        } });
    }
    if status == 429 {
        response["headers"]["RateLimit"] =
            text_header("Units left of a limit in front of the server, `\"name\";r=0;t=30`.");
        response["headers"]["RateLimit-Policy"] =
            text_header("That limit's units and window, `\"name\";q=100;w=60`.");
    }
    response
}

fn text_header(about: &str) -> Value {
    json!({ "description": about, "schema": { "type": "string" } })
}

fn path_parameter(name: &str, about: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
}

fn header(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "description": about, "schema": { "type": "string" } })
}

/// A header that a request needs.
fn asked(name: &str, about: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "header", "required": true, "description": about, "schema": schema })
}

/// A resource's name, as schemas have it.
fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9_-]+$" })
}

fn upload_id() -> Value {
    schema::merged(json!({ "type": "string", "minLength": 1, "maxLength": 64 }), LOOKS)
}

/// Paths that are no calls: below an upload, streams, and what the server says of itself.
fn others(
    schemas: &mut Map<String, Value>,
    answers: &mut SchemaGenerator,
) -> Vec<(String, &'static str, Value)> {
    let mut all = uploads(answers);
    all.extend(streams(schemas));
    all.extend(pages(answers));
    all
}

fn uploads(answers: &mut SchemaGenerator) -> Vec<(String, &'static str, Value)> {
    let state = answers.subschema_for::<UploadState>();
    let chunk = answers.subschema_for::<UploadChunk>();
    let below = |more: Vec<Value>| {
        let mut parameters = vec![
            path_parameter("name", "The upload's name in the schema.", name()),
            path_parameter("upload_id", "The upload.", upload_id()),
        ];
        parameters.extend(more);
        parameters
    };
    let one = |id: &str, about: &str, role: &str, parameters: Vec<Value>, responses: Value| {
        json!({
            "operationId": format!("upload.{id}"), "tags": ["upload"], "summary": about,
            "description": format!("{about}. Role: `{role}`."),
            "parameters": parameters, "responses": responses, "x-quaymaster-role": role,
        })
    };
    let json_of = |schema: &Schema, about: &str| {
        Map::from_iter([(
            "200".to_owned(),
            json!({ "description": about, "content": { "application/json": { "schema": schema } } }),
        )])
    };
    let bytes = |about: &str| {
        // Named twice: openapi-python-client does not read `*/*`.
        let body = json!({ "schema": { "type": "string", "format": "binary" } });
        json!({
            "description": about,
            "headers": {
                "ETag": text_header("The object's."), "Last-Modified": text_header("When it was completed."),
            },
            "content": { "*/*": body, "application/octet-stream": body },
        })
    };
    let number = path_parameter(
        "n",
        "The chunk's number, from 0.",
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
    );
    let last = json!({
        "name": "last", "in": "query", "description": "Whether it is the last one.",
        "schema": { "type": "boolean", "default": false },
    });
    let mut digest = header("content-digest", "`sha-256=:<base64>:`; other bytes are refused.");
    digest["schema"]["pattern"] = json!("^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$");
    let mut put = one(
        "chunk",
        "Take a chunk; one that gets lost before it is in the object store is asked for again",
        "write",
        below(vec![number, last, digest]),
        refusable(
            json_of(&chunk, "It is received, now or before."),
            &[
                (408, "it came too slowly; nothing of it was kept"),
                (415, "the bytes are declared to be JSON or text"),
                (422, "it contradicts what came before, or its digest"),
                (
                    429,
                    "too many bytes are in flight, or what had come of the chunk is lost: the detail says which",
                ),
            ],
        ),
    );
    put["requestBody"] = json!({
        "required": true, "description": "The chunk's bytes.",
        "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } },
    });
    let content = Map::from_iter([
        ("200".to_owned(), bytes("All bytes, under the MIME type of the upload.")),
        ("206".to_owned(), bytes("The bytes of the range.")),
        (
            "304".to_owned(),
            json!({ "description": "The caller has it.", "headers": { "ETag": text_header("The object's.") } }),
        ),
    ]);
    let content = one(
        "content",
        "Read the object's bytes, all or a range",
        "read",
        below(vec![
            header("range", "`bytes=from-to`, one range."),
            header("if-range", "The ETag, or date, the range is meant for; everything if it is another."),
            header("if-match", "ETags one of which the content must have; else 412."),
            header("if-none-match", "ETags whose content the caller has."),
            header("if-modified-since", "The date of the content that the caller has."),
            header(
                "if-unmodified-since",
                "The date after which the content must not have changed; else 412.",
            ),
        ]),
        refusable(
            content,
            &[
                (410, "the object was removed, or is damaged"),
                (412, "the content is not the one that `if-match` or `if-unmodified-since` names"),
                (416, "the range lies outside"),
            ],
        ),
    );
    let progress = event_stream(
        "`event: snapshot`, then `event: progress` for every change, each with the documented JSON in `data` and its \
         number in `id`. Ends with the upload: COMPLETED, EXPIRED, or FAILED with `aborted`.",
    );
    let path = "/v1/upload/{name}/{upload_id}";
    let show = "Show how far an upload has come, and what is to be sent again";
    let delete = "Call an upload off, unless its object is there";
    vec![
        (
            path.to_owned(),
            "get",
            one("show", show, "read", below(vec![]), refusable(json_of(&state, "The upload."), &[])),
        ),
        (
            path.to_owned(),
            "delete",
            one(
                "delete",
                delete,
                "operate",
                below(vec![]),
                refusable(json_of(&state, "It is called off."), &[]),
            ),
        ),
        (format!("{path}/chunk/{{n}}"), "put", put),
        (
            format!("{path}/progress"),
            "get",
            one("progress", "Follow an upload", "read", below(vec![]), refusable(progress, &[])),
        ),
        (format!("{path}/content"), "get", content),
    ]
}

fn event_stream(about: &str) -> Map<String, Value> {
    // Before OpenAPI 3.2 there is no other place to say what one event is.
    let event = json!({
        "type": "object", "description": "One event.",
        "properties": {
            "event": { "type": "string", "description": "Its kind, where there are several." },
            "id": { "type": "string", "description": "Its number, where events have one." },
            "data": { "type": "string", "contentMediaType": "application/json", "description": "Its JSON." },
        },
        "required": ["data"],
    });
    let content = json!({ "text/event-stream": { "schema": event } });
    Map::from_iter([("200".to_owned(), json!({ "description": about, "content": content }))])
}

fn streams(schemas: &mut Map<String, Value>) -> Vec<(String, &'static str, Value)> {
    let key = EventListen::SHAPE.fields.iter().map(|field| parameter(field, schemas));
    let mut parameters = vec![path_parameter("name", "The event's name in the schema.", name())];
    parameters.extend(key);
    let missed = "`{\"missed\": n}` in place of what the reader was too slow for.";
    let upgraded =
        json!({ "description": format!("A WebSocket: a text message for each message's JSON, {missed}") });
    let mut handshake = parameters.clone();
    handshake.extend([
        asked("Connection", "Asks for another protocol.", json!({ "type": "string", "enum": ["Upgrade"] })),
        asked("Upgrade", "The protocol.", json!({ "type": "string", "enum": ["websocket"] })),
        asked("Sec-WebSocket-Version", "Its version.", json!({ "type": "string", "enum": ["13"] })),
        asked(
            "Sec-WebSocket-Key",
            "16 random bytes in base64.",
            json!({ "type": "string", "pattern": "^[A-Za-z0-9+/]{21}[AQgw]==$" }),
        ),
    ]);
    let of = |verb: &str, about: &str, parameters: &[Value], responses: Map<String, Value>| {
        let operation = json!({
            "operationId": format!("event.{verb}"), "tags": ["event"], "summary": about,
            "description": format!("{about}. Role: `read`."), "x-quaymaster-role": "read",
            "parameters": parameters, "responses": refusable(responses, &[]),
        });
        (format!("/v1/event/{{name}}/{verb}"), "get", operation)
    };
    vec![
        of(
            "stream",
            "Hear what is published from now on, as server-sent events",
            &parameters,
            event_stream(&format!("Each message's JSON in `data`; `event: missed` with {missed}")),
        ),
        of(
            "ws",
            "Hear what is published from now on, over a WebSocket",
            &handshake,
            Map::from_iter([("101".to_owned(), upgraded)]),
        ),
    ]
}

fn pages(answers: &mut SchemaGenerator) -> Vec<(String, &'static str, Value)> {
    let json_of = |schema: Schema| json!({ "application/json": { "schema": schema } });
    let of = |path: &str, id: &str, tag: &str, about: &str, parameters: Value, content: Value| {
        let operation = json!({
            "operationId": id, "tags": [tag], "summary": about, "description": format!("{about}."),
            "parameters": parameters,
            "responses": { "200": { "description": format!("{about}."), "content": content } },
        });
        (path.to_owned(), "get", operation)
    };
    let key = json!([{
        "name": "key", "in": "query", "required": true,
        "schema": { "type": "string", "minLength": 1, "maxLength": 8192 },
        "description": "The key, as the store spells it.",
    }]);
    let explained = json_of(answers.subschema_for::<KeyExplained>());
    let alive = json_of(answers.subschema_for::<Alive>());
    let status = json_of(answers.subschema_for::<Status>());
    let prometheus = json!({ "text/plain": { "schema": { "type": "string" } } });
    let document = json!({ "application/json": { "schema": { "type": "object" } } });
    let none = || json!([]);
    let mut all = vec![
        of(
            "/v1/key/explain",
            "key.explain",
            "key",
            "Say what a key is, also when no pattern makes it",
            key,
            explained,
        ),
        of(
            "/v1/status",
            "status",
            "server",
            "Show what the dashboard shows, also while the store is away",
            none(),
            status,
        ),
        of(
            "/metrics",
            "metrics",
            "server",
            "Show counters in the Prometheus text format",
            none(),
            prometheus,
        ),
        of("/healthz", "healthz", "server", "Say that the process is up", none(), alive.clone()),
        of("/readyz", "readyz", "server", "Say whether the store answers and accepts writes", none(), alive),
        of("/openapi.json", "openapi", "server", "Show this document", none(), document),
    ];
    for (path, _, operation) in &mut all {
        operation["responses"]["400"] = problem(400, "the `Host` header is missing, or there are several");
        match path.as_str() {
            "/healthz" | "/openapi.json" => operation["security"] = json!([]),
            "/readyz" => {
                operation["security"] = json!([]);
                let why = "it does not, or the server is stopping; the reason is in the detail";
                operation["responses"]["503"] = problem(503, why);
            }
            _ => {
                operation["x-quaymaster-role"] = json!(Needs::Read.name());
                let answer = operation["responses"]["200"].take();
                operation["responses"] = refusable(Map::from_iter([("200".to_owned(), answer)]), &[]);
            }
        }
    }
    all
}

/// Every kind and verb with what it is given and what it answers: for programs that make clients and consoles.
pub fn describe() -> Value {
    let mut schemas = Map::new();
    let mut answers = generator();
    let mut kinds: Vec<Value> = Vec::new();
    for kind in Kind::ALL {
        let verbs: Vec<Value> = rows()
            .filter(|(call, _)| call.kind == *kind)
            .map(|(call, row)| verb(call, row, &mut schemas, &mut answers))
            .collect();
        if !verbs.is_empty() {
            kinds.push(json!({ "kind": kind.name(), "about": kind.about(), "verbs": verbs }));
        }
    }
    schemas.extend(answers.take_definitions(true));
    let roles = Needs::ALL.map(|role| json!({ "role": role.name(), "about": role.about() }));
    json!({ "roles": roles, "kinds": kinds, "components": { "schemas": schemas } })
}

fn verb(
    call: &'static Call,
    row: &'static Row,
    schemas: &mut Map<String, Value>,
    answers: &mut SchemaGenerator,
) -> Value {
    let fields = row.request.fields.iter().map(|field| {
        let mut schema = schema::field(field, schemas);
        let about = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        let mut told = json!({
            "name": field.name, "about": about, "required": field.spec.required, "schema": schema,
        });
        if let Some(default) = told["schema"].get("default").cloned() {
            told["default"] = default;
        }
        told
    });
    let fields: Vec<Value> = fields.collect();
    json!({
        "verb": call.verb,
        "about": call.about,
        "method": if call.effect == Effect::Reads { "GET" } else { "POST" },
        "path": call.template,
        "role": row.needs.name(),
        "repeat": match row.repeat { Repeat::Safe => "safe", Repeat::WithRequestId => "with_request_id" },
        "request": row.request.name,
        "fields": fields,
        "one_of": row.request.one_of,
        "answer": (row.answer)(answers),
        "no": no(row.no),
    })
}

/// Which answers end the command line with exit code 1.
fn no(no: No) -> Value {
    match no {
        No::Never => Value::Null,
        No::Truth(field, truth) => json!({ "field": field, "is": [truth] }),
        No::Words(field, words) => json!({ "field": field, "is": words }),
        No::Some(field) => json!({ "field": field, "more_than": 0 }),
        No::Empty(field) => json!({ "field": field, "is_empty": true }),
    }
}
