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

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let key = reading.key_or("key", "upload:{upload_id}:state");
    let chunk_ttl = fields.duration("chunk_ttl", MILLISECOND, LONGEST);
    let chunk_at = chunk_ttl.at().unwrap_or(fields.at);
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
    let (object_key, connector) = (object_key(reading), connector(reading));
    let topic = fields.text("topic");
    let spec = UploadSpec {
        state_ttl: reading.duration("state_ttl", Duration::from_secs(86_400)),
        chunk_ttl: chunk_ttl.or(Duration::from_secs(3600)),
        workers: fields.count("workers", 1, 1000).or(20) as u32,
        max_bytes_in_flight: in_flight.or(1 << 30),
        chunk_min: fields.size("chunk_min", 1, 5 << 30).or(5 * MIB),
        chunk_max: max.or(100 * MIB),
        keep_after_done: reading.duration("keep_after_done", Duration::from_secs(3600)),
        objects: objects?,
        database: database?,
        events: events?,
        chunks: chunks?,
        object_key: object_key?,
        connector: connector?,
        topic: topic.or("repository.uploads.completed".to_owned()),
    };
    if spec.chunk_ttl > spec.state_ttl {
        let message = "a chunk would outlive the state of its upload";
        reading.add(chunk_at, "contradiction", message, Some("make `chunk_ttl` at most `state_ttl`"));
    }
    if spec.chunk_min > spec.chunk_max {
        reading.add(max_at, "contradiction", "`chunk_max` is smaller than `chunk_min`", None);
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

/// The object's key: no traversal, and one object per upload.
fn object_key(reading: &Reading<'_, '_>) -> Option<String> {
    let got = reading.fields.text("object_key");
    let at = got.at().unwrap_or(reading.fields.at);
    let text = got.or("connectors/{connector_id}/{node_id}.pb".to_owned());
    let plain = text.replace("{connector_id}", "c").replace("{node_id}", "n");
    let sound = text.matches("{node_id}").count() == 1
        && !plain.contains(['{', '}', '\\'])
        && !plain.contains(char::is_control)
        && plain.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if sound {
        return Some(text);
    }
    let message = "`object_key` is a relative path with `{node_id}` once and, if wanted, `{connector_id}`";
    reading.add(at, "bad-value", message, None);
    None
}
