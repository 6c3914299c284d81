//! Answers without an end: server-sent events, of a channel or of whatever else is a [`Source`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::connection::Pace;
use super::presence::Presence;
use crate::fan::{Entry, Reader, missed_text};

/// Proxies that gather answers before they pass them on are asked not to.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) const LAST_EVENT_ID: &str = "last-event-id";

/// A comment that says that whatever is published from here on will come.
pub(crate) const LISTENING: Bytes = Bytes::from_static(b": listening\n\n");
const HEARTBEAT: Bytes = Bytes::from_static(b": heartbeat\n\n");

/// What a stream tells.
pub(crate) trait Source: Send + 'static {
    /// What is there already: it is told before a stop is heeded.
    fn waiting(&mut self) -> Option<Bytes> {
        None
    }

    /// What comes next; `None` is the end. Broken off while it waits, it loses nothing.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// What every stream lives by beside its source.
pub(crate) struct Line {
    pub(crate) heartbeat: Duration,
    pub(crate) stopping: CancellationToken,
    pub(crate) presence: Presence,
    pub(crate) pace: Pace,
}

/// What goes on after the head: until the stop, the source's end, or the client's.
struct Feed<S> {
    source: S,
    beat: Interval,
    stopping: CancellationToken,
    presence: Presence,
    pace: Pace,
}

/// An answer that lasts as long as its source.
pub(crate) fn response(source: impl Source, line: Line) -> Response<Body> {
    let Line { heartbeat, stopping, presence, pace } = line;
    let mut beat = interval_at(Instant::now() + heartbeat, heartbeat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let feed = Feed { source, beat, stopping, presence, pace };
    let body = stream::unfold(feed, |mut feed| async {
        feed.pace.asked();
        let next = feed.next().await?;
        feed.pace.handed();
        Some((Ok::<_, std::convert::Infallible>(next), feed))
    });
    head(Body::from_stream(body))
}

impl<S: Source> Feed<S> {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(waiting) = self.source.waiting() {
            return Some(waiting);
        }
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            () = self.presence.gone() => None,
            next = self.source.next() => {
                self.beat.reset();
                next
            }
            _ = self.beat.tick() => Some(HEARTBEAT),
        }
    }
}

/// A channel, for one reader.
pub(crate) struct Channel {
    reader: Reader,
    waiting: VecDeque<Bytes>,
    batch: Vec<Arc<Entry>>,
}

impl Channel {
    pub(crate) fn new(reader: Reader, headers: &HeaderMap) -> Self {
        let mut waiting = VecDeque::from([LISTENING]);
        if let Some(missed) = missed_since(&reader, headers) {
            waiting.push_back(gap(missed));
        }
        Self { reader, waiting, batch: Vec::new() }
    }
}

impl Source for Channel {
    fn waiting(&mut self) -> Option<Bytes> {
        self.waiting.pop_front()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                return Some(next);
            }
            if !self.reader.ready().await {
                return None;
            }
            if let Some(missed) = self.reader.take(&mut self.batch) {
                self.waiting.push_back(gap(missed));
            }
            let origin = &self.reader.channel.origin;
            self.waiting.extend(self.batch.drain(..).map(|entry| entry.sse(origin)));
        }
    }
}

/// What stands in the place of messages: an event of its own, so that no reader takes it for a message.
fn gap(missed: u64) -> Bytes {
    Bytes::from(format!("event: missed\ndata: {}\n\n", missed_text(missed)))
}

/// Whether a caller would rather have a stream than a page: browsers' readers ask for nothing else.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let first = accept.split([',', ';']).next().unwrap_or_default();
    first.trim().eq_ignore_ascii_case("text/event-stream")
}

/// The answer that such a body has.
fn head(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What a reader that comes again has missed: known while the same subscription goes on, else 0 for "some".
fn missed_since(reader: &Reader, headers: &HeaderMap) -> Option<u64> {
    let last = headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    match last.split_once('.') {
        Some((origin, number)) if origin == reader.channel.origin => {
            let missed = reader.channel.since(number.parse().ok()?);
            (missed > 0).then_some(missed)
        }
        _ => Some(0),
    }
}
