//! Queues: the public list, its dead letters, and what claims need beside it.

use super::{RowDraft, never, request, row, side};
use crate::kind::{Order, RedisType};
use crate::pattern::{Class, Template};
use crate::schema::{Field, Ttl};
use crate::spec::QueueSpec;

/// The documented dead-letter item.
const DEAD_FIELDS: &[(&str, &str)] = &[
    ("original_job", "the job as it was pushed"),
    ("error", "what the last attempt said"),
    ("attempt_count", "how often it was tried"),
    ("first_failed_at", "when it first failed"),
    ("last_failed_at", "when it last failed"),
    ("queue_name", "the queue it came from"),
];

/// `prefix` stands in front of `dlq:` too, so that a prefixed schema keeps to its own keys.
pub(crate) fn queue_rows(prefix: &str, key: Template, spec: &QueueSpec, fields: Vec<Field>) -> Vec<RowDraft> {
    let name = without_prefix(&key, prefix);
    let beside = |head: &str| {
        let mut template = Template::of_text(&format!("{prefix}{head}"));
        template.push(&name);
        template
    };
    let (dead, overflow) = (beside("dlq:"), beside("dlq:overflow:"));
    let (holds, format) = match spec.order {
        Order::Fifo => {
            (RedisType::List, "one item per job, raw JSON, or `Z:` + base64 of zstd when compressed")
        }
        Order::Priority => (RedisType::Zset, "one member per job; its score is the priority"),
    };
    let tag = key.without_bucket();
    let bounded = match spec.max_size {
        Some(size) => never(&format!("holds at most {size} items")),
        None => never("jobs wait until they are claimed"),
    };
    let kept = || never("kept until redriven or purged");
    let gone = || never("removed by ack, death or purge");
    vec![
        row("items", key, holds, bounded, "Jobs that wait").documented(fields, Some(format.to_owned())),
        row("dead", dead, RedisType::List, kept(), "Jobs that failed too often").fields(DEAD_FIELDS),
        row("overflow", overflow, RedisType::List, kept(), "Items moved out of a full queue")
            .format("raw items, oldest first"),
        side(
            "leases",
            &tag,
            "leases",
            None,
            RedisType::Zset,
            gone(),
            "Claimed jobs by the end of their lease",
        )
        .format("member: job id; score: the lease's end in milliseconds"),
        side(
            "delayed",
            &tag,
            "delayed",
            None,
            RedisType::Zset,
            gone(),
            "Delayed jobs and retries, by when they are due",
        )
        .format("member: job id; score: due in milliseconds"),
        side(
            "jobs",
            &tag,
            "jobs",
            None,
            RedisType::Hash,
            gone(),
            "The items of claimed and delayed jobs, byte for byte",
        )
        .format("field: job id; value: the item as it lay in the queue"),
        side(
            "held",
            &tag,
            "held",
            None,
            RedisType::Hash,
            gone(),
            "Who holds a claimed job, and how often it was tried",
        )
        .format(
            "field: job id; value: `token attempt first_failed_ms worker priority`, `-` where there is no token \
             or worker, 0 where it never failed",
        ),
        side(
            "meta",
            &tag,
            "meta",
            None,
            RedisType::Hash,
            never("one small hash per queue"),
            "Switches and counters",
        )
        .fields(&[
            ("paused", "1 while claims get nothing"),
            ("sequence", "the last number given to a job"),
            ("pushed", "items pushed by Quaymaster without a delay"),
            ("postponed", "items pushed by Quaymaster with a delay"),
            ("stamped", "when the last stamp was written, in milliseconds"),
            ("acked", "jobs done"),
            ("retried", "jobs that failed and came again"),
            ("expired", "leases that ended without a word from their holder"),
            ("dead", "jobs moved to the dead letters"),
            ("redriven", "dead letters moved back"),
            ("overflowed", "items moved to the overflow list"),
            ("dropped", "items dropped by overflow"),
            ("foreign", "members of leases and delayed that were no job ids, removed"),
        ]),
        side(
            "stamps",
            &tag,
            "stamps",
            None,
            RedisType::List,
            never("some thousand marks, gone when the queue is empty"),
            "When which push came: how old the oldest waiting item is",
        )
        .format("`pushed milliseconds`, at most one a second, fewer the older the oldest is"),
        side(
            "id",
            &tag,
            "id",
            Some(("push_id", Class::Wide)),
            RedisType::String,
            Ttl::For(std::time::Duration::from_secs(86_400)),
            "An id that was pushed, so that it is not pushed again",
        ),
        request(&tag),
    ]
}

fn without_prefix(key: &Template, prefix: &str) -> Template {
    let text = key.text();
    text.strip_prefix(prefix).and_then(|rest| Template::parse(rest).ok()).unwrap_or_else(|| key.clone())
}
