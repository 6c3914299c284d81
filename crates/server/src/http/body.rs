//! Reads a request's body: bounded in bytes and in time; and what of it nobody wants.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use quaymaster::Code;

use super::problem::{Problem, excerpt};

/// What is read, and thrown away, of a body that was refused: more than the largest chunk of an upload has, unless the
/// schema says otherwise. A sender that is told to come back must hear it …
const REFUSED_BYTES: u64 = 128 << 20;
/// … and for how long.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The whole body, at most `max` bytes and within `patience`. What is refused is not read to its end.
pub(crate) async fn read(
    body: &mut Incoming,
    headers: &HeaderMap,
    max: usize,
    patience: Duration,
) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    // Refused before a byte of it is read.
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > max as u64) {
        return Err(too_large(max));
    }
    let mut reading = std::pin::pin!(collect(body, max));
    // A body that came with its head, as nearly all do, is here at the first look and costs no timer.
    if let std::task::Poll::Ready(whole) = futures_util::poll!(reading.as_mut()) {
        return whole;
    }
    tokio::time::timeout(patience, reading).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {} ms", patience.as_millis());
        Err(Problem::new(Code::RequestTimeout, detail).field("body"))
    })
}

async fn collect(body: &mut Incoming, max: usize) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut rest: Option<BytesMut> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let detail = format!("the body broke off: {error}");
            Problem::new(Code::RequestInvalid, detail).field("body").because(error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = rest.as_ref().map_or(first.len(), BytesMut::len);
        if so_far + data.len() > max {
            return Err(too_large(max));
        }
        match &mut rest {
            Some(rest) => rest.extend_from_slice(&data),
            None if first.is_empty() => first = data,
            None => {
                let mut joined = BytesMut::with_capacity(first.len() + data.len());
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
                rest = Some(joined);
            }
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(rest.map_or(first, BytesMut::freeze))
}

/// The slowest pace at which a large body may come. It is measured over a time, so that no single pause counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowest {
    pub(crate) bytes_per_second: u64,
    pub(crate) over: Duration,
}

impl Slowest {
    /// Whether `came` bytes are too few for the whole time.
    fn is_under(&self, came: u64) -> bool {
        u128::from(came) * 1000 < u128::from(self.bytes_per_second) * self.over.as_millis()
    }
}

/// A body piece by piece, none of which may take longer than `patience` to come, and all of which come at a pace.
pub(crate) fn pieces(
    body: &mut Incoming,
    patience: Duration,
    slowest: Slowest,
) -> impl Stream<Item = Result<Bytes, BrokeOff>> + Send {
    stream::unfold(Some((body, Duration::ZERO, 0)), move |from| async move {
        let (body, mut waited, mut came) = from?;
        // Since the last piece.
        let mut stalled = Duration::ZERO;
        loop {
            let asked = Instant::now();
            let left = patience.saturating_sub(stalled).min(slowest.over.saturating_sub(waited));
            let frame = tokio::time::timeout(left, body.frame()).await;
            // Only the sender's time: ours, with what came before, is none of its business.
            let took = asked.elapsed();
            (waited, stalled) = (waited + took, stalled + took);
            let data = match frame {
                Err(_) if stalled >= patience => return Some((Err(BrokeOff::Slow(patience)), None)),
                Err(_) => Bytes::new(),
                Ok(None) => return None,
                Ok(Some(Err(error))) => return Some((Err(BrokeOff::Ended(error.to_string())), None)),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            came += data.len() as u64;
            if waited >= slowest.over && !body.is_end_stream() {
                if slowest.is_under(came) {
                    return Some((Err(BrokeOff::Dribbles { came, slowest }), None));
                }
                (waited, came) = (Duration::ZERO, 0);
            }
            if !data.is_empty() {
                return Some((Ok(data), Some((body, waited, came))));
            }
        }
    })
}

/// Why a body has no end.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum BrokeOff {
    /// Nothing came for so long.
    #[error("nothing came for {} ms", .0.as_millis())]
    Slow(Duration),
    /// Something came, and too little.
    #[error(
        "it comes too slowly: {came} bytes in {} ms, and {} bytes a second are needed (min_bytes_per_second in [uploads])",
        .slowest.over.as_millis(), .slowest.bytes_per_second
    )]
    Dribbles { came: u64, slowest: Slowest },
    /// The connection ended.
    #[error("{0}")]
    Ended(String),
}

impl BrokeOff {
    /// Whether it came too slowly.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Slow(_) | Self::Dribbles { .. })
    }
}

/// Takes the rest of a body that was refused, beside its answer. Most clients read an answer only when they have sent
/// everything: a connection closed under them would be all they see. One that waits for our word before it sends gets
/// none, and one that announces or sends more than is taken finds the connection closed.
pub(crate) fn discard(mut body: Incoming, headers: &HeaderMap) {
    if body.is_end_stream() || body.size_hint().lower() > REFUSED_BYTES || headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(tokio::time::timeout(REFUSED_FOR, async move {
        let mut taken = 0;
        while let Some(Ok(frame)) = body.frame().await {
            taken += frame.data_ref().map_or(0, |data| data.len() as u64);
            if taken > REFUSED_BYTES {
                return;
            }
        }
    }));
}

fn too_large(max: usize) -> Problem {
    let detail =
        format!("the body is larger than {max} bytes, the bound that max_body_bytes in [server] sets");
    Problem::new(Code::RequestTooLarge, detail).field("body")
}

/// Refuses a body that does not say that it is JSON, or that is packed. Any web page may send a body without a type, to
/// any server, and no browser asks first; a page that says `application/json` has to be allowed to.
pub(crate) fn check_type(headers: &HeaderMap, body: &Incoming) -> Result<(), Problem> {
    check_encoding(headers, Code::MediaType)?;
    let Some(value) = headers.get(CONTENT_TYPE) else {
        if body.is_end_stream() {
            return Ok(());
        }
        let detail = "there is a body and no content-type; it must be application/json";
        return Err(Problem::new(Code::MediaType, detail).field("content-type"));
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let kind = text.split(';').next().unwrap_or_default().trim();
    let json = kind.eq_ignore_ascii_case("application/json")
        || (kind.len() > 5
            && kind.is_char_boundary(kind.len() - 5)
            && kind[kind.len() - 5..].eq_ignore_ascii_case("+json"));
    if json {
        return Ok(());
    }
    let detail = format!("content-type is {}; it must be application/json", excerpt(&text));
    Err(Problem::new(Code::MediaType, detail).field("content-type"))
}

/// Refuses bytes that are declared to be JSON or text: whoever sends them so means something else than a chunk.
pub(crate) fn check_bytes(headers: &HeaderMap) -> Result<(), Problem> {
    check_encoding(headers, Code::UploadMediaType)?;
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !kind.starts_with("text/") {
        return Ok(());
    }
    let detail =
        format!("content-type is {}; a chunk is raw bytes: application/octet-stream", excerpt(&text));
    Err(Problem::new(Code::UploadMediaType, detail).field("content-type"))
}

/// Refuses a body that says it is packed.
fn check_encoding(headers: &HeaderMap, code: Code) -> Result<(), Problem> {
    if let Some(value) = headers.get_all(CONTENT_ENCODING).iter().find(|value| *value != "identity") {
        let shown = excerpt(&String::from_utf8_lossy(value.as_bytes()));
        let detail = format!("content-encoding is {shown}; bodies are read as they come, send it unpacked");
        return Err(Problem::new(code, detail).field("content-encoding"));
    }
    Ok(())
}
