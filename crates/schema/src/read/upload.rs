//! Reading an upload.

use std::time::Duration;

use super::common::{Body, LONGEST, MILLISECOND, Reading};
use super::draft::ChannelDraft;
use super::report::At;
use crate::diagnostic::excerpt;
use crate::keys::{upload_channels, upload_rows};
use crate::pattern::Template;
use crate::schema::Field;
use crate::spec::{Spec, UploadSpec};

const MIB: u64 = 1 << 20;

/// Where chunks may wait.
const CHUNKS: [&str; 5] = ["file:", "redis://", "rediss://", "redis+", "rediss+"];

/// The longest connector.
const CONNECTOR_MAX: usize = 128;

/// A document's id is a UUID.
const NODE_ID: usize = 36;

/// The smallest part of S3 that is not the last.
const S3_PART_MIN: u64 = 5 * MIB;

/// Bytes of an object's key, as S3 bounds them.
const KEY_MAX: usize = 1024;

/// Bytes of a key between two slashes, as file systems bound them.
const SEGMENT_MAX: usize = 255;

/// The longest topic, as Kafka bounds them.
const TOPIC_MAX: usize = 249;

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let key = reading.key_or("key", "upload:{upload_id}:state");
    let chunk_ttl = fields.duration("chunk_ttl", MILLISECOND, LONGEST);
    let chunk_at = chunk_ttl.at().unwrap_or(fields.at);
    let min = fields.size("chunk_min", 1, 5 << 30);
    let min_at = min.at().unwrap_or(fields.at);
    let max = fields.size("chunk_max", 1, 5 << 30);
    let max_at = max.at().unwrap_or(fields.at);
    let in_flight = fields.size("max_bytes_in_flight", 1, 1 << 50);
    let in_flight_at = in_flight.at().unwrap_or(fields.at);
    let scheme = |name, default: &str, schemes: &[&str]| url(reading, name, default, schemes);
    // All are asked for before one that is wrong ends the reading: what nobody asked for is told as unknown.
    let objects = scheme("objects", "file:objects", &["s3://", "file:"]);
    let database = scheme("database", "sqlite:uploads.db", &["sqlite:", "postgres://", "postgresql://"]);
    let events = scheme("events", "outbox:", &["kafka://", "outbox:"]);
    let chunks = match fields.text("chunks") {
        super::fields::Got::Absent => Some(None),
        _ => scheme("chunks", "file:spool", &CHUNKS).map(Some),
    };
    let (object_key, connector) = (object_key(reading, objects.as_deref()), connector(reading));
    let topic = topic(reading);
    let spec = UploadSpec {
        state_ttl: reading.duration("state_ttl", Duration::from_secs(86_400)),
        chunk_ttl: chunk_ttl.or(Duration::from_secs(3600)),
        workers: fields.count("workers", 1, 1000).or(20) as u32,
        max_bytes_in_flight: in_flight.or(1 << 30),
        chunk_min: min.or(S3_PART_MIN),
        chunk_max: max.or(100 * MIB),
        keep_after_done: reading.duration("keep_after_done", Duration::from_secs(3600)),
        objects: objects?,
        database: database?,
        events: events?,
        chunks: chunks?,
        object_key: object_key?,
        connector: connector?,
        topic: topic?,
    };
    if spec.chunk_ttl > spec.state_ttl {
        let message = "a chunk would outlive the state of its upload";
        reading.add(chunk_at, "contradiction", message, Some("make `chunk_ttl` at most `state_ttl`"));
    }
    if spec.chunk_min > spec.chunk_max {
        reading.add(max_at, "contradiction", "`chunk_max` is smaller than `chunk_min`", None);
    }
    if spec.chunk_min < S3_PART_MIN && spec.objects.starts_with("s3://") {
        // Told by S3 only when all parts are there: every chunk would be acknowledged, and no upload ever completed.
        let message = format!(
            "`objects` is in S3, which completes no object with parts under 5 MiB; `chunk_min` is {} bytes",
            spec.chunk_min
        );
        reading.add(min_at, "contradiction", message, Some("make `chunk_min` at least \"5MiB\""));
    }
    if spec.max_bytes_in_flight < spec.chunk_max {
        let message = "the largest chunk would never be admitted";
        reading.add(
            in_flight_at,
            "contradiction",
            message,
            Some("`max_bytes_in_flight` must be at least `chunk_max`"),
        );
    }
    let (key, key_at) = key?;
    let names: Vec<String> = key.names().map(str::to_owned).collect();
    let shape = || {
        reading.add(
            key_at,
            "bad-pattern",
            "the key of an upload is `…:{id}:word`, as in `upload:{upload_id}:state`",
            None,
        );
    };
    let ([id], None) = (names.as_slice(), key.bucket()) else {
        shape();
        return None;
    };
    let Some(rows) = upload_rows(&key, &spec).filter(|_| !key.literal_head().is_empty()) else {
        shape();
        return None;
    };
    let mut tag = Template::default();
    tag.push_name(id);
    let mut body = Body::new(Spec::Upload(spec), rows, key_at);
    body.tag = tag;
    // We make the ids; none has a separator.
    body.wide = None;
    body.channels = upload_channels(&key, id).into_iter().map(channel).collect();
    Some(body)
}

fn channel((role, template, purpose, fields): crate::keys::ChannelFacts) -> ChannelDraft {
    let field = |(name, meaning): &(&str, &str)| Field { name: (*name).into(), meaning: (*meaning).into() };
    ChannelDraft { role, template, purpose: purpose.to_owned(), fields: fields.iter().map(field).collect() }
}

fn url(reading: &Reading<'_, '_>, name: &'static str, default: &str, schemes: &[&str]) -> Option<String> {
    let got = reading.fields.text(name);
    let at: At = got.at().unwrap_or(reading.fields.at);
    let text = got.or(default.to_owned());
    if schemes.iter().any(|scheme| text.starts_with(scheme)) {
        return Some(text);
    }
    // Only what stands before the first `:`; a password may stand after it.
    let text = text.split(':').next().unwrap_or_default();
    let wanted = schemes.join(", ");
    reading.add(
        at,
        "bad-value",
        format!("`{name}` must begin with one of {wanted}, not {}", excerpt(text)),
        None,
    );
    None
}

/// The connector of uploads that name none: a part of their objects' keys, and refused by every upload otherwise.
fn connector(reading: &Reading<'_, '_>) -> Option<String> {
    let got = reading.fields.text("connector");
    let at = got.at().unwrap_or(reading.fields.at);
    let text = got.or("default".to_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=CONNECTOR_MAX).contains(&text.len())
        && text.chars().all(plain)
        && !matches!(text.as_str(), "." | "..")
    {
        return Some(text);
    }
    let message = format!("`connector` has 1 to {CONNECTOR_MAX} letters, digits, `.`, `_` and `-`");
    reading.add(at, "bad-value", message, None);
    None
}

/// What events are recorded under: a name that Kafka could have, wherever they go.
fn topic(reading: &Reading<'_, '_>) -> Option<String> {
    let got = reading.fields.text("topic");
    let at = got.at().unwrap_or(reading.fields.at);
    let text = got.or("repository.uploads.completed".to_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=TOPIC_MAX).contains(&text.len())
        && text.chars().all(plain)
        && !matches!(text.as_str(), "." | "..")
    {
        return Some(text);
    }
    let message = format!("`topic` has 1 to {TOPIC_MAX} letters, digits, `.`, `_` and `-`");
    reading.add(at, "bad-value", message, None);
    None
}

/// The object's key: no traversal, one object per upload, and never longer than object stores take it.
fn object_key(reading: &Reading<'_, '_>, objects: Option<&str>) -> Option<String> {
    let got = reading.fields.text("object_key");
    let at = got.at().unwrap_or(reading.fields.at);
    let text = got.or("connectors/{connector_id}/{node_id}.pb".to_owned());
    let plain = text.replace("{connector_id}", "c").replace("{node_id}", "n");
    let sound = text.matches("{node_id}").count() == 1
        && !plain.contains(['{', '}', '\\'])
        && !plain.contains(char::is_control)
        && plain.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !sound {
        let message =
            "`object_key` is a relative path with `{node_id}` once and, if wanted, `{connector_id}`";
        reading.add(at, "bad-value", message, None);
        return None;
    }
    if let Some(message) = too_long(&text, objects.unwrap_or_default()) {
        reading.add(at, "bad-value", message, None);
        return None;
    }
    Some(text)
}

/// Why the longest key of this form could be none. Whoever uploads names the connector, so it is counted with all that it
/// may have: an object store would refuse the key when the upload's rows are written already.
fn too_long(object_key: &str, objects: &str) -> Option<String> {
    let longest = |part: &str| {
        let connectors = part.matches("{connector_id}").count();
        let nodes = part.matches("{node_id}").count();
        let names = connectors * "{connector_id}".len() + nodes * "{node_id}".len();
        part.len() - names + connectors * CONNECTOR_MAX + nodes * NODE_ID
    };
    let with = format!("with a connector of {CONNECTOR_MAX} bytes");
    if let Some(segment) = object_key.split('/').map(longest).find(|length| *length > SEGMENT_MAX) {
        return Some(format!(
            "a part of `object_key` between slashes could have {segment} bytes {with}; {SEGMENT_MAX} are the most"
        ));
    }
    // `s3://bucket/prefix`: the prefix is a part of the key there.
    let prefix = objects.strip_prefix("s3://").map(|place| place.trim_end_matches('/'));
    let prefix = prefix.and_then(|place| place.split_once('/')).map_or(0, |(_, prefix)| prefix.len() + 1);
    let whole = prefix + longest(object_key);
    (whole > KEY_MAX)
        .then(|| format!("`object_key` could become {whole} bytes long {with}; {KEY_MAX} are the most"))
}
