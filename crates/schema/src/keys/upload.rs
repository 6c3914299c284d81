//! Chunked uploads.

use std::time::Duration;

use super::{RowDraft, never, row, side};
use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::UploadSpec;

/// How long bytes on their way in may lie before the request that sent them is given up.
const STAGING_TTL: Duration = Duration::from_secs(600);

const STATE_FIELDS: &[(&str, &str)] = &[
    ("node_id", "UUID of the document"),
    ("s3_upload_id", "the object store's multipart id"),
    ("s3_key", "the object's key"),
    ("drive", "the drive's name"),
    ("status", "PENDING, UPLOADING, COMPLETING, COMPLETED, FAILED or EXPIRED"),
    ("expected_size", "the file's size in bytes, as announced"),
    ("received_chunks", "chunks received from the client"),
    ("uploaded_chunks", "chunks durable in the object store"),
    ("total_chunks", "chunks expected; 0 while unknown"),
    ("is_last_received", "true once the last chunk has come"),
    ("created_at", "epoch milliseconds"),
    ("updated_at", "epoch milliseconds"),
    ("mime_type", "the MIME type"),
    ("final_etag", "the object's ETag when completed"),
    ("final_size", "the object's size when completed"),
    ("error_message", "what went wrong, when FAILED"),
];

const METADATA_FIELDS: &[(&str, &str)] = &[
    ("name", "the file's name"),
    ("connector_id", "the connector"),
    ("parent_id", "UUID of the folder"),
    ("path", "the relative path"),
    ("custom_metadata", "a JSON object"),
    ("client_node_id", "the client's own stable id"),
];

/// `key` is `…:{upload_id}:state`; the upload's other keys differ in the last segment. `None` for another shape.
pub(crate) fn upload_rows(key: &Template, spec: &UploadSpec) -> Option<Vec<RowDraft>> {
    let (state, chunk) = (|| Ttl::For(spec.state_ttl), || Ttl::For(spec.chunk_ttl));
    let of = |role, last: &str, holds, ttl, purpose: &str| {
        Some(row(role, key.sibling(last)?, holds, ttl, purpose))
    };
    let numbered = |role, last: &str, placeholder: &'static str, class, ttl, purpose: &str| {
        let mut template = key.sibling(last)?;
        template.push_text(":");
        template.push_name(placeholder);
        Some(
            row(role, template, RedisType::String, ttl, purpose)
                .class(placeholder, class)
                .format("raw bytes"),
        )
    };
    let all = Template::of_text(&key.literal_head());
    let index = |role, suffix, holds, purpose| {
        side(role, &all, suffix, None, holds, never("one member per upload in work"), purpose).apart()
    };
    Some(vec![
        row("state", key.clone(), RedisType::Hash, state(), "The state of an upload").fields(STATE_FIELDS),
        numbered(
            "chunk",
            "chunks",
            "chunk_number",
            Class::Digits,
            chunk(),
            "The bytes of a chunk until they are durable",
        )?,
        of(
            "etags",
            "etags",
            RedisType::Zset,
            state(),
            "ETags of the parts stored; a view of the recorded parts",
        )?
        .format("score: chunk number; member: part number and ETag"),
        of("metadata", "metadata", RedisType::Hash, state(), "What the client said about the file")?
            .fields(METADATA_FIELDS),
        of("received", "received", RedisType::Hash, state(), "Digest and size of every chunk ever received")?
            .format("field: chunk number; value: digest and bytes"),
        of("leases", "leases", RedisType::Zset, state(), "Chunks being sent, by the end of their lease")?,
        numbered(
            "staging",
            "staging",
            "stage_id",
            Class::Narrow,
            Ttl::For(STAGING_TTL),
            "Bytes on their way in",
        )?,
        index("uploads", "uploads", RedisType::Zset, "Uploads by their deadline, for the sweep"),
        index("ready", "ready", RedisType::List, "Chunks that wait for a worker"),
        index("in_flight", "in_flight", RedisType::String, "Bytes received and not yet durable"),
        side(
            "create",
            &all,
            "create",
            Some(("idempotency_key", Class::Wide)),
            RedisType::String,
            state(),
            "The upload that an idempotency key created",
        )
        .apart(),
    ])
}

/// A channel: role, name, purpose, and the fields of its messages.
pub(crate) type ChannelFacts =
    (&'static str, Template, &'static str, &'static [(&'static str, &'static str)]);

pub(crate) fn upload_channels(key: &Template, id: &str) -> [ChannelFacts; 2] {
    let head = key.literal_head();
    let mut progress = Template::of_text(&format!("{head}:progress:"));
    progress.push_name(id);
    [
        (
            "received",
            Template::of_text(&format!("{head}:chunk:received")),
            "Wakes a worker when a chunk has come; a hint, the chunk is found without it",
            &[
                ("upload_id", "the upload"),
                ("chunk_number", "the chunk"),
                ("is_last", "whether it is the last"),
                ("timestamp", "epoch milliseconds"),
            ],
        ),
        (
            "progress",
            progress,
            "Progress of one upload",
            &[
                ("uploaded_chunks", "chunks durable"),
                ("total_chunks", "chunks expected; 0 while unknown"),
                ("bytes_uploaded", "bytes durable"),
                ("total_bytes", "bytes expected"),
                ("percent", "share of the bytes that are durable"),
                ("status", "as in the state"),
            ],
        ),
    ]
}
