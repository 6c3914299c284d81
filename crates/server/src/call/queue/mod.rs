//! `queue push`, `claim`, `ack`, `nack`, `extend`, `pressure`, `pause`, `resume`, `peek`, `dead`, `redrive`, `purge`.

pub(crate) mod claim;
pub(crate) mod dead;
pub(crate) mod push;
pub(crate) mod settle;
pub(crate) mod state;
mod then;

pub(super) use claim::CLAIM;
pub(super) use dead::{DEAD, PURGE, REDRIVE};
pub(super) use push::PUSH;
pub(super) use settle::{ACK, EXTEND, NACK};
pub(super) use state::{PAUSE, PEEK, PRESSURE, RESUME};

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use quaymaster::Code;
use quaymaster::queue::{Item, Job};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::cache::readable;
use super::{Arg, ArgType};
use crate::http::problem::{Problem, excerpt};

pub(super) const LEASE_MS: Arg = Arg {
    name: "lease_ms",
    holds: ArgType::Positive,
    required: false,
    help: "How long the job stays away from others; the queue's own lease unless given",
};

/// A job as a claim, or an ack that claims, answers it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueJob {
    /// The job's id in this queue, the same in every attempt.
    #[schema(example = "1794744020000000")]
    id: String,
    /// What was pushed, byte for byte.
    payload: serde_json::Value,
    /// Which attempt this is, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    /// Proves that the job is ours: for `ack`, `nack` and `extend`.
    lease: String,
    /// How long it is.
    lease_expires_in_ms: u64,
}

/// Appends `"jobs":[…]`. By hand, since payloads are JSON already.
fn write_jobs(out: &mut Vec<u8>, jobs: &[Job]) {
    out.extend_from_slice(b"\"jobs\":[");
    for (at, job) in jobs.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"id\":\"" } else { b",{\"id\":\"" });
        out.extend_from_slice(job.id.as_bytes());
        out.extend_from_slice(b"\",\"payload\":");
        out.extend_from_slice(&job.payload);
        out.extend_from_slice(b",\"attempt\":");
        out.extend_from_slice(itoa::Buffer::new().format(job.attempt).as_bytes());
        out.extend_from_slice(b",\"lease\":\"");
        // Digits, dots and the letters of a token: nothing of it needs to be escaped.
        let _ = write!(out, "{}", job.lease);
        out.extend_from_slice(b"\",\"lease_expires_in_ms\":");
        out.extend_from_slice(itoa::Buffer::new().format(millis(job.lease_expires_in)).as_bytes());
        out.push(b'}');
    }
    out.push(b']');
}

/// What another program left in a list, and is no JSON.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueRaw {
    /// The item, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    /// The item in base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_base64: Option<String>,
    /// Why no worker could be given it.
    reason: String,
}

/// Appends `"items":[…]`. By hand, since they are JSON already, or nearly all of them.
fn write_items(out: &mut Vec<u8>, items: &[Item]) {
    out.extend_from_slice(b"\"items\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match item {
            Item::Json(json) => out.extend_from_slice(json),
            Item::Raw { bytes, reason } => {
                let (raw, raw_base64) = match readable(bytes) {
                    Ok(text) => (Some(text), None),
                    Err(packed) => (None, Some(packed)),
                };
                let _ =
                    serde_json::to_writer(&mut *out, &QueueRaw { raw, raw_base64, reason: reason.clone() });
            }
        }
    }
    out.push(b']');
}

fn written(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(160);
    // A struct of texts and numbers cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The caller's JSON as it was written, without the white space around it.
fn verbatim(value: &RawValue) -> Bytes {
    Bytes::copy_from_slice(value.get().trim_ascii().as_bytes())
}

fn missing(field: &str, why: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("{field} is missing; {why}")).field(field)
}

fn owned(text: Option<Cow<'_, str>>) -> Option<String> {
    text.map(Cow::into_owned)
}

/// An integer parameter of a query.
fn number(text: Option<&str>, field: &'static str) -> Result<Option<u64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let detail = format!("{field} must be an integer of at least 0, got {}", excerpt(text));
        Problem::new(Code::RequestInvalid, detail).field(field)
    })
}
