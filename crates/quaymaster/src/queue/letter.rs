//! The documented dead-letter item. No I/O.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::pack::is_packed;
use crate::moment::document_text;

/// What became of a job.
pub(super) struct Death<'a> {
    pub(super) queue: &'a str,
    /// The JSON it was, or the bytes that are none.
    pub(super) job: Corpse<'a>,
    pub(super) error: &'a str,
    pub(super) attempts: u32,
    pub(super) first_failed_us: i64,
    pub(super) last_failed_us: i64,
    /// Its priority, in a priority queue.
    pub(super) priority: Option<f64>,
}

pub(super) enum Corpse<'a> {
    Json(&'a str),
    Raw(&'a [u8]),
}

#[derive(Serialize)]
struct Written<'a, J: Serialize> {
    original_job: J,
    error: &'a str,
    attempt_count: u32,
    first_failed_at: String,
    last_failed_at: String,
    queue_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<f64>,
    /// Only where `original_job` is a string in place of the item: `text` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    original_encoding: Option<&'static str>,
}

impl Death<'_> {
    /// The letter. An item that is not JSON is kept as a string, by base64 if it is not text.
    pub(super) fn letter(&self) -> serde_json::Result<Vec<u8>> {
        match &self.job {
            Corpse::Json(text) => self.write(serde_json::from_str::<&RawValue>(text)?, None),
            Corpse::Raw(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.write(text, Some("text")),
                Err(_) => self.write(STANDARD.encode(bytes), Some("base64")),
            },
        }
    }

    fn write(
        &self,
        original_job: impl Serialize,
        original_encoding: Option<&'static str>,
    ) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Written {
            original_job,
            error: self.error,
            attempt_count: self.attempts,
            first_failed_at: document_text(self.first_failed_us),
            last_failed_at: document_text(self.last_failed_us),
            queue_name: self.queue,
            priority: self.priority,
            original_encoding,
        })
    }
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    original_job: &'a RawValue,
    last_failed_at: Option<&'a str>,
    priority: Option<f64>,
    original_encoding: Option<&'a str>,
}

/// A letter read back.
pub(super) struct Letter {
    /// The job, where it can be pushed again.
    pub(super) job: Option<Bytes>,
    pub(super) priority: Option<f64>,
    pub(super) last_failed_us: Option<i64>,
}

/// A letter of ours or of another program that writes the documented item; `None` for anything else.
pub(super) fn read(letter: &Bytes) -> Option<Letter> {
    let text = std::str::from_utf8(letter).ok()?;
    let read: Read<'_> = serde_json::from_str(text).ok()?;
    let raw = read.original_job.get();
    let job = match read.original_encoding {
        None => Some(letter.slice_ref(raw.as_bytes())),
        // Text that is not JSON is pushed as it was. What begins like a compressed item and is none would only die
        // again.
        Some("text") => {
            let text = serde_json::from_str::<String>(raw).ok().map(Bytes::from);
            text.filter(|text| !is_packed(text))
        }
        Some(_) => None,
    };
    Some(Letter {
        job,
        priority: read.priority.filter(|priority| priority.is_finite()),
        last_failed_us: read.last_failed_at.and_then(parse_moment),
    })
}

/// With or without an offset; without one it is UTC.
fn parse_moment(text: &str) -> Option<i64> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_microsecond());
    }
    let time: DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond())
}
