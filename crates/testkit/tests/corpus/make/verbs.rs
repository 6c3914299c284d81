//! Every kind, and every verb: on which resource it is tried, and a good value for each of its fields.

files! {
    limit lock idempotency cache dedupe guard queue batch event run stats upload pages openapi commands
}

/// A verb with its fields.
#[derive(Debug)]
pub(crate) struct Verb {
    pub(crate) kind: &'static str,
    pub(crate) word: &'static str,
    /// The resource.
    pub(crate) name: &'static str,
    /// The fields of its body, or of its query for a verb that reads; a good value, as JSON or as in a query.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) reads: bool,
    /// Fields that hold objects with fields of their own.
    pub(crate) nested: &'static [Nested],
}

/// A field that holds an object.
#[derive(Debug)]
pub(crate) struct Nested {
    pub(crate) field: &'static str,
    /// What is around the object, which is `@`.
    pub(crate) around: &'static str,
    pub(crate) fields: &'static [(&'static str, &'static str)],
}

type Fields = &'static [(&'static str, &'static str)];

const fn writes(kind: &'static str, word: &'static str, name: &'static str, fields: Fields) -> Verb {
    Verb { kind, word, name, fields, reads: false, nested: &[] }
}

const fn reads(kind: &'static str, word: &'static str, name: &'static str, fields: Fields) -> Verb {
    Verb { kind, word, name, fields, reads: true, nested: &[] }
}

const fn nests(verb: Verb, nested: &'static [Nested]) -> Verb {
    Verb { nested, ..verb }
}

const KEY: (&str, &str) = ("key", r#"{"id":"$N"}"#);
const REQUEST: (&str, &str) = ("request_id", r#""r-$N""#);
const TOKEN: (&str, &str) = ("token", r#""AAAAAAAAAAAAAAAAAAAAAA""#);
const LEASE: (&str, &str) = ("lease", r#""1.1.AAAAAAAAAAAAAAAAAAAAAA""#);
const RUN: (&str, &str) = ("run_id", r#""base""#);
const QUERY_KEY: (&str, &str) = ("key.id", "base");

/// Every call on a resource; a test holds them against the OpenAPI document.
pub(crate) const VERBS: &[Verb] = &[
    writes("limit", "take", "open_window", &[KEY, ("cost", "1"), REQUEST]),
    reads("limit", "peek", "open_window", &[QUERY_KEY]),
    writes("limit", "refund", "open_window", &[KEY, ("cost", "1"), REQUEST]),
    writes("limit", "reset", "open_window", &[KEY, REQUEST]),
    writes(
        "lock",
        "acquire",
        "door",
        &[KEY, ("owner", r#""web-1""#), ("ttl_ms", "1000"), ("wait_ms", "0"), REQUEST],
    ),
    writes("lock", "renew", "door", &[KEY, TOKEN, ("ttl_ms", "1000"), REQUEST]),
    writes("lock", "release", "door", &[KEY, TOKEN, REQUEST]),
    writes("idempotency", "begin", "once", &[KEY, ("fingerprint", r#""f""#), ("wait_ms", "0"), REQUEST]),
    writes("idempotency", "finish", "once", &[KEY, TOKEN, ("response", r#"{"a":1}"#), REQUEST]),
    writes("idempotency", "abandon", "once", &[KEY, TOKEN, REQUEST]),
    writes(
        "cache",
        "put",
        "text",
        &[KEY, ("value", r#""v""#), ("ttl_ms", "1000"), ("if_absent", "false"), REQUEST],
    ),
    reads("cache", "get", "text", &[QUERY_KEY]),
    reads("cache", "exists", "text", &[QUERY_KEY]),
    writes("cache", "delete", "text", &[KEY, REQUEST]),
    writes("dedupe", "first", "seen", &[KEY, ("value", r#""v""#), REQUEST]),
    writes("guard", "enter", "all", &[KEY, ("fingerprint", r#""f""#), ("ttl_ms", "1000"), REQUEST]),
    writes("guard", "leave", "all", &[KEY, TOKEN, ("response", r#"{"a":1}"#), ("abandon", "false"), REQUEST]),
    writes("batch", "add", "slow", &[KEY, ("item", "1"), ("id", r#""i-$N""#), REQUEST]),
    reads("batch", "list", "few", &[("count", "10"), ("offset", "0")]),
    writes("batch", "close", "slow", &[KEY, REQUEST]),
    writes("batch", "sweep", "slow", &[REQUEST]),
    writes("event", "publish", "room", &[KEY, ("data", "1"), REQUEST]),
    writes("event", "report", "pulse", &[("data", r#"{"a":1}"#), ("ttl_ms", "1000"), REQUEST]),
    nests(
        writes(
            "queue",
            "push",
            "ranked",
            &[("payload", "1"), ("priority", "1"), ("delay_ms", "60000"), ("id", r#""p-$N""#), REQUEST],
        ),
        &[Nested {
            field: "dedupe",
            around: "@",
            fields: &[("name", r#""seen""#), ("key", r#"{"id":"$N"}"#), ("value", r#""v""#)],
        }],
    ),
    writes("queue", "push", "jobs", &[("payloads", "[1,2]"), ("delay_ms", "60000")]),
    writes(
        "queue",
        "claim",
        "jobs",
        &[("count", "2"), ("lease_ms", "1000"), ("wait_ms", "0"), ("worker", r#""w""#), REQUEST],
    ),
    nests(
        writes("queue", "ack", "jobs", &[("leases", r#"["1.1.AAAAAAAAAAAAAAAAAAAAAA"]"#), REQUEST]),
        &[
            Nested {
                field: "claim",
                around: "@",
                fields: &[("count", "1"), ("lease_ms", "1000"), ("worker", r#""w""#)],
            },
            Nested {
                field: "then",
                around: "[@]",
                fields: &[
                    ("call", r#""batch.add""#),
                    ("name", r#""slow""#),
                    ("key", r#"{"id":"$N"}"#),
                    ("item", "1"),
                    ("id", r#""t""#),
                ],
            },
            Nested {
                field: "then",
                around: "[@]",
                fields: &[("call", r#""event.publish""#), ("name", r#""news""#), ("data", "1")],
            },
            Nested {
                field: "then",
                around: r#"[{"call":"event.publish","name":"news","data":1},@]"#,
                fields: &[
                    ("call", r#""queue.push""#),
                    ("name", r#""jobs""#),
                    ("payload", "1"),
                    ("priority", "1"),
                    ("delay_ms", "60000"),
                ],
            },
        ],
    ),
    writes(
        "queue",
        "nack",
        "jobs",
        &[LEASE, ("error", r#""e""#), ("delay_ms", "1000"), ("dead", "false"), REQUEST],
    ),
    writes("queue", "extend", "jobs", &[LEASE, ("lease_ms", "1000"), REQUEST]),
    reads("queue", "pressure", "jobs", &[("timeout_ms", "5000")]),
    writes("queue", "pause", "rejecting", &[REQUEST]),
    writes("queue", "resume", "rejecting", &[REQUEST]),
    reads("queue", "peek", "jobs", &[("count", "10")]),
    reads("queue", "range", "ranked", &[("min", "1"), ("max", "9.5"), ("count", "10"), ("offset", "0")]),
    writes("queue", "trim", "ranked", &[("min", "1"), ("max", "2"), ("count", "1"), REQUEST]),
    reads("queue", "dead", "jobs", &[("count", "10"), ("offset", "0")]),
    writes("queue", "redrive", "burying", &[("count", "1"), ("overflow", "false"), REQUEST]),
    writes("queue", "purge", "burying", &[("count", "1"), ("older_than_ms", "60000"), REQUEST]),
    writes(
        "run",
        "start",
        "passes",
        &[("run_id", r#""r-$N""#), ("ttl_hours", "30"), ("items", "true"), REQUEST],
    ),
    writes("run", "update", "passes", &[RUN, ("fields", r#"{"a":"1"}"#), ("items", "false"), REQUEST]),
    writes("run", "finish", "passes", &[RUN, ("status", r#""done""#), ("items", "false"), REQUEST]),
    reads("run", "show", "passes", &[("run_id", "base"), ("items", "true")]),
    reads("run", "list", "courtlistener", &[("count", "10"), ("cursor", "")]),
    writes("run", "task_start", "passes", &[RUN, ("task_id", r#""t-$N""#), REQUEST]),
    writes("run", "task_finish", "passes", &[RUN, ("task_id", r#""t-$N""#), REQUEST]),
    writes("run", "processed", "passes", &[RUN, ("items", r#"["a"]"#), REQUEST]),
    writes("run", "failed", "passes", &[RUN, ("item", r#""i""#), ("error", r#""e""#), REQUEST]),
    writes("run", "remaining", "passes", &[RUN, ("items", r#"["a","b"]"#), REQUEST]),
    reads(
        "run",
        "failures",
        "courtlistener",
        &[("hour", "2026-11-15_12"), ("run_id", "base"), ("count", "10"), ("cursor", "")],
    ),
    writes("run", "retry", "passes", &[RUN, ("count", "1"), ("lease_ms", "1000"), REQUEST]),
    writes("run", "sweep", "passes", &[REQUEST]),
    nests(
        writes("stats", "record", "web", &[("connections", r#"{"0":1}"#), REQUEST]),
        &[Nested {
            field: "requests",
            around: "[@]",
            fields: &[
                ("instance", r#""0""#),
                ("method", r#""GET""#),
                ("path", r#""/a""#),
                ("status", "200"),
                ("duration_ms", "1.5"),
                ("remote", r#""192.0.2.1""#),
                ("accepted", "true"),
            ],
        }],
    ),
    reads("stats", "report", "ha", &[("hours", "1"), ("endpoints", "10")]),
    writes("stats", "sweep", "web", &[REQUEST]),
    writes(
        "upload",
        "create",
        "files",
        &[
            ("name", r#""f.txt""#),
            ("size", "3"),
            ("mime_type", r#""text/plain""#),
            ("drive", r#""d""#),
            ("connector_id", r#""c""#),
            ("path", r#""a/b""#),
            ("parent_id", r#""550e8400-e29b-41d4-a716-446655440000""#),
            ("custom_metadata", r#"{"a":1}"#),
            ("client_node_id", r#""n""#),
            ("idempotency_key", r#""k-$N""#),
        ],
    ),
    // A node has one upload: so this field is tried apart from the others.
    writes(
        "upload",
        "create",
        "files",
        &[("name", r#""f.txt""#), ("node_id", r#""00000000-0000-4000-8000-000000000001""#), REQUEST],
    ),
    reads("upload", "status", "files", &[("upload_id", "00000000000000000000000000000000")]),
    writes("upload", "abort", "files", &[("upload_id", r#""00000000000000000000000000000000""#), REQUEST]),
    writes("upload", "resume", "files", &[("upload_id", r#""00000000000000000000000000000000""#), REQUEST]),
    reads("upload", "events", "documents", &[("after", "0"), ("count", "10")]),
];
