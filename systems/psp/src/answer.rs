//! What a caller is told, and what of it is kept for the next one who asks the same.

use std::error::Error as StdError;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use quaymaster::cache::{Cache, Load, LoadError, Loaded, Value as Cached};
use quaymaster::{Error, Key, Outage, Retry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Said with an answer that was given before.
pub(crate) const REPLAYED: &str = "idempotency-replayed";
/// Names the policy under which an answer was given while the store was away.
pub(crate) const OUTAGE: &str = "quaymaster-outage";

/// Status and body: what a repetition gets again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, body: Value) -> Self {
        Self { status: status.as_u16(), body }
    }

    /// A refusal that says why.
    pub(crate) fn problem(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let body = json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "code": code,
            "detail": detail.into(),
        });
        Self { status: status.as_u16(), body }
    }

    /// As it is kept.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // A value of strings and numbers always has a text.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From what was kept; `None` when some other program wrote it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// How an answer came about; a word of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// This call did it.
    Ran,
    /// An earlier call did it.
    Replayed,
    /// Nothing was done.
    Refused,
    /// It was only read.
    Read,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            How::Ran => "ran",
            How::Replayed => "replayed",
            How::Refused => "refused",
            How::Read => "read",
        }
    }
}

/// An answer on its way out.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) how: How,
    /// The policy that let it happen without the store.
    pub(crate) outage: Option<Outage>,
    pub(crate) retry_after: Option<Duration>,
}

impl Reply {
    pub(crate) fn new(answer: Answer, how: How) -> Self {
        Self { answer, how, outage: None, retry_after: None }
    }

    pub(crate) fn refused(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self::new(Answer::problem(status, code, detail), How::Refused)
    }

    pub(crate) fn under(mut self, outage: Option<Outage>) -> Self {
        self.outage = outage;
        self
    }

    pub(crate) fn after(mut self, wait: Option<Duration>) -> Self {
        if let (Some(wait), Value::Object(body)) = (wait, &mut self.answer.body) {
            body.insert(
                "retry_after_ms".to_owned(),
                json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            );
        }
        self.retry_after = wait;
        self
    }
}

/// This moment, to the microsecond.
pub(crate) fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// Whole seconds, rounded up: coming a moment early would be refused again.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
        let body = serde_json::to_vec(&self.answer.body).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        let headers = response.headers_mut();
        if self.how == How::Replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(outage) = self.outage {
            headers.insert(OUTAGE, HeaderValue::from_static(outage.name()));
        }
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(wait)));
        }
        response.extensions_mut().insert(self.how);
        response
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The store, or a value no key can hold.
    #[error(transparent)]
    Store(#[from] Error),
    /// Something that is cached and could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The payments' database.
    #[error("the payments cannot be read or written: {0}")]
    Sql(#[from] sqlx::Error),
}

/// What a loader says when there is nothing to load.
#[derive(Debug, thiserror::Error)]
#[error("there is nothing to load")]
struct NotThere;

/// What is cached, or what `load` finds, loaded by one caller for all. A cache that cannot be used, be it away or
/// written by another program, is gone around: it must never be the reason why something cannot be read.
pub(crate) async fn cached<L, F>(cache: &Cache, key: Key<'_>, load: L) -> Result<Option<Loaded>, Failure>
where
    L: Fn() -> F + Send + Sync + Clone + 'static,
    F: Future<Output = Result<Option<Cached>, sqlx::Error>> + Send + 'static,
{
    let loader = {
        let load = load.clone();
        async move || match load().await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Box::from(NotThere)),
            Err(error) => Err(Box::<dyn StdError + Send + Sync>::from(error)),
        }
    };
    match cache.get_or_load(key, Load::default(), loader).await {
        Ok(loaded) => Ok(Some(loaded)),
        Err(LoadError::Failed(why)) if why.is::<NotThere>() => Ok(None),
        Err(LoadError::Store(error)) if error.code.http_status() != 400 => {
            tracing::warn!(cache = cache.name(), %error, "read without the cache");
            Ok(load().await?.map(|value| Loaded { value, outage: None }))
        }
        Err(error) => Err(error.into()),
    }
}

/// When a caller whose call could not be answered may try again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => no_store(&error),
            Failure::Load(LoadError::Store(error)) => no_store(&error),
            Failure::Load(error) => no_database(&error),
            Failure::Sql(error) => no_database(&error),
        }
    }
}

fn no_store(error: &Error) -> Reply {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    if status.is_server_error() {
        tracing::warn!(op = error.op, code = error.code.name(), detail = error.detail, "no answer");
    }
    // What the store says of itself (addresses, causes) is for the log.
    let detail = if status.is_server_error() { error.code.title() } else { error.detail.as_str() };
    let wait = (error.code.retry() != Retry::Useless).then_some(TRY_AGAIN);
    Reply::refused(status, error.code.name(), detail).after(wait)
}

fn no_database(error: &dyn std::error::Error) -> Reply {
    tracing::error!(%error, "the payments cannot be read or written");
    let detail = "the payments cannot be read or written";
    Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "database.unavailable", detail).after(Some(TRY_AGAIN))
}
