//! The fields of a lock.

use super::{Expiry, Field, Form, Required, Table, Text, field, fields};
use crate::kind::Kind;

pub(crate) static TABLE: Table = Table {
    path: "lock",
    kind: Some(Kind::Lock),
    fields: FIELDS,
    meaning: "A lease on a name, with fencing numbers and a queue of waiters.",
    page: Some("locks.md"),
    example: r#"[lock.stock]
key = "lock:stock:{sku}"
ttl = "30s"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The lock's key, without a time bucket.");
    TTL: Field<Expiry, Required> =
        field("ttl", Expiry { never: false }, Required, "The lease unless a caller asks for less.");
}
