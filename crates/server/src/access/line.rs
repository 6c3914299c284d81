//! One line: a JSON object with a fixed order of fields.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::SystemTime;

use jiff::Timestamp;
use quaymaster::schema::{Kind, Resource, Schema, Spec};
use ring::digest::{SHA256, digest};

use super::{Answered, Keys, Note};
use crate::http::auth::Guard;

/// Bytes of a digest that are written: enough to tell the keys of a day apart.
const DIGEST_BYTES: usize = 8;
/// Names that the schema does not have are whatever a caller makes up.
const NAME_CHARS: usize = 64;

/// What a line is made of.
pub(super) struct Line<'a> {
    pub(super) now: SystemTime,
    pub(super) keys: Keys,
    pub(super) schema: &'a Schema,
    pub(super) guard: &'a Guard,
    pub(super) note: &'a Note,
    pub(super) answered: &'a Answered<'a>,
}

impl Line<'_> {
    pub(super) fn text(&self) -> String {
        let Self { note, answered, .. } = self;
        let mut out = String::with_capacity(256);
        out.push_str(r#"{"time":""#);
        moment(&mut out, self.now);
        out.push_str(r#"","token":"#);
        let token = note.who.get().map(|number| self.guard.name_of(*number));
        string(&mut out, token.as_deref());
        out.push_str(r#","resource":"#);
        match answered.resource {
            Some((kind, name)) => {
                let name: String = name.chars().take(NAME_CHARS).collect();
                string(&mut out, Some(&format!("{}.{name}", kind.name())));
            }
            None => string(&mut out, None),
        }
        out.push_str(r#","verb":"#);
        string(&mut out, answered.verb);
        out.push_str(r#","outcome":"#);
        let said = note.outcome.get().map_or("ok", |word| &**word);
        string(&mut out, Some(answered.code.map_or(said, |code| code.name())));
        let (status, us) = (answered.status.as_u16(), answered.took.as_micros());
        let _ = write!(out, r#","status":{status},"duration_us":{us},"#);
        self.key(&mut out);
        for (name, text) in answered.trace.named() {
            let _ = write!(out, ",\"{name}\":");
            string(&mut out, Some(text));
        }
        out.push_str("}\n");
        out
    }

    /// `"key":"…"`, or `"key_digest":"…"`.
    fn key(&self, out: &mut String) {
        let found = self.answered.resource.and_then(|(kind, name)| self.schema.resource(kind, name));
        let key = found.and_then(|resource| self.key_of(resource));
        let (name, text) = match (key, self.keys) {
            (Some((key, Secret::No)), Keys::Plain) => ("key", Some(Cow::Owned(key))),
            (Some((key, _)), _) => ("key_digest", Some(Cow::Owned(digest_of(&key)))),
            (None, Keys::Plain) => ("key", None),
            (None, Keys::Digest) => ("key_digest", None),
        };
        let _ = write!(out, "\"{name}\":");
        string(out, text.as_deref());
    }

    /// The documented key of a resource, by the request's values; for a guard that of its record, its lock or a limit.
    fn key_of(&self, resource: &Resource) -> Option<(String, Secret)> {
        if let Spec::Guard(spec) = &resource.spec {
            let record = spec.idempotency.iter().map(|name| (Kind::Idempotency, name));
            let lock = spec.lock.iter().map(|name| (Kind::Lock, name));
            let limits = spec.limits.iter().map(|name| (Kind::Limit, name));
            let (kind, name) = record.chain(lock).chain(limits).next()?;
            return self.key_of(self.schema.resource(kind, name)?);
        }
        let channel = || resource.channels.first().map(|row| &row.pattern);
        let primary = || resource.primary().map(|row| &row.pattern);
        // An event is known by its channel; its keys lie beside it.
        let pattern = if resource.kind == Kind::Event { channel() } else { primary() }?;
        let key = pattern.shown(|name| self.note.value(name).or_else(|| self.own_id(resource.kind)))?;
        Some((key, if resource.sensitive { Secret::Yes } else { Secret::No }))
    }

    /// The id that stands for a placeholder whatever the schema calls it.
    fn own_id(&self, kind: Kind) -> Option<&str> {
        match kind {
            Kind::Run => self.note.value("run_id"),
            Kind::Upload => self.note.value("upload_id"),
            _ => None,
        }
    }
}

/// Whether a key belongs to a `sensitive` resource.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    Yes,
    No,
}

/// `2026-11-16T12:00:00.000042Z`.
pub(super) fn moment(out: &mut String, now: SystemTime) {
    let now = Timestamp::try_from(now).unwrap_or_default();
    let _ = write!(out, "{now:.6}");
}

fn digest_of(key: &str) -> String {
    let digest = digest(&SHA256, key.as_bytes());
    let mut out = String::with_capacity(2 * DIGEST_BYTES);
    for byte in &digest.as_ref()[..DIGEST_BYTES] {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// A string as JSON has it, or `null`.
fn string(out: &mut String, text: Option<&str>) {
    // A text cannot fail to be written into memory.
    out.push_str(&serde_json::to_string(&text).unwrap_or_default());
}
