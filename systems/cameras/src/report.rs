//! What only this program knows of `system_status`: how busy the detector's GPU is, how many cameras are online.
//!
//! The server publishes the status and adds the depths of the queues; we leave our two values beside it.

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Uri};
use hyper_util::rt::TokioIo;
use quaymaster::Quaymaster;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::watch::Online;

/// The event that carries them.
const STATUS: &str = "system_status";
/// A detector that does not answer in this time is not asked for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most of an answer that is read.
const MAX_BYTES: usize = 64 << 10;

/// Reports until `stop`, as often as the schema has the status published.
pub(crate) async fn run(quaymaster: Quaymaster, detector: String, online: Online, stop: CancellationToken) {
    let Ok(event) = quaymaster.event(STATUS) else { return };
    let Some(every) = event.spec().status.as_ref().map(|status| status.every) else { return };
    let mut answered = true;
    loop {
        let utilization = gpu_utilization(&detector).await;
        match &utilization {
            Err(error) if answered => tracing::info!(%error, "no GPU utilization from the detector"),
            _ => {}
        }
        answered = utilization.is_ok();
        let utilization = utilization.map_or("null".to_owned(), |share| share.to_string());
        let cameras = online.count(SystemTime::now()).to_string();
        let values = [("gpu_utilization", utilization.as_str()), ("cameras_online", cameras.as_str())];
        // Told by three statuses and then no more: who does not report is not there.
        if let Err(error) = event.report(&values, Some(every * 3)).await {
            tracing::debug!(%error, "not reported");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// `GET /health` beside the detector's URL: a JSON object with a number `gpu_utilization`.
async fn gpu_utilization(detector: &str) -> anyhow::Result<f64> {
    let asking = async {
        let url: Uri = detector.parse()?;
        anyhow::ensure!(
            url.scheme_str() == Some("http"),
            "{detector} is not asked: its health is read over http alone"
        );
        let host = url.host().context("no host")?.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let authority = url.authority().context("no authority")?.as_str();
        let request = Request::get("/health").header("host", authority).body(Body::empty())?;
        let response = sender.send_request(request).await?;
        anyhow::ensure!(response.status().is_success(), "GET /health answered {}", response.status());
        let bytes = to_bytes(Body::new(response.into_body()), MAX_BYTES).await?;
        connection.abort();
        let health: Value = serde_json::from_slice(&bytes)?;
        health["gpu_utilization"].as_f64().context("no number `gpu_utilization`")
    };
    tokio::time::timeout(PATIENCE, asking).await?
}
