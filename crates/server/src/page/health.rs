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
    status: &'static str,
    /// The server's version.
    version: &'static str,
    /// How long the process has been up.
    uptime_ms: u64,
}

fn alive(app: &App, status: &'static str) -> Response<Body> {
    json(&Alive {
        status,
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: app.probe.started.elapsed().as_millis() as u64,
    })
}

/// The process is up.
fn healthz(app: &App) -> Response<Body> {
    alive(app, "up")
}

/// The store answers and accepts writes.
async fn readyz(app: &App) -> Result<Response<Body>, Problem> {
    if app.services.stopping.is_cancelled() {
        return Err(Problem::new(Code::ServerBusy, "the server is stopping"));
    }
    app.probe.ready(&app.services.quaymaster).await?;
    Ok(alive(app, "ready"))
}
