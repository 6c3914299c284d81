//! One connection to one instance, one request at a time.

use std::time::Duration;

use anyhow::Context as _;
use axum::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::plan::Asked;
use crate::app::INSTANCE;

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) authority: String,
}

impl Target {
    /// From `http://host:port`.
    pub(crate) fn from_url(url: &str) -> anyhow::Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("{url}: must begin with http://"))?;
        let authority = rest.trim_end_matches('/');
        anyhow::ensure!(
            !authority.is_empty() && !authority.contains('/'),
            "{url}: give scheme, host and port only"
        );
        Ok(Self { authority: authority.to_owned() })
    }

    /// Connects; the connection runs until the sender is dropped.
    pub(crate) async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // What went wrong is told to whoever sent a request.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// The JSON at a path, which must be answered with 200.
    pub(crate) async fn json(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        let mut sender = self.connect().await.with_context(|| self.authority.clone())?;
        let request = Request::get(path).header("host", &self.authority).body(Full::default())?;
        let answer = tokio::time::timeout(DEADLINE, sender.send_request(request)).await??;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status == 200, "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An answer.
    Answer { status: u16, instance: String },
    /// It never went out: somebody else may ask the same.
    NotSent,
    /// It went out, and nothing came back.
    Nothing,
}

/// Sends one request and waits for all of its answer.
pub(crate) async fn ask(sender: &mut SendRequest<Full<Bytes>>, target: &Target, asked: &Asked) -> Told {
    match tokio::time::timeout(DEADLINE, send(sender, target, asked)).await {
        Ok(told) => told,
        Err(_) => Told::Nothing,
    }
}

async fn send(sender: &mut SendRequest<Full<Bytes>>, target: &Target, asked: &Asked) -> Told {
    let request = Request::builder()
        .method(asked.method.clone())
        .uri(&asked.path)
        .header("host", &target.authority)
        .header("content-type", "application/json")
        .header("x-forwarded-for", asked.caller.to_string())
        .body(Full::from(asked.body.clone()));
    let Ok(request) = request else { return Told::NotSent };
    if sender.ready().await.is_err() {
        return Told::NotSent;
    }
    let answer = match sender.try_send_request(request).await {
        Ok(answer) => answer,
        // Handed back: it never went out.
        Err(mut error) => match error.take_message() {
            Some(_) => return Told::NotSent,
            None => return Told::Nothing,
        },
    };
    let text = |name: &str| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (status, instance) = (answer.status().as_u16(), text(INSTANCE));
    // An answer whose end is missing is an answer: the instance has counted it.
    let _ = answer.into_body().collect().await;
    Told::Answer { status, instance }
}
