//! `/openapi.json`: what the table of calls says, and what is served at fixed paths.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use quaymaster::schema::Kind;
use serde_json::{Value, json};

use super::operations::Operations;
use super::{Access, Packs, Page, Place, text};

pub(super) const PAGE: Page = Page {
    path: "/openapi.json",
    access: Access::Open,
    place: Place::Needed,
    packs: Packs::Never,
    run: |_, _| ready(Ok(openapi())).boxed(),
};

/// This document.
pub fn document() -> String {
    let operations = Operations::all();
    let kinds = Kind::ALL.iter().filter(|kind| operations.has_tag(kind.name()));
    let kinds = kinds.map(|kind| json!({ "name": kind.name(), "description": format!("{}.", kind.about()) }));
    let server = json!({ "name": "server", "description": "What the server says of itself." });
    let tags: Vec<Value> = kinds.chain([server]).collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Quaymaster",
            "version": env!("CARGO_PKG_VERSION"),
            "contact": { "name": "The Quaymaster contributors" },
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            "description": "Your Redis schema over HTTP. Every answer of a call is 200, also when it is no; errors are \
                problem+json.",
        },
        "servers": [{ "url": "/", "description": "This server." }],
        "tags": tags,
        "security": [{ "token": [] }, {}],
        "paths": operations.paths,
        "components": {
            "schemas": operations.schemas,
            "headers": super::responses::headers(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

fn openapi() -> Response<Body> {
    static JSON: LazyLock<Bytes> = LazyLock::new(|| document().into());
    text("application/json", JSON.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Map;

    use super::*;
    use crate::call::{Handler, No, OPERATIONS};
    use crate::page::PAGES;

    #[test]
    fn every_call_and_page_is_described_under_its_method_and_nothing_else_is() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap_or_default();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(path, methods)| {
                methods.as_object().into_iter().flatten().map(|(method, _)| (path.clone(), method.clone()))
            })
            .collect();
        let calls = OPERATIONS.iter().map(|one| (one.template.to_owned(), one.method.to_lowercase()));
        // The dashboard's own files are for browsers, not for programs.
        let pages = PAGES.iter().filter(|page| page.path != "/" && !page.path.starts_with("/dashboard."));
        let served: BTreeSet<_> =
            calls.chain(pages.map(|page| (page.path.to_owned(), "get".to_owned()))).collect();
        assert_eq!(described, served);
    }

    #[test]
    fn any_value_is_an_empty_schema_that_every_generator_reads() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap_or_default();
        let items = &document["components"]["schemas"]["QueuePeeked"]["properties"]["items"]["items"];
        assert_eq!(items, &json!({}));
    }

    #[test]
    fn every_operation_has_its_id() {
        let document = document();
        for one in OPERATIONS.iter() {
            let id = format!("\"operationId\": \"{}.{}\"", one.kind, one.verb);
            assert!(document.contains(&id), "{id}");
            if matches!(one.handler, Handler::Call(_) | Handler::Stream(_)) {
                assert_eq!(one.template, format!("/v1/{}/{{name}}/{}", one.kind, one.verb));
            }
        }
    }

    fn parsed() -> Value {
        serde_json::from_str(&document()).unwrap_or_default()
    }

    /// Every operation of the document, by its id.
    fn described() -> BTreeMap<String, Value> {
        let paths = parsed()["paths"].as_object().cloned().unwrap_or_default();
        let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
        operations
            .map(|one| (one["operationId"].as_str().unwrap_or_default().to_owned(), one.clone()))
            .collect()
    }

    /// The schema of that name that `$ref` leads to, or the schema itself.
    fn resolved<'a>(schema: &'a Value, schemas: &'a Map<String, Value>) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
        name.map_or(schema, |name| schemas.get(name).unwrap_or(&Value::Null))
    }

    /// The outcomes of a union, each with the reference to its branch.
    fn outcomes(union: &Value, schemas: &Map<String, Value>) -> Map<String, Value> {
        let branches = union["oneOf"].as_array().into_iter().flatten();
        let named = branches.filter_map(|branch| {
            let word = resolved(branch, schemas)["properties"]["outcome"]["const"].as_str()?;
            Some((word.to_owned(), branch["$ref"].clone()))
        });
        named.collect()
    }

    #[test]
    fn every_union_of_outcomes_has_a_discriminator_and_a_schema_for_each() {
        let schemas = parsed()["components"]["schemas"].as_object().cloned().unwrap_or_default();
        let mut branches = BTreeSet::new();
        for (name, schema) in &schemas {
            let outcomes = outcomes(schema, &schemas);
            if outcomes.is_empty() {
                continue;
            }
            assert_eq!(outcomes.len(), schema["oneOf"].as_array().map_or(0, Vec::len), "{name}");
            let wanted = json!({ "propertyName": "outcome", "mapping": outcomes });
            assert_eq!(schema["discriminator"], wanted, "{name}");
            branches.extend(outcomes.values().filter_map(Value::as_str).map(str::to_owned));
        }
        // What has one outcome of its own is a branch of a union and nothing else.
        let single =
            schemas.iter().filter(|(_, schema)| schema["properties"]["outcome"].get("const").is_some());
        let single = single.map(|(name, _)| format!("#/components/schemas/{name}"));
        assert_eq!(single.collect::<BTreeSet<_>>(), branches);
    }

    #[test]
    fn a_no_that_is_an_outcome_is_one_of_its_union() {
        let schemas = parsed()["components"]["schemas"].as_object().cloned().unwrap_or_default();
        let described = described();
        for one in OPERATIONS.iter() {
            let No::Words("outcome", words) = one.no else { continue };
            let id = format!("{}.{}", one.kind, one.verb);
            let answer = &described[&id]["responses"]["200"]["content"]["application/json"]["schema"];
            let outcomes = outcomes(resolved(answer, &schemas), &schemas);
            assert!(words.iter().all(|word| outcomes.contains_key(*word)), "{id}: {words:?} of {outcomes:?}");
        }
    }

    #[test]
    fn answers_under_the_servers_limit_have_its_headers() {
        for (id, operation) in described() {
            let exempt = ["healthz", "readyz", "metrics"].contains(&id.as_str());
            for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
                let has = answer["headers"].get("RateLimit").is_some();
                assert_eq!(has, !exempt && status != "431", "{id} {status}");
                assert_eq!(answer["headers"].get("RateLimit-Policy").is_some(), has, "{id} {status}");
            }
        }
    }

    /// Whether an answer has a field `outage`, at any depth.
    fn tells_outage(schema: &Value, schemas: &Map<String, Value>) -> bool {
        let schema = resolved(schema, schemas);
        let fields = schema["properties"].as_object().into_iter().flatten();
        let forms = ["oneOf", "anyOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
        let inside = ["items", "additionalProperties"].into_iter().filter_map(|word| schema.get(word));
        fields.into_iter().any(|(name, field)| name == "outage" || tells_outage(field, schemas))
            || forms.chain(inside).any(|form| tells_outage(form, schemas))
    }

    #[test]
    fn answers_that_a_policy_can_give_tell_it_in_outage_and_in_the_header_and_no_others_do() {
        let schemas = parsed()["components"]["schemas"].as_object().cloned().unwrap_or_default();
        for (id, operation) in described() {
            let answer = &operation["responses"]["200"];
            let told = tells_outage(&answer["content"]["application/json"]["schema"], &schemas);
            assert_eq!(answer["headers"].get("Quaymaster-Outage").is_some(), told, "{id}");
            let can = ["limit.take", "lock.acquire", "cache.get"].contains(&id.as_str());
            assert!(told || !can, "{id}: a policy can answer it");
        }
        // A policy is a field of that name wherever it is one.
        let policy = json!("#/components/schemas/OutagePolicy");
        for (name, schema) in &schemas {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                assert_eq!(property["$ref"] == policy, field == "outage", "{name}.{field}");
            }
        }
    }

    #[test]
    fn an_operation_lists_what_it_can_refuse_and_nothing_else() {
        let statuses = |id: &str| {
            let responses = described()[id]["responses"].as_object().cloned().unwrap_or_default();
            responses.keys().filter(|status| status.as_str() >= "400").cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(statuses("limit.take"), "400 401 403 404 408 409 413 415 422 429 431 500 503");
        assert_eq!(statuses("limit.reset"), "400 401 403 404 408 409 413 415 429 431 500 503");
        assert_eq!(statuses("limit.peek"), "400 401 403 404 409 429 431 500 503");
        assert_eq!(statuses("event.stream"), "400 401 403 404 429 431 500 503");
        assert_eq!(statuses("upload.content"), "400 401 403 404 409 410 412 416 429 431 500 503");
        assert_eq!(statuses("key.explain"), "400 401 403 429 431 500 503");
        assert_eq!(statuses("metrics"), "400 401 403 431 500");
        assert_eq!(statuses("healthz"), "400 431 500");
        assert_eq!(statuses("readyz"), "400 431 500 503");
    }

    #[test]
    fn events_of_uploads_are_a_page_or_a_stream() {
        let events = &described()["upload.events"];
        let contents = events["responses"]["200"]["content"].as_object().cloned().unwrap_or_default();
        assert_eq!(contents.keys().collect::<Vec<_>>(), ["application/json", "text/event-stream"]);
        let headers =
            events["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "header");
        assert_eq!(headers.map(|one| &one["name"]).collect::<Vec<_>>(), ["last-event-id"]);
    }
}
