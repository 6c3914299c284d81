//! Dedupes: their fields, and what is made of them.

use std::time::Duration;

use super::common::VALUE;
use super::{Expiry, Field, Form, Optional, Required, Spec, Table, Text, field, fields};
use crate::keys::{request, row};
use crate::kind::{Kind, RedisType};
use crate::read::common::{Body, Reading};
use crate::read::duration_text;
use crate::schema::Ttl;

pub(crate) static TABLE: Table = Table {
    path: "dedupe",
    kind: Some(Kind::Dedupe),
    fields: FIELDS,
    meaning: "Tells the first of several equal things from its repetitions.",
    page: Some("caches.md"),
    example: r#"[dedupe.webhook]
key = "seen:webhook:{event_id}"
ttl = "1h"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The key of what was seen.");
    TTL: Field<Expiry, Required> =
        field("ttl", Expiry { never: false }, Required, "How long the first one is remembered.");
    FORMAT: Field<Text, Optional> = VALUE;
}

/// Whether something was seen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeSpec {
    /// How long it is remembered.
    pub ttl: Duration,
}

impl DedupeSpec {
    pub(super) fn in_words(&self) -> String {
        format!("remembered for {}", duration_text(self.ttl))
    }
}

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let key = reading.key(&KEY);
    let ttl = reading.lifetime(&TTL, None);
    let format = reading.fields.read(&FORMAT).option();
    let ((key, key_at), (ttl, _)) = (key?, ttl?);
    let tag = key.without_bucket();
    let first = row("first", key, RedisType::String, Ttl::For(ttl), "The value of the first one seen");
    let rows = vec![first.documented(Vec::new(), format), request(&tag)];
    Some(Body::new(Spec::Dedupe(DedupeSpec { ttl }), rows, key_at))
}
