//! Binds the schema's key table to one call of a stats.

use quaymaster_store::Words;

use crate::Result;
use crate::bound::{Bound, Key};
use crate::scripts::{EndpointKeys, StatsKeys};

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
    bound.role(op, role, values)?.spell(op, bound.engine.topology(), keys)
}

/// The totals; `hour` is `[("timestamp", start)]`.
pub(super) fn totals<'a>(op: &'static str, bound: &'a Bound, hour: Key<'a>) -> Result<StatsKeys<'a>> {
    let of = |role| bound.role(op, role, &[]);
    Ok(StatsKeys {
        requests_total: of("requests_total")?,
        requests_accepted: of("requests_accepted")?,
        errors_total: of("errors_total")?,
        connections_current: of("connections_current")?,
        connections_max: of("connections_max")?,
        speed: of("speed")?,
        max_speed: of("max_speed")?,
        instances: of("instances")?,
        beats: of("beats")?,
        connections: of("connections")?,
        gauge: of("gauge")?,
        flushes: of("flushes")?,
        flushed: of("flushed")?,
        endpoints: of("endpoints")?,
        statuses: of("statuses")?,
        micros: of("micros")?,
        seconds: of("seconds")?,
        requests_hourly: bound.role(op, "requests_hourly", hour)?,
    })
}

/// An endpoint's keys; `values` are those of its hour, the last of them the endpoint.
pub(super) fn endpoint<'a>(
    op: &'static str,
    bound: &'a Bound,
    values: &'a [(&'a str, &'a str); 2],
) -> Result<EndpointKeys<'a>> {
    let of = |role| bound.role(op, role, &values[1..]);
    let [requests, errors, response_times, avg_response, response_count, sketch] = ENDPOINT;
    Ok(EndpointKeys {
        requests: of(requests)?,
        errors: of(errors)?,
        response_times: of(response_times)?,
        avg_response: of(avg_response)?,
        response_count: of(response_count)?,
        sketch: of(sketch)?,
        sketch_hour: bound.role(op, "sketch_hour", values)?,
    })
}
