//! `/`: one page that draws `/v1/status`. Its files are part of the program; it loads nothing from elsewhere.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Response};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use super::{Access, Packs, Page, Place, text};
use crate::http::problem::Problem;

pub(super) const HTML: Page = Page {
    path: "/",
    access: Access::Open,
    place: Place::Needed,
    packs: Packs::Never,
    run: |_, _| file("text/html; charset=utf-8", include_str!("../../assets/dashboard.html")),
};
pub(super) const SCRIPT: Page = Page {
    path: "/dashboard.js",
    access: Access::Open,
    place: Place::Needed,
    packs: Packs::Never,
    run: |_, _| file("text/javascript; charset=utf-8", include_str!("../../assets/dashboard.js")),
};
pub(super) const STYLE: Page = Page {
    path: "/dashboard.css",
    access: Access::Open,
    place: Place::Needed,
    packs: Packs::Never,
    run: |_, _| file("text/css; charset=utf-8", include_str!("../../assets/dashboard.css")),
};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, content: &'static str) -> BoxFuture<'static, Result<Response<Body>, Problem>> {
    let mut response = text(kind, content);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // It changes with the program only: whoever has it asks whether it is the same.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(HeaderValue::from_str(&etag(content)).ok().map(|etag| (ETAG, etag)));
    ready(Ok(response)).boxed()
}

fn etag(content: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content.as_bytes());
    let head = digest.as_ref().iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    format!("\"{head:016x}\"")
}
