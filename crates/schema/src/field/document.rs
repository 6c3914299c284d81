//! `[schema]`, and the form of a value from the environment.

use super::{Derived, Field, Form, Optional, Or, Table, Text, field, fields};

/// Redis' eviction policies.
pub(crate) const POLICIES: &[&str] = &[
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

pub(crate) static TABLE: Table = Table {
    path: "schema",
    kind: None,
    fields: FIELDS,
    meaning: "About the file. Every field has a default, and so the table may be left out.",
    page: None,
    example: r#"[schema]
name = "shop"
owner = "checkout"
prefix = "shop:"

[cache.price]
key = "price:{sku}"
ttl = "5m"
"#,
};

fields! {
    since "0.1.0":
    NAME: Field<Text, Derived> = field(
        "name",
        Text(Form::Filled),
        Derived("the file's name without `.toml`"),
        "The schema's name. Files that are loaded together have different names.",
    );
    OWNER: Field<Text, Optional> =
        field("owner", Text(Form::Free), Optional, "Who owns what the file declares, unless a resource names another.");
    DESCRIPTION: Field<Text, Optional> = field("description", Text(Form::Free), Optional, "What the schema is for.");
    PREFIX: Field<Text, Or<&'static str>> = field(
        "prefix",
        Text(Form::Prefix),
        Or(""),
        "Stands in front of every key and channel, so that `prefix*` finds all of them. It ends with a separator, as in \
         `shop:`.",
    );
    EVICTION: Field<Text, Optional> = field(
        "eviction",
        Text(Form::Words(POLICIES)),
        Optional,
        "The `maxmemory-policy` under which the schema will run; `check` warns of what that policy would destroy.",
    );
}

/// The form of a value from the environment.
pub(crate) mod env {
    use super::super::{Field, Form, Optional, Required, Table, Text, field, fields};

    /// Units of durations and sizes, as [`UNIT`] takes them.
    pub(crate) const UNITS: &[&str] =
        &["ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"];

    pub(crate) static TABLE: Table = Table {
        path: "env",
        kind: None,
        fields: FIELDS,
        meaning: "Any string, number, boolean, duration or size may come from an environment variable. A variable \
                  that is set to nothing counts as not set. Where a field takes one of some words, a variable may hold \
                  it in capitals.",
        page: None,
        example: r#"[limit.api]
key = "rl:{customer}:{hour}"
algorithm = "fixed_window"
limit = { env = "API_LIMIT", default = 1000 }
window = "1h"
ttl = { env = "API_TTL_HOURS", unit = "h", default = "2h" }
"#,
    };

    fields! {
        since "0.1.0":
        ENV: Field<Text, Required> = field("env", Text(Form::Free), Required, "The variable's name.");
        DEFAULT: Field<Text, Optional> = field(
            "default",
            Text(Form::AsField),
            Optional,
            "The value when the variable is not set, written as the field itself is written. Without it an unset variable \
             is an error.",
        );
        UNIT: Field<Text, Optional> = field(
            "unit",
            Text(Form::Words(UNITS)),
            Optional,
            "The unit of a variable that holds a bare number, such as `h` for `TTL_HOURS`. Without it the variable \
             carries its unit, as in `2h`.",
        );
    }
}
