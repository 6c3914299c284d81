//! A separate record of how long requests took: just outside the layer that counts them and just inside it. Whatever
//! that layer measured lies between the two.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;

/// A line of JSON a request.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    file: Arc<Mutex<File>>,
}

/// How long the inner part took, in microseconds and rounded down.
#[derive(Debug, Clone, Default)]
struct Inner(Arc<AtomicU64>);

impl Journal {
    /// Begins a file, or goes on with one.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(Mutex::new(file)) })
    }
}

/// Outside of the counting layer.
pub(crate) async fn outside(State(journal): State<Journal>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let inner = Inner::default();
    request.extensions_mut().insert(inner.clone());
    let began = Instant::now();
    let response = next.run(request).await;
    let outer_us = began.elapsed().as_nanos().div_ceil(1000);
    let line = serde_json::json!({
        "method": method.as_str(),
        "route": route,
        "status": response.status().as_u16(),
        "inner_us": inner.0.load(Relaxed),
        "outer_us": outer_us as u64,
    });
    // In one piece: other instances may write into the same file.
    let line = format!("{line}\n");
    let written = journal.file.lock().write_all(line.as_bytes());
    if let Err(error) = written {
        tracing::warn!(%error, "the journal cannot be written");
    }
    response
}

/// Inside of it.
pub(crate) async fn inside(request: Request, next: Next) -> Response {
    let inner = request.extensions().get::<Inner>().cloned();
    let began = Instant::now();
    let response = next.run(request).await;
    if let Some(inner) = inner {
        inner.0.store(began.elapsed().as_micros() as u64, Relaxed);
    }
    response
}
