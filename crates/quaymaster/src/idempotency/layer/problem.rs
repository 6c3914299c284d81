//! Refusals as `application/problem+json`, from the one table of codes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::{Code, Error, Retry};

/// How long a caller is asked to wait where waiting helps. The end of somebody's claim is only the latest moment:
/// most operations end long before.
const SOON: Duration = Duration::from_secs(1);

/// The answer under `code`.
pub(super) fn refuse(code: Code, detail: &str) -> Response<Bytes> {
    let soon = (code.retry() != Retry::Useless).then_some(SOON);
    let mut body = serde_json::json!({
        "type": format!("urn:quaymaster:error:{code}"),
        "title": code.title(),
        "status": code.http_status(),
        "detail": detail,
        "code": code.name(),
        "advice": code.advice(),
    });
    if let Some(wait) = soon {
        body["retry_after_ms"] = (wait.as_millis() as u64).into();
    }
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(wait) = soon {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}

/// The answer to what the primitive could not tell.
pub(super) fn failed(error: &Error) -> Response<Bytes> {
    refuse(error.code, &error.detail)
}
