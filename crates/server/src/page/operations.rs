//! The operations of the table, and what is served at fixed paths, as OpenAPI tells them.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::health::Alive;
use super::status::Status;
use super::{Access, PAGES, responses, union};
use crate::call::{Needs, OPERATIONS, Operation, Policy, Repeat, Takes};
use crate::http::problem::ProblemBody;
use crate::request::{Field, Holds, schema};

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
        for one in OPERATIONS.iter() {
            let methods = paths.entry(one.template).or_insert_with(|| json!({}));
            methods[one.method.to_lowercase()] = operation(one, &mut schemas, &mut answers);
        }
        for (path, operation) in pages(&mut answers) {
            paths.insert(path.to_owned(), json!({ "get": operation }));
        }
        answers.subschema_for::<ProblemBody<'_>>();
        answers.subschema_for::<Policy>();
        schemas.extend(definitions(answers));
        responses::tell_outages(&mut paths, &schemas);
        Self { paths, schemas }
    }

    /// Whether an operation has this tag.
    pub(super) fn has_tag(&self, tag: &str) -> bool {
        let operations = self.paths.values().filter_map(Value::as_object).flat_map(Map::values);
        operations.into_iter().any(|operation| operation["tags"][0] == tag)
    }
}

/// The schemas of what is answered.
pub(super) fn definitions(mut answers: SchemaGenerator) -> Map<String, Value> {
    let mut schemas = answers.take_definitions(true);
    union::discriminate(&mut schemas);
    schemas
}

/// Makes schemas of what is answered.
pub(super) fn generator() -> SchemaGenerator {
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

fn operation(one: &Operation, schemas: &mut Map<String, Value>, answers: &mut SchemaGenerator) -> Value {
    let kind = one.kind.name();
    let mut operation = json!({
        "operationId": format!("{kind}.{}", one.verb),
        "tags": [kind],
        "summary": one.about,
        "description": description(one),
        "parameters": parameters(one, schemas),
        "responses": responses::of(one, answers),
        "x-quaymaster-role": one.needs.name(),
    });
    match one.takes {
        Takes::Query => {}
        Takes::Json => {
            let request = schema::shape(one.request, schemas);
            operation["requestBody"] = json!({
                "required": !one.request.is_optional(),
                "content": { "application/json": { "schema": request } },
            });
        }
        Takes::Bytes => {
            operation["requestBody"] = json!({
                "required": true, "description": "The bytes.",
                "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } },
            });
        }
    }
    operation
}

fn parameters(one: &Operation, schemas: &mut Map<String, Value>) -> Vec<Value> {
    let named = one.is_on_resource().then(|| {
        json!({
            "name": "name", "in": "path", "required": true, "schema": name(),
            "description": format!("The {}'s name in the schema.", one.kind.name()),
        })
    });
    let query = if one.takes == Takes::Json { &[] } else { one.request.fields };
    let places = [("path", one.path), ("query", query), ("header", one.headers)];
    let fields = places.iter().flat_map(|(place, fields)| fields.iter().map(|field| (*place, field)));
    named.into_iter().chain(fields.map(|(place, field)| parameter(place, field, schemas))).collect()
}

fn parameter(place: &str, field: &'static Field, schemas: &mut Map<String, Value>) -> Value {
    let mut parameter = json!({
        "name": field.name, "in": place, "required": field.spec.required, "description": field.about().trim(),
        "schema": schema::parameter(field, schemas),
    });
    if place == "query" {
        let style = if field.spec.holds == Holds::Key { "deepObject" } else { "form" };
        parameter["style"] = json!(style);
        parameter["explode"] = json!(true);
    }
    parameter
}

fn description(one: &Operation) -> String {
    let repeat = match one.repeat {
        _ if one.only_reads() => "It changes nothing.",
        Repeat::Safe => "It is safe to repeat.",
        Repeat::WithRequestId => "Repeat it with the `request_id` it carried.",
    };
    format!("{}. {repeat} Role: `{}`.", one.about, one.needs.name())
}

/// A resource's name, as schemas have it.
fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9_-]+$" })
}

/// What the server says of itself.
fn pages(answers: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
    let json_of = |schema: Schema| json!({ "application/json": { "schema": schema } });
    let alive = json_of(answers.subschema_for::<Alive>());
    let status = json_of(answers.subschema_for::<Status>());
    let prometheus = json!({ "text/plain": { "schema": { "type": "string" } } });
    let document = json!({ "application/json": { "schema": { "type": "object" } } });
    let unready = (503, "it does not, or the server is stopping; the reason is in the detail");
    let told = [
        (
            "/v1/status",
            "status",
            "Show what the dashboard shows, also while the store is away",
            &status,
            None,
        ),
        ("/metrics", "metrics", "Show counters in the Prometheus text format", &prometheus, None),
        ("/healthz", "healthz", "Say that the process is up", &alive, None),
        ("/readyz", "readyz", "Say whether the store answers and accepts writes", &alive, Some(unready)),
        ("/openapi.json", "openapi", "Show this document", &document, None),
    ];
    let one = |(path, id, about, content, own): (_, &str, &str, &Value, Option<(u16, &'static str)>)| {
        let page = PAGES.iter().find(|page| page.path == path)?;
        let mut operation = json!({
            "operationId": id, "tags": ["server"], "summary": about, "description": format!("{about}."),
            "parameters": [], "responses": responses::of_page(page, about, content, own.as_slice()),
        });
        match page.access {
            Access::Open => operation["security"] = json!([]),
            Access::Token => operation["x-quaymaster-role"] = json!(Needs::Read.name()),
        }
        Some((path, operation))
    };
    told.into_iter().filter_map(one).collect()
}
