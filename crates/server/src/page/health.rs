//! `/healthz`: the process is up. `/readyz`: the store answers and accepts writes.

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use quaymaster::Code;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Access, Packs, Page, Place, json};
use crate::app::App;
use crate::http::problem::Problem;

pub(super) const HEALTHZ: Page = Page {
    path: "/healthz",
    access: Access::Open,
    place: Place::Exempt,
    packs: Packs::Never,
    run: |app, _| ready(Ok(healthz(app))).boxed(),
};
pub(super) const READYZ: Page = Page {
    path: "/readyz",
    access: Access::Open,
    place: Place::Exempt,
    packs: Packs::Never,
    run: |app, _| readyz(app).boxed(),
};

/// A probe's good answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Alive {
    /// `up` or `ready`.
    #[schemars(extend("enum" = ["up", "ready"]))]
    status: &'static str,
    /// The server's version.
    version: &'static str,
    /// The version of the Redis or Valkey server, from `/readyz`; absent for an embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    redis_version: Option<String>,
    /// How long the process has been up.
    uptime_ms: u64,
}

fn alive(app: &App, status: &'static str, redis_version: Option<String>) -> Response<Body> {
    json(&Alive {
        status,
        version: env!("CARGO_PKG_VERSION"),
        redis_version,
        uptime_ms: app.probe.started.elapsed().as_millis() as u64,
    })
}

/// The process is up.
fn healthz(app: &App) -> Response<Body> {
    alive(app, "up", None)
}

/// The store answers and accepts writes.
async fn readyz(app: &App) -> Result<Response<Body>, Problem> {
    if app.services.stopping.is_cancelled() {
        return Err(Problem::new(Code::ServerBusy, "the server is stopping"));
    }
    app.probe.ready(&app.services.quaymaster).await.map_err(Problem::unready)?;
    // A store that accepts writes and does not tell its version is ready all the same.
    let told = app.probe.deployment(&**app.services.quaymaster.engine()).await.ok();
    Ok(alive(app, "ready", told.and_then(|facts| facts.redis_version().map(str::to_owned))))
}
