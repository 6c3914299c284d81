//! The documented shapes: a job of the detection queue, a security event.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A job of `detection_queue`, field by field as the document has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) camera_id: String,
    pub(crate) file_path: String,
    pub(crate) timestamp: String,
}

/// A job of `analysis_queue`.
#[expect(clippy::struct_field_names, reason = "the document's own names")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) batch_id: String,
    pub(crate) camera_id: String,
    pub(crate) detection_ids: Vec<u64>,
    pub(crate) started_at: String,
    pub(crate) ended_at: String,
}

/// What goes out on `security_events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) r#type: String,
    pub(crate) data: Event,
}

/// What was seen, and how bad it is.
#[expect(clippy::struct_field_names, reason = "the document's own names")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) event_id: u64,
    pub(crate) batch_id: String,
    pub(crate) camera_id: String,
    pub(crate) risk_score: u8,
    pub(crate) risk_level: String,
    pub(crate) summary: String,
    pub(crate) started_at: String,
    pub(crate) detection_count: usize,
}

/// `2026-01-24T10:30:00.000000`: UTC, microseconds, no zone, as the document writes moments.
pub(crate) fn moment(at: Timestamp) -> String {
    format!("{at:.6}").trim_end_matches('Z').to_owned()
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_moment_is_written_as_documented() {
        let at: Timestamp = "2026-01-24T10:30:00Z".parse().unwrap();
        assert_eq!(moment(at), "2026-01-24T10:30:00.000000");
        let at: Timestamp = "2026-01-24T10:30:00.123456789Z".parse().unwrap();
        assert_eq!(moment(at), "2026-01-24T10:30:00.123456");
    }

    #[test]
    fn a_job_has_the_documented_fields_in_their_order() {
        let image = Image {
            camera_id: "front_door".into(),
            file_path: "/export/foscam/Front Door/image_001.jpg".into(),
            timestamp: "2026-01-24T10:30:00.000000".into(),
        };
        assert_eq!(
            serde_json::to_string(&image).unwrap(),
            r#"{"camera_id":"front_door","file_path":"/export/foscam/Front Door/image_001.jpg","timestamp":"2026-01-24T10:30:00.000000"}"#
        );
    }
}
