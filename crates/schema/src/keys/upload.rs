//! Chunked uploads.

use std::time::Duration;

use super::{RowDraft, never, row, side};
use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::UploadSpec;

/// How long bytes on their way in may lie before the request that sent them is given up.
const STAGING_TTL: Duration = Duration::from_secs(600);

/// The longest lease of a chunk.
const LEASE_MAX: Duration = Duration::from_secs(900);

/// Why the account of bytes in flight may live for ever.
const PRUNED: &str = "bounded by the bytes in flight; what has ended is pruned";

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

const WORK_FIELDS: &[(&str, &str)] = &[
    ("deadline", "epoch milliseconds after which the upload is EXPIRED"),
    ("bytes_received", "bytes of the chunks received"),
    ("bytes_uploaded", "bytes of the chunks durable"),
    ("sized", "1 when the size was announced"),
    ("seq", "number of the last progress message"),
    ("aborted", "1 when the client gave it up"),
    ("first_at", "epoch milliseconds at which the first chunk was received"),
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
        let row = row(role, template, RedisType::String, ttl, purpose);
        Some(row.class(placeholder, class).format("raw bytes"))
    };
    let all = Template::of_text(&key.literal_head());
    let index = |role, suffix, holds, why, purpose| {
        side(role, &all, suffix, None, holds, never(why), purpose).apart()
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
        .format(
            "score: chunk number; member: ETag, after `{part number}:` where another part has the same one",
        ),
        of("metadata", "metadata", RedisType::Hash, state(), "What the client said about the file")?
            .fields(METADATA_FIELDS),
        of(
            "received",
            "received",
            RedisType::Hash,
            state(),
            "Digest, size and place of every chunk ever received",
        )?
        .format("field: chunk number; value: digest, bytes, where they are, and which attempt brought them"),
        of("map", "map", RedisType::String, state(), "Where every chunk stands, a byte each")?
            .format("at the chunk's number: r received, d durable, m to be sent again, zero never seen"),
        of("todo", "todo", RedisType::Zset, state(), "Chunks to ship, by when they may be claimed")?
            .format("score: epoch milliseconds, of a claimed one the end of its lease"),
        of("leases", "leases", RedisType::Hash, state(), "Attempts and lease of every chunk to ship")?
            .format("field: chunk number; value: attempts and the lease's token, `-` for none"),
        of("work", "work", RedisType::Hash, state(), "What the state does not tell")?.fields(WORK_FIELDS),
        numbered(
            "claim",
            "claims",
            "claim_id",
            Class::Narrow,
            Ttl::For(LEASE_MAX),
            "The chunks a claim got",
        )?
        .format("chunk numbers"),
        numbered(
            "staging",
            "staging",
            "stage_id",
            Class::Narrow,
            Ttl::For(STAGING_TTL),
            "Bytes on their way in",
        )?,
        index(
            "uploads",
            "uploads",
            RedisType::Zset,
            "one member per upload",
            "Uploads by when the sweep is to act",
        ),
        index(
            "ready",
            "ready",
            RedisType::Zset,
            "one member per upload",
            "Uploads with chunks to claim, by when",
        ),
        index(
            "in_flight",
            "in_flight",
            RedisType::Hash,
            PRUNED,
            "Bytes that are on their way or not yet durable",
        ),
        index("in_flight_until", "in_flight_until", RedisType::Zset, PRUNED, "When each of them is given up"),
        index("in_flight_total", "in_flight_total", RedisType::String, "one number", "Their sum"),
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
            "Progress of one upload; `seq` numbers the messages, `received_chunks` is ahead of what is durable",
            &[
                ("uploaded_chunks", "chunks durable"),
                ("total_chunks", "chunks expected; 0 while unknown"),
                ("bytes_uploaded", "bytes durable"),
                ("total_bytes", "bytes expected; 0 while unknown, the object's size once COMPLETED"),
                (
                    "percent",
                    "share of the chunks that are durable; of the bytes expected while `total_chunks` is unknown",
                ),
                ("status", "as in the state"),
            ],
        ),
    ]
}
