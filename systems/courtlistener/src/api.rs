//! The API as a client: one docket by its id.

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use crate::docket::Docket;

/// The largest docket.
const MAX_BYTES: usize = 64 << 20;
/// How much of an error's body is told.
const TOLD_BYTES: usize = 200;
/// The longest pause that is believed.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The API at its base URL.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: Client,
    base: Url,
    token: Option<HeaderValue>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The docket.
    Docket(Vec<u8>),
    /// Not now: everybody is to wait, so long if it says so. The docket is not to blame.
    Slower { after: Option<Duration>, error: String },
    /// It failed, and may not the next time; not before this, if it says so.
    Failed { after: Option<Duration>, error: String },
    /// It will fail the same way again.
    Refused { error: String },
    /// Every docket would fail: the token is not accepted.
    Unauthorized { error: String },
}

impl Api {
    pub(crate) fn new(
        base: &Url,
        token: Option<&str>,
        timeout: Duration,
        concurrency: usize,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(matches!(base.scheme(), "http" | "https"), "--api {base}: http or https");
        let mut base = base.clone();
        // What is joined to a path without a slash at its end replaces the last segment.
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let client = Client::builder()
            .user_agent(concat!("docket-pipeline/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .pool_max_idle_per_host(concurrency)
            // A call is counted before it is made: none may become two.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .context("the HTTP client")?;
        let token = token
            .map(|token| {
                let mut value =
                    HeaderValue::from_str(&format!("Token {token}")).context("the API's token")?;
                value.set_sensitive(true);
                anyhow::Ok(value)
            })
            .transpose()?;
        Ok(Self { client, base, token })
    }

    /// What tells this API from others: its host and port.
    pub(crate) fn name(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port() {
            // The brackets of an IPv6 address would not do in a key.
            Some(port) => format!("{}:{port}", host.trim_matches(['[', ']'])),
            None => host.trim_matches(['[', ']']).to_owned(),
        }
    }

    /// `GET {base}dockets/{id}/`
    pub(crate) async fn docket(&self, docket: &Docket) -> Answer {
        match self.call(docket).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed { after: None, error: spoken(&error) },
        }
    }

    async fn call(&self, docket: &Docket) -> reqwest::Result<Answer> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}dockets/{docket}/", self.base.path()));
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let mut response = request.send().await?;
        let status = response.status();
        let after =
            response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value, SystemTime::now()));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_BYTES {
                return Ok(Answer::Refused {
                    error: format!("docket {docket} has more than {MAX_BYTES} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(judge(status, after, body))
    }
}

fn judge(status: StatusCode, after: Option<Duration>, body: Vec<u8>) -> Answer {
    if status == StatusCode::OK {
        return match serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
            Ok(_) => Answer::Docket(body),
            Err(error) => Answer::Failed { after, error: format!("answered 200 and no JSON: {error}") },
        };
    }
    let said = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES)]);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let error = format!("answered {status}: {}", said.trim()).trim_end_matches([':', ' ']).to_owned();
    match status {
        StatusCode::TOO_MANY_REQUESTS => Answer::Slower { after, error },
        // Whoever says how long it is away is away for everybody.
        StatusCode::SERVICE_UNAVAILABLE if after.is_some() => Answer::Slower { after, error },
        StatusCode::REQUEST_TIMEOUT => Answer::Failed { after, error },
        StatusCode::UNAUTHORIZED => Answer::Unauthorized { error },
        status if status.is_server_error() => Answer::Failed { after, error },
        _ => Answer::Refused { error },
    }
}

/// Seconds, or a moment; no longer than an hour, whatever it says.
fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let after = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(after.min(LONGEST_PAUSE))
}

/// An error with its causes, and without the URL: the docket is known, a token in it must not be.
fn spoken(error: &reqwest::Error) -> String {
    let what = match error {
        _ if error.is_timeout() => "no answer in time",
        _ if error.is_connect() => "no connection",
        _ => "no whole answer",
    };
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    format!("{what}: {cause}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_answer_says_who_is_to_blame() {
        let judged = |status: u16, after| judge(StatusCode::from_u16(status).unwrap(), after, b"{}".to_vec());
        let second = Some(Duration::from_secs(1));
        assert_eq!(judged(200, None), Answer::Docket(b"{}".to_vec()));
        assert!(matches!(judged(429, second), Answer::Slower { after, .. } if after == second));
        assert!(matches!(judged(503, second), Answer::Slower { .. }));
        assert!(matches!(judged(401, None), Answer::Unauthorized { .. }));
        for status in [408, 500, 502, 503] {
            assert!(matches!(judged(status, None), Answer::Failed { .. }), "{status}");
        }
        // A redirect is not followed: it would be a call that nobody counted.
        for status in [204, 301, 400, 403, 404, 410] {
            assert!(matches!(judged(status, None), Answer::Refused { .. }), "{status}");
        }
        let cut = judge(StatusCode::OK, None, b"{\"id\":".to_vec());
        assert!(matches!(cut, Answer::Failed { .. }), "{cut:?}");
        let said = judge(StatusCode::NOT_FOUND, None, b"not\nfound".to_vec());
        assert_eq!(said, Answer::Refused { error: "answered 404 Not Found: not found".to_owned() });
    }

    #[test]
    fn a_pause_is_seconds_or_a_moment_and_never_more_than_an_hour() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 06:00:00 GMT").unwrap();
        let after = |text: &'static str| retry_after(&HeaderValue::from_static(text), now);
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Mon, 16 Nov 2026 06:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("Mon, 16 Nov 2026 05:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("999999999"), Some(LONGEST_PAUSE));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn an_api_is_known_by_its_host() {
        // As `main` does.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = |url: &str| {
            Api::new(&url.parse().unwrap(), None, Duration::from_secs(1), 1).map(|api| api.name()).unwrap()
        };
        assert_eq!(name("http://127.0.0.1:8000/api/rest/v4"), "127.0.0.1:8000");
        assert_eq!(name("http://[::1]:8000/"), "::1:8000");
        assert!(Api::new(&"file:///etc".parse().unwrap(), None, Duration::from_secs(1), 1).is_err());
    }
}
