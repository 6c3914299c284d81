//! `PUT …/<upload_id>/chunk/<n>`: raw bytes, read only once there is room for them and never more than a few pieces ahead.

use std::sync::OnceLock;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use futures_util::{FutureExt as _, TryStreamExt as _};
use hyper::body::Body as _;
use quaymaster::Code;
use quaymaster::upload::{Last, Refusal, Status};
use quaymaster_upload::Sha256;
use quaymaster_upload::ingest::{Incoming, Took};
use schemars::JsonSchema;
use serde::Serialize;

use super::route::Asked;
use super::{IN_PATH, below, berth_of, unknown, written};
use crate::app::App;
use crate::call::{Answers, Needs, Operation, Takes};
use crate::http::body::{self, BrokeOff};
use crate::http::problem::Problem;
use crate::request::{Field, Holds, Request as _, Spec, query, request};

pub(super) const PUT: Operation = Operation {
    method: "PUT",
    path: &[IN_PATH, NUMBER],
    request: UploadChunkAsk::SHAPE,
    headers: &[Field {
        name: DIGEST,
        about: "`sha-256=:<base64>:`; other bytes are refused.",
        spec: DIGEST_SPEC,
    }],
    takes: Takes::Bytes,
    needs: Needs::Write,
    refusals: &[
        (408, "it came too slowly; nothing of it was kept"),
        (415, "the bytes are declared to be JSON or text"),
        (422, "it contradicts what came before, or its digest"),
        (429, "too many bytes are in flight, or what had come of the chunk is lost: the detail says which"),
    ],
    ..below(
        ("chunk", "/v1/upload/{name}/{upload_id}/chunk/{n}"),
        "Take a chunk; one that gets lost before it is in the object store is asked for again",
        Answers::Json(|generator| generator.subschema_for::<UploadChunk>()),
        |app, asked| Box::pin(put(app, asked)).boxed(),
    )
};

const NUMBER: Field = Field {
    name: "n",
    about: "The chunk's number, from 0.",
    spec: Spec::integer(0, u32::MAX as u64).required("").strict(),
};
const DIGEST: &str = "content-digest";
const DIGEST_SPEC: Spec =
    Spec::text().also(r#"{"pattern": "^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$"}"#);

request! {
    /// What `chunk` is asked beside the bytes.
    pub(crate) struct UploadChunkAsk<'a> {
        /// Whether it is the last one.
        last: bool = Spec::of(Holds::Truth).default("false").bare(),
    }
}

/// What a chunk's sender is told.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UploadChunk {
    upload_id: String,
    /// The document.
    node_id: String,
    /// `PENDING`, `UPLOADING`, `COMPLETING` or `COMPLETED`.
    #[schemars(with = "super::state::UploadPhase")]
    status: &'static str,
    chunk_number: u32,
    /// Chunks received; the durable ones are among them.
    received_chunks: u32,
    /// Chunks that are in the object store.
    durable_chunks: u32,
    /// How many there are, once the last one has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    total_chunks: Option<u32>,
    /// Whether this one is durable already.
    durable: bool,
}

/// Takes a chunk. Received is not durable yet: one that gets lost before it is in the object store is asked for again.
pub(crate) async fn put(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    let started = Instant::now();
    let Asked { name, id, number, query, headers, body, caller, .. } = asked;
    let berth = berth_of(&app.services, name, id)?;
    let number = query::value::<u64>(&NUMBER, number)? as u32;
    let asked = UploadChunkAsk::of(query::query(UploadChunkAsk::SHAPE, query)?)?;
    let last = if asked.last { Last::Yes } else { Last::No };
    body::check_bytes(headers)?;
    let incoming = Incoming { number, last, size: body.size_hint().exact(), sha256: digest(headers)? };
    let Some(node_id) = berth.node_of(id).await? else { return Err(unknown(id)) };
    let uploads = berth.uploads().await?;
    let broke = OnceLock::new();
    let pieces = body::pieces(body, app.bounds.request_timeout, berth.slowest())
        .inspect_err(|why| drop(broke.set(why.clone())));
    let took = uploads.receive_from(Some(&caller), id, &incoming, pieces).await?;
    let (receipt, status, durable) = match took {
        Took::Received { receipt, status, durable } => (receipt, status, durable),
        // What it has reserved and staged until then is given back.
        other => return Err(refused(id, other, broke.get()).undone()),
    };
    uploads.figures().acknowledged.observe(started.elapsed());
    let answer = UploadChunk {
        upload_id: id.to_owned(),
        node_id: node_id.as_ref().to_owned(),
        status: status.name(),
        chunk_number: number,
        received_chunks: receipt.received_chunks,
        durable_chunks: receipt.durable_chunks,
        total_chunks: receipt.total_chunks,
        durable,
    };
    let mut response = Response::new(Body::from(written(&answer)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn refused(id: &str, took: Took, broke: Option<&BrokeOff>) -> Problem {
    match took {
        Took::Busy { retry_after } => {
            Problem::new(Code::UploadBusy, "the chunk's bytes do not fit beside those in flight")
                .after(retry_after)
        }
        Took::Anew { why, retry_after } => {
            let detail = format!("the chunk is to be sent again from its beginning: {why}");
            Problem::new(Code::UploadBusy, detail).after(retry_after)
        }
        Took::Conflict => {
            Problem::new(Code::UploadConflict, "this chunk has come with other bytes").field("body")
        }
        Took::Refused(refusal @ Refusal::TooLarge { .. }) => {
            Problem::new(Code::UploadTooLarge, refusal.to_string()).field("body")
        }
        Took::Refused(refusal) => Problem::new(Code::UploadRefused, refusal.to_string()),
        Took::Closed { status, error } => closed(status, &error),
        Took::Digest { sha256 } => {
            let detail = format!("the bytes that came have the SHA-256 {sha256}");
            Problem::new(Code::UploadDigest, detail).field("content-digest")
        }
        Took::Length { size } => {
            let detail = format!("{size} bytes came, and another number was announced");
            Problem::new(Code::UploadDigest, detail).field("content-length")
        }
        Took::Broken(why) if broke.is_some_and(BrokeOff::is_slow) => {
            let detail = format!(
                "the body: {why}; nothing of this chunk was kept, send all of it again: chunks that were received before stay"
            );
            Problem::new(Code::RequestTimeout, detail).field("body")
        }
        Took::Broken(why) => {
            Problem::new(Code::RequestInvalid, format!("the body broke off: {why}")).field("body")
        }
        Took::Unknown | Took::Received { .. } => unknown(id),
    }
}

/// An upload that takes no chunks.
pub(super) fn closed(status: Status, error: &str) -> Problem {
    let detail = match (status, error) {
        (Status::Failed, error) if !error.is_empty() => format!("the upload is FAILED: {error}"),
        (status, _) => format!("the upload is {status}"),
    };
    Problem::new(Code::UploadClosed, detail)
}

/// The SHA-256 of `Content-Digest` (RFC 9530), if it has one; other algorithms are not looked at.
fn digest(headers: &HeaderMap) -> Result<Option<Sha256>, Problem> {
    let wrong =
        |detail: &str| Problem::new(Code::RequestInvalid, format!("{DIGEST}: {detail}")).field(DIGEST);
    for value in headers.get_all(DIGEST) {
        let text = value.to_str().map_err(|_| wrong("it is not text"))?;
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((algorithm, value)) = entry.split_once('=') else {
                return Err(wrong("it is written sha-256=:<base64>:"));
            };
            if !algorithm.trim().eq_ignore_ascii_case("sha-256") {
                continue;
            }
            // What follows a semicolon are parameters, none of which means anything here.
            let value = value.split(';').next().unwrap_or_default().trim();
            return match sha256_of(value.trim_matches([':', '"'])) {
                None => Err(wrong("a SHA-256 is 32 bytes in base64: sha-256=:<base64>:")),
                found => Ok(found),
            };
        }
    }
    Ok(None)
}

/// Base64 as the header has it; hexadecimal digits, as tools print them, are taken too.
fn sha256_of(text: &str) -> Option<Sha256> {
    if text.len() == 64 {
        return text.parse().ok();
    }
    let bytes = BASE64_STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    Some(Sha256::from_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn a_digest_is_read_as_written_and_others_are_passed_over() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("content-digest", HeaderValue::from_str(text).unwrap());
            digest(&headers)
        };
        let sha = Sha256::of(b"abc");
        let base64 = BASE64_STANDARD.encode(sha.as_bytes());
        for good in [
            format!("sha-256=:{base64}:"),
            format!("SHA-256={base64}"),
            format!("sha-256={sha}"),
            format!("sha-256=\"{sha}\""),
            format!("sha-256={}", sha.to_string().to_uppercase()),
            format!("sha-256={}", base64.trim_end_matches('=')),
            format!("sha-256 = :{base64}:;x=1"),
            format!("sha-512=:AAAA:, sha-256=:{base64}:"),
        ] {
            assert_eq!(read(&good).unwrap(), Some(sha), "{good}");
        }
        assert_eq!(read("sha-512=:AAAA:").unwrap(), None);
        for bad in ["x", "sha-256=:AAAA:", "sha-256=", "sha-256=:!:"] {
            assert_eq!(read(bad).unwrap_err().field.as_deref(), Some("content-digest"), "{bad}");
        }
    }
}
