//! The fields of a key that another program owns.

use super::common::{MEANINGS, VALUE, WHY};
use super::{Choice, Expiry, Field, Form, Meanings, Optional, Required, Table, Text, field, fields};
use crate::kind::{Kind, RedisType};

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
