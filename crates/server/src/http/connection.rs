//! Accepts connections and serves them, until told to stop; then finishes what is in flight.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::http::Request;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use quaymaster::Code;
use quaymaster::layer::Peer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::presence::Stream;
use super::problem::Problem;
use crate::app::App;
use crate::own::{Answering, Own};

/// What a connection on which no request is being answered gets after a stop, to finish sending an answer or a
/// request's head. Without it, half a head would hold the stop up for the whole grace.
const LINGER: Duration = Duration::from_millis(250);

/// Bounds on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    /// A connection on which no request begins or ends for this long is closed.
    pub(crate) idle_timeout: Duration,
    /// How long requests in flight may take to finish after a stop.
    pub(crate) shutdown_grace: Duration,
    /// How long the reader of an answer without end may take nothing before it is cut.
    pub(crate) patience: Duration,
}

/// Serves `listener` until `stop`; answers whether everything in flight finished within the grace.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    limits: Limits,
    own: Arc<Own>,
    stop: CancellationToken,
) -> bool {
    let open = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors or the like: the next accept would fail at once, again and again.
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if open.len() >= limits.max_connections {
            app.metrics.connections_refused.fetch_add(1, Relaxed);
            open.spawn(turn_away(stream));
            continue;
        }
        app.metrics.connections.fetch_add(1, Relaxed);
        let (app, own, stop) = (app.clone(), own.clone(), stop.clone());
        open.spawn(async move {
            let _open = own.connected(peer);
            converse(app.clone(), stream, peer, limits, own.clone(), stop).await;
            app.metrics.connections.fetch_sub(1, Relaxed);
        });
    }
    // New callers are refused by the operating system from here on.
    drop(listener);
    open.close();
    tokio::time::timeout(limits.shutdown_grace, open.wait()).await.is_ok()
}

/// Requests begun and ended on one connection, and what goes on after their answers' heads.
#[derive(Default)]
pub(crate) struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Long answers that are being sent and should not be cut short.
    sending: Arc<AtomicU64>,
    /// The answer without end that is being sent, if one is.
    endless: Mutex<Weak<Taking>>,
    endless_begun: Notify,
    /// What the connection becomes when it stops speaking HTTP.
    after: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Activity {
    /// An answer without end begins.
    pub(crate) fn endless(&self) -> Pace {
        let pace = Pace(Arc::new(Taking { began: Instant::now(), handed_us: AtomicU64::new(0) }));
        *self.endless.lock() = Arc::downgrade(&pace.0);
        self.endless_begun.notify_one();
        pace
    }

    /// A long answer begins that a stop lets end.
    pub(crate) fn sending(&self) -> Sending {
        self.sending.fetch_add(1, Relaxed);
        Sending(self.sending.clone())
    }

    /// The connection goes on as something else once its answer is sent; it keeps its place among connections.
    pub(crate) fn becomes(&self, session: BoxFuture<'static, ()>) {
        *self.after.lock() = Some(session);
    }
}

/// A long answer on its way.
#[derive(Debug)]
pub(crate) struct Sending(Arc<AtomicU64>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// How the reader of an answer without end keeps up.
#[derive(Debug)]
pub(crate) struct Pace(Arc<Taking>);

#[derive(Debug)]
struct Taking {
    began: Instant,
    /// When the last piece was handed to the connection, in microseconds; 0 once it has asked for the next.
    handed_us: AtomicU64,
}

impl Pace {
    /// The connection has room for more.
    pub(crate) fn asked(&self) {
        self.0.handed_us.store(0, Relaxed);
    }

    /// It was given some.
    pub(crate) fn handed(&self) {
        let us = u64::try_from(self.0.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.handed_us.store(us.max(1), Relaxed);
    }
}

impl Taking {
    /// How long the reader has taken nothing of what is there for it.
    fn stalled(&self) -> Duration {
        match self.handed_us.load(Relaxed) {
            0 => Duration::ZERO,
            us => self.began.elapsed().saturating_sub(Duration::from_micros(us)),
        }
    }
}

async fn converse(
    app: Arc<App>,
    stream: TcpStream,
    peer: SocketAddr,
    limits: Limits,
    own: Arc<Own>,
    stop: CancellationToken,
) {
    let Limits { idle_timeout, patience, .. } = limits;
    // Answers are one small packet each; waiting to join them with a next one would only delay them.
    let _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let stream = Stream::new(stream);
    let presence = stream.presence();
    let way = (!own.is_off()).then(|| {
        let (app, presence, activity) = (app.clone(), presence.clone(), activity.clone());
        own.way(Answering { app, presence, activity })
    });
    let service = service_fn(|mut request: Request<Incoming>| {
        let (app, activity, presence) = (app.clone(), activity.clone(), presence.clone());
        let way = way.clone();
        async move {
            activity.begun.fetch_add(1, Relaxed);
            let response = match way {
                Some(way) => {
                    request.extensions_mut().insert(Peer(peer));
                    way.answer(request).await?
                }
                None => app.answer(request, &presence, &activity).await,
            };
            activity.ended.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut seen = 0;
    // One timer per connection that looks at the counts, not one per request: a caller that dribbles its
    // head, or keeps a connection for nothing, is found at the second look at the latest.
    let mut look = std::pin::pin!(tokio::time::sleep(idle_timeout));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                break;
            }
            () = activity.endless_begun.notified(), if !stopping => {
                look.as_mut().reset(tokio::time::Instant::now() + patience);
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
                look.as_mut().reset(tokio::time::Instant::now() + LINGER);
            }
            () = look.as_mut() => {
                let endless = activity.endless.lock().upgrade();
                if let Some(taking) = endless.filter(|_| !stopping) {
                    let stalled = taking.stalled();
                    if stalled >= patience {
                        tracing::debug!("cutting a reader that takes nothing");
                        app.fan.counts.cut.fetch_add(1, Relaxed);
                        return;
                    }
                    look.as_mut().reset(tokio::time::Instant::now() + patience.saturating_sub(stalled));
                    continue;
                }
                let (begun, ended) = (activity.begun.load(Relaxed), activity.ended.load(Relaxed));
                let sending = activity.sending.load(Relaxed) > 0;
                if begun == ended && !sending && (stopping || begun == seen) {
                    tracing::debug!("closing an idle connection");
                    return;
                }
                seen = begun;
                let next = if stopping { LINGER } else { idle_timeout };
                look.as_mut().reset(tokio::time::Instant::now() + next);
            }
        }
    }
    let session = activity.after.lock().take();
    if let Some(session) = session {
        session.await;
    }
}

async fn turn_away(mut stream: TcpStream) {
    let body = Problem::new(Code::ServerBusy, "every place for a connection is taken").body();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let write = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
}
