//! A case for every verb that writes: what comes before it, and what it is given.

use serde_json::{Value, json};

use crate::runner::Runner;

kinds! { limit lock idempotency cache dedupe guard batch event queue run stats upload }

/// One call of a verb; `before` is done on the healthy store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Kind, verb and resource.
    pub(crate) call: Call,
    pub(crate) before: &'static [(Call, &'static str, Option<Keep>)],
    /// What it is given; `$name` stands for what was kept.
    pub(crate) fields: &'static str,
}

type Call = (&'static str, &'static str, &'static str);
/// A name, and where in the answer its value is.
type Keep = (&'static str, &'static str);

const ID: &[(&str, &str)] = &[("id", "a")];

/// The values of a resource's key.
pub(crate) fn key(kind: &str, verb: &str) -> &'static [(&'static str, &'static str)] {
    match (kind, verb) {
        ("batch", "sweep") => &[],
        ("limit" | "lock" | "idempotency" | "cache" | "dedupe" | "guard" | "batch", _) => ID,
        _ => &[],
    }
}

/// Every resource, under keys of this prefix; uploads lie in `folder`.
pub(crate) fn schema(prefix: &str, folder: &str) -> String {
    let head = format!("[schema]\nname = \"verbs\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
    let limit = |algorithm: &str| {
        format!(
            "[limit.{algorithm}]\nkey = \"{algorithm}:{{id}}\"\nalgorithm = \"{algorithm}\"\nlimit = 9\n\
             window = \"1h\"\n"
        )
    };
    let limits = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"].map(limit);
    head + &limits.concat()
        + r#"
[lock.lock]
key = "lock:{id}"
ttl = "1h"
[idempotency.once]
key = "once:{id}"
ttl = "1h"
[cache.text]
key = "text:{id}"
ttl = "1h"
[cache.fields]
key = "fields:{id}"
ttl = "1h"
type = "hash"
[dedupe.seen]
key = "seen:{id}"
ttl = "1h"
[guard.guard]
limits = ["fixed_window", "token_bucket"]
idempotency = "once"
lock = "lock"
[queue.jobs]
max_size = 100
lease = "10m"
[queue.small]
max_size = 1
overflow = "dlq"
lease = "10m"
[queue.brief]
retry = { max_attempts = 1 }
[queue.ranked]
order = "priority"
[batch.slow]
key = "slow:{id}:current"
by = "id"
window = "5m"
to = "jobs"
[batch.quick]
key = "quick:{id}:current"
by = "id"
window = "1ms"
to = "jobs"
[event.news]
[event.pulse]
status = { every = "5s", queues = ["jobs"] }
[run.runs]
key = "runs:{run_id}"
state_ttl = "25h"
hour_ttl = "2h"
limit = "calls"
[limit.calls]
key = "calls:{hour}"
algorithm = "fixed_window"
limit = 1000
window = "1h"
[run.brief]
key = "brief:{run_id}"
task_key = "brief_task:{run_id}:{task_id}"
failed_key = "brief_failed:{hour}"
state_ttl = "25h"
hour_ttl = "2h"
stale_after = "1ms"
[stats.web]
key = "web:"
[upload.files]
key = "file:{upload_id}:state"
"# + &format!("objects = \"file:{folder}/objects\"\ndatabase = \"sqlite:{folder}/uploads.db\"\n")
}

const TOKEN: Option<Keep> = Some(("token", "/token"));
const LEASE: Option<Keep> = Some(("lease", "/jobs/0/lease"));
const UPLOAD: Option<Keep> = Some(("upload", "/upload_id"));
const PUSH: (Call, &str, Option<Keep>) = (("queue", "push", "jobs"), r#"{"payload": 1}"#, None);
const CLAIM: (Call, &str, Option<Keep>) = (("queue", "claim", "jobs"), r#"{"count": 1}"#, LEASE);
const BURY: (Call, &str, Option<Keep>) =
    (("queue", "nack", "jobs"), r#"{"lease": "$lease", "error": "x", "dead": true}"#, None);
/// Takes a while, and finds nothing.
const WAIT: (Call, &str, Option<Keep>) = (("queue", "claim", "jobs"), r#"{"count": 1, "wait_ms": 50}"#, None);
const START: (Call, &str, Option<Keep>) = (("run", "start", "runs"), r#"{"run_id": "r"}"#, None);
const FAILED: (Call, &str, Option<Keep>) =
    (("run", "failed", "runs"), r#"{"run_id": "r", "item": "a", "error": "x"}"#, None);
const REQUESTS: &str = r#"{"requests": [{"instance": "0", "method": "GET", "path": "/x", "status": 200,
    "duration_ms": 1.5}]}"#;

macro_rules! cases {
    ($($kind:literal $verb:literal $name:literal [$($before:expr),*] $fields:expr;)*) => {
        &[$(Case { call: ($kind, $verb, $name), before: &[$($before),*], fields: $fields }),*]
    };
}

/// Every case; a verb may have several.
pub(crate) const CASES: &[Case] = cases! {
    "limit" "take" "fixed_window" [] "{}";
    "limit" "take" "sliding_log" [] "{}";
    "limit" "take" "sliding_window" [] "{}";
    "limit" "take" "token_bucket" [] "{}";
    "limit" "refund" "fixed_window" [(("limit", "take", "fixed_window"), "{}", None)] "{}";
    "limit" "refund" "sliding_log" [(("limit", "take", "sliding_log"), "{}", None)] "{}";
    "limit" "refund" "sliding_window" [(("limit", "take", "sliding_window"), "{}", None)] "{}";
    "limit" "refund" "token_bucket" [(("limit", "take", "token_bucket"), "{}", None)] "{}";
    "limit" "reset" "fixed_window" [(("limit", "take", "fixed_window"), "{}", None)] "{}";
    "limit" "reset" "sliding_window" [(("limit", "take", "sliding_window"), "{}", None)] "{}";
    "limit" "reset" "token_bucket" [(("limit", "take", "token_bucket"), "{}", None)] "{}";
    "limit" "reset" "sliding_log" [(("limit", "take", "sliding_log"), "{}", None)] "{}";
    "lock" "acquire" "lock" [] "{}";
    "lock" "acquire" "lock" [] r#"{"wait_ms": 50}"#;
    "lock" "renew" "lock" [(("lock", "acquire", "lock"), r#"{"ttl_ms": 9000}"#, TOKEN)] r#"{"token": "$token"}"#;
    "lock" "release" "lock" [(("lock", "acquire", "lock"), "{}", TOKEN)] r#"{"token": "$token"}"#;
    "idempotency" "begin" "once" [] "{}";
    "idempotency" "begin" "once" [] r#"{"wait_ms": 50}"#;
    "idempotency" "finish" "once" [(("idempotency", "begin", "once"), "{}", TOKEN)]
        r#"{"token": "$token", "response": {"a": 1}}"#;
    "idempotency" "abandon" "once" [(("idempotency", "begin", "once"), "{}", TOKEN)] r#"{"token": "$token"}"#;
    "cache" "put" "text" [] r#"{"value": "x"}"#;
    "cache" "put" "fields" [] r#"{"value": {"a": "x"}}"#;
    "cache" "delete" "text" [(("cache", "put", "text"), r#"{"value": "x"}"#, None)] "{}";
    "dedupe" "first" "seen" [] "{}";
    "guard" "enter" "guard" [] "{}";
    "guard" "leave" "guard" [(("guard", "enter", "guard"), "{}", TOKEN)] r#"{"token": "$token"}"#;
    "batch" "add" "slow" [] r#"{"item": 1}"#;
    "batch" "close" "slow" [(("batch", "add", "slow"), r#"{"item": 1}"#, None)] "{}";
    "batch" "sweep" "quick" [(("batch", "add", "quick"), r#"{"item": 1}"#, None), WAIT] "{}";
    "event" "publish" "news" [] r#"{"data": 1}"#;
    "event" "report" "pulse" [] r#"{"data": {"a": 1}}"#;
    "queue" "push" "jobs" [] r#"{"payload": 1}"#;
    "queue" "push" "jobs" [] r#"{"payloads": [1, 2], "delay_ms": 60000}"#;
    "queue" "push" "jobs" [] r#"{"payload": 1, "id": "x", "dedupe": {"name": "seen", "key": {"id": "q"}}}"#;
    "queue" "claim" "jobs" [PUSH] r#"{"count": 1}"#;
    "queue" "claim" "jobs" [PUSH] r#"{"count": 1, "wait_ms": 50}"#;
    "queue" "claim" "jobs" [(("queue", "push", "jobs"), r#"{"payload": 1, "delay_ms": 100}"#, None)]
        r#"{"count": 1, "wait_ms": 2000}"#;
    // Its only attempt is used up: the claim buries it, and waits for another one.
    "queue" "claim" "brief" [
        (("queue", "push", "brief"), r#"{"payload": 1}"#, None),
        (("queue", "claim", "brief"), r#"{"count": 1, "lease_ms": 1}"#, None)] r#"{"count": 1, "wait_ms": 100}"#;
    "queue" "ack" "jobs" [PUSH, CLAIM] r#"{"leases": ["$lease"]}"#;
    "queue" "ack" "jobs" [PUSH, PUSH, CLAIM] r#"{"leases": ["$lease"], "claim": {"count": 1}}"#;
    "queue" "ack" "jobs" [PUSH, CLAIM]
        r#"{"leases": ["$lease"], "then": [{"call": "queue.push", "name": "jobs", "payload": 2}]}"#;
    "queue" "nack" "jobs" [PUSH, CLAIM] r#"{"lease": "$lease", "error": "x"}"#;
    "queue" "nack" "jobs" [PUSH, CLAIM] r#"{"lease": "$lease", "error": "x", "dead": true}"#;
    "queue" "extend" "jobs" [PUSH, CLAIM] r#"{"lease": "$lease", "lease_ms": 1200000}"#;
    "queue" "pause" "jobs" [] "{}";
    "queue" "resume" "jobs" [(("queue", "pause", "jobs"), "{}", None)] "{}";
    "queue" "redrive" "jobs" [PUSH, CLAIM, BURY] "{}";
    "queue" "redrive" "small" [
        (("queue", "push", "small"), r#"{"payload": 1}"#, None),
        (("queue", "push", "small"), r#"{"payload": 2}"#, None),
        (("queue", "claim", "small"), r#"{"count": 1}"#, None)] r#"{"overflow": true}"#;
    "queue" "purge" "jobs" [PUSH, CLAIM, BURY] "{}";
    "queue" "purge" "jobs" [PUSH, CLAIM, BURY] r#"{"older_than_ms": 0}"#;
    "queue" "trim" "ranked" [(("queue", "push", "ranked"), r#"{"payload": 1, "priority": 2}"#, None)]
        r#"{"max": 2}"#;
    "run" "start" "runs" [] "{}";
    "run" "start" "runs" [] r#"{"run_id": "r"}"#;
    "run" "update" "runs" [START] r#"{"run_id": "r", "fields": {"status": "busy"}}"#;
    "run" "finish" "runs" [START] r#"{"run_id": "r", "status": "completed"}"#;
    "run" "task_start" "runs" [START] r#"{"run_id": "r", "task_id": "t"}"#;
    "run" "task_finish" "runs" [START, (("run", "task_start", "runs"), r#"{"run_id": "r", "task_id": "t"}"#, None)]
        r#"{"run_id": "r", "task_id": "t"}"#;
    "run" "processed" "runs" [START] r#"{"run_id": "r", "items": ["a"]}"#;
    "run" "failed" "runs" [START] r#"{"run_id": "r", "item": "a", "error": "x"}"#;
    "run" "remaining" "runs" [START] r#"{"run_id": "r", "items": ["a"]}"#;
    "run" "retry" "runs" [START, FAILED] r#"{"run_id": "r"}"#;
    "run" "sweep" "brief" [(("run", "start", "brief"), r#"{"run_id": "r"}"#, None), WAIT] "{}";
    "stats" "record" "web" [] REQUESTS;
    "stats" "sweep" "web" [(("stats", "record", "web"), REQUESTS, None)] "{}";
    "upload" "create" "files" [] r#"{"name": "f", "size": 3}"#;
    "upload" "abort" "files" [(("upload", "create", "files"), r#"{"name": "f"}"#, UPLOAD)]
        r#"{"upload_id": "$upload"}"#;
    "upload" "resume" "files" [(("upload", "create", "files"), r#"{"name": "f"}"#, UPLOAD)]
        r#"{"upload_id": "$upload"}"#;
};

impl Case {
    /// It has an effect only on a run that another program has begun, or on an instance that was silent for a day.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.call, ("run", "remaining", _) | ("stats", "sweep", _))
    }

    /// Does what comes before, and answers what the call is given.
    pub(crate) async fn prepare(&self, runner: &Runner) -> Value {
        let mut kept: Vec<(String, String)> = Vec::new();
        for (call, fields, keep) in self.before {
            let answer = runner.run(*call, fill(fields, &kept)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{self:?}: {call:?}: {error}"));
            if let Some((name, pointer)) = keep {
                let value = answer.pointer(pointer).and_then(Value::as_str);
                let value = value.unwrap_or_else(|| panic!("{self:?}: {pointer} of {answer}"));
                kept.push((format!("${name}"), value.to_owned()));
            }
        }
        fill(self.fields, &kept)
    }

    /// The same fields under a request's id.
    pub(crate) fn asked_as(fields: &Value, id: &str) -> Value {
        let mut fields = fields.clone();
        fields["request_id"] = json!(id);
        fields
    }
}

fn fill(fields: &str, kept: &[(String, String)]) -> Value {
    let text = kept.iter().fold(fields.to_owned(), |text, (name, value)| text.replace(name, value));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
