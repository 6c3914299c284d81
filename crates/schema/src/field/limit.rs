//! The fields of a limit.

use std::time::Duration;

use super::{
    Choice, Count, Derived, Expiry, Field, Form, MILLISECOND, Or, Period, Required, Table, Text, field,
    fields,
};
use crate::kind::{Algorithm, Kind};

/// Counts stay far below what Lua's doubles hold exactly.
const MOST: u64 = 1_000_000_000_000_000;
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 86_400);

pub(crate) static TABLE: Table = Table {
    path: "limit",
    kind: Some(Kind::Limit),
    fields: FIELDS,
    meaning: "Counts calls against a bound, across any number of nodes.",
    page: Some("limits.md"),
    example: r#"[limit.api]
key = "rl:{customer}:{minute}"
algorithm = "fixed_window"
limit = 1000
window = "60s"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field(
        "key",
        Text(Form::Pattern),
        Required,
        "The counter's key. A `fixed_window` may have a time bucket as long as its window; the others have none.",
    );
    ALGORITHM: Field<Choice<Algorithm>, Required> =
        field("algorithm", Choice(Algorithm::ALL), Required, "How it counts; the page compares them.");
    LIMIT: Field<Count, Required> = field(
        "limit",
        Count { least: 0, most: MOST },
        Required,
        "How many units fit into a window; 0 refuses everything. A `sliding_log` has at most 1,000,000.",
    );
    WINDOW: Field<Period, Required> =
        field("window", Period { least: MILLISECOND, most: LONGEST_WINDOW }, Required, "The window's length.");
    SAFETY_BUFFER: Field<Count, Or<u64>> =
        field("safety_buffer", Count { least: 0, most: MOST }, Or(0), "Units of the limit that callers never get.");
    TTL: Field<Expiry, Derived> = field(
        "ttl",
        Expiry { never: false },
        Derived("`window`; twice the window for `sliding_window`"),
        "How long the key lives after the last call that changed it. A `fixed_window` without a bucket takes no other.",
    );
}
