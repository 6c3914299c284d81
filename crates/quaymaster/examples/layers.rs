//! A small backend: every request recorded, every caller limited, one page that needs the store and one that does not.
//!
//! `cargo run -p quaymaster --features axum --example layers`

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use quaymaster::extract::{MaybeReady, Ready};
use quaymaster::layer::{LimitLayer, Peer, StatsLayer};
use quaymaster::schema::{Source, load};
use quaymaster::stats::{Recorder, ReportAsk, instance_id};
use quaymaster::store::{StoreOptions, open};
use quaymaster::{Quaymaster, Result};
use tokio::net::TcpListener;

pub(crate) const SCHEMA: &str = r#"
    [schema]
    name = "backend"
    owner = "web"

    [stats.web]
    key = "web:"
    ignore_remote = []          # this machine is not counted unless you say so

    [limit.callers]
    key = "rate_limit:{identifier}"
    algorithm = "sliding_log"
    limit = 3
    window = "1m"
"#;

#[derive(Clone)]
struct Backend {
    quaymaster: Quaymaster,
    recorder: Recorder,
}

impl FromRef<Backend> for Quaymaster {
    fn from_ref(backend: &Backend) -> Self {
        backend.quaymaster.clone()
    }
}

async fn question(Path(id): Path<u64>) -> String {
    format!("question {id}\n")
}

/// Works without the store, too.
async fn front(MaybeReady(quaymaster): MaybeReady) -> &'static str {
    if quaymaster.is_some() { "everything is here\n" } else { "the counts are away\n" }
}

/// Is answered 503 while the store is away.
async fn report(Ready(_): Ready, State(backend): State<Backend>) -> Result<String, (StatusCode, String)> {
    told(&backend).await.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn told(backend: &Backend) -> Result<String> {
    backend.recorder.flush().await?;
    let report = backend.quaymaster.stats("web")?.report(ReportAsk::default()).await?;
    let mut lines = vec![format!("{} requests, {} accepted\n", report.total, report.accepted)];
    for one in &report.endpoints {
        lines.push(format!("{}: {}, {} errors\n", one.name, one.count, one.errors));
    }
    Ok(lines.concat())
}

/// Serves until the listener fails.
pub(crate) async fn serve(
    quaymaster: Quaymaster,
    listener: TcpListener,
) -> Result<(), Box<dyn std::error::Error>> {
    let recorder = quaymaster.stats("web")?.recorder(instance_id());
    let limit = LimitLayer::by_address(quaymaster.limit("callers")?.clone())?;
    let app = Router::new()
        .route("/questions/{id}", get(question))
        .route_layer(limit) // the routes above it, and no others
        .route("/", get(front))
        .route("/report", get(report))
        .layer(StatsLayer::new(recorder.clone())) // all of them, what the limit refuses and what matches nothing
        .with_state(Backend { quaymaster, recorder: recorder.clone() });
    let listener = recorder.listener(listener);
    axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await?;
    recorder.shutdown().await; // what was recorded last
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let loaded = load(&[Source { name: "backend.toml", text: SCHEMA }], &|name| std::env::var(name).ok());
    let schema = loaded.schema.ok_or("the schema has errors")?;
    let store = open(StoreOptions::from_url("memory", "data".as_ref())?).await?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    serve(Quaymaster::new(Arc::new(schema), store), listener).await
}
