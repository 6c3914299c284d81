//! One guarded request: begin, the handler, then finish or abandon.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use quaymaster_schema::{Outage, ReplayErrors};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower_service::Service;

use super::body::Collected;
use super::{LayerBody, OUTAGE, REPLAYED, Settings, message, problem};
use crate::idempotency::{Abandoned, Begin, Begun, Claim, Finished};
use crate::outage::is_outage;
use crate::{Code, Result};

/// What is sent back to the one who asked.
pub(super) type Answer<R, E> = Result<Response<LayerBody<R>>, E>;

/// A request whose body has been read.
pub(super) struct Guarded<S> {
    pub(super) settings: Arc<Settings>,
    pub(super) inner: S,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    pub(super) key: Vec<(String, String)>,
}

/// How a claim ends.
enum Outcome {
    Finish(Option<Vec<u8>>),
    Abandon,
}

impl<S> Guarded<S> {
    /// Runs in a task of its own: who asked may have gone, the operation goes on.
    pub(super) async fn run<B, R>(self, asked: oneshot::Sender<Answer<R, S::Error>>)
    where
        S: Service<Request<B>, Response = Response<R>>,
        B: From<Bytes>,
        R: Body<Data = Bytes>,
    {
        let Self { settings, mut inner, parts, body, key } = self;
        let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (&**name, &**value)).collect();
        let print = match &settings.fingerprint_of {
            Some(of) => of(&parts, &body),
            None => fingerprint(&parts, &body),
        };
        let begin = Begin { fingerprint: Some(&print), wait: settings.wait, request_id: None };
        let claim = match settings.idempotency.begin(&key, begin).await {
            Ok(Begun::Started(claim)) => claim,
            other => {
                let _ = asked.send(Ok(own(told(other))));
                return;
            }
        };
        // Counted from here: a begin that waited has spent nothing of the claim it got.
        let expires = Instant::now() + claim.expires_in;
        let request = Request::from_parts(parts, B::from(body));
        let called = AssertUnwindSafe(async { inner.call(request).await }).catch_unwind().await;
        let (answer, outcome) = match called {
            Ok(Ok(response)) => {
                let (parts, body) = response.into_parts();
                let mut response = Response::from_parts(parts, LayerBody::through(body));
                let outcome = settings.outcome(&mut response).await;
                (Ok(response), outcome)
            }
            Ok(Err(error)) => (Err(error), Outcome::Abandon),
            Err(_) => {
                let why = "the handler stopped unexpectedly";
                let mut response = own(problem::refuse(Code::Internal, why));
                let outcome = settings.outcome(&mut response).await;
                (Ok(response), outcome)
            }
        };
        let settled = settings.settle(&key, &claim, &outcome).await;
        let by_policy = match settled {
            Settled::Later(policy) => claim.outage.or(policy),
            Settled::Done => claim.outage,
        };
        let answer = answer.map(|mut response| {
            if let Some(policy) = by_policy {
                response.headers_mut().insert(OUTAGE, HeaderValue::from_static(policy.name()));
            }
            response
        });
        match settled {
            Settled::Done => drop(asked.send(answer)),
            Settled::Later(_) => {
                // The operation has run and the client is told so; the record must say it too before its claim ends.
                drop(asked.send(answer));
                settings.settle_later(&key, &claim, &outcome, expires).await;
            }
        }
    }
}

/// What was said of the end of a claim.
enum Told {
    Written,
    /// A policy answered in the store's place.
    Away(Outage),
    Lost,
}

/// Whether the record says how the claim ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Done,
    /// The store could not be asked; a policy may have answered in its place.
    Later(Option<Outage>),
}

impl Settings {
    /// Whether an answer is final, and what is kept of it.
    async fn outcome<R: Body<Data = Bytes>>(&self, response: &mut Response<LayerBody<R>>) -> Outcome {
        let spec = self.idempotency.spec();
        let status = response.status();
        let is_final = match spec.replay_errors {
            ReplayErrors::Client => status.as_u16() < 500,
            ReplayErrors::All => true,
            ReplayErrors::Never => status.as_u16() < 400,
        };
        if !is_final {
            return Outcome::Abandon;
        }
        if spec.compact {
            return Outcome::Finish(None);
        }
        let most = usize::try_from(spec.max_response).unwrap_or(usize::MAX);
        let mut kept = message::head(status, response.headers(), &self.replay_headers);
        if kept.len() > most {
            return Outcome::Finish(None);
        }
        match response.body_mut().collect(most - kept.len()).await {
            Collected::Whole(body) => {
                kept.extend_from_slice(&body);
                Outcome::Finish(Some(kept))
            }
            Collected::TooLong => Outcome::Finish(None),
            // The client did not get it all either; it may try again.
            Collected::Failed => Outcome::Abandon,
        }
    }

    async fn settle(&self, key: &[(&str, &str)], claim: &Claim, outcome: &Outcome) -> Settled {
        let name = self.idempotency.name();
        let answer = match outcome {
            Outcome::Finish(kept) => {
                self.idempotency.finish(key, &claim.token, kept.as_deref()).await.map(|told| match told {
                    Finished::Finished { outage: None, .. } => Told::Written,
                    Finished::Finished { outage: Some(policy), .. } => Told::Away(policy),
                    Finished::Lost => Told::Lost,
                })
            }
            Outcome::Abandon => {
                self.idempotency.abandon(key, &claim.token, None).await.map(|told| match told {
                    Abandoned::Abandoned => Told::Written,
                    Abandoned::Away(policy) => Told::Away(policy),
                    Abandoned::Lost => Told::Lost,
                })
            }
        };
        match answer {
            Ok(Told::Written) => Settled::Done,
            Ok(Told::Away(policy)) => Settled::Later(Some(policy)),
            Ok(Told::Lost) => {
                tracing::warn!(
                    idempotency = name,
                    "the handler took longer than its claim lasts, and another may have run too: raise in_progress_ttl"
                );
                Settled::Done
            }
            Err(error) if is_outage(error.code) || error.code == Code::StoreReply => {
                tracing::warn!(idempotency = name, %error, "the record does not say yet how the operation ended");
                Settled::Later(None)
            }
            Err(error) => {
                tracing::error!(idempotency = name, %error, "the record cannot say how the operation ended");
                Settled::Done
            }
        }
    }

    /// Tries again while the claim is ours; after that the operation would be run again whatever we wrote.
    async fn settle_later(&self, key: &[(&str, &str)], claim: &Claim, outcome: &Outcome, expires: Instant) {
        let mut pause = Duration::from_millis(100);
        while Instant::now() + pause < expires {
            tokio::time::sleep(pause).await;
            if self.settle(key, claim, outcome).await == Settled::Done {
                return;
            }
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }
}

/// Method, path, query and body.
fn fingerprint(parts: &Parts, body: &[u8]) -> Vec<u8> {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut out = Vec::with_capacity(target.len() + body.len() + 16);
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    // Neither a method nor a target holds a line break, so no two requests read alike.
    out.push(b'\n');
    out.extend_from_slice(body);
    out
}

/// The answer when the handler does not run.
fn told(begun: Result<Begun>) -> Response<Bytes> {
    match begun {
        Ok(Begun::Finished(replay)) => match replay.response {
            Some(kept) => {
                let (status, headers, body) = message::decode(&kept);
                let mut response = Response::new(body);
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                response
            }
            None => problem::refuse(Code::IdempotencyDone, "a request with this key was answered before"),
        },
        Ok(Begun::InProgress { .. }) => {
            problem::refuse(Code::IdempotencyBusy, "a request with this key is being answered")
        }
        Ok(Begun::Mismatch) => {
            let detail = "this key was sent before with another method, path, query or body";
            problem::refuse(Code::IdempotencyOther, detail)
        }
        Ok(Begun::Started(_)) => problem::refuse(Code::Internal, "a claim was begun and not used"),
        Err(error) => problem::failed(&error),
    }
}

/// A response of ours in the handler's type.
pub(super) fn own<R: Body<Data = Bytes>>(response: Response<Bytes>) -> Response<LayerBody<R>> {
    response.map(LayerBody::whole)
}

/// What is said when the task that ran the handler is gone without a word: the runtime is shutting down.
pub(super) fn gone<R: Body<Data = Bytes>>() -> Response<LayerBody<R>> {
    let mut response = own(problem::refuse(Code::Internal, "the server is stopping"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
