//! Reading a queue.

use std::time::Duration;

use super::common::{Body, MILLISECOND, Reading};
use super::fields::Got;
use crate::keys::queue_rows;
use crate::kind::{Kind, Order, Overflow};
use crate::spec::{PushSpec, QueueSpec, RetrySpec, Secret, Spec};

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let name = reading.name.clone();
    let key = reading.key_or("key", &name);
    let fields = &reading.fields;
    let order = fields.word("order", Order::ALL).or(Order::Fifo);
    let max_size = fields.count("max_size", 1, 1_000_000_000);
    if max_size == Got::Absent {
        let message = format!("[{}] has no `max_size`", fields.path);
        reading.add(fields.at, "no-bound", message, Some("give the most jobs that may wait"));
    }
    let overflow = fields.word("overflow", Overflow::ALL);
    if let (Got::Value(_, at), Got::Absent) = (&overflow, &max_size) {
        reading.add(*at, "contradiction", "`overflow` without `max_size` never happens", None);
    }
    let lease = fields.duration("lease", Duration::from_millis(100), DAY).or(Duration::from_secs(30));
    let (retry, push) = (retry(reading), push(reading, lease));
    let fields = &reading.fields;
    let spec = QueueSpec {
        order,
        max_size: max_size.option(),
        overflow: overflow.or(Overflow::Reject),
        pressure_at: fields.ratio("pressure_at").or(0.8),
        lease,
        retry,
        compress_over: fields.size("compress_over", 0, 1 << 30).option(),
        push,
    };
    let documented = reading.documented_fields();
    let (key, key_at) = key?;
    if key.names().next().is_some() || key.bucket().is_some() {
        let message = "a queue is one key; its `key` has no placeholders";
        reading.add(key_at, "bad-pattern", message, None);
        return None;
    }
    let rows = queue_rows(&reading.document.prefix, key, &spec, documented);
    Some(Body::new(Spec::Queue(spec), rows, key_at))
}

fn retry(reading: &Reading<'_, '_>) -> RetrySpec {
    let default = RetrySpec::default();
    let Some(fields) = reading.fields.table("retry") else { return default };
    let base = fields.duration("base", MILLISECOND, DAY);
    let base_at = base.at();
    let retry = RetrySpec {
        max_attempts: fields.count("max_attempts", 1, 1000).or(u64::from(default.max_attempts)) as u32,
        base: base.or(default.base),
        max: fields.duration("max", MILLISECOND, DAY).or(default.max),
        jitter: fields.ratio("jitter").or(default.jitter),
    };
    fields.finish();
    if retry.base > retry.max {
        let message = "the first delay is longer than the longest";
        reading.add(
            base_at.unwrap_or(fields.at),
            "contradiction",
            message,
            Some("`base` must not exceed `max`"),
        );
    }
    retry
}

fn push(reading: &mut Reading<'_, '_>, lease: Duration) -> Option<PushSpec> {
    let fields = reading.fields.table("push")?;
    let url = fields.text("url").required(&fields, "url");
    let concurrency = fields.count("concurrency", 1, 1000).or(4) as u32;
    let timeout = fields.duration("timeout", MILLISECOND, Duration::from_secs(3600));
    let timeout_at = timeout.at().unwrap_or(fields.at);
    let timeout = timeout.or(Duration::from_secs(10));
    let secret = fields.secret("secret").map(Secret::new);
    let result_to = fields.text("result_to");
    fields.finish();
    if timeout >= lease {
        let message = "a call may last longer than the lease of its job";
        reading.add(
            timeout_at,
            "lease-shorter-than-push",
            message,
            Some("make `lease` longer than `push.timeout`"),
        );
    }
    let result_to = match result_to {
        Got::Value(text, at) => {
            let target =
                text.split_once('.').and_then(|(kind, name)| Some((kind.parse::<Kind>().ok()?, name)));
            match target {
                Some((kind @ (Kind::Queue | Kind::Batch | Kind::Event), name)) => {
                    let name = name.to_owned();
                    reading.refer(kind, &name, at);
                    Some((kind, name))
                }
                _ => {
                    let message = "`result_to` must be `queue.…`, `batch.…` or `event.…`";
                    reading.add(at, "bad-value", message, None);
                    None
                }
            }
        }
        _ => None,
    };
    let (url, at) = url?;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        reading.add(at, "bad-value", "`url` must begin with http:// or https://", None);
    }
    Some(PushSpec { url, concurrency, timeout, result_to, secret })
}
