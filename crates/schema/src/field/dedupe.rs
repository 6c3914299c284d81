//! The fields of a dedupe.

use super::common::VALUE;
use super::{Expiry, Field, Form, Optional, Required, Table, Text, field, fields};
use crate::kind::Kind;

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
