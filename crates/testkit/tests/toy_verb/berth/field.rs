//! Berths: their fields, and what is made of them.

use std::time::Duration;

use super::{Expiry, Field, Form, Required, Spec, Table, Text, field, fields};
use crate::keys::{request, row};
use crate::kind::{Kind, RedisType};
use crate::read::common::{Body, Reading};
use crate::read::duration_text;
use crate::schema::Ttl;

pub(crate) static TABLE: Table = Table {
    path: "berth",
    kind: Some(Kind::Berth),
    fields: FIELDS,
    meaning: "A place for one ship at a time.",
    page: None,
    example: r#"[berth.pier]
key = "berth:{id}"
ttl = "1h"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The berth's key.");
    TTL: Field<Expiry, Required> = field("ttl", Expiry { never: false }, Required, "How long a ship lies there.");
}

/// A place for one ship at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BerthSpec {
    /// How long a ship lies there.
    pub ttl: Duration,
}

impl BerthSpec {
    pub(super) fn in_words(&self) -> String {
        format!("taken for {}", duration_text(self.ttl))
    }
}

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let key = reading.key(&KEY);
    let ttl = reading.lifetime(&TTL, None);
    let ((key, key_at), (ttl, _)) = (key?, ttl?);
    let tag = key.without_bucket();
    let berth = row("berth", key, RedisType::String, Ttl::For(ttl), "1 while a ship lies there");
    Some(Body::new(Spec::Berth(BerthSpec { ttl }), vec![berth, request(&tag)], key_at))
}
