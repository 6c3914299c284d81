//! One job, one call: the request, and what its answer means for the job.

use std::error::Error as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use quaymaster::queue::Job;
use quaymaster::schema::{Kind, PushSpec};
use quaymaster::worker::{Done, Failure, Lost};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Outcome};
use super::client::{Client, Fault};
use super::gate::Gate;
use super::result;
use super::sign::{SIGNATURE, Signer, TIMESTAMP};
use crate::http::problem::excerpt;

/// The queue's name in the schema.
const QUEUE: HeaderName = HeaderName::from_static("quaymaster-queue");
/// The job's id, the same in every attempt.
const JOB_ID: HeaderName = HeaderName::from_static("quaymaster-job-id");
/// Which attempt this is, from 1.
const ATTEMPT: HeaderName = HeaderName::from_static("quaymaster-attempt");
/// The same in every attempt at the same job, and in no other.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest pause a service may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// How much of an error's body goes into the dead letter.
const TOLD_BYTES: usize = 512;

/// Calls one service with the jobs of one queue.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) queue: String,
    pub(super) uri: Uri,
    /// The same for messages: without its query, which may hold what nobody should read there.
    pub(super) shown: String,
    pub(super) timeout: Duration,
    pub(super) result_to: Option<(Kind, String)>,
    pub(super) signer: Option<Signer>,
    pub(super) client: Client,
    pub(super) max_response_bytes: usize,
    pub(super) gate: Gate,
    pub(super) calls: Calls,
}

impl Delivery {
    pub(super) fn signer(spec: &PushSpec) -> Option<Signer> {
        spec.secret.as_ref().map(Signer::new)
    }

    /// Makes the call, unless it is to `stop`; what it means for the job.
    pub(super) async fn run(&self, job: Job, lost: Lost, stop: &CancellationToken) -> Result<Done, Failure> {
        tokio::select! {
            biased;
            () = self.gate.open() => {}
            // Nothing was sent: it goes back as if it had not been claimed.
            () = stop.cancelled() => return Err(Failure::not_begun()),
            () = lost.lost() => return Err(Failure::new("the lease was lost before the call")),
        }
        let started = Instant::now();
        let (outcome, told) = tokio::select! {
            biased;
            told = self.call(&job, started + self.timeout) => told,
            () = lost.lost() => (Outcome::Lost, Err(Failure::new("the lease was lost during the call"))),
        };
        self.calls.observe(outcome, started.elapsed());
        told
    }

    async fn call(&self, job: &Job, until: Instant) -> (Outcome, Result<Done, Failure>) {
        let request = self.request(job);
        let answer = match timeout_at(until, self.client.request(request)).await {
            Err(_) => {
                // A service that accepts calls and does not answer is not unreachable, only slow: the timeout itself
                // keeps the calls apart.
                let why = format!("{} did not answer within {} ms", self.shown, self.timeout.as_millis());
                return (Outcome::Timeout, Err(Failure::new(why)));
            }
            Ok(Err(fault)) => {
                if fault.is_connect() {
                    self.gate.unreachable();
                }
                return (Outcome::Unreachable, Err(Failure::new(self.no_answer(&fault))));
            }
            Ok(Ok(answer)) => answer,
        };
        self.gate.reached();
        let status = answer.status();
        if status.is_success() {
            let done = self.accepted(answer, until).await;
            return (if done.is_ok() { Outcome::Success } else { Outcome::BadResponse }, done);
        }
        let outcome = match status.as_u16() {
            300..400 => Outcome::Redirect,
            400..500 => Outcome::Refused,
            _ => Outcome::Failed,
        };
        (outcome, Err(self.refused(status, answer, until).await))
    }

    fn request(&self, job: &Job) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(job.payload.clone()));
        *request.method_mut() = axum::http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("quaymaster/", env!("CARGO_PKG_VERSION"))));
        let mut put = |name: HeaderName, text: String| {
            // Names of queues and numbers are visible ASCII.
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        };
        put(IDEMPOTENCY_KEY, format!("{}-{}", self.queue, job.id));
        put(QUEUE, self.queue.clone());
        put(JOB_ID, job.id.clone());
        put(ATTEMPT, job.attempt.to_string());
        if let Some(signer) = &self.signer {
            let seconds =
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
            put(HeaderName::from_static(SIGNATURE), signer.sign(&seconds, &job.payload));
            put(HeaderName::from_static(TIMESTAMP), seconds);
        }
        request
    }

    /// 2xx: done, and what follows from it.
    async fn accepted(&self, answer: Response<Incoming>, until: Instant) -> Result<Done, Failure> {
        let body = timeout_at(until, read(answer.into_body(), self.max_response_bytes)).await;
        let Some(to) = &self.result_to else {
            // Nobody wants the body: it was only read so that the connection can be used again.
            return Ok(Done::default());
        };
        let body = match body {
            Ok(Ok(body)) => body,
            Ok(Err(Cut::TooLarge)) => {
                let max = self.max_response_bytes;
                let why = format!(
                    "the response of {} is larger than {max} bytes, the bound that max_response_bytes in [worker] sets",
                    self.shown
                );
                return Err(Failure::new(why));
            }
            Ok(Err(Cut::Broken(why))) => {
                return Err(Failure::new(format!("the response of {} broke off: {why}", self.shown)));
            }
            Err(_) => {
                let why = format!(
                    "the response of {} did not end within {} ms",
                    self.shown,
                    self.timeout.as_millis()
                );
                return Err(Failure::new(why));
            }
        };
        match result::read(to, &body) {
            Ok(then) => Ok(Done::then(then)),
            Err(problem) => Err(Failure::new(format!(
                "{} answered what {}.{} cannot take: {}",
                self.shown, to.0, to.1, problem.detail
            ))),
        }
    }

    /// Anything but 2xx.
    async fn refused(&self, status: StatusCode, answer: Response<Incoming>, until: Instant) -> Failure {
        let pause = retry_after(answer.headers(), SystemTime::now());
        if status.is_redirection() {
            let to =
                answer.headers().get(LOCATION).map(|to| excerpt(&String::from_utf8_lossy(to.as_bytes())));
            let to = to.map_or_else(String::new, |to| format!(" to {to}"));
            return Failure::new(format!(
                "{} answered {}: redirects are not followed{to}",
                self.shown,
                status.as_u16()
            ));
        }
        let body = timeout_at(until, read(answer.into_body(), self.max_response_bytes.min(64 * 1024))).await;
        let said = match body {
            Ok(Ok(body)) if !body.is_empty() => format!(": {}", told(&body)),
            _ => String::new(),
        };
        let failure = Failure::new(format!("{} answered {}{said}", self.shown, status.as_u16()));
        match (status.as_u16(), pause) {
            (429 | 503, Some(pause)) => {
                self.gate.close_for(pause);
                failure.after(pause)
            }
            (400..500, _) if !matches!(status.as_u16(), 408 | 429) => failure.dead(),
            _ => failure,
        }
    }

    fn no_answer(&self, fault: &Fault) -> String {
        let mut causes = vec![fault.to_string()];
        let mut cause = fault.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        causes.dedup();
        format!("{} gave no answer: {}", self.shown, causes.join(": "))
    }
}

/// Why there is no whole body.
enum Cut {
    TooLarge,
    Broken(String),
}

/// The whole body, at most `max` bytes.
async fn read(mut body: Incoming, max: usize) -> Result<Bytes, Cut> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Cut::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > max {
            return Err(Cut::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The beginning of what a service said, on one line.
fn told(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES)]);
    let mut line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if body.len() > TOLD_BYTES {
        line.push('…');
    }
    line
}

/// The pause a service asks for: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        // More seconds than can be counted are many seconds.
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => PAUSE_MAX,
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(pause.min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date_and_bounded() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 12:00:00 GMT").unwrap();
        let asked = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            retry_after(&headers, now)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked(" 0 "), Some(Duration::ZERO));
        assert_eq!(asked("Mon, 16 Nov 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Mon, 16 Nov 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("99999999"), Some(PAUSE_MAX));
        assert_eq!(asked("99999999999999999999999"), Some(PAUSE_MAX));
        assert_eq!(asked("-1"), None);
        assert_eq!(asked("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
