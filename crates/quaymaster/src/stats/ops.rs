//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use quaymaster_schema::StatsSpec;
use quaymaster_store::{Invocation, Workload};

use super::endpoint::OVERFLOW;
use super::keys;
use super::sum::Piece;
use crate::Result;
use crate::bound::Bound;
use crate::scripts::{
    At, StatsArgs, Word, stats_counts, stats_flush, stats_leave, stats_names, stats_report, stats_silent,
    stats_sketches,
};

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
    let (kind, process, sequence, request) = match mark {
        Mark::Sequence { process, sequence } => ("flush", process, sequence, None),
        Mark::Request(id) => ("record", "", 0, Some([("request_id", id)])),
        Mark::None => ("once", "", 0, None),
    };
    let hour = &*piece.hour_ms.to_string();
    let of_hour = [("timestamp", hour)];
    let over = [("timestamp", hour), ("endpoint", OVERFLOW)];
    let call = stats_flush::Call {
        totals: keys::totals(op, bound, &of_hour)?,
        request: request.as_ref().map(|id| bound.role(op, "request", id)).transpose()?,
        over_instance: bound.role(op, "requests_instance", &[("instance_id", OVERFLOW)])?,
        instances: &|keys| {
            piece.instances.iter().try_for_each(|instance| {
                keys.put(bound.role(op, "requests_instance", &[("instance_id", &instance.name)])?)
            })
        },
        statuses: &|keys| {
            piece.statuses.iter().try_for_each(|(status, _)| {
                keys.put(bound.role(op, "errors_status", &[("status_code", &status.to_string())])?)
            })
        },
        over_endpoint: keys::endpoint(op, bound, &over)?,
        endpoints: &|keys| {
            piece.endpoints.iter().try_for_each(|entry| {
                let values = [("timestamp", hour), ("endpoint", &*entry.name)];
                keys.put(keys::endpoint(op, bound, &values)?)
            })
        },
        flush: StatsArgs {
            kind,
            process,
            sequence: int(sequence),
            keep_ms: KEEP_MS,
            heartbeat_ms: millis(spec.heartbeat),
            max_endpoints: int(spec.max_endpoints),
            max_instances: int(spec.max_instances),
            samples: int(spec.samples),
            flush_s: int(spec.flush.as_secs() + u64::from(spec.flush.subsec_nanos() > 0)),
            hour_ms: piece.hour_ms,
            total: int(piece.total),
            accepted: int(piece.accepted),
            errors: int(piece.errors),
            seconds: &piece.seconds,
            of_instances: piece.instances.len() as i64,
            of_statuses: piece.statuses.len() as i64,
            of_endpoints: piece.endpoints.len() as i64,
        },
        of_instances: &|args| {
            for instance in &piece.instances {
                let told = instance.connections.map(|(open, peak)| (int(open), int(peak)));
                let (connections, peak) = told.map_or((Word::Text(""), Word::Text("")), |(open, peak)| {
                    (Word::Int(open), Word::Int(peak))
                });
                let (name, process, requests) = (&*instance.name, &*instance.process, int(instance.requests));
                args.put(stats_flush::OfInstancesRow { name, process, requests, connections, peak });
            }
        },
        of_statuses: &|args| {
            for (status, count) in &piece.statuses {
                args.put(stats_flush::OfStatusesRow { code: i64::from(*status), count: int(*count) });
            }
        },
        of_endpoints: &|args| {
            for entry in &piece.endpoints {
                let row = stats_flush::OfEndpointsRow {
                    name: &entry.name,
                    count: int(entry.count),
                    errors: int(entry.errors),
                    sum_us: int(entry.sum_us),
                    buckets: entry.buckets.trim_end(),
                    samples: entry.samples.trim_end(),
                };
                args.put(row);
            }
        },
    };
    let call = call.on(at(bound, op))?.compound();
    Ok(if matches!(mark, Mark::None) { call } else { call.repeat_safe() })
}

fn at(bound: &Bound, op: &'static str) -> At {
    bound.at(op, Workload::Default)
}

pub(super) fn report(bound: &Bound, spec: &StatsSpec, hours: &[i64]) -> Result<Invocation> {
    let of = |role| bound.role(REPORT, role, &[]);
    let call = stats_report::Call {
        requests_total: of("requests_total")?,
        requests_accepted: of("requests_accepted")?,
        errors_total: of("errors_total")?,
        connections_max: of("connections_max")?,
        speed: of("speed")?,
        max_speed: of("max_speed")?,
        beats: of("beats")?,
        connections: of("connections")?,
        gauge: of("gauge")?,
        statuses: of("statuses")?,
        hourly: &|keys| {
            hours.iter().try_for_each(|hour| {
                keys.put(bound.role(REPORT, "requests_hourly", &[("timestamp", &hour.to_string())])?)
            })
        },
        heartbeat_ms: millis(spec.heartbeat),
    };
    Ok(call.on(at(bound, REPORT))?.compound())
}

/// A page of `endpoints` or `instances`.
pub(super) fn names(bound: &Bound, role: &str, offset: usize, count: usize) -> Result<Invocation> {
    let names = bound.role(REPORT, role, &[])?;
    let call = stats_names::Call { names, offset: offset as i64, count: count as i64 };
    Ok(call.on(at(bound, REPORT))?.compound())
}

/// The counters of one role or several, for each of the values.
pub(super) fn counts(
    bound: &Bound,
    roles: &[&str],
    placeholder: &str,
    values: &[&str],
) -> Result<Invocation> {
    let call = stats_counts::Call {
        counters: &|keys| {
            values.iter().try_for_each(|value| {
                roles
                    .iter()
                    .try_for_each(|role| keys.put(bound.role(REPORT, role, &[(placeholder, value)])?))
            })
        },
    };
    Ok(call.on(at(bound, REPORT))?.compound())
}

/// The sketches of all time, with their sums, or those of some hours.
pub(super) fn sketches(bound: &Bound, endpoints: &[&str], hours: Option<&[i64]>) -> Result<Invocation> {
    let call = stats_sketches::Call {
        micros: bound.role(REPORT, "micros", &[])?,
        sketches: &|keys| {
            endpoints.iter().try_for_each(|endpoint| match hours {
                None => keys.put(bound.role(REPORT, "sketch", &[("endpoint", endpoint)])?),
                Some(hours) => hours.iter().try_for_each(|hour| {
                    let values = [("timestamp", &*hour.to_string()), ("endpoint", *endpoint)];
                    keys.put(bound.role(REPORT, "sketch_hour", &values)?)
                }),
            })
        },
        endpoints: &|args| {
            if hours.is_none() {
                for endpoint in endpoints {
                    args.put(endpoint);
                }
            }
        },
    };
    Ok(call.on(at(bound, REPORT))?.compound())
}

pub(super) fn silent(bound: &Bound, count: usize) -> Result<Invocation> {
    let instances = bound.role(SWEEP, "instances", &[])?;
    Ok(stats_silent::Call { instances, count: count as i64 }.on(at(bound, SWEEP))?.compound())
}

/// Leaving twice is leaving once.
pub(super) fn leave(bound: &Bound, names: &[String]) -> Result<Invocation> {
    let call = stats_leave::Call {
        instances: bound.role(SWEEP, "instances", &[])?,
        requests: &|keys| {
            names.iter().try_for_each(|name| {
                keys.put(bound.role(SWEEP, "requests_instance", &[("instance_id", name)])?)
            })
        },
        names: &|args| names.iter().for_each(|name| args.put(name)),
    };
    Ok(call.on(at(bound, SWEEP))?.compound().repeat_safe())
}
