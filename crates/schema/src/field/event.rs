//! The fields of an event.

use super::common::MEANINGS;
use super::{Derived, Field, Form, Meanings, Nested, Optional, Table, Text, field, fields};
use crate::kind::Kind;

pub(crate) static TABLE: Table = Table {
    path: "event",
    kind: Some(Kind::Event),
    fields: FIELDS,
    meaning: "Messages to streams, WebSockets and subscribers of other programs.",
    page: Some("events.md"),
    example: r#"[event.orders]
channel = "orders:{customer}"
"#,
};

fields! {
    since "0.1.0":
    CHANNEL: Field<Text, Derived> = field(
        "channel",
        Text(Form::Pattern),
        Derived("the event's name"),
        "The pub/sub channel, without a time bucket.",
    );
    STATUS: Field<Nested, Optional> = field(
        "status",
        Nested(&status::TABLE),
        Optional,
        "A status that the server publishes by itself; see the table below. The channel then has no placeholders.",
    );
    DOCUMENTED: Field<Meanings, Optional> = MEANINGS;
}

/// The status that a server publishes.
pub(crate) mod status {
    use std::time::Duration;

    use super::super::{DAY, Field, Names, Or, Period, SECOND, Table, field, fields};
    use crate::kind::Kind;

    const FIVE_SECONDS: Duration = Duration::from_secs(5);

    pub(crate) static TABLE: Table = Table {
        path: "event.NAME.status",
        kind: None,
        fields: FIELDS,
        meaning: "A status message that one of the servers publishes in every interval.",
        page: Some("events.md"),
        example: r#"[queue.mail]
max_size = 10_000

[event.health.status]
every = "10s"
queues = ["mail"]
"#,
    };

    fields! {
        since "0.1.0":
        EVERY: Field<Period, Or<Duration>> = field(
            "every",
            Period { least: SECOND, most: DAY },
            Or(FIVE_SECONDS),
            "The interval, however many servers there are.",
        );
        QUEUES: Field<Names, Or<&'static [&'static str]>> = field(
            "queues",
            Names { kind: Kind::Queue, most: None },
            Or(&[]),
            "Queues whose depths the status has.",
        );
    }
}
