//! The backend's routes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, FromRef, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use quaymaster::Quaymaster;
use quaymaster::extract::{MaybeReady, Ready};
use quaymaster::stats::{Report, ReportAsk};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::data::{Forum, Login, MAX_TITLE_BYTES, Question, USERS, login};

/// Which instance answered.
pub(crate) const INSTANCE: &str = "ha-instance";
/// Questions on a page.
const PAGE: usize = 20;
/// The longest a device may keep its caller waiting.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A question or a login is small.
const MAX_BODY_BYTES: usize = 16 << 10;

/// What handlers share.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) quaymaster: Quaymaster,
    pub(crate) forum: Arc<Forum>,
}

impl FromRef<App> for Quaymaster {
    fn from_ref(app: &App) -> Self {
        app.quaymaster.clone()
    }
}

/// What is counted and limited.
pub(crate) fn api() -> Router<App> {
    Router::new()
        .route("/api/users", get(async || Answer(StatusCode::OK, USERS)))
        .route("/api/users/{id}", get(user))
        .route("/api/forum/questions", get(questions).post(ask))
        .route("/api/forum/questions/{id}", get(question).put(put_question).delete(remove_question))
        .route("/api/devices/{id}/state", get(device))
        .fallback(async || missing("page"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// Logging in is limited by itself, so that who guesses passwords does not use up everybody's requests.
pub(crate) fn auth() -> Router<App> {
    Router::new().route("/api/auth/login", post(log_in)).layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// What an operator asks for: neither counted nor limited.
pub(crate) fn pages() -> Router<App> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/api/status", get(status))
        .route("/api/stats", get(stats))
}

/// JSON and its status.
struct Answer<T>(StatusCode, T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(body) => (self.0, [(CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                tracing::error!(%error, "an answer is no JSON");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// Why a request was not served.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Answer(self.0, json!({ "error": self.1 })).into_response()
    }
}

impl From<quaymaster::Error> for Refusal {
    fn from(error: quaymaster::Error) -> Self {
        let status = StatusCode::from_u16(error.code.http_status());
        Self(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error.to_string())
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

fn missing(what: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no such {what}"))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Whether the store is here; the backend goes on either way.
async fn status(MaybeReady(quaymaster): MaybeReady) -> Response {
    let store = if quaymaster.is_some() { "here" } else { "away" };
    Answer(StatusCode::OK, json!({ "status": "up", "store": store })).into_response()
}

/// The totals of all instances, 503 while the store is away; Quaymaster's server has the rest.
async fn stats(Ready(quaymaster): Ready) -> Result<Response, Refusal> {
    // The endpoints are no part of it, and are what a report costs.
    let ask = ReportAsk { endpoints: Some(0), ..ReportAsk::default() };
    let report = quaymaster.stats("ha")?.report(ask).await?;
    Ok(Answer(StatusCode::OK, totals(&report)).into_response())
}

fn totals(report: &Report) -> serde_json::Value {
    json!({
        "requests": { "total": report.total, "accepted": report.accepted, "a_second": report.speed_per_second },
        "errors": report.errors,
        "connections": report.connections,
        "instances": report.instances.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

async fn user(id: Result<Path<u32>, PathRejection>) -> Result<Response, Refusal> {
    let Path(id) = id?;
    let user = USERS.iter().find(|user| user.id == id).ok_or_else(|| missing("user"))?;
    Ok(Answer(StatusCode::OK, user).into_response())
}

async fn log_in(body: Bytes) -> Result<Response, Refusal> {
    let given: Login = read(&body)?;
    match login(&given) {
        Some(user) => Ok(Answer(StatusCode::OK, json!({ "user": user })).into_response()),
        None => Err(Refusal(StatusCode::UNAUTHORIZED, "name and password do not fit".to_owned())),
    }
}

async fn questions(State(app): State<App>) -> Response {
    let newest = app.forum.newest(PAGE);
    let list: Vec<_> =
        newest.iter().map(|(id, question)| json!({ "id": id, "title": question.title })).collect();
    Answer(StatusCode::OK, list).into_response()
}

/// A question that may be asked.
fn titled(body: &[u8]) -> Result<Question, Refusal> {
    let question: Question = read(body)?;
    if question.title.is_empty() || question.title.len() > MAX_TITLE_BYTES {
        let why = format!("a title has 1 to {MAX_TITLE_BYTES} bytes");
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    Ok(question)
}

async fn ask(State(app): State<App>, body: Bytes) -> Result<Response, Refusal> {
    let id = app.forum.ask(titled(&body)?);
    Ok(Answer(StatusCode::CREATED, json!({ "id": id })).into_response())
}

async fn question(State(app): State<App>, id: Result<Path<u64>, PathRejection>) -> Result<Response, Refusal> {
    let Path(id) = id?;
    let question = app.forum.question(id).ok_or_else(|| missing("question"))?;
    Ok(Answer(StatusCode::OK, question).into_response())
}

async fn put_question(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Path(id) = id?;
    let question = titled(&body)?;
    app.forum.put(id, question.clone());
    Ok(Answer(StatusCode::OK, question).into_response())
}

async fn remove_question(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let Path(id) = id?;
    if app.forum.remove(id) { Ok(StatusCode::NO_CONTENT) } else { Err(missing("question")) }
}

/// A device; `?wait_ms=` is how long it takes to answer.
async fn device(id: Result<Path<u64>, PathRejection>, uri: Uri) -> Result<Response, Refusal> {
    let Path(id) = id?;
    let wait = wait(uri.query().unwrap_or_default())?;
    if wait > MAX_WAIT {
        return Err(Refusal(StatusCode::GATEWAY_TIMEOUT, "the device does not answer in time".to_owned()));
    }
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let state = if id % 2 == 0 { "on" } else { "off" };
    Ok(Answer(StatusCode::OK, json!({ "device": id, "state": state })).into_response())
}

fn wait(query: &str) -> Result<Duration, Refusal> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, text)) = pairs.find(|(name, _)| *name == "wait_ms") else { return Ok(Duration::ZERO) };
    let ms: Result<u64, _> = text.parse();
    ms.map(Duration::from_millis)
        .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "wait_ms is a number of milliseconds".to_owned()))
}
