//! Reading an upload.

use super::common::{Body, Reading};
use super::draft::ChannelDraft;
use super::fields::Got;
use super::report::At;
use crate::diagnostic::excerpt;
use crate::field::Spec;
use crate::field::upload::{self as declared, CONNECTOR_MAX, S3_PART_MIN};
use crate::field::{self, Form, Or, Text};
use crate::keys::{upload_channels, upload_rows};
use crate::pattern::Template;
use crate::schema::Field;
use crate::spec::UploadSpec;

/// A document's id is a UUID.
const NODE_ID: usize = 36;

/// Bytes of an object's key, as S3 bounds them.
const KEY_MAX: usize = 1024;

/// Bytes of a key between two slashes, as file systems bound them.
const SEGMENT_MAX: usize = 255;

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let key = reading.key_or_default(&declared::KEY);
    let (chunk_ttl, chunk_at) = fields.placed(&declared::CHUNK_TTL);
    let (chunk_min, min_at) = fields.placed(&declared::CHUNK_MIN);
    let (chunk_max, max_at) = fields.placed(&declared::CHUNK_MAX);
    let (max_bytes_in_flight, in_flight_at) = fields.placed(&declared::MAX_BYTES_IN_FLIGHT);
    let objects = url_or_default(reading, &declared::OBJECTS);
    let database = url_or_default(reading, &declared::DATABASE);
    let events = url_or_default(reading, &declared::EVENTS);
    let chunks = match fields.read(&declared::CHUNKS) {
        Got::Absent => Some(None),
        Got::Bad => None,
        Got::Value(text, at) => url(reading, &declared::CHUNKS, text, at).map(Some),
    };
    let object_key = object_key(reading, objects.as_deref());
    let (connector, topic) = (reading.label(&declared::CONNECTOR), reading.label(&declared::TOPIC));
    let spec = UploadSpec {
        state_ttl: fields.or_default(&declared::STATE_TTL),
        chunk_ttl,
        workers: fields.or_default(&declared::WORKERS) as u32,
        max_bytes_in_flight,
        chunk_min,
        chunk_max,
        keep_after_done: fields.or_default(&declared::KEEP_AFTER_DONE),
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

fn url_or_default(reading: &Reading<'_, '_>, field: &field::Field<Text, Or<&'static str>>) -> Option<String> {
    let (text, at) = reading.fields.placed(field);
    url(reading, field, text, at)
}

/// Begins with one of the schemes that the field declares.
fn url<P>(reading: &Reading<'_, '_>, field: &field::Field<Text, P>, text: String, at: At) -> Option<String> {
    let schemes = match field.holds.0 {
        Form::Url(schemes) => schemes,
        _ => &[],
    };
    if schemes.iter().any(|scheme| text.starts_with(scheme)) {
        return Some(text);
    }
    // Only what stands before the first `:`; a password may stand after it.
    let text = text.split(':').next().unwrap_or_default();
    let (name, wanted) = (field.name, schemes.join(", "));
    reading.add(
        at,
        "bad-value",
        format!("`{name}` must begin with one of {wanted}, not {}", excerpt(text)),
        None,
    );
    None
}

/// The object's key: no traversal, one object per upload, and never longer than object stores take it.
fn object_key(reading: &Reading<'_, '_>, objects: Option<&str>) -> Option<String> {
    let (text, at) = reading.fields.placed(&declared::OBJECT_KEY);
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
