//! The crate's handle in axum's handlers.
//!
//! ```
//! # use axum::{Router, routing::get};
//! # use quaymaster::{Quaymaster, extract::{MaybeReady, Ready}};
//! async fn questions(Ready(quaymaster): Ready) -> String {
//!     // Answered 503 before it gets here while the store is down.
//!     format!("{} limits", quaymaster.limits().count())
//! }
//!
//! async fn front(MaybeReady(quaymaster): MaybeReady) -> &'static str {
//!     if quaymaster.is_some() { "all here" } else { "without the counts" }
//! }
//!
//! # fn wire(quaymaster: Quaymaster) -> Router {
//! Router::new().route("/questions", get(questions)).route("/", get(front)).with_state(quaymaster)
//! # }
//! ```
//!
//! A state of the program's own gives the handle out by `impl FromRef<AppState> for Quaymaster`.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use crate::problem::Problem;
use crate::{Code, Error, Quaymaster, Result};

/// How long a store whose state is not known is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// The handle, while the store can be asked; otherwise the request is answered 503.
///
/// That is what the store was last known to be: it costs no round trip, and a store that fails a moment later still
/// fails the call.
#[derive(Debug, Clone)]
pub struct Ready(pub Quaymaster);

/// The handle while the store can be asked; `None` otherwise.
#[derive(Debug, Clone)]
pub struct MaybeReady(pub Option<Quaymaster>);

/// The store is down: 503 `application/problem+json` with `Retry-After`.
#[derive(Debug)]
pub struct NotReady(Error);

impl NotReady {
    /// Why.
    pub fn error(&self) -> &Error {
        &self.0
    }
}

impl IntoResponse for NotReady {
    fn into_response(self) -> Response {
        Problem::new(self.0.code, &self.0.detail).status(503).response().map(axum::body::Body::from)
    }
}

impl<S> FromRequestParts<S> for Ready
where
    Quaymaster: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = NotReady;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, NotReady> {
        let quaymaster = Quaymaster::from_ref(state);
        reachable(&quaymaster).await.map_err(NotReady)?;
        Ok(Self(quaymaster))
    }
}

impl<S> FromRequestParts<S> for MaybeReady
where
    Quaymaster: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let quaymaster = Quaymaster::from_ref(state);
        let reachable = reachable(&quaymaster).await.is_ok();
        Ok(Self(reachable.then_some(quaymaster)))
    }
}

/// Looks at the store's health; asks it only where no connection says anything about it.
async fn reachable(quaymaster: &Quaymaster) -> Result<()> {
    const OP: &str = "store.ready";
    let engine = quaymaster.engine();
    let health = engine.health();
    if health.connected {
        return Ok(());
    }
    if health.breaker_open {
        return Err(Error::new(OP, Code::StoreBreaker, "the store cannot be asked"));
    }
    match tokio::time::timeout(PATIENCE, engine.time_us()).await {
        Ok(told) => told.map(drop).map_err(|error| error.during(OP)),
        Err(_) => {
            let detail = format!("the store said nothing for {} ms", PATIENCE.as_millis());
            Err(Error::new(OP, Code::StoreTimedOut, detail))
        }
    }
}
