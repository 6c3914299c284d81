//! What is served at fixed paths: probes, metrics, documents, the dashboard.

mod dashboard;
pub(crate) mod describe;
mod events;
pub(crate) mod explain;
#[cfg(test)]
mod guide;
pub(crate) mod health;
pub(crate) mod latency;
mod metrics;
pub(crate) mod openapi;
pub(crate) mod operations;
mod process;
pub(crate) mod queues;
#[cfg(test)]
mod reference;
mod responses;
pub(crate) mod runs;
pub(crate) mod stats;
pub(crate) mod status;
mod union;
pub(crate) mod uploads;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::app::App;
use crate::http::problem::Problem;
use crate::http::rights::Rights;

/// Whether a page needs a token where tokens are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Probes and files without data.
    Open,
    /// Everything that tells about the schema or the data.
    Token,
}

/// Whether a page waits for a place among the requests answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Like every call.
    Needed,
    /// Answered also when every place is taken: whoever watches must see a busy server, not a dead one.
    Exempt,
}

/// What a page was asked, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit<'a> {
    /// The query, still encoded.
    pub(crate) query: &'a str,
    /// What the visitor may see.
    pub(crate) rights: Rights<'a>,
}

/// Whether a page is packed for callers that take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packs {
    Never,
    Gzip,
}

type Run = for<'a> fn(&'a App, Visit<'a>) -> BoxFuture<'a, Result<Response<Body>, Problem>>;

/// A path that takes GET.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) place: Place,
    pub(crate) packs: Packs,
    pub(crate) run: Run,
}

/// Every page.
pub(crate) static PAGES: &[Page] = &[
    health::HEALTHZ,
    health::READYZ,
    metrics::PAGE,
    openapi::PAGE,
    status::PAGE,
    explain::PAGE,
    dashboard::HTML,
    dashboard::SCRIPT,
    dashboard::STYLE,
];

/// A page's place in [`PAGES`].
pub(crate) fn index(page: &Page) -> usize {
    PAGES.iter().position(|known| known.path == page.path).unwrap_or(PAGES.len())
}

fn json(value: &impl Serialize) -> Response<Body> {
    text("application/json", serde_json::to_vec(value).unwrap_or_default())
}

fn text(kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
