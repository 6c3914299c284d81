//! Errors as `application/problem+json`, made from the one table of codes.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, Response, StatusCode};
use quaymaster::{Code, Error, Retry};
use schemars::JsonSchema;
use serde::Serialize;

use super::trace::Trace;

/// How long a caller is asked to wait where waiting helps and nothing better is known.
const RETRY_AFTER_MS: u64 = 1000;

/// The field of a problem whose answer names the version of WebSocket that is spoken.
pub(crate) const WS_VERSION: &str = "sec-websocket-version";

/// Why a call was not answered.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// The operation that failed, when one was begun.
    pub(crate) op: Option<&'static str>,
    pub(crate) code: Code,
    pub(crate) detail: Cow<'static, str>,
    /// The field of the request that is wrong, when it is one.
    pub(crate) field: Option<String>,
    /// What the answer's header says beside it; apart, for problems are returned by value.
    also: Option<Box<Also>>,
    /// How long to wait, where that is known.
    wait: Option<Duration>,
    /// Whether the call may have changed something.
    may_have_run: bool,
    /// What failed would have changed nothing: "may have run" has no meaning for it.
    only_read: bool,
    /// What was written before it was refused is taken back.
    undone: bool,
    /// How long the answer is held back; small, for problems are returned by value.
    pub(crate) held_back_ms: u16,
    /// What the layer below said: for the log, never for the caller.
    pub(crate) source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// A header that only one kind of refusal has.
#[derive(Debug, Clone)]
enum Also {
    /// 405: the methods that would be right.
    Methods(&'static str),
    /// 416: how many bytes there are.
    Bytes(u64),
}

/// The body of every answer that is an error (RFC 9457).
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody<'a> {
    /// A URI that names the code.
    #[schemars(extend("examples" = ["urn:quaymaster:error:key.missing"]))]
    r#type: String,
    /// What happened, the same text for every occurrence of the code.
    #[schemars(extend("examples" = ["A placeholder has no value"]))]
    title: &'a str,
    /// The HTTP status again.
    #[schemars(extend("examples" = [400]))]
    status: u16,
    /// What was wrong this time.
    detail: &'a str,
    /// The stable code.
    #[schemars(extend("examples" = ["key.missing"]))]
    code: &'a str,
    /// What to do about it.
    advice: &'a str,
    /// The field of the request that is wrong, when it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    field: Option<&'a str>,
    /// How long to wait before trying again; absent where waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    retry_after_ms: Option<u64>,
    /// Whether the call may have run: then repeat it only with the `request_id` it carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    may_have_run: Option<bool>,
    /// The trace of the request's `traceparent`, for whoever looks for it in logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    trace_id: Option<&'a str>,
    /// The request's `x-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    x_request_id: Option<&'a str>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let may_have_run = code.retry() == Retry::MayHaveRun;
        Self {
            op: None,
            code,
            detail: detail.into(),
            field: None,
            also: None,
            wait: None,
            may_have_run,
            only_read: false,
            undone: false,
            held_back_ms: 0,
            source: None,
        }
    }

    /// The same, naming the field.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same with its cause, which is logged and not told.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same, when waiting this long helps.
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The same, of a call that may have changed something.
    pub(crate) fn may_have_run(mut self) -> Self {
        self.may_have_run = true;
        self
    }

    /// Whether the call may have changed something.
    pub(crate) fn has_doubt(&self) -> bool {
        self.may_have_run && !self.only_read && !self.undone
    }

    /// The same, of a refusal that takes back what was written before it.
    pub(crate) fn undone(mut self) -> Self {
        self.undone = true;
        self
    }

    /// The same, of a question that changes nothing.
    pub(crate) fn only_read(mut self) -> Self {
        self.only_read = true;
        self
    }

    /// The same, of a store that is not ready: that is 503, also for what is another status in answer to a call.
    pub(crate) fn unready(mut self) -> Self {
        if self.status() != StatusCode::SERVICE_UNAVAILABLE {
            self.detail = format!("{}: {}", self.code, self.detail).into();
            self.code = Code::StoreRefused;
        }
        self
    }

    pub(crate) fn method(allow: &'static str, method: &str) -> Self {
        let detail = format!("{} is not a method of this call; it takes {allow}", excerpt(method));
        Self { also: Some(Box::new(Also::Methods(allow))), ..Self::new(Code::MethodWrong, detail) }
    }

    /// A range that lies outside of so many bytes.
    pub(crate) fn range(size: u64, text: &str) -> Self {
        let detail = format!("{} is outside of {size} bytes", excerpt(text));
        let problem = Self::new(Code::UploadRange, detail).field("range");
        Self { also: Some(Box::new(Also::Bytes(size))), ..problem }
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        match (self.wait, self.code.retry()) {
            (Some(wait), _) => Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1)),
            (None, Retry::Useless) => None,
            (None, Retry::Later | Retry::MayHaveRun) => Some(RETRY_AFTER_MS),
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.body_to(Trace::default())
    }

    /// The document for a request of this name.
    fn body_to(&self, trace: Trace<'_>) -> Vec<u8> {
        let body = ProblemBody {
            r#type: format!("urn:quaymaster:error:{}", self.code),
            title: self.code.title(),
            status: self.code.http_status(),
            detail: &self.detail,
            code: self.code.name(),
            advice: if self.only_read { reading_advice(self.code) } else { self.code.advice() },
            field: self.field.as_deref(),
            retry_after_ms: self.retry_after_ms(),
            may_have_run: self.has_doubt().then_some(true),
            trace_id: trace.trace_id,
            x_request_id: trace.x_request_id,
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The answer to a request of this name.
    pub(crate) fn into_response_to(self, trace: Trace<'_>) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body_to(trace)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(ms) = self.retry_after_ms() {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        match self.also.as_deref() {
            Some(Also::Methods(allow)) => {
                headers.insert(ALLOW, HeaderValue::from_static(allow));
            }
            Some(Also::Bytes(size)) => {
                let shown = HeaderValue::from_str(&format!("bytes */{size}")).ok();
                headers.extend(shown.map(|shown| (CONTENT_RANGE, shown)));
            }
            None => {}
        }
        if self.field.as_deref() == Some(WS_VERSION) {
            // RFC 6455, 4.4: which one would be right.
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if self.code == Code::AuthRequired {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"quaymaster\""));
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let Error { op, code, field, detail, may_have_run, retry_after, source } = error;
        let field = field.map(Cow::into_owned);
        Self { op: Some(op), field, may_have_run, wait: retry_after, source, ..Self::new(code, detail) }
    }
}

impl Problem {
    /// The error of a command that has no HTTP: nothing is lost, and `op` is its own unless another one failed.
    pub(crate) fn into_error(self, op: &'static str) -> Error {
        let may_have_run = self.has_doubt();
        let field = self.field.map(Cow::Owned);
        let Self { code, wait: retry_after, source, .. } = self;
        let detail = self.detail.into_owned();
        Error { op: self.op.unwrap_or(op), code, field, detail, may_have_run, retry_after, source }
    }
}

impl From<quaymaster_upload::Error> for Problem {
    fn from(error: quaymaster_upload::Error) -> Self {
        let code = error.code().unwrap_or_else(|| {
            // Nobody probes these stores: the log is where it is seen.
            tracing::warn!(op = error.op(), trouble = error.trouble().name(), %error, "an upload was not answered");
            Code::UploadBackend
        });
        error.under(code).into()
    }
}

/// What a problem document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A question that changes nothing.
    Looked,
    /// Something that changes what is stored.
    Changes,
}

/// An error as the document that a server answers.
pub fn document(error: &Error, asked: Asked) -> String {
    let problem = Problem::from(error.clone());
    let problem = if asked == Asked::Looked { problem.only_read() } else { problem };
    String::from_utf8_lossy(&problem.body()).into_owned()
}

/// What to do when a question that changes nothing got no answer: there is nothing to repeat with care.
pub fn reading_advice(code: Code) -> &'static str {
    match code {
        Code::StoreTimedOut => "Check its load and the network, then ask again.",
        Code::StoreLost => "Ask again.",
        Code::StoreProtocol => {
            "Check that it is Redis or Valkey and that nothing between changes what it says."
        }
        Code::ServerAnswer => {
            "Check the URL of --server, what stands between, and that the server is not newer than this command."
        }
        Code::StoreReply => {
            "Check that nothing between changes what the store says, else report it as a defect."
        }
        Code::StoreDisk => "Free space or repair the disk, then restart; what was acknowledged is safe.",
        _ => code.advice(),
    }
}

/// A piece of a caller's text that is safe to show: short, and without anything that could forge a line.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    let shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() { format!("\"{shown}…\"") } else { format!("\"{shown}\"") }
}

/// The word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing is quadratic, and a name this long is no slip of the finger.
    if word.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| {
            // Two letters swapped in a short word look far apart to Jaro-Winkler, and are not.
            let slip = strsim::damerau_levenshtein(word, candidate) <= 1 && candidate.len() > 1;
            (if slip { 1.0 } else { strsim::jaro_winkler(word, candidate) }, candidate)
        })
        .filter(|(score, _)| *score >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// "`x` is unknown", with the nearest known word or all of them.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("{what} {} is unknown; did you mean \"{near}\"?", excerpt(word)),
        None if known.is_empty() => format!("{what} {} is unknown; there are none", excerpt(word)),
        None => format!("{what} {} is unknown; there are {}", excerpt(word), known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_errors_field_and_none_that_its_words_seem_to_name() {
        for code in [Code::RequestInvalid, Code::RequestTooLarge, Code::KeyValue, Code::LimitCost] {
            for words in ["ttl_ms: 1 to 30000", "request_id was used", "`psp_id` is empty", "no such words"] {
                let error = || Error::new("lock.acquire", code, words);
                assert_eq!(Problem::from(error()).field, None, "{code} {words}");
                assert_eq!(Problem::from(error().field("wait_ms")).field.as_deref(), Some("wait_ms"));
                let below = || quaymaster_upload::Error::from(error().field("drive"));
                assert_eq!(
                    Problem::from(below()).field.as_deref(),
                    Some("drive"),
                    "through the upload's errors"
                );
                assert_eq!(Problem::from(below()).detail, words);
            }
        }
    }

    #[test]
    fn an_error_comes_back_from_a_problem_with_all_its_parts() {
        let error = || Error::new("lock.acquire", Code::StoreLost, "it went away");
        let wait = Duration::from_millis(42_001);
        let whole = error().field("ttl_ms").because(std::io::Error::other("why")).ran(true).after(wait);
        let told = Problem::from(whole).into_error("/v1/lock");
        assert_eq!(
            (told.op, told.code, told.field.as_deref()),
            ("lock.acquire", Code::StoreLost, Some("ttl_ms"))
        );
        assert_eq!((told.detail.as_str(), told.may_have_run), ("it went away", true));
        assert_eq!(told.retry_after, Some(wait));
        assert!(document(&told, Asked::Changes).contains(r#""retry_after_ms":42001"#));
        assert_eq!(told.source.map(|source| source.to_string()).as_deref(), Some("why"));
        assert!(!Problem::from(error().ran(true)).only_read().into_error("").may_have_run);
        assert_eq!(Problem::new(Code::StoreLost, "gone").into_error("/v1/lock").op, "/v1/lock");
    }
}
