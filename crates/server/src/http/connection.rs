//! Accepts connections and serves them, until told to stop; then finishes what is in flight.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use quaymaster::Code;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::problem::Problem;
use crate::app::App;

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
}

/// Serves `listener` until `stop`; answers whether everything in flight finished within the grace.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    limits: Limits,
    stop: CancellationToken,
) -> bool {
    let open = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
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
        let (app, stop) = (app.clone(), stop.clone());
        open.spawn(async move {
            converse(app.clone(), stream, limits.idle_timeout, stop).await;
            app.metrics.connections.fetch_sub(1, Relaxed);
        });
    }
    // New callers are refused by the operating system from here on.
    drop(listener);
    open.close();
    tokio::time::timeout(limits.shutdown_grace, open.wait()).await.is_ok()
}

/// Requests begun and ended on one connection.
#[derive(Debug, Default)]
struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
}

async fn converse(app: Arc<App>, stream: TcpStream, idle_timeout: Duration, stop: CancellationToken) {
    // Answers are one small packet each; waiting to join them with a next one would only delay them.
    let _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let service = service_fn(|request| {
        let (app, activity) = (app.clone(), activity.clone());
        async move {
            activity.begun.fetch_add(1, Relaxed);
            let response = app.answer(request).await;
            activity.ended.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
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
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
                look.as_mut().reset(tokio::time::Instant::now() + LINGER);
            }
            () = look.as_mut() => {
                let (begun, ended) = (activity.begun.load(Relaxed), activity.ended.load(Relaxed));
                if begun == ended && (stopping || begun == seen) {
                    tracing::debug!("closing an idle connection");
                    return;
                }
                seen = begun;
                let next = if stopping { LINGER } else { idle_timeout };
                look.as_mut().reset(tokio::time::Instant::now() + next);
            }
        }
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
