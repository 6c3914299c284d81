//! The fields of a batch.

use std::time::Duration;

use super::{
    Count, Derived, Expiry, Field, Form, HOUR, LONGEST, MILLISECOND, Optional, Or, Period, Required, Table,
    Text, field, fields,
};
use crate::kind::Kind;

pub(crate) static TABLE: Table = Table {
    path: "batch",
    kind: Some(Kind::Batch),
    fields: FIELDS,
    meaning: "Collects items until a window ends, then queues them as one job.",
    page: Some("batches.md"),
    example: r#"[queue.invoices]
max_size = 10_000

[batch.orders]
by = "customer"
window = "5m"
to = "invoices"
colocate = "invoices"
"#,
};

fields! {
    since "0.1.0":
    BY: Field<Text, Required> =
        field("by", Text(Form::Placeholder), Required, "The placeholder of `key` by which items are grouped.");
    WINDOW: Field<Period, Required> = field(
        "window",
        Period { least: MILLISECOND, most: LONGEST },
        Required,
        "A batch closes this long after its first item.",
    );
    IDLE: Field<Period, Derived> = field(
        "idle",
        Period { least: MILLISECOND, most: LONGEST },
        Derived("`window`"),
        "A batch also closes this long after its last item.",
    );
    MAX_ITEMS: Field<Count, Optional> = field(
        "max_items",
        Count { least: 1, most: 1_000_000 },
        Optional,
        "A batch also closes with this many items. Without it the number has no bound.",
    );
    TO: Field<Text, Required> =
        field("to", Text(Form::Resource(Kind::Queue)), Required, "The queue that gets closed batches.");
    KEY: Field<Text, Derived> = field(
        "key",
        Text(Form::Pattern),
        Derived("`batch:{BY}:current`"),
        "The key of the open batch: it begins and ends with a word, and `by` is its one placeholder.",
    );
    ITEMS: Field<Text, Or<&'static str>> =
        field("items", Text(Form::Free), Or("items"), "The last segment of the key that lists the items.");
    ITEMS_AS: Field<Text, Derived> =
        field("items_as", Text(Form::Free), Derived("`items`"), "The field of the queued job that lists the items.");
    TTL: Field<Expiry, Or<Duration>> = field(
        "ttl",
        Expiry { never: false },
        Or(HOUR),
        "How long the keys live if nobody closes the batch. Longer than `window`.",
    );
}
