//! The service: asks the limits, then the handler.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Exempt, Keyed, Rule, headers};
use crate::layer::{AnswerBody, Refused};
use crate::limit::{Charge, Part, Together, Verdict, take_all};
use crate::problem::Problem;
use crate::{Code, Error};

/// A service behind [`super::LimitLayer`].
#[derive(Clone)]
pub struct LimitService<S> {
    pub(super) inner: S,
    pub(super) rules: Arc<[Rule]>,
    pub(super) exempt: Option<Arc<Exempt>>,
}

impl<S> fmt::Debug for LimitService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rules.iter().map(|rule| rule.limit.name()).collect();
        write!(f, "LimitService({})", names.join(", "))
    }
}

impl<S, B, R> Service<Request<B>> for LimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<AnswerBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled ready is used; its clone waits for its turn.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let (rules, exempt) = (self.rules.clone(), self.exempt.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if exempt.is_some_and(|exempt| exempt(&parts)) {
                let response = inner.call(Request::from_parts(parts, body)).await?;
                return Ok(response.map(AnswerBody::theirs));
            }
            let told = match ask(&rules, &parts).await {
                Ok(told) => told,
                Err(mut refused) => {
                    refused.extensions_mut().insert(Refused);
                    return Ok(refused.map(AnswerBody::ours));
                }
            };
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            for (rule, verdict) in &told {
                headers::append(response.headers_mut(), rule.limit.name(), &rule.policy, verdict);
            }
            Ok(response.map(AnswerBody::theirs))
        })
    }
}

/// A limit that concerns the request.
struct Concerned<'a> {
    rule: &'a Rule,
    key: Vec<(Cow<'static, str>, String)>,
    cost: u64,
}

/// What each limit said that concerns the request; or the answer in the handler's place.
async fn ask<'a>(rules: &'a [Rule], request: &Parts) -> Result<Vec<(&'a Rule, Verdict)>, Response<Bytes>> {
    let concerned = concerned(rules, request).map_err(|error| refused(&error))?;
    let keys: Vec<Vec<(&str, &str)>> = concerned
        .iter()
        .map(|one| one.key.iter().map(|(name, value)| (&**name, &**value)).collect())
        .collect();
    let verdicts = match (&concerned[..], &keys[..]) {
        ([], _) => return Ok(Vec::new()),
        ([one], [key]) => one.rule.limit.take(key, Charge::of(one.cost)).await.map(|verdict| vec![verdict]),
        _ => {
            let parts: Vec<Part<'_>> = concerned
                .iter()
                .zip(&keys)
                .map(|(one, key)| Part { limit: &one.rule.limit, key, cost: one.cost })
                .collect();
            take_all(&parts, None).await.map(|together| match together {
                Together::Allowed(quotas) => quotas.into_iter().map(Verdict::Allowed).collect(),
                Together::Limited(verdicts) => verdicts,
            })
        }
    };
    let verdicts = verdicts.map_err(|error| failed(&error))?;
    let told: Vec<_> = concerned.iter().map(|one| one.rule).zip(verdicts).collect();
    if told.iter().all(|(_, verdict)| verdict.is_allowed()) { Ok(told) } else { Err(limited(&told)) }
}

fn concerned<'a>(rules: &'a [Rule], request: &Parts) -> Result<Vec<Concerned<'a>>, Error> {
    let mut concerned = Vec::with_capacity(rules.len());
    for rule in rules {
        let key = match (rule.key_of)(request) {
            Keyed::By(key) => key,
            Keyed::Pass => continue,
            Keyed::Refuse(error) => return Err(error),
        };
        let cost = rule.cost_of.as_ref().map_or(1, |of| of(request));
        if cost > 0 {
            concerned.push(Concerned { rule, key, cost });
        }
    }
    Ok(concerned)
}

/// 429: who refused, and when the same request can pass.
fn limited(told: &[(&Rule, Verdict)]) -> Response<Bytes> {
    let violated = || told.iter().filter(|(_, verdict)| !verdict.is_allowed());
    let names: Vec<&str> = violated().map(|(rule, _)| rule.limit.name()).collect();
    // One that never passes makes waiting useless, however soon the others would.
    let wait = violated().map(|(_, verdict)| verdict.retry_after()).reduce(|a, b| Some(a?.max(b?))).flatten();
    let detail = match wait {
        Some(wait) => format!("{}: used up for another {} ms", names.join(", "), wait.as_millis()),
        None => format!("{}: one request costs more than the whole limit", names.join(", ")),
    };
    let problem =
        Problem::new(Code::LimitExceeded, &detail).wait(wait.map(|wait| wait.max(Duration::from_millis(1))));
    let mut response = problem.response_with(|body| {
        body["type"] = QUOTA_EXCEEDED.into();
        body["violated-policies"] = names.into();
    });
    for (rule, verdict) in told {
        if verdict.is_allowed() {
            headers::append_policy(response.headers_mut(), &rule.policy);
        } else {
            headers::append(response.headers_mut(), rule.limit.name(), &rule.policy, verdict);
        }
    }
    response
}

/// The draft's own type for a quota that is used up.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The answer to a request that a key function refuses, under its code.
fn refused(error: &Error) -> Response<Bytes> {
    if error.code.http_status() == 500 {
        tracing::error!(%error, "a limit has no key for a request");
    }
    Problem::new(error.code, &error.detail).field(error.field.as_deref()).response()
}

/// The answer to what a limit could not tell: the caller's mistake where its value is not fit for a key, the store's
/// absence, or else the program's mistake, about which a caller can do nothing.
fn failed(error: &Error) -> Response<Bytes> {
    let status = match (error.code, error.code.http_status()) {
        (Code::KeyValue, status) | (_, status @ 503) => status,
        _ => 500,
    };
    if status == 500 {
        tracing::error!(%error, "a limit cannot be asked");
    }
    Problem::new(error.code, &error.detail).status(status).response()
}
