//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::Resource;
use quaymaster_store::{Invocation, Workload};

use super::keys;
use crate::bound::{Bound, Key};
use crate::{Result, scripts};

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
    let mut call = Invocation::new(&scripts::EVENT_PUBLISH.script, Workload::Default);
    if let Some(id) = request_id {
        keys::bind_request(PUBLISH, bound, key, id, &mut call.keys)?;
        call = call.repeat_safe();
    }
    call.args.push(keys::channel(PUBLISH, bound, key)?);
    call.args.push(data);
    call.args.push_int(KEEP_MS);
    Ok(call)
}

/// Reporting twice is reporting once.
pub(super) fn report(
    bound: &Bound,
    values: &[(&str, &str)],
    ttl: Duration,
    most: usize,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::EVENT_REPORT.script, Workload::Default).repeat_safe();
    keys::bind(REPORT, bound, "reported", &[], &mut call.keys)?;
    call.args.push_int(millis(ttl));
    call.args.push_int(REPORTED_MS);
    call.args.push_int(most as i64);
    for (name, json) in values {
        call.args.push(name);
        call.args.push(json);
    }
    Ok(call)
}

/// Sent once: a turn that was taken and not used is one status left out.
pub(super) fn turn(bound: &Bound, every: Duration) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::EVENT_TURN.script, Workload::Default).compound();
    keys::bind(STATUS, bound, "turn", &[], &mut call.keys)?;
    keys::bind(STATUS, bound, "reported", &[], &mut call.keys)?;
    call.args.push_int(millis(every));
    Ok(call)
}

pub(super) fn depth(bound: &Bound, queue: &Resource) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::EVENT_DEPTH.script, Workload::Default);
    keys::bind_queue(STATUS, bound, queue, &mut call.keys)?;
    Ok(call)
}
