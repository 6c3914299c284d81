//! The fields of an upload.

use std::time::Duration;

use super::{
    Bytes, Count, DAY, Derived, Field, Form, HOUR, LONGEST, MILLISECOND, Or, Period, Table, Text, field,
    fields,
};
use crate::kind::Kind;

const MIB: u64 = 1 << 20;

/// The smallest part of S3 that is not the last.
pub(crate) const S3_PART_MIN: u64 = 5 * MIB;

/// The longest connector.
pub(crate) const CONNECTOR_MAX: usize = 128;

/// The longest topic, as Kafka bounds them.
const TOPIC_MAX: usize = 249;

const LASTING: Period = Period { least: MILLISECOND, most: LONGEST };
const CHUNK: Bytes = Bytes { least: 1, most: 5 << 30 };

pub(crate) static TABLE: Table = Table {
    path: "upload",
    kind: Some(Kind::Upload),
    fields: FIELDS,
    meaning: "Chunked uploads into object storage.",
    page: Some("uploads.md"),
    example: r#"[upload.documents]
objects = "file:objects"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Or<&'static str>> = field(
        "key",
        Text(Form::Pattern),
        Or("upload:{upload_id}:state"),
        "The key of an upload's state: a word, one placeholder for the upload's id, and a word.",
    );
    STATE_TTL: Field<Period, Or<Duration>> = field("state_ttl", LASTING, Or(DAY), "How long an upload's state lives.");
    CHUNK_TTL: Field<Period, Or<Duration>> = field(
        "chunk_ttl",
        LASTING,
        Or(HOUR),
        "How long received bytes wait for the object store. At most `state_ttl`.",
    );
    KEEP_AFTER_DONE: Field<Period, Or<Duration>> =
        field("keep_after_done", LASTING, Or(HOUR), "How long an ended upload is remembered.");
    WORKERS: Field<Count, Or<u64>> =
        field("workers", Count { least: 1, most: 1000 }, Or(20), "Parts that one process sends at once.");
    CHUNK_MIN: Field<Bytes, Or<u64>> = field(
        "chunk_min",
        CHUNK,
        Or(S3_PART_MIN),
        "The smallest chunk but the last. With `s3://` at least `5MiB`.",
    );
    CHUNK_MAX: Field<Bytes, Or<u64>> = field("chunk_max", CHUNK, Or(100 * MIB), "The largest chunk.");
    MAX_BYTES_IN_FLIGHT: Field<Bytes, Or<u64>> = field(
        "max_bytes_in_flight",
        Bytes { least: 1, most: 1 << 50 },
        Or(1 << 30),
        "Bytes that are received and not yet durable, over all uploads and nodes. At least `chunk_max`.",
    );
    OBJECTS: Field<Text, Or<&'static str>> = field(
        "objects",
        Text(Form::Url(&["s3://", "file:"])),
        Or("file:objects"),
        "Where objects go: `s3://bucket/prefix` or `file:FOLDER`.",
    );
    OBJECT_KEY: Field<Text, Or<&'static str>> = field(
        "object_key",
        Text(Form::Free),
        Or("connectors/{connector_id}/{node_id}.pb"),
        "The object's key: a relative path with `{node_id}` once and, if wanted, `{connector_id}`.",
    );
    CONNECTOR: Field<Text, Or<&'static str>> = field(
        "connector",
        Text(Form::Label(CONNECTOR_MAX)),
        Or("default"),
        "The connector of uploads that name none.",
    );
    DATABASE: Field<Text, Or<&'static str>> = field(
        "database",
        Text(Form::Url(&["sqlite:", "postgres://", "postgresql://"])),
        Or("sqlite:uploads.db"),
        "The SQL database: `sqlite:FILE` or `postgres://…`.",
    );
    EVENTS: Field<Text, Or<&'static str>> = field(
        "events",
        Text(Form::Url(&["kafka://", "outbox:"])),
        Or("outbox:"),
        "Where completed uploads are announced: `outbox:` keeps events to be read, `kafka://host:port,…` sends them.",
    );
    TOPIC: Field<Text, Or<&'static str>> = field(
        "topic",
        Text(Form::Label(TOPIC_MAX)),
        Or("repository.uploads.completed"),
        "The topic of completed uploads.",
    );
    CHUNKS: Field<Text, Derived> = field(
        "chunks",
        Text(Form::Url(&["file:", "redis://", "rediss://", "redis+", "rediss+"])),
        Derived("files of the data folder on the embedded store, else the store"),
        "Where received bytes wait: `file:FOLDER`, or a Redis of their own, which must not evict.",
    );
}
