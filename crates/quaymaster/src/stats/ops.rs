//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::StatsSpec;
use quaymaster_store::{Invocation, Workload};

use super::keys;
use super::sum::Piece;
use crate::bound::Bound;
use crate::{Result, scripts};

pub(super) const RECORD: &str = "stats.record";
pub(super) const FLUSH: &str = "stats.flush";
pub(super) const REPORT: &str = "stats.report";
pub(super) const SWEEP: &str = "stats.sweep";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// How a flush is recognised when it comes again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mark<'a> {
    /// By the process and a number that grows with every flush.
    Sequence { process: &'a str, sequence: u64 },
    /// By a request id.
    Request(&'a str),
    /// Not at all: it is sent once.
    None,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn flush(
    op: &'static str,
    bound: &Bound,
    spec: &StatsSpec,
    piece: &Piece,
    mark: Mark<'_>,
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_FLUSH.script, Workload::Default).compound();
    let (kind, process, sequence, request) = match mark {
        Mark::Sequence { process, sequence } => ("flush", process, sequence, None),
        Mark::Request(id) => ("record", "", 0, Some(id)),
        Mark::None => ("once", "", 0, None),
    };
    if !matches!(mark, Mark::None) {
        call = call.repeat_safe();
    }
    keys::bind_flush(op, bound, piece, request, &mut call.keys)?;
    let args = &mut call.args;
    args.push(kind);
    args.push(process);
    args.push_int(int(sequence));
    args.push_int(KEEP_MS);
    args.push_int(millis(spec.heartbeat));
    args.push_int(int(spec.max_endpoints));
    args.push_int(int(spec.max_instances));
    args.push_int(int(spec.samples));
    args.push_int(int(spec.flush.as_secs() + u64::from(spec.flush.subsec_nanos() > 0)));
    args.push_int(piece.hour_ms);
    args.push_int(int(piece.total));
    args.push_int(int(piece.accepted));
    args.push_int(int(piece.errors));
    args.push(&piece.seconds);
    args.push_int(piece.instances.len() as i64);
    args.push_int(piece.statuses.len() as i64);
    args.push_int(piece.endpoints.len() as i64);
    for instance in &piece.instances {
        args.push(&instance.name);
        args.push(&instance.process);
        args.push_int(int(instance.requests));
        match instance.connections {
            Some((open, peak)) => {
                args.push_int(int(open));
                args.push_int(int(peak));
            }
            None => {
                args.push("");
                args.push("");
            }
        }
    }
    for (status, count) in &piece.statuses {
        args.push_int(i64::from(*status));
        args.push_int(int(*count));
    }
    for entry in &piece.endpoints {
        args.push(&entry.name);
        args.push_int(int(entry.count));
        args.push_int(int(entry.errors));
        args.push_int(int(entry.sum_us));
        args.push(entry.buckets.trim_end());
        args.push(entry.samples.trim_end());
    }
    Ok(call)
}

pub(super) fn report(bound: &Bound, spec: &StatsSpec, hours: &[i64]) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_REPORT.script, Workload::Default).compound();
    keys::bind_report(REPORT, bound, hours, &mut call.keys)?;
    call.args.push_int(millis(spec.heartbeat));
    Ok(call)
}

/// A page of `endpoints` or `instances`.
pub(super) fn names(bound: &Bound, role: &str, offset: usize, count: usize) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_NAMES.script, Workload::Default).compound();
    keys::bind(REPORT, bound, role, &[], &mut call.keys)?;
    call.args.push_int(offset as i64);
    call.args.push_int(count as i64);
    Ok(call)
}

/// The counters of one role or several, for each of the values.
pub(super) fn counts(
    bound: &Bound,
    roles: &[&str],
    placeholder: &str,
    values: &[&str],
) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_COUNTS.script, Workload::Default).compound();
    for value in values {
        for role in roles {
            keys::bind(REPORT, bound, role, &[(placeholder, value)], &mut call.keys)?;
        }
    }
    Ok(call)
}

/// The sketches of all time, with their sums, or those of some hours.
pub(super) fn sketches(bound: &Bound, endpoints: &[&str], hours: Option<&[i64]>) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_SKETCHES.script, Workload::Default).compound();
    keys::bind(REPORT, bound, "micros", &[], &mut call.keys)?;
    for endpoint in endpoints {
        match hours {
            None => {
                call.args.push(endpoint);
                keys::bind(REPORT, bound, "sketch", &[("endpoint", endpoint)], &mut call.keys)?;
            }
            Some(hours) => {
                for hour in hours {
                    let values = [("timestamp", &*hour.to_string()), ("endpoint", *endpoint)];
                    keys::bind(REPORT, bound, "sketch_hour", &values, &mut call.keys)?;
                }
            }
        }
    }
    Ok(call)
}

pub(super) fn silent(bound: &Bound, count: usize) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_SILENT.script, Workload::Default).compound();
    keys::bind(SWEEP, bound, "instances", &[], &mut call.keys)?;
    call.args.push_int(count as i64);
    Ok(call)
}

/// Leaving twice is leaving once.
pub(super) fn leave(bound: &Bound, instances: &[String]) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::STATS_LEAVE.script, Workload::Default).compound().repeat_safe();
    keys::bind(SWEEP, bound, "instances", &[], &mut call.keys)?;
    for name in instances {
        keys::bind(SWEEP, bound, "requests_instance", &[("instance_id", name)], &mut call.keys)?;
        call.args.push(name);
    }
    Ok(call)
}
