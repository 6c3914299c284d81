//! A channel as a WebSocket. It is for listening: what a client sends is read, so that its pongs and its goodbye are
//! heard, and otherwise ignored.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use quaymaster::Code;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_util::sync::CancellationToken;

use super::problem::{Problem, WS_VERSION};
use crate::fan::{Entry, Reader, missed_text};

/// The largest frame, and message, a client may send.
const MAX_INBOUND: usize = 4 << 10;

/// Heartbeats a reader may take nothing for, or not answer, before it is cut.
const PATIENCE: u32 = 2;

/// How long the goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What a session needs besides its socket.
pub(crate) struct Session {
    pub(crate) reader: Reader,
    pub(crate) heartbeat: Duration,
    pub(crate) stopping: CancellationToken,
}

/// The answer to a good request for a WebSocket.
pub(crate) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let has = |name: &axum::http::HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default();
            words.split(',').any(|known| known.trim().eq_ignore_ascii_case(word))
        })
    };
    let refuse = |field: &'static str, detail: &'static str| {
        Err(Problem::new(Code::RequestInvalid, detail).field(field))
    };
    if !has(&CONNECTION, "upgrade") || !has(&UPGRADE, "websocket") {
        return refuse(
            "upgrade",
            "this path speaks WebSocket: `connection: upgrade` and `upgrade: websocket` are missing",
        );
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return refuse(WS_VERSION, "sec-websocket-version must be 13");
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return refuse("sec-websocket-key", "there is no sec-websocket-key");
    };
    if BASE64_STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != 16 {
        return refuse("sec-websocket-key", "sec-websocket-key must be 16 bytes in base64");
    }
    let accepted = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| Problem::new(Code::Internal, "the accept key is no header"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    Ok(response)
}

/// How a session ends.
enum End {
    /// With a goodbye of ours.
    Close(CloseCode, &'static str),
    /// With an answer to the client's.
    Answer,
    /// The client has gone, or takes nothing any more.
    Gone,
}

impl Session {
    /// Carries messages to the client until either has enough.
    pub(crate) async fn run(mut self, upgrade: OnUpgrade) {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "no WebSocket after all"),
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(1 << 10)
            .write_buffer_size(16 << 10)
            .max_message_size(Some(MAX_INBOUND))
            .max_frame_size(Some(MAX_INBOUND));
        let mut socket =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        let frame = match self.talk(&mut socket).await {
            End::Close(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
            End::Answer => None,
            End::Gone => return,
        };
        let goodbye = async {
            // After the client's goodbye this sends the answer to it, which is waiting already.
            let _ = socket.close(frame).await;
            while let Some(Ok(_)) = socket.next().await {}
            // What comes after something wrong is not understood, but it is taken: a connection closed over bytes that
            // nobody read takes the goodbye back.
            let connection = socket.get_mut();
            let _ = connection.shutdown().await;
            let _ = tokio::io::copy(connection, &mut tokio::io::sink()).await;
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }

    async fn talk(&mut self, socket: &mut Socket) -> End {
        let mut beat = interval_at(Instant::now() + self.heartbeat, self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let patience = self.heartbeat * PATIENCE;
        let mut heard = Instant::now();
        let mut batch = Vec::new();
        let stopping = self.stopping.clone();
        loop {
            let sent = tokio::select! {
                () = stopping.cancelled() => return End::Close(CloseCode::Away, "the server stops"),
                inbound = socket.next() => match inbound {
                    Some(Ok(Message::Close(_))) => return End::Answer,
                    None => return End::Gone,
                    Some(Ok(_)) => {
                        heard = Instant::now();
                        continue;
                    }
                    Some(Err(error)) => return wrong(&error),
                },
                more = self.reader.ready() => {
                    if !more {
                        return End::Close(CloseCode::Away, "the store is closed");
                    }
                    let missed = self.reader.take(&mut batch);
                    bounded(patience, &stopping, send(socket, missed, &mut batch)).await
                }
                _ = beat.tick() => {
                    if heard.elapsed() > patience {
                        self.reader.cut();
                        return End::Close(CloseCode::Policy, "no pong came");
                    }
                    bounded(patience, &stopping, socket.send(Message::Ping(Bytes::new()))).await
                }
            };
            match sent {
                Sent::Done => {}
                Sent::Stopping => return End::Close(CloseCode::Away, "the server stops"),
                Sent::Failed => return End::Gone,
                Sent::Stalled => {
                    self.reader.cut();
                    return End::Gone;
                }
            }
        }
    }
}

enum Sent {
    Done,
    Failed,
    Stalled,
    Stopping,
}

async fn bounded(
    patience: Duration,
    stopping: &CancellationToken,
    sending: impl Future<Output = Result<(), Error>>,
) -> Sent {
    tokio::select! {
        sent = timeout(patience, sending) => match sent {
            Ok(Ok(())) => Sent::Done,
            Ok(Err(_)) => Sent::Failed,
            Err(_) => Sent::Stalled,
        },
        () = stopping.cancelled() => Sent::Stopping,
    }
}

/// Sends a batch with one flush at its end.
async fn send(socket: &mut Socket, missed: Option<u64>, batch: &mut Vec<Arc<Entry>>) -> Result<(), Error> {
    if let Some(missed) = missed {
        socket.feed(Message::Text(missed_text(missed).into())).await?;
    }
    for entry in batch.drain(..) {
        socket.feed(entry.frame()).await?;
    }
    socket.flush().await
}

/// What a client did wrong, as its goodbye tells it.
fn wrong(error: &Error) -> End {
    match error {
        Error::Capacity(_) => End::Close(CloseCode::Size, "messages to this server are at most 4 KiB"),
        Error::Protocol(_) => End::Close(CloseCode::Protocol, "that was not WebSocket"),
        Error::Utf8(_) => End::Close(CloseCode::Invalid, "that was not UTF-8"),
        _ => End::Gone,
    }
}
