//! The table of verbs: a good value for each field of a verb, and a case for each verb that writes.
//!
//! The tests `corpus` and `verbs` both read it, so that a new verb has one row.

mod schema;

pub use schema::{key, schema};

/// Hands the kinds that have calls to a macro, and what else stands behind its name.
#[macro_export]
macro_rules! kinds {
    ($each:ident $($more:ident)*) => {
        $each! { limit lock idempotency cache dedupe guard queue batch event run stats upload $($more)* }
    };
}

/// A verb with its fields.
#[derive(Debug)]
pub struct Verb {
    /// The kind it is a verb of.
    pub kind: &'static str,
    /// The verb itself.
    pub word: &'static str,
    /// The resource of the recorded calls; they have a schema of their own.
    pub name: &'static str,
    /// The fields of its body, or of its query for a verb that reads; a good value, as JSON or as in a query.
    pub fields: Fields,
    /// Whether it only reads.
    pub reads: bool,
    /// Fields that hold objects with fields of their own.
    pub nested: &'static [Nested],
    /// What is tried of a verb that writes, on the resources of [`schema`].
    pub cases: &'static [Case],
}

/// A field that holds an object.
#[derive(Debug)]
pub struct Nested {
    /// The field.
    pub field: &'static str,
    /// What is around the object, which is `@`.
    pub around: &'static str,
    /// The fields of the object.
    pub fields: Fields,
}

/// One call of a verb.
#[derive(Debug)]
pub struct Case {
    /// The resource.
    pub name: &'static str,
    /// What is done before, on the healthy store.
    pub before: &'static [Before],
    /// What the verb is given; `$name` stands for what was kept.
    pub fields: &'static str,
}

/// Names and values.
pub type Fields = &'static [(&'static str, &'static str)];
/// Kind, verb and resource.
pub type Call = (&'static str, &'static str, &'static str);
/// A name, and where in the answer its value is.
pub type Keep = (&'static str, &'static str);
/// A call that comes before, what it is given, and what of its answer is kept.
pub type Before = (Call, &'static str, Option<Keep>);

const fn writes(kind: &'static str, word: &'static str, name: &'static str, fields: Fields) -> Verb {
    Verb { kind, word, name, fields, reads: false, nested: &[], cases: &[] }
}

const fn reads(kind: &'static str, word: &'static str, name: &'static str, fields: Fields) -> Verb {
    Verb { kind, word, name, fields, reads: true, nested: &[], cases: &[] }
}

const fn nests(verb: Verb, nested: &'static [Nested]) -> Verb {
    Verb { nested, ..verb }
}

impl Verb {
    const fn tried(self, cases: &'static [Case]) -> Self {
        Self { cases, ..self }
    }
}

const fn case(name: &'static str, before: &'static [Before], fields: &'static str) -> Case {
    Case { name, before, fields }
}

const KEY: (&str, &str) = ("key", r#"{"id":"$N"}"#);
const REQUEST: (&str, &str) = ("request_id", r#""r-$N""#);
const TOKEN: (&str, &str) = ("token", r#""AAAAAAAAAAAAAAAAAAAAAA""#);
const LEASE: (&str, &str) = ("lease", r#""1.1.AAAAAAAAAAAAAAAAAAAAAA""#);
const RUN: (&str, &str) = ("run_id", r#""base""#);
const QUERY_KEY: (&str, &str) = ("key.id", "base");

const HELD: Option<Keep> = Some(("token", "/token"));
const CLAIMED: Option<Keep> = Some(("lease", "/jobs/0/lease"));
const UPLOAD: Option<Keep> = Some(("upload", "/upload_id"));
const PUSH: Before = (("queue", "push", "jobs"), r#"{"payload": 1}"#, None);
const CLAIM: Before = (("queue", "claim", "jobs"), r#"{"count": 1}"#, CLAIMED);
const BURY: Before = (("queue", "nack", "jobs"), r#"{"lease": "$lease", "error": "x", "dead": true}"#, None);
/// Takes a while, and finds nothing.
const WAIT: Before = (("queue", "claim", "jobs"), r#"{"count": 1, "wait_ms": 50}"#, None);
const START: Before = (("run", "start", "runs"), r#"{"run_id": "r"}"#, None);
const FAILED: Before = (("run", "failed", "runs"), r#"{"run_id": "r", "item": "a", "error": "x"}"#, None);
const REQUESTS: &str = r#"{"requests": [{"instance": "0", "method": "GET", "path": "/x", "status": 200,
    "duration_ms": 1.5}]}"#;

/// Every call on a resource; a test holds them against the OpenAPI document.
pub const VERBS: &[Verb] = &[
    writes("limit", "take", "open_window", &[KEY, ("cost", "1"), REQUEST]).tried(&[
        case("fixed_window", &[], "{}"),
        case("sliding_log", &[], "{}"),
        case("sliding_window", &[], "{}"),
        case("token_bucket", &[], "{}"),
    ]),
    reads("limit", "peek", "open_window", &[QUERY_KEY]),
    writes("limit", "refund", "open_window", &[KEY, ("cost", "1"), REQUEST]).tried(&[
        case("fixed_window", &[(("limit", "take", "fixed_window"), "{}", None)], "{}"),
        case("sliding_log", &[(("limit", "take", "sliding_log"), "{}", None)], "{}"),
        case("sliding_window", &[(("limit", "take", "sliding_window"), "{}", None)], "{}"),
        case("token_bucket", &[(("limit", "take", "token_bucket"), "{}", None)], "{}"),
    ]),
    writes("limit", "reset", "open_window", &[KEY, REQUEST]).tried(&[
        case("fixed_window", &[(("limit", "take", "fixed_window"), "{}", None)], "{}"),
        case("sliding_window", &[(("limit", "take", "sliding_window"), "{}", None)], "{}"),
        case("token_bucket", &[(("limit", "take", "token_bucket"), "{}", None)], "{}"),
        case("sliding_log", &[(("limit", "take", "sliding_log"), "{}", None)], "{}"),
    ]),
    writes(
        "lock",
        "acquire",
        "door",
        &[KEY, ("owner", r#""web-1""#), ("ttl_ms", "1000"), ("wait_ms", "0"), REQUEST],
    )
    .tried(&[case("lock", &[], "{}"), case("lock", &[], r#"{"wait_ms": 50}"#)]),
    writes("lock", "renew", "door", &[KEY, TOKEN, ("ttl_ms", "1000"), REQUEST]).tried(&[case(
        "lock",
        &[(("lock", "acquire", "lock"), r#"{"ttl_ms": 9000}"#, HELD)],
        r#"{"token": "$token"}"#,
    )]),
    writes("lock", "release", "door", &[KEY, TOKEN, REQUEST]).tried(&[case(
        "lock",
        &[(("lock", "acquire", "lock"), "{}", HELD)],
        r#"{"token": "$token"}"#,
    )]),
    writes("idempotency", "begin", "once", &[KEY, ("fingerprint", r#""f""#), ("wait_ms", "0"), REQUEST])
        .tried(&[case("once", &[], "{}"), case("once", &[], r#"{"wait_ms": 50}"#)]),
    writes("idempotency", "finish", "once", &[KEY, TOKEN, ("response", r#"{"a":1}"#), REQUEST]).tried(&[
        case(
            "once",
            &[(("idempotency", "begin", "once"), "{}", HELD)],
            r#"{"token": "$token", "response": {"a": 1}}"#,
        ),
    ]),
    writes("idempotency", "abandon", "once", &[KEY, TOKEN, REQUEST]).tried(&[case(
        "once",
        &[(("idempotency", "begin", "once"), "{}", HELD)],
        r#"{"token": "$token"}"#,
    )]),
    writes(
        "cache",
        "put",
        "text",
        &[KEY, ("value", r#""v""#), ("ttl_ms", "1000"), ("if_absent", "false"), REQUEST],
    )
    .tried(&[case("text", &[], r#"{"value": "x"}"#), case("fields", &[], r#"{"value": {"a": "x"}}"#)]),
    reads("cache", "get", "text", &[QUERY_KEY]),
    reads("cache", "exists", "text", &[QUERY_KEY]),
    writes("cache", "delete", "text", &[KEY, REQUEST]).tried(&[case(
        "text",
        &[(("cache", "put", "text"), r#"{"value": "x"}"#, None)],
        "{}",
    )]),
    writes("dedupe", "first", "seen", &[KEY, ("value", r#""v""#), REQUEST]).tried(&[case("seen", &[], "{}")]),
    writes("guard", "enter", "all", &[KEY, ("fingerprint", r#""f""#), ("ttl_ms", "1000"), REQUEST])
        .tried(&[case("guard", &[], "{}")]),
    writes("guard", "leave", "all", &[KEY, TOKEN, ("response", r#"{"a":1}"#), ("abandon", "false"), REQUEST])
        .tried(&[case("guard", &[(("guard", "enter", "guard"), "{}", HELD)], r#"{"token": "$token"}"#)]),
    writes("batch", "add", "slow", &[KEY, ("item", "1"), ("id", r#""i-$N""#), REQUEST]).tried(&[case(
        "slow",
        &[],
        r#"{"item": 1}"#,
    )]),
    reads("batch", "list", "few", &[("count", "10"), ("offset", "0")]),
    writes("batch", "close", "slow", &[KEY, REQUEST]).tried(&[case(
        "slow",
        &[(("batch", "add", "slow"), r#"{"item": 1}"#, None)],
        "{}",
    )]),
    writes("batch", "sweep", "slow", &[REQUEST]).tried(&[case(
        "quick",
        &[(("batch", "add", "quick"), r#"{"item": 1}"#, None), WAIT],
        "{}",
    )]),
    writes("event", "publish", "room", &[KEY, ("data", "1"), REQUEST]).tried(&[case(
        "news",
        &[],
        r#"{"data": 1}"#,
    )]),
    writes("event", "report", "pulse", &[("data", r#"{"a":1}"#), ("ttl_ms", "1000"), REQUEST])
        .tried(&[case("pulse", &[], r#"{"data": {"a": 1}}"#)]),
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
    )
    .tried(&[
        case("jobs", &[], r#"{"payload": 1}"#),
        case("jobs", &[], r#"{"payloads": [1, 2], "delay_ms": 60000}"#),
        case("jobs", &[], r#"{"payload": 1, "id": "x", "dedupe": {"name": "seen", "key": {"id": "q"}}}"#),
    ]),
    writes("queue", "push", "jobs", &[("payloads", "[1,2]"), ("delay_ms", "60000")]),
    writes(
        "queue",
        "claim",
        "jobs",
        &[("count", "2"), ("lease_ms", "1000"), ("wait_ms", "0"), ("worker", r#""w""#), REQUEST],
    )
    .tried(&[
        case("jobs", &[PUSH], r#"{"count": 1}"#),
        case("jobs", &[PUSH], r#"{"count": 1, "wait_ms": 50}"#),
        case(
            "jobs",
            &[(("queue", "push", "jobs"), r#"{"payload": 1, "delay_ms": 100}"#, None)],
            r#"{"count": 1, "wait_ms": 2000}"#,
        ),
        // Its only attempt is used up: the claim buries it, and waits for another one.
        case(
            "brief",
            &[
                (("queue", "push", "brief"), r#"{"payload": 1}"#, None),
                (("queue", "claim", "brief"), r#"{"count": 1, "lease_ms": 1}"#, None),
            ],
            r#"{"count": 1, "wait_ms": 100}"#,
        ),
    ]),
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
    )
    .tried(&[
        case("jobs", &[PUSH, CLAIM], r#"{"leases": ["$lease"]}"#),
        case("jobs", &[PUSH, PUSH, CLAIM], r#"{"leases": ["$lease"], "claim": {"count": 1}}"#),
        case(
            "jobs",
            &[PUSH, CLAIM],
            r#"{"leases": ["$lease"], "then": [{"call": "queue.push", "name": "jobs", "payload": 2}]}"#,
        ),
    ]),
    writes(
        "queue",
        "nack",
        "jobs",
        &[LEASE, ("error", r#""e""#), ("delay_ms", "1000"), ("dead", "false"), REQUEST],
    )
    .tried(&[
        case("jobs", &[PUSH, CLAIM], r#"{"lease": "$lease", "error": "x"}"#),
        case("jobs", &[PUSH, CLAIM], r#"{"lease": "$lease", "error": "x", "dead": true}"#),
    ]),
    writes("queue", "extend", "jobs", &[LEASE, ("lease_ms", "1000"), REQUEST]).tried(&[case(
        "jobs",
        &[PUSH, CLAIM],
        r#"{"lease": "$lease", "lease_ms": 1200000}"#,
    )]),
    reads("queue", "pressure", "jobs", &[("timeout_ms", "5000")]),
    writes("queue", "pause", "rejecting", &[REQUEST]).tried(&[case("jobs", &[], "{}")]),
    writes("queue", "resume", "rejecting", &[REQUEST]).tried(&[case(
        "jobs",
        &[(("queue", "pause", "jobs"), "{}", None)],
        "{}",
    )]),
    reads("queue", "peek", "jobs", &[("count", "10")]),
    reads("queue", "range", "ranked", &[("min", "1"), ("max", "9.5"), ("count", "10"), ("offset", "0")]),
    writes("queue", "trim", "ranked", &[("min", "1"), ("max", "2"), ("count", "1"), REQUEST]).tried(&[case(
        "ranked",
        &[(("queue", "push", "ranked"), r#"{"payload": 1, "priority": 2}"#, None)],
        r#"{"max": 2}"#,
    )]),
    reads("queue", "dead", "jobs", &[("count", "10"), ("offset", "0")]),
    writes("queue", "redrive", "burying", &[("count", "1"), ("overflow", "false"), REQUEST]).tried(&[
        case("jobs", &[PUSH, CLAIM, BURY], "{}"),
        case(
            "small",
            &[
                (("queue", "push", "small"), r#"{"payload": 1}"#, None),
                (("queue", "push", "small"), r#"{"payload": 2}"#, None),
                (("queue", "claim", "small"), r#"{"count": 1}"#, None),
            ],
            r#"{"overflow": true}"#,
        ),
    ]),
    writes("queue", "purge", "burying", &[("count", "1"), ("older_than_ms", "60000"), REQUEST]).tried(&[
        case("jobs", &[PUSH, CLAIM, BURY], "{}"),
        case("jobs", &[PUSH, CLAIM, BURY], r#"{"older_than_ms": 0}"#),
    ]),
    writes(
        "run",
        "start",
        "passes",
        &[("run_id", r#""r-$N""#), ("ttl_hours", "30"), ("items", "true"), REQUEST],
    )
    .tried(&[case("runs", &[], "{}"), case("runs", &[], r#"{"run_id": "r"}"#)]),
    writes("run", "update", "passes", &[RUN, ("fields", r#"{"a":"1"}"#), ("items", "false"), REQUEST])
        .tried(&[case("runs", &[START], r#"{"run_id": "r", "fields": {"status": "busy"}}"#)]),
    writes("run", "finish", "passes", &[RUN, ("status", r#""done""#), ("items", "false"), REQUEST])
        .tried(&[case("runs", &[START], r#"{"run_id": "r", "status": "completed"}"#)]),
    reads("run", "show", "passes", &[("run_id", "base"), ("items", "true")]),
    reads("run", "list", "courtlistener", &[("count", "10"), ("cursor", "")]),
    writes("run", "task_start", "passes", &[RUN, ("task_id", r#""t-$N""#), REQUEST]).tried(&[case(
        "runs",
        &[START],
        r#"{"run_id": "r", "task_id": "t"}"#,
    )]),
    writes("run", "task_finish", "passes", &[RUN, ("task_id", r#""t-$N""#), REQUEST]).tried(&[case(
        "runs",
        &[START, (("run", "task_start", "runs"), r#"{"run_id": "r", "task_id": "t"}"#, None)],
        r#"{"run_id": "r", "task_id": "t"}"#,
    )]),
    writes("run", "processed", "passes", &[RUN, ("items", r#"["a"]"#), REQUEST]).tried(&[case(
        "runs",
        &[START],
        r#"{"run_id": "r", "items": ["a"]}"#,
    )]),
    writes("run", "failed", "passes", &[RUN, ("item", r#""i""#), ("error", r#""e""#), REQUEST])
        .tried(&[case("runs", &[START], r#"{"run_id": "r", "item": "a", "error": "x"}"#)]),
    writes("run", "remaining", "passes", &[RUN, ("items", r#"["a","b"]"#), REQUEST]).tried(&[case(
        "runs",
        &[START],
        r#"{"run_id": "r", "items": ["a"]}"#,
    )]),
    reads(
        "run",
        "failures",
        "courtlistener",
        &[("hour", "2026-11-15_12"), ("run_id", "base"), ("count", "10"), ("cursor", "")],
    ),
    writes("run", "retry", "passes", &[RUN, ("count", "1"), ("lease_ms", "1000"), REQUEST]).tried(&[case(
        "runs",
        &[START, FAILED],
        r#"{"run_id": "r"}"#,
    )]),
    writes("run", "sweep", "passes", &[REQUEST]).tried(&[case(
        "brief",
        &[(("run", "start", "brief"), r#"{"run_id": "r"}"#, None), WAIT],
        "{}",
    )]),
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
    )
    .tried(&[case("web", &[], REQUESTS)]),
    reads("stats", "report", "ha", &[("hours", "1"), ("endpoints", "10")]),
    writes("stats", "sweep", "web", &[REQUEST]).tried(&[case(
        "web",
        &[(("stats", "record", "web"), REQUESTS, None)],
        "{}",
    )]),
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
    )
    .tried(&[case("files", &[], r#"{"name": "f", "size": 3}"#)]),
    // A node has one upload: so this field is tried apart from the others.
    writes(
        "upload",
        "create",
        "files",
        &[("name", r#""f.txt""#), ("node_id", r#""00000000-0000-4000-8000-000000000001""#), REQUEST],
    ),
    reads("upload", "status", "files", &[("upload_id", "00000000000000000000000000000000")]),
    writes("upload", "abort", "files", &[("upload_id", r#""00000000000000000000000000000000""#), REQUEST])
        .tried(&[case(
            "files",
            &[(("upload", "create", "files"), r#"{"name": "f"}"#, UPLOAD)],
            r#"{"upload_id": "$upload"}"#,
        )]),
    writes("upload", "resume", "files", &[("upload_id", r#""00000000000000000000000000000000""#), REQUEST])
        .tried(&[case(
            "files",
            &[(("upload", "create", "files"), r#"{"name": "f"}"#, UPLOAD)],
            r#"{"upload_id": "$upload"}"#,
        )]),
    reads("upload", "events", "documents", &[("after", "0"), ("count", "10")]),
];
