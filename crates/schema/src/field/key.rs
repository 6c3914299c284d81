//! Keys that another program owns: their fields, and what is made of them.

use super::common::{MEANINGS, VALUE, WHY};
use super::{Choice, Expiry, Field, Form, Meanings, Optional, Required, Spec, Table, Text, field, fields};
use crate::keys::row;
use crate::kind::{Kind, RedisType};
use crate::read::common::{Body, Reading};
use crate::schema::Ttl;

pub(crate) static TABLE: Table = Table {
    path: "key",
    kind: Some(Kind::Key),
    fields: FIELDS,
    meaning: "A key that another program owns. It is documented, explained and checked for overlaps, and never touched.",
    page: None,
    example: r#"[key.sessions]
key = "session:{user}"
type = "hash"
ttl = "30m"

[key.sessions.fields]
cart = "the cart's id"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The key.");
    TYPE: Field<Choice<RedisType>, Required> = field("type", Choice(RedisType::ALL), Required, "What the key holds.");
    TTL: Field<Expiry, Required> =
        field("ttl", Expiry { never: true }, Required, "How long the key lives. `\"never\"` needs a `why`.");
    REASON: Field<Text, Optional> = WHY;
    FORMAT: Field<Text, Optional> = VALUE;
    DOCUMENTED: Field<Meanings, Optional> = MEANINGS;
}

/// A key some other program owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    /// What it holds.
    pub holds: RedisType,
    /// How long it lives.
    pub ttl: Ttl,
}

impl KeySpec {
    pub(super) fn in_words(&self) -> String {
        format!("{} owned by another program", self.holds)
    }
}

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let key = reading.key(&KEY);
    let holds = reading.fields.required(&TYPE);
    let ttl = reading.ttl(&TTL, &REASON);
    let fields = reading.documented_fields(&DOCUMENTED);
    let format = reading.fields.read(&FORMAT).option();
    let ((key, key_at), (holds, _), ttl) = (key?, holds?, ttl?);
    let spec = KeySpec { holds, ttl };
    let row =
        row("key", key, spec.holds, spec.ttl.clone(), "Owned by another program").documented(fields, format);
    Some(Body::new(Spec::Key(spec), vec![row], key_at))
}
