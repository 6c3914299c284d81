//! The fields of stats.

use std::time::Duration;

use super::{
    Boolean, Count, Derived, Field, Form, HOUR, Or, Period, SECOND, Strings, Table, Text, field, fields,
};
use crate::kind::Kind;

pub(crate) static TABLE: Table = Table {
    path: "stats",
    kind: Some(Kind::Stats),
    fields: FIELDS,
    meaning: "Request metrics of several instances, in one place.",
    page: Some("stats.md"),
    example: r#"[stats.web]
key = "web:"
flush = "1s"
"#,
};

const SHORTEST_FLUSH: Duration = Duration::from_millis(10);

fields! {
    since "0.1.0":
    KEY: Field<Text, Or<&'static str>> =
        field("key", Text(Form::Prefix), Or(""), "Text in front of all its keys, without placeholders.");
    MAX_ENDPOINTS: Field<Count, Or<u64>> = field(
        "max_endpoints",
        Count { least: 1, most: 100_000 },
        Or(500),
        "Endpoints that are told apart; later ones are counted as `overflow`.",
    );
    SAMPLES: Field<Count, Or<u64>> = field(
        "samples",
        Count { least: 1, most: 100_000 },
        Or(1000),
        "Response times that are kept one by one, per endpoint.",
    );
    FLUSH: Field<Period, Or<Duration>> = field(
        "flush",
        Period { least: SHORTEST_FLUSH, most: Duration::from_secs(60) },
        Or(SECOND),
        "How often an instance adds what it counted.",
    );
    HEARTBEAT: Field<Period, Derived> = field(
        "heartbeat",
        Period { least: Duration::from_millis(20), most: HOUR },
        Derived("three times `flush`, at least `5s`"),
        "An instance that is silent for this long has no open connections any more. At least twice `flush`.",
    );
    MAX_INSTANCES: Field<Count, Or<u64>> = field(
        "max_instances",
        Count { least: 1, most: 10_000 },
        Or(1000),
        "Instances that are told apart; later ones are counted as `overflow`.",
    );
    FOLD_IDS: Field<Boolean, Or<bool>> = field(
        "fold_ids",
        Boolean,
        Or(false),
        "Whether numbers, UUIDs and hexadecimal words of at least 16 digits in a path become `:id`.",
    );
    IGNORE_REMOTE: Field<Strings, Or<&'static [&'static str]>> = field(
        "ignore_remote",
        Strings,
        Or(&["127.0.0.1", "::1"]),
        "Callers that are not counted: addresses, networks such as `10.0.0.0/8`, names.",
    );
}
