//! Web pages of other origins that may call: `origins` in `[server]`, and the headers that tell a browser so (CORS).

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION,
    CONTENT_TYPE, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use super::trace::{TRACEPARENT, X_REQUEST_ID};
use crate::call::{Answers, OPERATIONS};

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE");
/// What callers send beside what every page may: headers that every request may have, and those of operations.
static SENT: LazyLock<HeaderValue> = LazyLock::new(|| {
    let every = [AUTHORIZATION, CONTENT_TYPE, TRACEPARENT, X_REQUEST_ID];
    let mut names: Vec<HeaderName> = every.into_iter().chain(declared()).collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    // Names of headers and commas can always be sent.
    HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static(""))
});
/// What they may read of an answer beside what every page may.
const SHOWN: HeaderValue = HeaderValue::from_static(
    "content-disposition, content-range, etag, retry-after, ratelimit, ratelimit-policy, quaymaster-outage",
);
/// How long a browser need not ask again, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");
/// Browsers ask for it before a page of the internet may reach an address of a private network.
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Headers that operations declare. A browser sends those of a WebSocket by itself, and asks nobody.
fn declared() -> impl Iterator<Item = HeaderName> {
    let asked = OPERATIONS.iter().filter(|one| !matches!(one.answers, Answers::Socket(_)));
    let names = asked.flat_map(|one| one.headers).map(|header| HeaderName::try_from(header.name));
    names.filter_map(Result::ok)
}

/// Origins whose pages may call, in the spelling that browsers send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Reads `scheme://host[:port]`; the first that is none is the error.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        let read = |text: &String| {
            let lower = text.to_ascii_lowercase();
            let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme));
            let found = scheme.and_then(|scheme| Some((scheme, lower.strip_prefix(scheme)?)));
            match found {
                Some((scheme, host)) if is_host_and_port(host) => {
                    Ok(format!("{scheme}{}", authority(scheme, host)))
                }
                _ => Err(format!("{text:?} is not an origin such as \"https://console.example.com\"")),
            }
        };
        texts.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an `Origin` header names one of them.
    pub(crate) fn has(&self, origin: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(origin))
    }

    /// Whether one of them is at this host and port.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        self.0.iter().any(|known| {
            let scheme = if known.starts_with("https://") { "https://" } else { "http://" };
            known.strip_prefix(scheme).is_some_and(|named| named == authority(scheme, host))
        })
    }

    /// The listed origin that a request comes from, if it comes from one.
    pub(crate) fn of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        origin.to_str().is_ok_and(|text| self.has(text)).then_some(origin)
    }
}

/// Host and port in the one spelling that browsers send: lower case, without the scheme's own port.
pub(crate) fn authority(scheme: &str, host: &str) -> String {
    let port = if scheme == "https://" { ":443" } else { ":80" };
    host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase()
}

fn is_host_and_port(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    !name.is_empty() && name.bytes().all(word) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Whether a browser asks what a page of another origin may do, before it does it.
pub(crate) fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that for a listed origin.
pub(crate) fn preflight(asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT.clone());
    headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    if asked.contains_key(ASKS_PRIVATE) {
        headers.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
    }
    response
}

/// Lets a page of `origin` read the answer.
pub(crate) fn allow(response: &mut Response<Body>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
    headers.append(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn listed(text: &str) -> Result<Origins, String> {
        Origins::new(&[text.to_owned()])
    }

    #[test]
    fn an_origin_is_listed_in_any_spelling_and_found_in_the_browsers() {
        for (written, sent) in [
            ("https://Console.Example", "https://console.example"),
            ("https://console.example:443", "https://console.example"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://[::1]", "http://[::1]"),
        ] {
            assert!(listed(written).unwrap().has(sent), "{written}");
        }
        let origins = listed("https://console.example").unwrap();
        for foreign in ["http://console.example", "https://console.example:8443", "https://a.console.example"]
        {
            assert!(!origins.has(foreign), "{foreign}");
        }
        assert!(origins.is_host("console.example") && origins.is_host("CONSOLE.example:443"));
        assert!(!origins.is_host("console.example:80") && !origins.is_host("example"));
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for wrong in [
            "*",
            "null",
            "",
            "console.example",
            "https://",
            "https://a/",
            "https://a/b",
            "ftp://a",
            "https://a:b",
            "https://a:70000",
            "https://u@a",
            "https://*.a",
        ] {
            assert!(listed(wrong).is_err(), "{wrong}");
        }
    }
}
