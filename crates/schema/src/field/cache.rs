//! Caches: their fields, and what is made of them.

use std::time::Duration;

use super::common::{MEANINGS, VALUE, WHY};
use super::{
    Choice, Expiry, Field, Form, Meanings, Optional, Or, Required, Spec, Table, Text, field, fields,
};
use crate::keys::{RowDraft, request, row, side};
use crate::kind::{CacheType, Kind, RedisType};
use crate::pattern::Template;
use crate::read::common::{Body, Reading};
use crate::read::draft::ChannelDraft;
use crate::schema::{self, Ttl};

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

/// A value that may be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSpec {
    /// How long an entry lives.
    pub ttl: Ttl,
    /// Bytes or fields.
    pub holds: CacheType,
}

impl CacheSpec {
    pub(super) fn in_words(&self) -> String {
        format!("{} for {}", self.holds, self.ttl)
    }
}

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let key = reading.key(&KEY);
    let ttl = reading.ttl(&TTL, &REASON);
    let holds = reading.fields.or_default(&TYPE);
    let fields = reading.documented_fields(&DOCUMENTED);
    let format = reading.fields.read(&FORMAT).option();
    let ((key, key_at), ttl) = (key?, ttl?);
    let spec = CacheSpec { ttl, holds };
    let loaded = ChannelDraft::hint(&key, "loaded", "The end of a load, for those who wait for it");
    let rows = rows(key, &spec, fields, format);
    let mut body = Body::new(Spec::Cache(spec), rows, key_at);
    body.channels.push(loaded);
    Some(body)
}

fn rows(
    key: Template,
    spec: &CacheSpec,
    fields: Vec<schema::Field>,
    format: Option<String>,
) -> Vec<RowDraft> {
    let holds = match spec.holds {
        CacheType::String | CacheType::Json => RedisType::String,
        CacheType::Hash => RedisType::Hash,
    };
    let tag = key.without_bucket();
    // A lease is asked for by the load; one of this length outlives the longest.
    let load_ttl = Ttl::For(Duration::from_secs(61));
    vec![
        row("entry", key, holds, spec.ttl.clone(), "A cached value").documented(fields, format),
        side("load", &tag, "load", None, RedisType::String, load_ttl, "Who loads the value now")
            .format("the load's token, and the millisecond its lease ends"),
        request(&tag),
    ]
}
