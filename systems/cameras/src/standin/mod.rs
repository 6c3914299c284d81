//! Stand-ins for a detector and an analyser: small HTTP services that answer as the real ones would.
//!
//! What they answer is computed from what they are given, so that whoever looks on can tell which image led to which
//! detection and which batch to which event. They can be told to fail and to be slow.

mod analyser;
mod detector;
mod journal;
mod mood;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use journal::Journal;
pub(crate) use mood::{Mood, Temper};

/// Jobs are small; a batch of the greatest size has a million ids.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Detector,
    Analyser,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Detector => "detector",
            Role::Analyser => "analyser",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Role::Detector => "/detect",
            Role::Analyser => "/analyse",
        }
    }
}

/// Why a job was not done; the status decides whether it is tried again.
#[derive(Debug)]
pub(crate) struct Refusal(StatusCode, String);

#[derive(Debug)]
struct Service {
    role: Role,
    mood: Mood,
    journal: Journal,
}

/// Serves until `stop`.
pub(crate) async fn serve(
    role: Role,
    listener: TcpListener,
    mood: Mood,
    journal: Journal,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let service = Arc::new(Service { role, mood, journal });
    let router = Router::new()
        .route(role.path(), post(work))
        .route("/health", get(health))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(service);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

async fn work(State(service): State<Arc<Service>>, body: Bytes) -> Response {
    let result = match service.mood.begin().await {
        Ok(_busy) => service.work(&body).await,
        Err(failure) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, failure.to_owned())),
    };
    match result {
        Ok(answer) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(Refusal(status, why)) => (status, why).into_response(),
    }
}

impl Service {
    async fn work(&self, body: &[u8]) -> Result<String, Refusal> {
        let (answer, line) = match self.role {
            Role::Detector => detector::detect(body).await?,
            Role::Analyser => analyser::analyse(body)?,
        };
        // Before the answer: what is not in the journal was not done.
        self.journal.write(&line).map_err(|error| {
            Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("the journal cannot be written: {error}"))
        })?;
        Ok(answer)
    }
}

/// What the pipeline asks a detector for its status message.
async fn health(State(service): State<Arc<Service>>) -> Response {
    let health = json!({ "status": "healthy", "gpu_utilization": service.mood.utilization() });
    ([(CONTENT_TYPE, "application/json")], health.to_string()).into_response()
}
