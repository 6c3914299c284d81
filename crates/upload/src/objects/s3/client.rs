//! One request to S3: signed, sent, and its failure put into words.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::{Body, Client, Response};

use super::xml;
use crate::{Error, Result, Sha256, Trouble};

/// Of an answer that is a document, no more is read.
const MAX_DOCUMENT: usize = 8 * 1024 * 1024;

/// Sends requests to one bucket.
pub(super) struct Sender {
    pub(super) client: Client,
    /// `None`: nothing is signed.
    pub(super) credentials: Option<AwsCredentialProvider>,
    pub(super) region: String,
    /// `http://host/bucket`, without a slash at its end.
    pub(super) bucket: String,
    pub(super) patience: Duration,
    pub(super) retries: usize,
}

/// A request that is not sent yet.
pub(super) struct Ask {
    pub(super) op: &'static str,
    pub(super) method: Method,
    /// The object's whole key; empty for the bucket.
    pub(super) key: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: HeaderMap,
}

impl Ask {
    pub(super) fn new(op: &'static str, method: Method, key: impl Into<String>) -> Self {
        Self { op, method, key: key.into(), query: Vec::new(), headers: HeaderMap::new() }
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// A header of visible characters; others are percent-encoded.
    pub(super) fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let value = encode(value, |byte| (b' '..=b'~').contains(&byte) && byte != b'%');
        let refuse =
            || Error::new(self.op, Trouble::Never, format!("{name:?} cannot be a header")).saying("header");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
        let value = HeaderValue::from_str(&value).map_err(|_| refuse())?;
        self.headers.insert(name, value);
        Ok(self)
    }
}

/// What the signature says of the body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload {
    /// Its digest.
    Signed(Sha256),
    /// Nothing: a header with its checksum is signed, and the store compares that.
    ByItsChecksum,
}

/// Why there is no answer.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether the store may have done what it was asked.
    pub(super) may_have_run: bool,
    pub(super) status: Option<StatusCode>,
}

impl Sender {
    /// Sends a request with these bytes, again while the failure may pass.
    pub(super) async fn send(&self, ask: &Ask, body: &str) -> Result<Response> {
        let mut attempt = 0;
        loop {
            let payload = Payload::Signed(Sha256::of(body.as_bytes()));
            match self
                .once(ask, payload, Some(body.len() as u64), Body::from(body.to_owned()), self.patience)
                .await
            {
                Ok(response) => return Ok(response),
                Err(failure) if failure.error.trouble() == Trouble::Passing && attempt < self.retries => {
                    let longest = 100 << attempt.min(6);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(longest / 2..=longest))).await;
                    attempt += 1;
                }
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// Sends a request once. An answer that is not a success is a failure, with what its body says.
    pub(super) async fn once(
        &self,
        ask: &Ask,
        payload: Payload,
        length: Option<u64>,
        body: Body,
        deadline: Duration,
    ) -> Result<Response, Failure> {
        let request = self.signed(ask, payload, length, body).await.map_err(|error| Failure {
            error,
            may_have_run: false,
            status: None,
        })?;
        let sent = tokio::time::timeout(deadline, self.client.execute(request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unsent(ask.op, error)),
            Err(_) => {
                let detail = format!("no answer for {} ms", deadline.as_millis());
                let error = Error::new(ask.op, Trouble::Passing, detail).saying("timeout");
                return Err(Failure { error, may_have_run: true, status: None });
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        // Its body may be lost; the status is enough to go by.
        let body = self.document(ask.op, response).await.unwrap_or_default();
        Err(Failure {
            error: refused(ask.op, status, &body),
            may_have_run: status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT,
            status: Some(status),
        })
    }

    async fn signed(
        &self,
        ask: &Ask,
        payload: Payload,
        length: Option<u64>,
        body: Body,
    ) -> Result<reqwest::Request> {
        let never = |detail: String| Error::new(ask.op, Trouble::Never, detail);
        let mut url =
            format!("{}/{}", self.bucket, encode(&ask.key, |byte| unreserved(byte) || byte == b'/'));
        for (at, (name, value)) in ask.query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.push_str(&encode(value, unreserved));
        }
        let mut request: HttpRequest = http::Request::builder()
            .method(ask.method.clone())
            .uri(&url)
            .body(HttpRequestBody::empty())
            .map_err(|error| never(error.to_string()))?;
        *request.headers_mut() = ask.headers.clone();
        if let Some(credentials) = &self.credentials {
            let credential = credentials.get_credential().await.map_err(|error| {
                Error::new(ask.op, Trouble::Credentials, format!("no credentials: {error}")).because(error)
            })?;
            let digest = match &payload {
                Payload::Signed(digest) => Some(&digest.as_bytes()[..]),
                Payload::ByItsChecksum => None,
            };
            AwsAuthorizer::new(&credential, "s3", &self.region)
                .with_sign_payload(digest.is_some())
                .try_authorize(&mut request, digest)
                .map_err(|error| never(format!("signing: {error}")))?;
        }
        let url = url.parse().map_err(|_| never(format!("{url:?} is no URL")))?;
        let mut sent = reqwest::Request::new(ask.method.clone(), url);
        *sent.headers_mut() = std::mem::take(request.headers_mut());
        if let Some(length) = length {
            sent.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
        }
        *sent.body_mut() = Some(body);
        Ok(sent)
    }

    /// An answer that is a document, as text.
    pub(super) async fn document(&self, op: &'static str, mut response: Response) -> Result<String> {
        let mut bytes = Vec::new();
        // For all of it: one that drips would never end.
        let end = tokio::time::Instant::now() + self.patience;
        loop {
            let piece = tokio::time::timeout_at(end, response.chunk()).await.map_err(|_| {
                let detail = format!("the answer did not end within {} ms", self.patience.as_millis());
                Error::new(op, Trouble::Passing, detail).saying("timeout")
            })?;
            match piece.map_err(|error| unsent(op, error).error)? {
                Some(piece) if bytes.len() + piece.len() <= MAX_DOCUMENT => bytes.extend_from_slice(&piece),
                Some(_) => return Err(Error::new(op, Trouble::Never, "the answer is too long to be one")),
                None => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            }
        }
    }
}

/// A request that got no answer, or half of one.
pub(super) fn unsent(op: &'static str, error: reqwest::Error) -> Failure {
    let may_have_run = !error.is_connect() && !error.is_builder();
    let trouble = if error.is_builder() { Trouble::Never } else { Trouble::Passing };
    // The outer message says only that something failed; the innermost says what.
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let detail = format!("the object store: {error}: {innermost}");
    // So ends a body whose bytes are not the part's.
    let spoilt = innermost
        .downcast_ref::<std::io::Error>()
        .is_some_and(|inner| inner.kind() == std::io::ErrorKind::InvalidData);
    let failure = Error::new(op, trouble, detail).because(error);
    let error = if spoilt { failure.saying("BadDigest") } else { failure };
    Failure { error, may_have_run, status: None }
}

/// An answer that is no success, by the store's own code where it gave one.
pub(super) fn refused(op: &'static str, status: StatusCode, body: &str) -> Error {
    let xml::Refusal { code, message } = xml::refusal(body).unwrap_or_default();
    let trouble = match code.as_str() {
        "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "AccessDenied"
        | "AccountProblem"
        | "AllAccessDisabled"
        | "RequestTimeTooSkewed"
        | "RequestExpired"
        | "InvalidSecurity"
        | "NotSignedUp"
        | "AuthorizationHeaderMalformed" => Trouble::Credentials,
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage" | "ServiceQuotaExceeded" => {
            Trouble::Full
        }
        // Bytes that changed on their way; and a store that is busy or ill.
        "BadDigest"
        | "XAmzContentChecksumMismatch"
        | "XAmzContentSHA256Mismatch"
        | "IncompleteBody"
        | "RequestTimeout"
        | "SlowDown"
        | "InternalError"
        | "ServiceUnavailable"
        | "OperationAborted"
        | "Throttling" => Trouble::Passing,
        _ => match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Trouble::Credentials,
            StatusCode::INSUFFICIENT_STORAGE => Trouble::Full,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Trouble::Passing,
            _ if status.is_server_error() => Trouble::Passing,
            _ => Trouble::Never,
        },
    };
    let detail = match (message.is_empty(), status.is_redirection()) {
        (false, _) => format!("the object store: {status}: {message}"),
        (true, true) => {
            format!("the object store: {status}: the bucket is elsewhere: check region and endpoint")
        }
        (true, false) => format!("the object store: {status}"),
    };
    let code = if code.is_empty() { status.as_u16().to_string() } else { code };
    Error::new(op, trouble, detail).saying(code)
}

/// What a URL and a signature spell out.
fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

fn encode(text: &str, plain: impl Fn(u8) -> bool) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_refusal_says_what_may_be_done() {
        let body = |code: &str| format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        let trouble =
            |status: u16, body: &str| refused("test", StatusCode::from_u16(status).unwrap(), body).trouble();
        assert_eq!(trouble(400, &body("ExpiredToken")), Trouble::Credentials);
        assert_eq!(trouble(403, ""), Trouble::Credentials);
        assert_eq!(trouble(507, ""), Trouble::Full);
        assert_eq!(trouble(403, &body("QuotaExceeded")), Trouble::Full);
        assert_eq!(trouble(400, &body("RequestTimeout")), Trouble::Passing);
        assert_eq!(trouble(503, &body("SlowDown")), Trouble::Passing);
        assert_eq!(trouble(502, "<html>"), Trouble::Passing);
        assert_eq!(trouble(429, ""), Trouble::Passing);
        assert_eq!(trouble(400, &body("InvalidPart")), Trouble::Never);
        assert_eq!(trouble(404, &body("NoSuchBucket")), Trouble::Never);
        assert_eq!(trouble(301, ""), Trouble::Never);
        let error = refused("test", StatusCode::NOT_FOUND, &body("NoSuchUpload"));
        assert_eq!(error.said(), Some("NoSuchUpload"));
        assert_eq!(error.to_string(), "test: NoSuchUpload: the object store: 404 Not Found: m");
    }

    #[test]
    fn a_key_is_spelled_as_it_is_signed() {
        assert_eq!(encode("a b/ü+~.pb", |byte| unreserved(byte) || byte == b'/'), "a%20b/%C3%BC%2B~.pb");
    }
}
