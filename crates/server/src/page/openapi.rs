//! `/openapi.json`, generated from the handlers and the types they answer with.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::{Access, Page, Place, text};
use crate::http::problem::ProblemBody;

pub(super) const PAGE: Page = Page {
    path: "/openapi.json",
    access: Access::Open,
    place: Place::Needed,
    run: |_, _| ready(Ok(openapi())).boxed(),
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Quaymaster", description = "Your Redis schema over HTTP. Every answer of a call is 200, also when it is no; errors are problem+json."),
    paths(
        crate::call::limit::take, crate::call::limit::peek, crate::call::limit::refund, crate::call::limit::reset,
        crate::call::idempotency::begin, crate::call::idempotency::finish, crate::call::idempotency::abandon,
        crate::call::lock::acquire, crate::call::lock::renew, crate::call::lock::release,
        crate::call::cache::put, crate::call::cache::get, crate::call::cache::exists, crate::call::cache::delete,
        crate::call::dedupe::first,
        crate::call::guard::enter, crate::call::guard::leave,
        crate::call::batch::add, crate::call::batch::list, crate::call::batch::close, crate::call::batch::sweep,
        crate::call::event::publish, crate::call::event::report, crate::call::event::stream, crate::call::event::ws,
        crate::call::queue::push::push, crate::call::queue::claim::claim, crate::call::queue::settle::ack,
        crate::call::queue::settle::nack, crate::call::queue::settle::extend, crate::call::queue::state::pressure,
        crate::call::queue::state::pause, crate::call::queue::state::resume, crate::call::queue::state::peek,
        crate::call::queue::dead::dead, crate::call::queue::dead::redrive, crate::call::queue::dead::purge,
        crate::call::run::state::start, crate::call::run::state::update, crate::call::run::state::finish,
        crate::call::run::state::show, crate::call::run::state::list, crate::call::run::state::sweep,
        crate::call::run::work::task_start, crate::call::run::work::task_finish, crate::call::run::work::processed,
        crate::call::run::work::failed, crate::call::run::work::remaining, crate::call::run::failures::failures,
        crate::call::run::failures::retry,
        crate::call::stats::record, crate::call::stats::report, crate::call::stats::sweep,
        crate::call::upload::create::create, crate::call::upload::state::status, crate::call::upload::state::abort,
        crate::call::upload::state::resume, crate::call::upload::events::events, crate::call::upload::state::show,
        crate::call::upload::state::delete, crate::call::upload::chunk::put,
        crate::call::upload::progress::progress, crate::call::upload::content::content,
        super::explain::explain, super::status::status, super::health::healthz, super::health::readyz,
        super::metrics::metrics, openapi,
    ),
    components(schemas(ProblemBody<'static>)),
    security(("token" = []), ()),
    modifiers(&Token),
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// The answers every call can give besides its own.
pub(crate) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        [
            ("400", "the request or a key value is not valid"),
            ("401", "a token is needed"),
            ("403", "this token, or this page, may not do this"),
            ("404", "there is no such resource or call"),
            ("405", "the call has another method"),
            ("408", "the request took too long to arrive"),
            ("409", "the key holds something else"),
            ("413", "the body is too large"),
            ("415", "the body is not JSON"),
            ("500", "a defect"),
            ("503", "the store cannot be reached, or the server is full"),
        ]
        .into_iter()
        .map(|(status, description)| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/problem+json", content)
                .build();
            (status.to_owned(), RefOr::T(response))
        })
        .collect()
    }
}

/// This document.
pub fn document() -> String {
    Document::openapi().to_pretty_json().unwrap_or_default()
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "server",
    responses((status = 200, content_type = "application/json", description = "this document")), security(()))]
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
