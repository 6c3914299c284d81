//! A server, asked over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use quaymaster::upload::{Last, Progress, Status};
use quaymaster::{Code, Error};
use quaymaster_upload::Sha256;
use quaymaster_upload::ingest::{Began, Request};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::telling;
use super::way::{Body as Content, Seen, Sent, Tried, Trying};

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take none of a chunk's bytes, or say nothing once it has them. On a slow line the system's own buffers
/// hold a chunk for longer than a server thinks.
const STALLED: Duration = Duration::from_secs(300);

/// Between two looks at how much of a chunk is handed over.
const LOOK: Duration = Duration::from_millis(200);

/// What is handed to the connection at once.
const PIECE: usize = 64 << 10;

/// The most that is shown of what no server of uploads would answer.
const EXCERPT: usize = 200;

/// The token that a server wants.
const TOKEN: &str = "QUAYMASTER_TOKEN";

/// The token that the environment has.
pub(super) fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

pub(super) struct Remote {
    client: reqwest::Client,
    /// Up to the resource: `http://host:port/v1/upload/documents`.
    base: String,
    token: Option<String>,
    patience: Duration,
    stalled: Duration,
}

impl Remote {
    pub(super) fn new(server: &str, resource: &str, token: Option<String>) -> Result<Self, Error> {
        let wrong =
            |detail: String| Error::new("upload.put", Code::ConfigInvalid, format!("--server {detail}"));
        let url = reqwest::Url::parse(server).map_err(|error| wrong(format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("is http://host:port or https://host:port".to_owned()));
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let base = format!("{}/v1/upload/{resource}", url.as_str().trim_end_matches('/'));
        Ok(Self { client, base, token, patience: PATIENCE, stalled: STALLED })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}/{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// The answer of a server that says something soon.
    async fn answered(&self, request: RequestBuilder) -> Tried<Response> {
        let answer = tokio::time::timeout(self.patience, answer_of(request)).await;
        answer.unwrap_or_else(|_| Err(silent(self.patience)))
    }

    pub(super) async fn create(&self, request: &Request) -> Tried<Began> {
        // Metadata goes as it was given: the same request straight to the store must be the same to the last byte.
        let metadata = request.custom_metadata.as_deref().map(serde_json::from_str).transpose();
        let body = Creating {
            name: &request.name,
            size: request.size,
            mime_type: request.mime_type.as_deref(),
            drive: request.drive.as_deref(),
            connector_id: request.connector_id.as_deref(),
            path: request.path.as_deref(),
            parent_id: request.parent_id.as_deref(),
            custom_metadata: metadata.map_err(unwritten)?,
            client_node_id: request.client_node_id.as_deref(),
            idempotency_key: request.idempotency_key.as_deref(),
        };
        let body = serde_json::to_string(&body).map_err(unwritten)?;
        let made = json_of(self.answered(self.posted("create", body)).await?).await?;
        let text = |name: &str| made[name].as_str().map(str::to_owned);
        let count = |name: &str| made[name].as_u64();
        let began = (text("upload_id"), text("node_id"), count("chunk_min_bytes"), count("chunk_max_bytes"));
        match began {
            (Some(upload_id), Some(node_id), Some(chunk_min_bytes), Some(chunk_max_bytes)) => {
                Ok(Began { upload_id, node_id, chunk_min_bytes, chunk_max_bytes })
            }
            _ => Err(strange(&made)),
        }
    }

    fn posted(&self, verb: &str, body: String) -> RequestBuilder {
        self.request(Method::POST, verb).header("content-type", "application/json").body(body)
    }

    pub(super) async fn standing(&self, id: &str) -> Tried<Option<Seen>> {
        let response = match self.answered(self.request(Method::GET, id)).await {
            Ok(response) => response,
            Err(Trying::Never(error)) if error.code == Code::UploadUnknown => return Ok(None),
            Err(other) => return Err(other),
        };
        let state = json_of(response).await?;
        let numbers = |value: &Value| -> Vec<u32> {
            let list = value.as_array().into_iter().flatten();
            list.filter_map(|number| u32::try_from(number.as_u64()?).ok()).collect()
        };
        let ranges = ["received", "durable"].into_iter().flat_map(|name| {
            let list = state[name].as_array().into_iter().flatten();
            list.filter_map(|pair| match numbers(pair)[..] {
                [from, to] => Some(from..=to),
                _ => None,
            })
        });
        let Some(status) = state["status"].as_str().and_then(Status::parse) else {
            return Err(strange(&state));
        };
        Ok(Some(Seen {
            status,
            aborted: state["aborted"] == true,
            has: ranges.collect(),
            resend: numbers(&state["resend"]),
            error: state["error_message"].as_str().map(str::to_owned),
        }))
    }

    pub(super) async fn chunk(
        &self,
        id: &str,
        number: u32,
        last: Last,
        sha256: Sha256,
        bytes: Bytes,
        sent: Sent<'_>,
    ) -> Tried<()> {
        let query = if last == Last::Yes { "?last=true" } else { "" };
        let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(sha256.as_bytes()));
        let request = self.request(Method::PUT, &format!("{id}/chunk/{number}{query}"));
        let (begun, moved) = (Instant::now(), Arc::new(Moved::default()));
        let length = bytes.len();
        let request = request.header("content-digest", digest).header("content-length", length);
        let request = match length {
            0 => request,
            _ => request.body(Body::wrap_stream(watched(bytes, begun, moved.clone()))),
        };
        // A chunk takes as long as the line needs: given up is only one of which nothing moves.
        let mut sending = std::pin::pin!(answer_of(request));
        loop {
            tokio::select! {
                answer = &mut sending => return answer.map(drop),
                () = tokio::time::sleep(LOOK.min(self.stalled / 10)) => {}
            }
            sent(moved.bytes.load(Relaxed));
            let last = Duration::from_millis(moved.at_ms.load(Relaxed));
            if begun.elapsed().saturating_sub(last) > self.stalled {
                return Err(silent(self.stalled));
            }
        }
    }

    pub(super) async fn resume(&self, id: &str) -> Tried<()> {
        self.answered(self.posted("resume", json!({ "upload_id": id }).to_string())).await.map(drop)
    }

    pub(super) async fn content(&self, id: &str, from: u64) -> Tried<Content> {
        let mut request = self.request(Method::GET, &format!("{id}/content"));
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let response = self.answered(request).await?;
        let size = response.content_length().filter(|_| from == 0);
        // A proxy that knows no ranges answers with everything.
        let mut skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { from };
        let pieces = response.bytes_stream().map(move |piece| {
            let piece = piece.map_err(away)?;
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= over as u64;
            Ok(piece.slice(over..))
        });
        Ok(Content { size, pieces: self.while_it_speaks(pieces.boxed()) })
    }

    pub(super) async fn progress(&self, id: &str) -> Tried<BoxStream<'static, Tried<Progress>>> {
        let response = self.answered(self.request(Method::GET, &format!("{id}/progress"))).await?;
        // A server that has nothing to tell says at least that.
        let pieces = response.bytes_stream().map(|piece| piece.map_err(away));
        Ok(telling::progress(self.while_it_speaks(pieces.boxed())))
    }

    /// The pieces of an answer, and an error behind the last one of a server that says nothing more.
    fn while_it_speaks(&self, pieces: BoxStream<'static, Tried<Bytes>>) -> BoxStream<'static, Tried<Bytes>> {
        let patience = self.patience;
        stream::unfold(Some(pieces), move |pieces| async move {
            let mut pieces = pieces?;
            match tokio::time::timeout(patience, pieces.next()).await {
                Ok(piece) => piece.map(|piece| (piece, Some(pieces))),
                Err(_) => Some((Err(silent(patience)), None)),
            }
        })
        .boxed()
    }
}

/// What `create` is given.
#[derive(Serialize)]
struct Creating<'a> {
    name: &'a str,
    size: Option<u64>,
    mime_type: Option<&'a str>,
    drive: Option<&'a str>,
    connector_id: Option<&'a str>,
    path: Option<&'a str>,
    parent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<&'a RawValue>,
    client_node_id: Option<&'a str>,
    idempotency_key: Option<&'a str>,
}

/// How much of a chunk was handed to the connection, and when the last of it.
#[derive(Debug, Default)]
struct Moved {
    at_ms: AtomicU64,
    bytes: AtomicU64,
}

/// The bytes by pieces, and how far they are taken.
fn watched(
    bytes: Bytes,
    begun: Instant,
    moved: Arc<Moved>,
) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    let pieces = (0..bytes.len()).step_by(PIECE);
    stream::iter(pieces).map(move |from| {
        moved.at_ms.store(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
        moved.bytes.store(from as u64, Relaxed);
        Ok(bytes.slice(from..bytes.len().min(from + PIECE)))
    })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(error: serde_json::Error) -> Trying {
    Trying::Never(Error::new("upload.put", Code::RequestInvalid, format!("custom_metadata: {error}")))
}

fn silent(patience: Duration) -> Trying {
    let detail = format!("the server said nothing for {} s", patience.as_secs());
    Trying::Later(None, Error::new("upload.put", Code::UploadBackend, detail))
}

fn strange(answer: &Value) -> Trying {
    let shown: String = answer.to_string().chars().take(EXCERPT).collect();
    let detail = format!("this is not what a server of uploads answers: {shown}");
    Trying::Never(Error::new("upload.put", Code::StoreProtocol, detail))
}

fn away(error: reqwest::Error) -> Trying {
    let error = error.without_url();
    let mut detail = format!("the server cannot be reached: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        detail = format!("{detail}: {next}");
        cause = next.source();
    }
    Trying::Later(None, Error::new("upload.put", Code::UploadBackend, detail))
}

/// The same of what is not even JSON.
pub(super) fn unusual(body: &[u8]) -> Trying {
    strange(&Value::String(excerpt(body)))
}

async fn json_of(response: Response) -> Tried<Value> {
    let body = tokio::time::timeout(PATIENCE, response.bytes()).await;
    let body = body.map_err(|_| silent(PATIENCE))?.map_err(away)?;
    serde_json::from_slice(&body).map_err(|_| unusual(&body))
}

/// The beginning of a text that somebody else wrote, on one line and without what could steer a terminal.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect()
}

/// The answer, or the problem that it tells.
async fn answer_of(request: RequestBuilder) -> Tried<Response> {
    let response = request.send().await.map_err(away)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = wait.map(Duration::from_secs);
    // The status decides, whatever the body is: between here and the server stand proxies, which answer with pages of
    // their own, or with nothing, while it is away.
    let later = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    let body = match tokio::time::timeout(PATIENCE, response.bytes()).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let known = problem["code"].as_str().and_then(|code| Code::ALL.iter().find(|known| known.name() == code));
    let unknown = if later { Code::UploadBackend } else { Code::StoreProtocol };
    let detail = match problem["detail"].as_str() {
        Some(detail) => format!(": {detail}"),
        None if body.is_empty() => String::new(),
        None => format!(": {}", excerpt(&body)),
    };
    let detail = format!("the server answers {status}{detail}");
    let error = Error::new("upload.put", known.copied().unwrap_or(unknown), detail);
    Err(if later { Trying::Later(wait, error) } else { Trying::Never(error) })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const CHUNK: usize = 16 << 20;

    /// Sends a chunk to a server that does this with the connection; what became of it, and how much was told to be on
    /// its way before.
    async fn sent<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
        patience: Duration,
        stalled: Duration,
    ) -> (Tried<()>, u64) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
        let remote = Remote { patience, stalled, ..Remote::new(&server, "documents", None).unwrap() };
        let bytes = Bytes::from(vec![7; CHUNK]);
        let most = AtomicU64::new(0);
        let tell = |sent: u64| most.store(most.load(Relaxed).max(sent), Relaxed);
        let took = remote.chunk("a", 0, Last::Yes, Sha256::of(&bytes), bytes, &tell).await;
        serving.abort();
        (took, most.into_inner())
    }

    #[tokio::test]
    async fn a_slow_line_may_take_longer_for_a_chunk_than_a_server_may_be_silent() {
        let serve = |mut stream: TcpStream| async move {
            let (mut came, mut piece) = (0, vec![0; 1 << 20]);
            while came < CHUNK {
                came += stream.read(&mut piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        };
        let (took, told) = sent(serve, Duration::from_millis(100), Duration::from_secs(20)).await;
        assert!(took.is_ok(), "{took:?}");
        assert!((1..CHUNK as u64).contains(&told), "{told} bytes were told to be on their way");
    }

    #[tokio::test]
    async fn a_server_that_takes_nothing_is_given_up_and_tried_again() {
        let serve = |stream: TcpStream| async move {
            std::future::pending::<()>().await;
            drop(stream);
        };
        let (took, _) = sent(serve, Duration::from_secs(20), Duration::from_millis(300)).await;
        assert!(
            matches!(&took, Err(Trying::Later(_, error)) if error.detail.contains("said nothing")),
            "{took:?}"
        );
    }
}
