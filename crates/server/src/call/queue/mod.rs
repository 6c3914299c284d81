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

use bytes::Bytes;
use quaymaster::queue::{Item, Job, LEASE_MAX, Lease, MAX_COUNT, WORKER_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

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
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueJob<'a> {
    /// The job's id in this queue, the same in every attempt.
    #[schemars(extend("examples" = ["1794744020000000"]))]
    id: &'a str,
    /// The payload as it was written, without white space around it.
    #[schemars(with = "serde_json::Value")]
    payload: Cow<'a, RawValue>,
    /// Which attempt this is, from 1.
    #[schemars(range(min = 1))]
    attempt: u32,
    /// Proves that the job is ours: for `ack`, `nack` and `extend`.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String", extend("examples" = ["1794744020000000.1.x3VqJ0"]))]
    lease: &'a Lease,
    /// How long it is.
    lease_expires_in_ms: u64,
}

impl<'a> QueueJob<'a> {
    fn all(jobs: &'a [Job]) -> Vec<Self> {
        let one = |job: &'a Job| Self {
            id: &job.id,
            payload: as_raw_json(&job.payload),
            attempt: job.attempt,
            lease: &job.lease,
            lease_expires_in_ms: millis(job.lease_expires_in),
        };
        jobs.iter().map(one).collect()
    }
}

/// An answer with jobs in it, in one buffer that holds all of them.
fn written_with(answer: &impl Serialize, jobs: &[Job]) -> Bytes {
    let mut out = Vec::with_capacity(64 + jobs.iter().map(|job| job.payload.len() + 160).sum::<usize>());
    // Texts, numbers and JSON cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

fn as_text<S: Serializer>(lease: &Lease, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(lease)
}

/// JSON as it lies in the store, where it was read as JSON, without white space around it; what is none after all is a
/// string.
fn as_raw_json(bytes: &Bytes) -> Cow<'_, RawValue> {
    match serde_json::from_slice(bytes) {
        Ok(raw) => Cow::Borrowed(raw),
        Err(_) => Cow::Owned(to_raw_value(&String::from_utf8_lossy(bytes)).unwrap_or_default()),
    }
}

/// What another program left in a list, and no worker can be given.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum QueueRaw {
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

/// An item of a list.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum QueueItem<'a> {
    Json(Cow<'a, RawValue>),
    Raw(QueueRaw),
}

impl<'a> QueueItem<'a> {
    fn of(item: &'a Item) -> Self {
        match item {
            Item::Json(bytes) => Self::Json(as_raw_json(bytes)),
            Item::Raw { bytes, reason } => Self::Raw(raw(bytes, reason)),
        }
    }

    fn all(items: &'a [Item]) -> Vec<Self> {
        items.iter().map(Self::of).collect()
    }
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use super::*;

    /// JSON that no reader of numbers, texts or deep lists gives back as it was.
    fn odd() -> [String; 5] {
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        ["{\"b\":1, \"a\":1.10,\"a\":2}", "1e999", "\"\\ud800\"", "12345678901234567890123", &deep]
            .map(str::to_owned)
    }

    #[test]
    fn white_space_around_what_another_program_pushed_is_left_out_and_inside_it_is_kept() {
        let told = |item: &'static str| as_raw_json(&Bytes::from_static(item.as_bytes())).get().to_owned();
        assert_eq!(told(" {\"a\":1}\n"), "{\"a\":1}");
        assert_eq!(told("{ \"a\" : 1 }"), "{ \"a\" : 1 }");
    }

    #[test]
    fn payloads_and_items_go_out_byte_for_byte() {
        for json in odd() {
            let job = Job {
                id: "7".to_owned(),
                payload: json.clone().into(),
                attempt: 1,
                lease: Lease::parse("queue.ack", "7.1.x3V-_0").unwrap(),
                lease_expires_in: Duration::from_secs(30),
            };
            let jobs = [job];
            let told = written_with(&claim::QueueClaimed { jobs: QueueJob::all(&jobs) }, &jobs);
            let wanted = format!(
                r#"{{"jobs":[{{"id":"7","payload":{json},"attempt":1,"lease":"7.1.x3V-_0","lease_expires_in_ms":30000}}]}}"#
            );
            assert!(told == wanted.as_bytes(), "{}", String::from_utf8_lossy(&told));
            let items =
                [Item::Json(json.clone().into()), Item::Raw { bytes: "x".into(), reason: "y".into() }];
            let told = super::super::written(&QueueItem::all(&items));
            let wanted = format!(r#"[{json},{{"raw":"x","reason":"y"}}]"#);
            assert!(told == wanted.as_bytes(), "{}", String::from_utf8_lossy(&told));
        }
    }
}
