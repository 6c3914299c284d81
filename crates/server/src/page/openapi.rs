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
    use crate::call::{Handler, OPERATIONS};
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

    #[test]
    fn every_union_of_outcomes_has_a_discriminator_and_a_schema_for_each() {
        let schemas = parsed()["components"]["schemas"].as_object().cloned().unwrap_or_default();
        let resolved = |reference: &Value| {
            let name = reference.as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
            schemas.get(name.unwrap_or_default()).cloned().unwrap_or_default()
        };
        let mut unions = Vec::new();
        for (name, schema) in &schemas {
            let Some(branches) = schema["oneOf"].as_array() else { continue };
            let words: Vec<_> = branches
                .iter()
                .map(|branch| (resolved(&branch["$ref"]), branch))
                .filter(|(branch, _)| branch["properties"].get("outcome").is_some())
                .map(|(branch, reference)| {
                    (branch["properties"]["outcome"]["const"].clone(), reference["$ref"].clone())
                })
                .collect();
            if words.is_empty() {
                // A union of something else: inline branches of outcomes would be one without a discriminator.
                let outcome = |branch: &Value| branch["properties"].get("outcome").is_some();
                assert!(!branches.iter().any(outcome), "{name}");
                continue;
            }
            let mapping: Map<String, Value> = words
                .into_iter()
                .map(|(word, reference)| (word.as_str().unwrap_or_default().to_owned(), reference))
                .collect();
            assert_eq!(mapping.len(), branches.len(), "{name}");
            let wanted = json!({ "propertyName": "outcome", "mapping": mapping });
            assert_eq!(schema["discriminator"], wanted, "{name}");
            unions.push(name.as_str());
        }
        let wanted = [
            "BatchClosed",
            "GuardEntered",
            "GuardLeft",
            "IdempotencyAbandoned",
            "IdempotencyBegun",
            "IdempotencyFinished",
            "LockAcquired",
            "LockReleased",
            "LockRenewed",
            "QueueExtended",
            "QueueNacked",
        ];
        assert_eq!(unions, wanted);
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

    #[test]
    fn answers_that_a_policy_can_give_have_its_header_and_no_others() {
        let told =
            |operation: &Value| operation["responses"]["200"]["headers"].get("Quaymaster-Outage").is_some();
        let told: Vec<_> = described().into_iter().filter(|(_, one)| told(one)).map(|(id, _)| id).collect();
        let wanted = [
            "cache.exists",
            "cache.get",
            "cache.put",
            "guard.enter",
            "guard.leave",
            "idempotency.abandon",
            "idempotency.begin",
            "idempotency.finish",
            "limit.peek",
            "limit.refund",
            "limit.reset",
            "limit.take",
            "lock.acquire",
            "lock.release",
            "lock.renew",
        ];
        assert_eq!(told, wanted);
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
