//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::Resource;
use quaymaster_store::{Invocation, Workload};

use super::keys;
use crate::Result;
use crate::bound::{Bound, Key, KeyBinding, check_request_id};
use crate::scripts::{event_depth, event_publish, event_report, event_turn};

pub(super) const PUBLISH: &str = "event.publish";
pub(super) const SUBSCRIBE: &str = "event.stream";
pub(super) const REPORT: &str = "event.report";
pub(super) const STATUS: &str = "event.status";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// What nobody has reported since is swept.
const REPORTED_MS: i64 = 86_400_000;

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Sent again only with a `request_id`: without one a repetition would be a second message.
pub(super) fn publish(
    bound: &Bound,
    key: Key<'_>,
    data: &[u8],
    request_id: Option<&str>,
) -> Result<Invocation> {
    let (values, request) = match request_id {
        Some(id) => {
            check_request_id(PUBLISH, id)?;
            (key.iter().copied().chain([("publish_id", id)]).collect(), true)
        }
        None => (Vec::new(), false),
    };
    let call = event_publish::Call {
        request: if request { Some(keys::role(PUBLISH, bound, "request", &values)?) } else { None },
        channel: &keys::channel(PUBLISH, bound, key)?,
        data,
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(PUBLISH, Workload::Default))?;
    Ok(if request { call.repeat_safe() } else { call })
}

/// Reporting twice is reporting once.
pub(super) fn report(
    bound: &Bound,
    values: &[(&str, &str)],
    ttl: Duration,
    most: usize,
) -> Result<Invocation> {
    let call = event_report::Call {
        reported: keys::role(REPORT, bound, "reported", &[])?,
        ttl_ms: millis(ttl),
        keep_ms: REPORTED_MS,
        most: most as i64,
        values: &|args| {
            for (name, json) in values {
                args.put(event_report::ValuesRow { name, json });
            }
        },
    };
    Ok(call.on(bound.at(REPORT, Workload::Default))?.repeat_safe())
}

/// Sent once: a turn that was taken and not used is one status left out.
pub(super) fn turn(bound: &Bound, every: Duration) -> Result<Invocation> {
    let call = event_turn::Call {
        turn: keys::role(STATUS, bound, "turn", &[])?,
        reported: keys::role(STATUS, bound, "reported", &[])?,
        every_ms: millis(every),
    };
    Ok(call.on(bound.at(STATUS, Workload::Default))?.compound())
}

pub(super) fn depth(bound: &Bound, queue: &Resource) -> Result<Invocation> {
    let row = queue.primary().ok_or_else(|| keys::undeclared(STATUS, bound))?;
    let items = KeyBinding::Row { pattern: &row.pattern, values: &[], now_us: 0 };
    event_depth::Call { items }.on(bound.at(STATUS, Workload::Default))
}
