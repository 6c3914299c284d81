//! Accepts connections and serves them, until told to stop; then finishes what is in flight.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use quaymaster::Code;
use quaymaster::layer::Peer;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant as Moment, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::listen::Listener;
use super::presence::{Presence, Stream};
use super::problem::Problem;
use super::socket::Socket;
use super::tls::{Channel, HANDSHAKE, Tls, Unsecured};
use crate::app::App;
use crate::own::{Answering, Own};

/// What a connection on which no request is being answered gets after the drain, to finish sending an answer or a
/// request's head. Without it, half a head would hold the stop up for the whole grace.
const LINGER: Duration = Duration::from_millis(250);

/// What a handshake gets after the drain.
const LAST_HANDSHAKE: Duration = Duration::from_secs(1);

/// How long those are waited for who have begun to connect when nobody new may.
const LAST: Duration = Duration::from_millis(50);

/// Bounds on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    /// A connection on which no request begins or ends for this long is closed.
    pub(crate) idle_timeout: Duration,
    /// How long requests in flight may take to finish after a stop.
    pub(crate) shutdown_grace: Duration,
    /// How long requests are still taken after a stop, each answered with `connection: close`; part of the grace.
    pub(crate) shutdown_drain: Duration,
    /// How long the reader of an answer without end may take nothing before it is cut.
    pub(crate) patience: Duration,
}

/// Serves `listener` until `stop`; answers whether everything in flight finished within the grace.
///
/// A stop is a drain first. Whoever has a connection may just be sending a request on it, and whoever balances load needs
/// a moment to notice `/readyz`: so connections are accepted and requests are answered for a while, each with
/// `connection: close`. The drain ends early when nobody is connected.
pub(crate) async fn serve(
    app: Arc<App>,
    mut listener: Listener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    own: Arc<Own>,
    stop: CancellationToken,
) -> bool {
    let places = Places {
        app,
        tls,
        limits,
        own,
        stop: stop.clone(),
        drained: CancellationToken::new(),
        open: TaskTracker::new(),
    };
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => places.seat(accepted).await,
        }
    }
    let grace = Moment::now() + limits.shutdown_grace;
    places.open.close();
    let mut drain = std::pin::pin!(sleep(limits.shutdown_drain.min(limits.shutdown_grace)));
    loop {
        tokio::select! {
            biased;
            () = drain.as_mut() => break,
            accepted = listener.accept() => places.seat(accepted).await,
            () = places.open.wait() => break,
        }
    }
    listener.refuse_new();
    let last = Moment::now() + LAST;
    while let Ok(accepted) = timeout_at(last, listener.accept()).await {
        places.seat(accepted).await;
    }
    while let Ok(Some(accepted)) = listener.accept_now() {
        places.seat(Ok(accepted)).await;
    }
    drop(listener);
    places.drained.cancel();
    timeout_at(grace, places.open.wait()).await.is_ok()
}

/// Every open connection, and what each needs.
struct Places {
    app: Arc<App>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    own: Arc<Own>,
    stop: CancellationToken,
    /// Set when the drain is over.
    drained: CancellationToken,
    open: TaskTracker,
}

impl Places {
    async fn seat(&self, accepted: io::Result<(Socket, SocketAddr)>) {
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors or the like: the next accept would fail at once, again and again.
                tracing::warn!(%error, "cannot accept connections");
                sleep(Duration::from_millis(50)).await;
                return;
            }
        };
        let metrics = &self.app.metrics;
        if self.open.len() >= self.limits.max_connections {
            metrics.connections_refused.fetch_add(1, Relaxed);
            // Over TLS an answer would cost a handshake.
            if self.tls.is_none() {
                self.open.spawn(turn_away(socket));
            }
            return;
        }
        metrics.connections.fetch_add(1, Relaxed);
        let (app, own, limits, tls) = (self.app.clone(), self.own.clone(), self.limits, self.tls.clone());
        let ends = Ends { stop: self.stop.clone(), drained: self.drained.clone() };
        self.open.spawn(async move {
            let _open = own.connected(peer);
            socket.send_at_once();
            if let Some(line) = Line::open(socket, tls.as_deref(), &app, &ends.drained).await {
                converse(app.clone(), line, peer, limits, own.clone(), ends).await;
            }
            app.metrics.connections.fetch_sub(1, Relaxed);
        });
    }
}

/// An open connection.
struct Line {
    channel: Channel,
    presence: Presence,
}

impl Line {
    /// Shakes hands where there is TLS; `None` where the connection is none.
    async fn open(socket: Socket, tls: Option<&Tls>, app: &App, drained: &CancellationToken) -> Option<Self> {
        let stream = Stream::new(socket);
        let Some(tls) = tls else {
            let presence = stream.presence();
            return Some(Self { channel: Channel::Plain(stream), presence });
        };
        let presence = stream.encrypted_presence();
        let late = async {
            drained.cancelled().await;
            sleep(LAST_HANDSHAKE).await;
        };
        let done = tokio::select! {
            done = tls.accept(stream, HANDSHAKE) => done,
            () = late => Err(Unsecured::Late),
        };
        match done {
            Ok(secured) => Some(Self { channel: Channel::Tls(Box::new(secured)), presence }),
            Err(why) => {
                app.metrics.handshakes_failed.fetch_add(1, Relaxed);
                tracing::debug!(%why, "no handshake");
                None
            }
        }
    }
}

/// When a connection is to end.
struct Ends {
    /// With the next answer.
    stop: CancellationToken,
    /// Without one, too.
    drained: CancellationToken,
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
    /// The other end.
    peer: Option<SocketAddr>,
    /// What the connection becomes when it stops speaking HTTP.
    after: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Activity {
    fn with(peer: SocketAddr) -> Self {
        Self { peer: Some(peer), ..Self::default() }
    }

    /// The other end's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

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

/// What a connection may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Its next answer is its last.
    Draining,
    /// It is closed as soon as nothing is being answered.
    Ending,
}

async fn converse(app: Arc<App>, line: Line, peer: SocketAddr, limits: Limits, own: Arc<Own>, ends: Ends) {
    let Limits { idle_timeout, patience, .. } = limits;
    let Ends { stop, drained } = ends;
    let Line { channel, presence } = line;
    let activity = Arc::new(Activity::with(peer));
    let way = (!own.is_off()).then(|| {
        let (app, presence, activity) = (app.clone(), presence.clone(), activity.clone());
        own.way(Answering { app, presence, activity })
    });
    let service = service_fn(|mut request: Request<Incoming>| {
        let (app, activity, presence) = (app.clone(), activity.clone(), presence.clone());
        let (way, stop) = (way.clone(), stop.clone());
        async move {
            activity.begun.fetch_add(1, Relaxed);
            let mut response = match way {
                Some(way) => {
                    request.extensions_mut().insert(Peer(peer));
                    way.answer(request).await?
                }
                None => app.answer(request, &presence, &activity).await,
            };
            activity.ended.fetch_add(1, Relaxed);
            if stop.is_cancelled() {
                say_goodbye(&mut response);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(channel), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut seen = 0;
    // One timer per connection that looks at the counts, not one per request: a caller that dribbles its
    // head, or keeps a connection for nothing, is found at the second look at the latest.
    let mut look = std::pin::pin!(sleep(idle_timeout));
    let mut phase = Phase::Serving;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                break;
            }
            () = activity.endless_begun.notified(), if phase == Phase::Serving => {
                look.as_mut().reset(Moment::now() + patience);
            }
            () = stop.cancelled(), if phase == Phase::Serving => {
                phase = Phase::Draining;
                // An answer without end ends with the stop, and its connection with it. Any other connection stays: a
                // request may be on its way, and whoever sent it was not told that it is too late.
                if activity.endless.lock().upgrade().is_some() {
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = drained.cancelled(), if phase != Phase::Ending => {
                phase = Phase::Ending;
                look.as_mut().reset(Moment::now() + LINGER);
            }
            () = look.as_mut() => {
                let endless = activity.endless.lock().upgrade();
                if let Some(taking) = endless.filter(|_| phase == Phase::Serving) {
                    let stalled = taking.stalled();
                    if stalled >= patience {
                        tracing::debug!("cutting a reader that takes nothing");
                        app.fan.counts.cut.fetch_add(1, Relaxed);
                        return;
                    }
                    look.as_mut().reset(Moment::now() + patience.saturating_sub(stalled));
                    continue;
                }
                let (begun, ended) = (activity.begun.load(Relaxed), activity.ended.load(Relaxed));
                let sending = activity.sending.load(Relaxed) > 0;
                let over = if phase == Phase::Ending { !presence.has_sent() } else { begun == seen };
                if begun == ended && !sending && over {
                    tracing::debug!("closing an idle connection");
                    return;
                }
                seen = begun;
                let next = if phase == Phase::Ending { LINGER } else { idle_timeout };
                look.as_mut().reset(Moment::now() + next);
            }
        }
    }
    let session = activity.after.lock().take();
    if let Some(session) = session {
        session.await;
    }
}

/// Tells that this answer is the connection's last one.
fn say_goodbye<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

async fn turn_away(socket: Socket) {
    let mut stream = Stream::new(socket);
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
