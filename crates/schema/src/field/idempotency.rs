//! The fields of an idempotency.

use std::time::Duration;

use super::{
    Boolean, Bytes, Choice, Expiry, Field, Form, LONGEST, MILLISECOND, Or, Period, Required, Table, Text,
    field, fields,
};
use crate::kind::{Kind, ReplayErrors};

pub(crate) static TABLE: Table = Table {
    path: "idempotency",
    kind: Some(Kind::Idempotency),
    fields: FIELDS,
    meaning: "An operation that runs once per key and replays its answer.",
    page: Some("idempotency.md"),
    example: r#"[idempotency.checkout]
key = "idem:checkout:{order_id}"
ttl = "24h"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> =
        field("key", Text(Form::Pattern), Required, "The record's key, without a time bucket.");
    TTL: Field<Expiry, Required> =
        field("ttl", Expiry { never: false }, Required, "How long an answer is replayed, from the finish on.");
    IN_PROGRESS_TTL: Field<Period, Or<Duration>> = field(
        "in_progress_ttl",
        Period { least: MILLISECOND, most: LONGEST },
        Or(Duration::from_secs(60)),
        "How long a claim that is neither finished nor abandoned keeps others out. At most `ttl`.",
    );
    MAX_RESPONSE: Field<Bytes, Or<u64>> = field(
        "max_response",
        Bytes { least: 0, most: 16 << 20 },
        Or(64 << 10),
        "The largest response that is kept. Not with `compact`.",
    );
    REPLAY_ERRORS: Field<Choice<ReplayErrors>, Or<ReplayErrors>> = field(
        "replay_errors",
        Choice(ReplayErrors::ALL),
        Or(ReplayErrors::Client),
        "Which HTTP answers are final and replayed: `client` below 500, `all` every answer, `none` below 400.",
    );
    COMPACT: Field<Boolean, Or<bool>> =
        field("compact", Boolean, Or(false), "Keeps no response: the smallest record.");
}
