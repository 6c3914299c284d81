//! From a request to its operation and back: routes, who may call, and one line of log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use quaymaster::Quaymaster;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::answer::{Answer, Failure, How, OUTAGE, Reply};
use crate::hold::Hold;
use crate::payments::Payments;
use crate::request::{self, Body, Check, Create, Execute, Update};
use crate::{operation, token};

/// What every request needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) quaymaster: Quaymaster,
    pub(crate) payments: Payments,
    pub(crate) hold: Hold,
    /// How long a caller waits for one that runs the same.
    pub(crate) wait: Duration,
    /// Whether callers must show a token.
    pub(crate) tokens: bool,
    /// Operations that run, whether or not somebody still waits for their answer.
    pub(crate) running: TaskTracker,
}

/// The five operations, and whether the gateway is up and ready.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/check", post(call::<Check>))
        .route("/create", post(call::<Create>))
        .route("/execute", post(call::<Execute>))
        .route("/update", post(call::<Update>))
        .route("/status/{transaction_id}", get(status))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .fallback(async || Reply::refused(StatusCode::NOT_FOUND, "route.unknown", "there is no such call"))
        .layer(DefaultBodyLimit::max(request::MAX_BODY_BYTES))
        .layer(middleware::from_fn(access_log))
        .with_state(app)
}

/// A body that is an operation.
trait Call: Body + Send + Sync + 'static {
    fn call(app: &App, body: &Self) -> impl Future<Output = Result<Reply, Failure>> + Send;
}

impl Call for Check {
    async fn call(app: &App, body: &Self) -> Result<Reply, Failure> {
        operation::check(app, body).await
    }
}

impl Call for Create {
    async fn call(app: &App, body: &Self) -> Result<Reply, Failure> {
        operation::create(app, body).await
    }
}

impl Call for Execute {
    async fn call(app: &App, body: &Self) -> Result<Reply, Failure> {
        operation::execute(app, body).await
    }
}

impl Call for Update {
    async fn call(app: &App, body: &Self) -> Result<Reply, Failure> {
        operation::update(app, body).await
    }
}

async fn call<C: Call>(State(app): State<Arc<App>>, headers: HeaderMap, bytes: Bytes) -> Reply {
    let body: C = match request::read(&bytes) {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    if let Err(refusal) = token::admit(&app, body.psp_id(), &headers).await {
        return refusal;
    }
    // A task of its own: a caller that hangs up must not leave an operation half done.
    let running = app.running.spawn({
        let app = app.clone();
        async move { C::call(&app, &body).await.unwrap_or_else(Reply::from) }
    });
    running.await.unwrap_or_else(|error| {
        tracing::error!(%error, "an operation ended without an answer");
        Reply::refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the operation ended without an answer")
    })
}

async fn status(
    State(app): State<Arc<App>>,
    Path(transaction_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Reply {
    let query = uri.query().unwrap_or_default();
    let psp_id = query.split('&').find_map(|pair| pair.strip_prefix("psp_id=")).unwrap_or_default();
    for (name, value) in [("psp_id", psp_id), ("transaction_id", &*transaction_id)] {
        if let Err(refusal) = request::check_id(name, value) {
            return refusal;
        }
    }
    if let Err(refusal) = token::admit(&app, psp_id, &headers).await {
        return refusal;
    }
    operation::status(&app, psp_id, &transaction_id).await.unwrap_or_else(Reply::from)
}

/// Ready when the store answers and the payments can be read.
async fn ready(State(app): State<Arc<App>>) -> Reply {
    let store = app.quaymaster.engine().time_us().await.map_err(Failure::from);
    let payments = app.payments.has_psps().await.map_err(Failure::from);
    match store.and(payments) {
        Ok(_) => Reply::new(Answer::new(StatusCode::OK, json!({ "ready": true })), How::Read),
        Err(failure) => Reply::from(failure),
    }
}

/// One line a request: the route, not the path; no body, no id, no token.
async fn access_log(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let how = response.extensions().get::<How>().map_or("-", |how| how.name());
    let outage = response.headers().get(OUTAGE).and_then(|policy| policy.to_str().ok()).unwrap_or("-");
    tracing::info!(
        target: "access",
        %method, route = route.as_deref().unwrap_or("unmatched"), status = response.status().as_u16(),
        how, outage, micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
    );
    response
}
