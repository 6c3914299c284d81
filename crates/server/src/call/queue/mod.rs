//! `queue push`, `claim`, `ack`, `nack`, `extend`, `pressure`, `pause`, `resume`, `peek`, `range`, `trim`,
//! `dead`, `redrive`, `purge`.

pub(crate) mod claim;
pub(crate) mod dead;
pub(crate) mod push;
pub(crate) mod scores;
pub(crate) mod settle;
pub(crate) mod state;
mod then;

use std::borrow::Cow;
use std::io::Write as _;

use bytes::Bytes;
use quaymaster::queue::{Item, Job, LEASE_MAX, MAX_COUNT, WORKER_MAX};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::cache::readable;
use super::millis;
use crate::request::{KeyValues, Spec};

/// How many jobs or letters are wanted.
const COUNT: Spec = Spec::integer(1, MAX_COUNT as u64);

const LEASE_MS: Spec = Spec::integer(1, LEASE_MAX.as_millis() as u64)
    .about("How long they stay away from others; the queue's own lease unless given.");

const WORKER: Spec = Spec::text_of(1, WORKER_MAX)
    .also(r#"{"pattern": "^([!-,.-~]|[!-~]{2,})$"}"#)
    .about("A name that is kept with the jobs while they are held.");

/// A job as a claim, or an ack that claims, answers it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub(crate) struct QueueJob {
    /// The job's id in this queue, the same in every attempt.
    #[schemars(extend("examples" = ["1794744020000000"]))]
    id: String,
    /// What was pushed, byte for byte.
    payload: serde_json::Value,
    /// Which attempt this is, from 1.
    #[schemars(range(min = 1))]
    attempt: u32,
    /// Proves that the job is ours: for `ack`, `nack` and `extend`.
    #[schemars(extend("examples" = ["1794744020000000.1.x3VqJ0"]))]
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

/// What another program left in a list, and no worker can be given.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum QueueRaw {
    /// It is text.
    Text {
        /// The item.
        raw: String,
        /// Why no worker can be given it.
        reason: String,
    },
    /// It is not even text.
    Bytes {
        /// The item in base64.
        raw_base64: String,
        /// Why no worker can be given it.
        reason: String,
    },
}

fn raw(bytes: &Bytes, reason: &str) -> QueueRaw {
    let reason = reason.to_owned();
    match readable(bytes) {
        Ok(raw) => QueueRaw::Text { raw, reason },
        Err(raw_base64) => QueueRaw::Bytes { raw_base64, reason },
    }
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
                let _ = serde_json::to_writer(&mut *out, &raw(bytes, reason));
            }
        }
    }
    out.push(b']');
}

/// The caller's JSON as it was written, without the white space around it.
fn verbatim(value: &RawValue) -> Bytes {
    Bytes::copy_from_slice(value.get().trim_ascii().as_bytes())
}

fn owned(text: Option<Cow<'_, str>>) -> Option<String> {
    text.map(Cow::into_owned)
}

/// Values of a key's placeholders.
fn owned_pairs(pairs: KeyValues<'_>) -> Vec<(String, String)> {
    pairs.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// As many as one machine could hold, where it is more.
fn count_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
