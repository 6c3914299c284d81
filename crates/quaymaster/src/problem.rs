//! Refusals as `application/problem+json`, from the one table of codes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::{Code, Retry};

/// How long a caller is asked to wait where waiting helps and nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// An answer that is a refusal.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    code: Code,
    detail: &'a str,
    field: Option<&'a str>,
    status: u16,
    wait: Option<Duration>,
}

impl<'a> Problem<'a> {
    /// The answer under `code`.
    pub(crate) fn new(code: Code, detail: &'a str) -> Self {
        let wait = (code.retry() != Retry::Useless).then_some(SOON);
        Self { code, detail, field: None, status: code.http_status(), wait }
    }

    /// The same, naming the field of the request that is wrong, if one is.
    pub(crate) fn field(mut self, field: Option<&'a str>) -> Self {
        self.field = field;
        self
    }

    /// The same under another status: where the code names a mistake that is not the caller's.
    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same, telling how long to wait; `None` where waiting does not help.
    pub(crate) fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = wait;
        self
    }

    /// The response.
    pub(crate) fn response(&self) -> Response<Bytes> {
        self.response_with(|_| {})
    }

    /// The response, with members of its own.
    pub(crate) fn response_with(&self, add: impl FnOnce(&mut Value)) -> Response<Bytes> {
        let code = self.code;
        let mut body = serde_json::json!({
            "type": format!("urn:quaymaster:error:{code}"),
            "title": code.title(),
            "status": self.status,
            "detail": self.detail,
            "code": code.name(),
            "advice": code.advice(),
        });
        if let Some(field) = self.field {
            body["field"] = field.into();
        }
        if let Some(wait) = self.wait {
            body["retry_after_ms"] = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).into();
        }
        add(&mut body);
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = self.wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait).max(1)));
        }
        response
    }
}

/// Seconds as headers have them: never less than the time they stand for.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_field_is_told_where_an_error_names_one_and_not_where_only_its_words_do() {
        for (field, told) in [(Some("amount"), Value::from("amount")), (None, Value::Null)] {
            let problem = Problem::new(Code::RequestInvalid, "currency: three letters").field(field);
            let body: Value = serde_json::from_slice(problem.response().body()).unwrap();
            assert_eq!(body.get("field").cloned().unwrap_or_default(), told);
        }
    }
}
