//! Reading a queue.

use std::time::Duration;

use super::common::{Body, Reading};
use super::fields::Got;
use crate::field::Spec;
use crate::field::queue::{
    COMPRESS_OVER, DOCUMENTED, KEY, LEASE, MAX_SIZE, ORDER, OVERFLOW, PRESSURE_AT, PUSH, RETRY,
    push as push_fields, retry as retry_fields,
};
use crate::keys::queue_rows;
use crate::kind::Kind;
use crate::spec::{PushSpec, QueueSpec, RetrySpec, Secret};

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let name = reading.name.clone();
    let key = reading.key_or(&KEY, &name);
    let fields = &reading.fields;
    let order = fields.or_default(&ORDER);
    let max_size = fields.read(&MAX_SIZE);
    if max_size == Got::Absent {
        let message = format!("[{}] has no `max_size`", fields.path);
        reading.add(fields.at, "no-bound", message, Some("give the most jobs that may wait"));
    }
    let overflow = fields.read(&OVERFLOW);
    if let (Got::Value(_, at), Got::Absent) = (&overflow, &max_size) {
        reading.add(*at, "contradiction", "`overflow` without `max_size` never happens", None);
    }
    let lease = fields.or_default(&LEASE);
    let (retry, push) = (retry(reading), push(reading, lease));
    let fields = &reading.fields;
    let spec = QueueSpec {
        order,
        max_size: max_size.option(),
        overflow: overflow.option().unwrap_or(OVERFLOW.presence.0),
        pressure_at: fields.or_default(&PRESSURE_AT),
        lease,
        retry,
        compress_over: fields.read(&COMPRESS_OVER).option(),
        push,
    };
    let documented = reading.documented_fields(&DOCUMENTED);
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
    let Some(fields) = reading.fields.table(&RETRY) else { return RetrySpec::default() };
    let (base, base_at) = fields.placed(&retry_fields::BASE);
    let retry = RetrySpec {
        max_attempts: fields.or_default(&retry_fields::MAX_ATTEMPTS) as u32,
        base,
        max: fields.or_default(&retry_fields::MAX),
        jitter: fields.or_default(&retry_fields::JITTER),
    };
    if retry.base > retry.max {
        let message = "the first delay is longer than the longest";
        reading.add(base_at, "contradiction", message, Some("`base` must not exceed `max`"));
    }
    retry
}

fn push(reading: &mut Reading<'_, '_>, lease: Duration) -> Option<PushSpec> {
    let fields = reading.fields.table(&PUSH)?;
    let url = fields.required(&push_fields::URL);
    let concurrency = fields.or_default(&push_fields::CONCURRENCY) as u32;
    let (timeout, timeout_at) = fields.placed(&push_fields::TIMEOUT);
    let secret = fields.secret(&push_fields::SECRET).map(Secret::new);
    let result_to = fields.read(&push_fields::RESULT_TO);
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
