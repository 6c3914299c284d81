//! `quaymaster describe --json`: every operation with what it is given and what it answers.

use quaymaster::schema::Kind;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::operations::{definitions, generator};
use super::responses;
use crate::call::{Answers, Needs, No, OPERATIONS, Operation, Repeat, SENSITIVE, Shows, Takes};
use crate::request::{Field, schema};

/// Every kind and verb with what it is given and what it answers: for programs that make clients and consoles.
pub fn describe() -> Value {
    let mut schemas = Map::new();
    let mut answers = generator();
    let mut kinds: Vec<Value> = Vec::new();
    for kind in Kind::ALL {
        let verbs: Vec<Value> = OPERATIONS
            .iter()
            .filter(|operation| operation.kind == *kind)
            .map(|operation| verb(operation, &mut schemas, &mut answers))
            .collect();
        if !verbs.is_empty() {
            kinds.push(json!({ "kind": kind.name(), "about": kind.about(), "verbs": verbs }));
        }
    }
    schemas.extend(definitions(answers));
    let roles = Needs::ALL.map(|role| json!({ "role": role.name(), "about": role.about() }));
    json!({ "roles": roles, "kinds": kinds, "components": { "schemas": schemas } })
}

fn verb(operation: &Operation, schemas: &mut Map<String, Value>, answers: &mut SchemaGenerator) -> Value {
    let shape = operation.request;
    let own = if operation.takes == Takes::Json { "body" } else { "query" };
    let places = [("path", operation.path), (own, shape.fields), ("header", operation.headers)];
    let fields = places.iter().flat_map(|(place, fields)| fields.iter().map(|field| (*place, field)));
    let fields: Vec<Value> = fields.map(|(place, one)| field(place, one, schemas)).collect();
    let refusals = responses::refusals(operation).into_iter();
    let refusals: Vec<Value> =
        refusals.map(|(status, when)| json!({ "status": status, "when": when })).collect();
    let (kinds, answer, events) = match operation.answers {
        Answers::Json(answer) => (&["json"][..], answer(answers).to_value(), None),
        Answers::JsonOrEvents(answer, about) => {
            (&["json", "events"][..], answer(answers).to_value(), Some(about))
        }
        Answers::Events(about) => (&["events"][..], Value::Null, Some(about)),
        Answers::Socket(about) => (&["websocket"][..], Value::Null, Some(about)),
        Answers::Bytes => (&["bytes"][..], Value::Null, None),
    };
    let mut told = json!({
        "verb": operation.verb,
        "about": operation.about,
        "method": operation.method,
        "path": operation.template,
        "role": operation.needs.name(),
        "repeat": match operation.repeat { Repeat::Safe => "safe", Repeat::WithRequestId => "with_request_id" },
        "body": match operation.takes { Takes::Query => None, Takes::Json => Some("json"), Takes::Bytes => Some("bytes") },
        "request": if shape.fields.is_empty() { Value::Null } else { schema::shape(shape, schemas) },
        "fields": fields,
        "one_of": shape.one_of,
        "answers": kinds,
        "answer": answer,
        "no": no(operation.no),
        "refusals": refusals,
    });
    if operation.shows == Some(Shows::Values) {
        told["sensitive_role"] = json!(SENSITIVE.name());
    }
    if let Ok(rules) = serde_json::from_str::<Value>(shape.also) {
        told["rules"] = rules;
    }
    if let Some(about) = events {
        told["events"] = json!(about);
    }
    told
}

fn field(place: &str, field: &'static Field, schemas: &mut Map<String, Value>) -> Value {
    let mut schema =
        if place == "body" { schema::field(field, schemas) } else { schema::parameter(field, schemas) };
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("description");
    }
    let mut told = json!({
        "name": field.name, "in": place, "about": field.about(), "required": field.spec.required, "schema": schema,
    });
    if let Some(default) = told["schema"].get("default").cloned() {
        told["default"] = default;
    }
    told
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation of the description, as `kind.verb`.
    fn described() -> Vec<(String, Value)> {
        let described = describe();
        let kinds = described["kinds"].as_array().cloned().unwrap_or_default();
        let verbs = kinds.iter().flat_map(|kind| {
            let verbs = kind["verbs"].as_array().cloned().unwrap_or_default();
            verbs
                .into_iter()
                .map(|verb| (format!("{}.{}", kind["kind"], verb["verb"]).replace('"', ""), verb))
        });
        verbs.collect()
    }

    #[test]
    fn what_the_document_has_is_described_and_the_other_way_round() {
        let document: Value = serde_json::from_str(&super::super::openapi::document()).unwrap_or_default();
        let methods = document["paths"].as_object().into_iter().flatten();
        let operations = methods.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods
                .map(move |(method, one)| (one["operationId"].clone(), method.to_uppercase(), path.clone()))
        });
        let mut served: Vec<_> = operations
            .filter_map(|(id, method, path)| Some((id.as_str()?.to_owned(), method, path)))
            .filter(|(id, ..)| id.contains('.'))
            .collect();
        let words = |verb: &Value, field: &str| verb[field].as_str().unwrap_or_default().to_owned();
        let mut told: Vec<_> = described()
            .into_iter()
            .map(|(id, verb)| (id, words(&verb, "method"), words(&verb, "path")))
            .collect();
        served.sort();
        told.sort();
        assert_eq!(told, served);
    }

    #[test]
    fn every_request_is_a_schema_with_its_rules_and_every_refusal_is_told() {
        let schemas = describe()["components"]["schemas"].clone();
        for (id, verb) in described() {
            if let Some(reference) = verb["request"]["$ref"].as_str() {
                let name = reference.trim_start_matches("#/components/schemas/");
                assert_eq!(schemas[name]["type"], "object", "{id}: {name}");
                for rule in verb["rules"].as_object().into_iter().flat_map(Map::keys) {
                    assert!(schemas[name].get(rule).is_some(), "{id}: {rule}");
                }
            } else {
                let given = verb["fields"].as_array().into_iter().flatten();
                assert!(
                    given.into_iter().all(|field| field["in"] == "path" || field["in"] == "header"),
                    "{id} has fields and no request"
                );
            }
            let statuses: Vec<_> = verb["refusals"].as_array().into_iter().flatten().collect();
            assert!(statuses.iter().any(|refusal| refusal["status"] == 400), "{id}");
        }
        let of = |wanted: &str| described().into_iter().find(|(id, _)| id == wanted).unwrap_or_default().1;
        let ack = of("queue.ack");
        assert!(ack["rules"]["if"].is_object(), "{ack}");
        assert!(ack["refusals"].as_array().into_iter().flatten().any(|one| one["status"] == 422), "{ack}");
        assert_eq!(of("queue.push")["one_of"], json!(["payload", "payloads"]));
        let chunk = of("upload.chunk");
        assert_eq!((&chunk["body"], &chunk["role"]), (&json!("bytes"), &json!("write")));
        assert_eq!(
            (&of("cache.get")["role"], &of("cache.get")["sensitive_role"]),
            (&json!("read"), &json!("write"))
        );
        assert!(of("cache.exists").get("sensitive_role").is_none());
        assert_eq!(of("upload.events")["answers"], json!(["json", "events"]));
    }
}
