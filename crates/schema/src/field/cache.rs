//! The fields of a cache.

use super::common::{MEANINGS, VALUE, WHY};
use super::{Choice, Expiry, Field, Form, Meanings, Optional, Or, Required, Table, Text, field, fields};
use crate::kind::{CacheType, Kind};

pub(crate) static TABLE: Table = Table {
    path: "cache",
    kind: Some(Kind::Cache),
    fields: FIELDS,
    meaning: "A value that may be forgotten; one caller of all loads it.",
    page: Some("caches.md"),
    example: r#"[cache.price]
key = "price:{sku}"
ttl = "5m"
value = "the price in cents"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The entry's key.");
    TTL: Field<Expiry, Required> = field(
        "ttl",
        Expiry { never: true },
        Required,
        "How long an entry lives; a `put` may ask for less. `\"never\"` needs a `why`.",
    );
    REASON: Field<Text, Optional> = WHY;
    TYPE: Field<Choice<CacheType>, Or<CacheType>> =
        field("type", Choice(CacheType::ALL), Or(CacheType::String), "What an entry is.");
    FORMAT: Field<Text, Optional> = VALUE;
    DOCUMENTED: Field<Meanings, Optional> = MEANINGS;
}
