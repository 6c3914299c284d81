//! The fields of a queue.

use std::time::Duration;

use super::common::MEANINGS;
use super::{
    Bytes, Choice, Count, DAY, Derived, Field, Form, Meanings, Nested, Optional, Or, Period, Ratio, Table,
    Text, field, fields,
};
use crate::kind::{Kind, Order, Overflow};

pub(crate) static TABLE: Table = Table {
    path: "queue",
    kind: Some(Kind::Queue),
    fields: FIELDS,
    meaning: "Jobs that are handed to workers under a lease.",
    page: Some("queues.md"),
    example: r#"[queue.mail]
max_size = 10_000
lease = "30s"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Derived> = field(
        "key",
        Text(Form::Pattern),
        Derived("the queue's name"),
        "The key of the list or sorted set, without placeholders.",
    );
    ORDER: Field<Choice<Order>, Or<Order>> = field(
        "order",
        Choice(Order::ALL),
        Or(Order::Fifo),
        "Which job comes first: `fifo` the oldest, `priority` the one with the highest priority.",
    );
    MAX_SIZE: Field<Count, Optional> = field(
        "max_size",
        Count { least: 1, most: 1_000_000_000 },
        Optional,
        "How many jobs may wait. Without it the queue has no bound, and `check` warns.",
    );
    OVERFLOW: Field<Choice<Overflow>, Or<Overflow>> = field(
        "overflow",
        Choice(Overflow::ALL),
        Or(Overflow::Reject),
        "What a full queue does: `reject` refuses the new job, `dlq` moves the oldest to the overflow list, `drop_oldest` \
         drops it. Only with `max_size`.",
    );
    PRESSURE_AT: Field<Ratio, Or<f64>> =
        field("pressure_at", Ratio, Or(0.8), "The share of `max_size` from which the queue reports pressure.");
    LEASE: Field<Period, Or<Duration>> = field(
        "lease",
        Period { least: Duration::from_millis(100), most: DAY },
        Or(Duration::from_secs(30)),
        "How long a claimed job stays away from other workers without an ack.",
    );
    RETRY: Field<Nested, Optional> =
        field("retry", Nested(&retry::TABLE), Optional, "How a failed job comes again; see the table below.");
    COMPRESS_OVER: Field<Bytes, Optional> = field(
        "compress_over",
        Bytes { least: 0, most: 1 << 30 },
        Optional,
        "Payloads over this size are stored as zstd. Without it none is.",
    );
    PUSH: Field<Nested, Optional> = field(
        "push",
        Nested(&push::TABLE),
        Optional,
        "Where `quaymaster worker` sends jobs; see the table below. Without it workers claim them.",
    );
    DOCUMENTED: Field<Meanings, Optional> = MEANINGS;
}

/// How a failed job comes again.
pub(crate) mod retry {
    use std::time::Duration;

    use super::super::{Count, DAY, Field, MILLISECOND, Or, Period, Ratio, SECOND, Table, field, fields};

    pub(crate) static TABLE: Table = Table {
        path: "queue.NAME.retry",
        kind: None,
        fields: FIELDS,
        meaning: "The n-th retry waits `base × 2^(n-1)`, at most `max`, plus a random share of up to `jitter` of it.",
        page: Some("queues.md"),
        example: r#"[queue.mail]
max_size = 10_000

[queue.mail.retry]
max_attempts = 5
base = "10s"
max = "10m"
"#,
    };

    fields! {
        since "0.1.0":
        MAX_ATTEMPTS: Field<Count, Or<u64>> =
            field("max_attempts", Count { least: 1, most: 1000 }, Or(3), "Attempts before the job is a dead letter.");
        BASE: Field<Period, Or<Duration>> =
            field("base", Period { least: MILLISECOND, most: DAY }, Or(SECOND), "The first delay. At most `max`.");
        MAX: Field<Period, Or<Duration>> = field(
            "max",
            Period { least: MILLISECOND, most: DAY },
            Or(Duration::from_secs(30)),
            "The longest delay before jitter.",
        );
        JITTER: Field<Ratio, Or<f64>> =
            field("jitter", Ratio, Or(0.25), "The greatest share of the delay that is added at random.");
    }
}

/// Where jobs are sent.
pub(crate) mod push {
    use std::time::Duration;

    use super::super::{
        Count, Field, Form, HOUR, MILLISECOND, Optional, Or, Period, Required, SecretText, Table, Text,
        field, fields,
    };
    use crate::kind::Kind;

    pub(crate) static TABLE: Table = Table {
        path: "queue.NAME.push",
        kind: None,
        fields: FIELDS,
        meaning: "The HTTP service that handles the queue's jobs.",
        page: Some("workers.md"),
        example: r#"[queue.mail]
max_size = 10_000
lease = "30s"

[queue.mail.push]
url = "http://127.0.0.1:8080/send"
timeout = "10s"
"#,
    };

    fields! {
        since "0.1.0":
        URL: Field<Text, Required> =
            field("url", Text(Form::Url(&["http://", "https://"])), Required, "Where each job is posted.");
        CONCURRENCY: Field<Count, Or<u64>> =
            field("concurrency", Count { least: 1, most: 1000 }, Or(4), "Calls that a worker makes at once.");
        TIMEOUT: Field<Period, Or<Duration>> = field(
            "timeout",
            Period { least: MILLISECOND, most: HOUR },
            Or(Duration::from_secs(10)),
            "How long one call may take. Shorter than `lease`.",
        );
        RESULT_TO: Field<Text, Optional> = field(
            "result_to",
            Text(Form::Target(&[Kind::Queue, Kind::Batch, Kind::Event])),
            Optional,
            "Where the body of a 2xx answer goes, in the step that acks the job.",
        );
        SECRET: Field<SecretText, Optional> =
            field("secret", SecretText, Optional, "Signs the calls. Without it they are not signed.");
    }
}
