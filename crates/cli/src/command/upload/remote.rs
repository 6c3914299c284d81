//! A server, asked over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use quaymaster::schema::Kind;
use quaymaster::upload::{Last, Progress, Status, Upload};
use quaymaster::{Code, Error};
use quaymaster_server::UploadCreated;
use quaymaster_server::command::{Fields, resource_path};
use quaymaster_upload::Sha256;
use quaymaster_upload::ingest::Began;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::way::{Body as Content, Seen, Sent, Tried, Trying};
use super::{args, telling};
use crate::remote::{Client, Refusal, Unread, excerpt, read, speaking};

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take none of a chunk's bytes, or say nothing once it has them. On a slow line the system's own buffers
/// hold a chunk for longer than a server thinks.
const STALLED: Duration = Duration::from_secs(300);

/// Between two looks at how much of a chunk is handed over.
const LOOK: Duration = Duration::from_millis(200);

/// What is handed to the connection at once.
const PIECE: usize = 64 << 10;

/// The most that is read of an answer: the chunks of an upload are told as ranges.
const ANSWER_MAX: usize = 16 << 20;

pub(super) struct Remote {
    client: Client,
    resource: String,
    /// Up to the resource: `/v1/upload/documents`.
    base: String,
    patience: Duration,
    stalled: Duration,
}

impl Remote {
    /// The upload resource of a server.
    pub(super) fn new(client: Client, resource: &str) -> Result<Self, Error> {
        let base = resource_path(Kind::Upload, resource)?;
        let patience = client.patience(PATIENCE);
        Ok(Self { client, resource: resource.to_owned(), base, patience, stalled: STALLED })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}/{path}", self.base))
    }

    /// The answer of a server that says something soon.
    async fn answered(&self, request: RequestBuilder) -> Tried<Response> {
        let answer = tokio::time::timeout(self.patience, self.answer_of(request)).await;
        answer.unwrap_or_else(|_| Err(silent(self.patience)))
    }

    pub(super) async fn create(&self, fields: &Fields) -> Tried<Began> {
        let sent = args::create().map(|create| create.sent(&self.resource, &[], fields));
        let sent = sent.transpose().map_err(Trying::Never)?.and_then(|sent| sent.body).unwrap_or_default();
        let body = self.body_of(self.answered(self.posted("create", sent)).await?).await?;
        match serde_json::from_slice(&body) {
            // It becomes part of paths.
            Ok(UploadCreated { upload_id, node_id, chunk_min_bytes, chunk_max_bytes, .. })
                if Upload::check_id("upload.put", &upload_id).is_ok() =>
            {
                Ok(Began { upload_id, node_id, chunk_min_bytes, chunk_max_bytes })
            }
            _ => Err(unusual(&body)),
        }
    }

    fn posted(&self, verb: &str, body: Vec<u8>) -> RequestBuilder {
        self.request(Method::POST, verb).header("content-type", "application/json").body(body)
    }

    pub(super) async fn standing(&self, id: &str) -> Tried<Option<Seen>> {
        let response = match self.answered(self.request(Method::GET, id)).await {
            Ok(response) => response,
            Err(Trying::Never(error)) if error.code == Code::UploadUnknown => return Ok(None),
            Err(other) => return Err(other),
        };
        let state = self.json_of(response).await?;
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
        let mut sending = std::pin::pin!(self.answer_of(request));
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
        self.answered(self.posted("resume", json!({ "upload_id": id }).to_string().into())).await.map(drop)
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
        let pieces = speaking(response, self.patience).map(move |piece| {
            let piece = piece.map_err(unread)?;
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= over as u64;
            Ok(piece.slice(over..))
        });
        Ok(Content { size, pieces: pieces.boxed() })
    }

    pub(super) async fn progress(&self, id: &str) -> Tried<BoxStream<'static, Tried<Progress>>> {
        let response = self.answered(self.request(Method::GET, &format!("{id}/progress"))).await?;
        // A server that has nothing to tell says at least that.
        let pieces = speaking(response, self.patience).map(|piece| piece.map_err(unread));
        Ok(telling::progress(pieces.boxed()))
    }

    /// The answer, or the problem that it tells.
    async fn answer_of(&self, request: RequestBuilder) -> Tried<Response> {
        let response = request.send().await.map_err(|error| unread(Unread::Broke(error)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let refusal = Refusal::read(response, self.patience).await;
        let status = refusal.status;
        // The status decides, whatever the body is: between here and the server stand proxies, which answer with pages of
        // their own, or with nothing, while it is away.
        let later = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let unknown = if later { Code::UploadBackend } else { Code::ServerAnswer };
        let field = refusal.field().map(|field| field.to_owned().into());
        let code = refusal.code().unwrap_or(unknown);
        let error = Error::new("upload.put", code, refusal.to_string());
        // A problem document of ours says it; of another answer nobody knows more than its code does.
        let may_have_run = if refusal.code().is_some() { refusal.may_have_run() } else { error.may_have_run };
        let error = Error { field, may_have_run, retry_after: refusal.wait, ..error };
        Err(if later { Trying::Later(refusal.wait, error) } else { Trying::Never(error) })
    }

    async fn body_of(&self, response: Response) -> Tried<Vec<u8>> {
        read(response, self.patience, ANSWER_MAX).await.map_err(unread)
    }

    async fn json_of(&self, response: Response) -> Tried<Value> {
        let body = self.body_of(response).await?;
        serde_json::from_slice(&body).map_err(|_| unusual(&body))
    }
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

fn silent(patience: Duration) -> Trying {
    unread(Unread::Silent(patience))
}

/// What breaks off may come later; what has no end never will.
fn unread(unread: Unread) -> Trying {
    let detail = unread.to_string();
    match unread {
        Unread::Long(_) => Trying::Never(Error::new("upload.put", Code::ServerAnswer, detail)),
        Unread::Silent(_) => Trying::Later(None, Error::new("upload.put", Code::UploadBackend, detail)),
        Unread::Broke(error) => {
            let error = Error::new("upload.put", Code::UploadBackend, detail).because(error.without_url());
            Trying::Later(None, error)
        }
    }
}

fn strange(answer: &Value) -> Trying {
    unusual(answer.to_string().as_bytes())
}

/// An answer that no server of uploads gives.
pub(super) fn unusual(body: &[u8]) -> Trying {
    let detail = format!("this is not what a server of uploads answers: {}", excerpt(body));
    Trying::Never(Error::new("upload.put", Code::ServerAnswer, detail))
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
        let asked = crate::remote::Remote {
            server: Some(format!("http://{}", listener.local_addr().unwrap())),
            ..crate::remote::Remote::default()
        };
        let serving = tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
        let remote = Remote::new(asked.client().unwrap().unwrap(), "documents").unwrap();
        let remote = Remote { patience, stalled, ..remote };
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
