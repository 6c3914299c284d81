//! The resources that the cases run on, and the values of their keys.

use super::Fields;

const ID: Fields = &[("id", "a")];

/// The values of a case's key.
pub fn key(kind: &str, verb: &str) -> Fields {
    match (kind, verb) {
        ("batch", "sweep") => &[],
        ("limit" | "lock" | "idempotency" | "cache" | "dedupe" | "guard" | "batch", _) => ID,
        _ => &[],
    }
}

/// Every resource of the cases, under keys of this prefix; uploads lie in `folder`.
pub fn schema(prefix: &str, folder: &str) -> String {
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
