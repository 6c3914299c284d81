//! What an upload is, as the store has it.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::answer::{Receipt, Status};

/// All there is to know of an upload but its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its id.
    pub upload_id: String,
    /// UUID of the document.
    pub node_id: String,
    /// The object store's multipart id.
    pub multipart_id: String,
    /// The object's key.
    pub key: String,
    /// The drive's name.
    pub drive: String,
    /// Its status.
    pub status: Status,
    /// The client gave it up.
    pub aborted: bool,
    /// The size as announced.
    pub expected_size: Option<u64>,
    /// How far it has come.
    pub receipt: Receipt,
    /// Bytes of the chunks received; the durable ones are among them.
    pub bytes_received: u64,
    /// Bytes of the chunks durable.
    pub bytes_durable: u64,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// When its first chunk was received, in milliseconds since the epoch; `None` when none was, or the store has
    /// forgotten.
    pub first_chunk_ms: Option<i64>,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
    /// When it expires, in milliseconds since the epoch.
    pub deadline_ms: i64,
    /// The store's clock, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The MIME type.
    pub mime_type: String,
    /// The object's ETag, when completed.
    pub final_etag: Option<String>,
    /// The object's size, when completed.
    pub final_size: Option<u64>,
    /// What went wrong, when it failed; why its completion waits, while it does.
    pub error: Option<String>,
    /// The number of the last progress message.
    pub seq: u64,
    pub(super) map: Bytes,
}

impl State {
    fn ranges(&self, wanted: impl Fn(u8) -> bool) -> Vec<RangeInclusive<u32>> {
        let mut found: Vec<RangeInclusive<u32>> = Vec::new();
        for (number, mark) in (0u32..).zip(self.map.iter()) {
            if !wanted(*mark) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.end() + 1 == number => *last = *last.start()..=number,
                _ => found.push(number..=number),
            }
        }
        found
    }

    /// Numbers of chunks received and not yet durable.
    pub fn received(&self) -> Vec<RangeInclusive<u32>> {
        self.ranges(|mark| mark == b'r')
    }

    /// Numbers of durable chunks.
    pub fn durable(&self) -> Vec<RangeInclusive<u32>> {
        self.ranges(|mark| mark == b'd')
    }

    /// Numbers of chunks that were received, are lost, and must be sent again.
    pub fn resend(&self) -> Vec<RangeInclusive<u32>> {
        self.ranges(|mark| mark == b'm')
    }

    /// Whether a chunk is received or durable.
    pub fn has(&self, number: u32) -> bool {
        matches!(self.map.get(number as usize), Some(b'r' | b'd'))
    }

    /// Whether its other half is missing: another program began it, or it was lost.
    pub fn is_half(&self) -> bool {
        self.deadline_ms == 0
    }

    /// Whether nothing can follow any more.
    pub fn is_ended(&self) -> bool {
        self.aborted || matches!(self.status, Status::Completed | Status::Expired)
    }
}

/// What the client said about the file, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// The file's name.
    pub name: String,
    /// The connector.
    pub connector_id: String,
    /// UUID of the folder.
    pub parent_id: String,
    /// The relative path.
    pub path: String,
    /// A JSON object.
    pub custom_metadata: String,
    /// The client's own stable id.
    pub client_node_id: String,
}
