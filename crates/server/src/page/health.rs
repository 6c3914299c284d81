//! `/healthz`: the process is up. `/readyz`: the store answers and accepts writes.

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use quaymaster::Code;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Access, Page, Place, json};
use crate::app::App;
use crate::http::problem::Problem;

pub(super) const HEALTHZ: Page = Page {
    path: "/healthz",
    access: Access::Open,
    place: Place::Exempt,
    run: |app, _| ready(Ok(healthz(app))).boxed(),
};
pub(super) const READYZ: Page =
    Page { path: "/readyz", access: Access::Open, place: Place::Exempt, run: |app, _| readyz(app).boxed() };

/// A probe's good answer.
#[derive(Debug, Serialize, ToSchema)]
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
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "server",
    responses((status = 200, body = Alive, description = "the process is up")), security(()))]
fn healthz(app: &App) -> Response<Body> {
    alive(app, "up")
}

/// The store answers and accepts writes.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "server",
    responses(
        (status = 200, body = Alive, description = "the store answers and accepts writes"),
        (status = 503, body = crate::http::problem::ProblemBody<'static>, content_type = "application/problem+json",
            description = "it does not, or the server is stopping; the reason is in the detail"),
    ), security(()))]
async fn readyz(app: &App) -> Result<Response<Body>, Problem> {
    if app.stopping.is_cancelled() {
        return Err(Problem::new(Code::ServerBusy, "the server is stopping"));
    }
    app.probe.ready(&app.quaymaster).await?;
    Ok(alive(app, "ready"))
}
