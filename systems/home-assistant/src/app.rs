//! The backend's routes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRef, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use quaymaster::Quaymaster;
use quaymaster::extract::{MaybeReady, Ready};
use quaymaster::stats::{Report, ReportAsk};
use serde::Deserialize;
use serde_json::json;

use crate::data::{Forum, Login, MAX_TITLE_BYTES, Question, USERS, login};

/// Which instance answered.
pub(crate) const INSTANCE: &str = "ha-instance";
/// Questions on a page.
const PAGE: usize = 20;
/// The longest a device may keep its caller waiting.
const MAX_WAIT: Duration = Duration::from_secs(10);

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
        .route("/api/users", get(async || Json(USERS)))
        .route("/api/users/{id}", get(user))
        .route("/api/forum/questions", get(questions).post(ask))
        .route("/api/forum/questions/{id}", get(question).put(put_question).delete(remove_question))
        .route("/api/devices/{id}/state", get(device))
        .fallback(async || Refusal(StatusCode::NOT_FOUND, "there is no such page".to_owned()))
}

/// Logging in is limited by itself, so that who guesses passwords does not use up everybody's requests.
pub(crate) fn auth() -> Router<App> {
    Router::new().route("/api/auth/login", post(log_in))
}

/// What an operator asks for: neither counted nor limited.
pub(crate) fn pages() -> Router<App> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/api/status", get(status))
        .route("/api/stats", get(stats))
}

/// Whether the store is here; the backend goes on either way.
async fn status(MaybeReady(quaymaster): MaybeReady) -> Response {
    let store = if quaymaster.is_some() { "here" } else { "away" };
    Json(json!({ "status": "up", "store": store })).into_response()
}

/// What all instances counted; 503 while the store is away.
async fn stats(Ready(quaymaster): Ready) -> Result<Response, Refusal> {
    let stats = quaymaster.stats("ha").map_err(Refusal::from)?;
    let report = stats.report(ReportAsk::default()).await.map_err(Refusal::from)?;
    Ok(Json(told(&report)).into_response())
}

/// The totals; Quaymaster's server has the rest.
fn told(report: &Report) -> serde_json::Value {
    json!({
        "requests": { "total": report.total, "accepted": report.accepted, "a_second": report.speed_per_second },
        "errors": report.errors,
        "connections": report.connections,
        "instances": report.instances.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

/// Why a request was not served.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<quaymaster::Error> for Refusal {
    fn from(error: quaymaster::Error) -> Self {
        let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self(status, error.to_string())
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

fn missing(what: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no such {what}"))
}

fn titled(question: Question) -> Result<Question, Refusal> {
    if question.title.is_empty() || question.title.len() > MAX_TITLE_BYTES {
        let why = format!("a title has 1 to {MAX_TITLE_BYTES} bytes");
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    Ok(question)
}

async fn user(id: Result<Path<u32>, PathRejection>) -> Result<Response, Refusal> {
    let Path(id) = id?;
    let user = USERS.iter().find(|user| user.id == id).ok_or_else(|| missing("user"))?;
    Ok(Json(user).into_response())
}

async fn log_in(body: Result<Json<Login>, JsonRejection>) -> Result<Response, Refusal> {
    let Json(body) = body?;
    match login(&body) {
        Some(user) => Ok(Json(json!({ "user": user })).into_response()),
        None => Err(Refusal(StatusCode::UNAUTHORIZED, "name and password do not fit".to_owned())),
    }
}

async fn questions(State(app): State<App>) -> Response {
    let newest = app.forum.newest(PAGE);
    let list: Vec<_> =
        newest.iter().map(|(id, question)| json!({ "id": id, "title": question.title })).collect();
    Json(list).into_response()
}

async fn ask(
    State(app): State<App>,
    body: Result<Json<Question>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Json(body) = body?;
    let id = app.forum.ask(titled(body)?);
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))).into_response())
}

async fn question(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Json<Question>, Refusal> {
    let Path(id) = id?;
    app.forum.question(id).map(Json).ok_or_else(|| missing("question"))
}

async fn put_question(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
    body: Result<Json<Question>, JsonRejection>,
) -> Result<Json<Question>, Refusal> {
    let (Path(id), Json(body)) = (id?, body?);
    let question = titled(body)?;
    app.forum.put(id, question.clone());
    Ok(Json(question))
}

async fn remove_question(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let Path(id) = id?;
    if app.forum.remove(id) { Ok(StatusCode::NO_CONTENT) } else { Err(missing("question")) }
}

/// How long the device takes to answer.
#[derive(Debug, Deserialize)]
struct Waiting {
    #[serde(default)]
    wait_ms: u64,
}

async fn device(
    id: Result<Path<u64>, PathRejection>,
    waiting: Result<Query<Waiting>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path(id), Query(waiting)) = (id?, waiting?);
    let wait = Duration::from_millis(waiting.wait_ms);
    if wait > MAX_WAIT {
        return Err(Refusal(StatusCode::GATEWAY_TIMEOUT, "the device does not answer in time".to_owned()));
    }
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    Ok(Json(json!({ "device": id, "state": if id % 2 == 0 { "on" } else { "off" } })).into_response())
}
