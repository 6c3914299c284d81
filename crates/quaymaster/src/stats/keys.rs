//! Binds the schema's key table to one call of a stats.

use quaymaster_store::Words;

use super::endpoint::OVERFLOW;
use super::sum::Piece;
use crate::bound::{self, Bound, Key};
use crate::{Code, Error, Result};

/// The keys every flush has, in the order of `lua/inc/stats.lua`; the hour's follows.
const FLUSH: [&str; 17] = [
    "requests_total",
    "requests_accepted",
    "errors_total",
    "connections_current",
    "connections_max",
    "speed",
    "max_speed",
    "instances",
    "beats",
    "connections",
    "gauge",
    "flushes",
    "flushed",
    "endpoints",
    "statuses",
    "micros",
    "seconds",
];

/// What `report` looks at first, in its script's order.
const REPORT: [&str; 10] = [
    "requests_total",
    "requests_accepted",
    "errors_total",
    "connections_max",
    "speed",
    "max_speed",
    "beats",
    "connections",
    "gauge",
    "statuses",
];

/// An endpoint's own, but for that of the hour.
pub(super) const ENDPOINT: [&str; 6] =
    ["requests_endpoint", "errors_endpoint", "response_times", "avg_response", "response_count", "sketch"];

/// Appends one key.
pub(super) fn bind(
    op: &'static str,
    bound: &Bound,
    role: &str,
    values: Key<'_>,
    keys: &mut Words,
) -> Result<()> {
    let row = bound.resource.key(role).ok_or_else(|| {
        Error::new(op, Code::Internal, format!("stats.{} has no key {role:?}", bound.resource.name))
    })?;
    bound::bind(op, &row.pattern, values, 0, bound.engine.topology(), keys).map(drop)
}

fn bind_endpoint(op: &'static str, bound: &Bound, name: &str, hour: &str, keys: &mut Words) -> Result<()> {
    for role in ENDPOINT {
        bind(op, bound, role, &[("endpoint", name)], keys)?;
    }
    bind(op, bound, "sketch_hour", &[("timestamp", hour), ("endpoint", name)], keys)
}

/// Appends all keys of a flush.
pub(super) fn bind_flush(
    op: &'static str,
    bound: &Bound,
    piece: &Piece,
    request_id: Option<&str>,
    keys: &mut Words,
) -> Result<()> {
    let hour = piece.hour_ms.to_string();
    for role in FLUSH {
        bind(op, bound, role, &[], keys)?;
    }
    bind(op, bound, "requests_hourly", &[("timestamp", &hour)], keys)?;
    if let Some(id) = request_id {
        bind(op, bound, "request", &[("request_id", id)], keys)?;
    }
    let instances = piece.instances.iter().map(|instance| instance.name.as_str());
    for name in std::iter::once(OVERFLOW).chain(instances) {
        bind(op, bound, "requests_instance", &[("instance_id", name)], keys)?;
    }
    for (status, _) in &piece.statuses {
        bind(op, bound, "errors_status", &[("status_code", &status.to_string())], keys)?;
    }
    let endpoints = piece.endpoints.iter().map(|entry| entry.name.as_str());
    for name in std::iter::once(OVERFLOW).chain(endpoints) {
        bind_endpoint(op, bound, name, &hour, keys)?;
    }
    Ok(())
}

/// Appends what a report looks at first.
pub(super) fn bind_report(op: &'static str, bound: &Bound, hours: &[i64], keys: &mut Words) -> Result<()> {
    for role in REPORT {
        bind(op, bound, role, &[], keys)?;
    }
    for hour in hours {
        bind(op, bound, "requests_hourly", &[("timestamp", &hour.to_string())], keys)?;
    }
    Ok(())
}
