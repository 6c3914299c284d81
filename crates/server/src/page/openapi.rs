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
    use std::collections::BTreeSet;

    use super::*;
    use crate::call::{CALLS, Effect, STREAMS};
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
        let calls = CALLS.iter().map(|call| {
            let method = if call.effect == Effect::Reads { "get" } else { "post" };
            (call.template.to_owned(), method.to_owned())
        });
        let calls = calls.chain(STREAMS.iter().map(|stream| (stream.template.to_owned(), "get".to_owned())));
        let routes = crate::call::upload::ROUTES.iter();
        let routes = routes.map(|route| (route.template.to_owned(), route.method.to_lowercase()));
        let calls = calls.chain(routes);
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
    fn every_call_has_its_operation_id() {
        let document = document();
        let calls = CALLS.iter().map(|call| (call.kind, call.verb, call.template));
        let streams = STREAMS.iter().map(|stream| (stream.kind, stream.verb, stream.template));
        for (kind, verb, template) in calls.chain(streams) {
            let id = format!("\"operationId\": \"{kind}.{verb}\"");
            assert!(document.contains(&id), "{id}");
            assert_eq!(template, format!("/v1/{kind}/{{name}}/{verb}"));
        }
    }
}
