//! By what a caller, or a proxy in front of it, calls its request: `traceparent` and `x-request-id`. They stand in log
//! lines and in problem documents, so that one request can be followed through several programs.

use axum::http::{HeaderMap, HeaderName};
use tracing::Span;

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest `x-request-id` that is taken.
const ID_MAX: usize = 128;

/// The names of a request. What is not well formed is as if it were not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trace<'h> {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: Option<&'h str>,
    /// Visible ASCII.
    pub(crate) x_request_id: Option<&'h str>,
}

impl<'h> Trace<'h> {
    pub(crate) fn of(headers: &'h HeaderMap) -> Self {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let id =
            |text: &&str| (1..=ID_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        Self { trace_id: text(&TRACEPARENT).and_then(trace_id), x_request_id: text(&X_REQUEST_ID).filter(id) }
    }

    /// The headers that name a request, for whoever hands the request on and tells of it afterwards.
    pub(crate) fn headers(of: &HeaderMap) -> HeaderMap {
        let pair = |name: HeaderName| of.get(&name).cloned().map(|value| (name, value));
        [TRACEPARENT, X_REQUEST_ID].into_iter().filter_map(pair).collect()
    }

    /// The names, each under what a problem calls it.
    pub(crate) fn named(self) -> impl Iterator<Item = (&'static str, &'h str)> {
        let names = [("trace_id", self.trace_id), ("x_request_id", self.x_request_id)];
        names.into_iter().filter_map(|(name, text)| Some((name, text?)))
    }

    /// What log lines of the request are in. Always enabled where there is something to tell, and nothing otherwise.
    pub(crate) fn span(self) -> Span {
        if self == Self::default() {
            return Span::none();
        }
        tracing::error_span!("request", trace_id = self.trace_id, x_request_id = self.x_request_id)
    }
}

/// The trace of a `traceparent`, as W3C Trace Context writes it; versions to come may have more behind it.
fn trace_id(text: &str) -> Option<&str> {
    let hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let mut parts = text.split('-');
    let [version, trace, parent, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let sound = [(version, 2), (trace, 32), (parent, 16), (flags, 2)]
        .iter()
        .all(|(part, length)| part.len() == *length && hex(part));
    let known = version != "ff" && (version != "00" || parts.next().is_none());
    (sound && known && !zero(trace) && !zero(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_anything_else_is_none() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(&good), Some(trace));
        assert_eq!(trace_id(&format!("01{}-more", &good[2..])), Some(trace), "a version to come");
        for bad in [
            "",
            "00",
            &good[..54],
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            &good.to_uppercase(),
            &good.replace(trace, &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_id_that_could_forge_a_line_is_none() {
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, axum::http::HeaderValue::from_static(text))]);
            Trace::of(&headers).x_request_id.map(str::to_owned)
        };
        assert_eq!(read("a-1:b").as_deref(), Some("a-1:b"));
        assert_eq!((read(""), read("a b"), read("a\tb")), (None, None, None));
    }
}
