//! The fields of a guard.

use super::{Field, Form, Names, Optional, Or, Table, Text, field, fields};
use crate::kind::Kind;

/// One script takes all limits of a guard, and this many at most.
pub(crate) const MOST_LIMITS: usize = 16;

pub(crate) static TABLE: Table = Table {
    path: "guard",
    kind: Some(Kind::Guard),
    fields: FIELDS,
    meaning: "Limits, an idempotency and a lock that are entered in one step, all or none. It names at least one of them.",
    page: Some("guards.md"),
    example: r#"[limit.api]
key = "rl:{customer}"
algorithm = "sliding_log"
limit = 100
window = "1m"
colocate = "pay"

[idempotency.checkout]
key = "idem:{order_id}"
ttl = "24h"
colocate = "pay"

[guard.pay]
limits = ["api"]
idempotency = "checkout"
"#,
};

fields! {
    since "0.1.0":
    LIMITS: Field<Names, Or<&'static [&'static str]>> = field(
        "limits",
        Names { kind: Kind::Limit, most: Some(MOST_LIMITS) },
        Or(&[]),
        "Limits that are all taken, or none.",
    );
    IDEMPOTENCY: Field<Text, Optional> =
        field("idempotency", Text(Form::Resource(Kind::Idempotency)), Optional, "The idempotency that is begun.");
    LOCK: Field<Text, Optional> =
        field("lock", Text(Form::Resource(Kind::Lock)), Optional, "The lock that is acquired.");
}
