//! An item as it lies in the list: JSON as it is, or `Z:` and base64 of zstd. No I/O.
//!
//! Another program may push text that is not JSON: `ZADD priority_queue 9 item_id`. It is handed out as a JSON string.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::json::{self, NotJson};
use crate::{Code, Error, Result};

/// What a compressed item begins with; no JSON does.
const PREFIX: &[u8] = b"Z:";

/// The largest window a frame may ask for, 16 MiB: a few bytes must not make us reserve more.
const WINDOW_LOG: u32 = 24;

/// The item for a payload: compressed where the schema says so and it helps.
pub(crate) fn pack(payload: &Bytes, over: Option<u64>) -> Bytes {
    if over.is_none_or(|over| payload.len() as u64 <= over) {
        return payload.clone();
    }
    let Ok(folded) = zstd::bulk::compress(payload, zstd::DEFAULT_COMPRESSION_LEVEL) else {
        return payload.clone();
    };
    let mut item = String::with_capacity(PREFIX.len() + folded.len() * 4 / 3 + 4);
    item.push_str("Z:");
    STANDARD.encode_string(&folded, &mut item);
    if item.len() < payload.len() { item.into() } else { payload.clone() }
}

/// What an item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// JSON text: the item's own, or a string of the text that it is.
    pub(super) json: Bytes,
    /// The text of an item that is not JSON.
    pub(super) text: Option<Bytes>,
}

/// Why nobody can be told what an item says.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("`Z:` without base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("`Z:` without zstd: {0}")]
    Zstd(#[from] std::io::Error),
    /// As `most` bytes at most may be unfolded.
    #[error("it unfolds to more than {0} bytes")]
    Unfolded(usize),
    #[error("not JSON: {0}")]
    NotJson(#[source] NotJson),
    /// Text that is not JSON.
    #[error("not JSON: {why}; as a string it has more than {most} bytes")]
    LongText {
        #[source]
        why: NotJson,
        most: usize,
    },
}

/// What an item says, or why nobody can be told. A compressed one unfolds to `most` bytes at most, and text that is
/// not JSON may have as many as a string.
pub(super) fn unpack(item: &Bytes, most: usize) -> Result<Unpacked, Unreadable> {
    let Some(folded) = item.strip_prefix(PREFIX) else { return read(item.clone(), most) };
    let folded = STANDARD.decode(folded)?;
    let mut decoder = zstd::stream::read::Decoder::with_buffer(&folded[..])?;
    decoder.window_log_max(WINDOW_LOG)?;
    let mut payload = Vec::new();
    decoder.take(most as u64 + 1).read_to_end(&mut payload)?;
    if payload.len() > most {
        return Err(Unreadable::Unfolded(most));
    }
    read(payload.into(), most)
}

/// JSON as it is; other text as a JSON string.
pub(super) fn read(bytes: Bytes, most: usize) -> Result<Unpacked, Unreadable> {
    let Err(why) = json::check(&bytes) else { return Ok(Unpacked { json: bytes, text: None }) };
    // Bytes that are no text are no string either.
    let Ok(text) = std::str::from_utf8(&bytes) else { return Err(Unreadable::NotJson(why)) };
    if text.len() > most {
        return Err(Unreadable::LongText { why, most });
    }
    let mut json = String::with_capacity(text.len() + 2);
    crate::json::push_text(&mut json, text);
    if json.len() > most {
        return Err(Unreadable::LongText { why, most });
    }
    Ok(Unpacked { json: json.into(), text: Some(bytes) })
}

/// Whether an item is compressed: what it unfolds to is not known from its length.
pub(super) fn is_packed(item: &[u8]) -> bool {
    item.starts_with(PREFIX)
}

/// Refuses what is not one JSON text in this field of a call.
pub(super) fn check_json(op: &'static str, field: &'static str, bytes: &[u8]) -> Result<()> {
    json::check(bytes).map_err(|why| {
        let detail = format!("{field}: not JSON: {why}");
        Error::new(op, Code::RequestInvalid, detail).field(field).because(why)
    })
}
