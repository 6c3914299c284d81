//! What a stats answers. Plain functions, no I/O.

use quaymaster_store::Reply;

use super::sketch::Sketch;
use crate::scripts::{
    stats_counts, stats_flush, stats_leave, stats_names, stats_report, stats_silent, stats_sketches,
};
use crate::{Code, Error, Result};

/// The answer of `record`.
#[must_use = "requests of ignored callers are not counted"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Requests counted.
    pub recorded: u64,
    /// Requests of callers that the schema ignores.
    pub ignored: u64,
}

/// The answer of `report`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// When it was made, by the store's clock, in microseconds since the epoch.
    pub now_us: i64,
    /// Requests of all instances.
    pub total: u64,
    /// Those that were not refused.
    pub accepted: u64,
    /// Requests in the newest second that every instance has flushed.
    pub speed_per_second: u64,
    /// The most in one second since a process was alive without a break.
    pub max_speed_per_second: u64,
    /// Connections open now.
    pub connections: u64,
    /// The most there were since a process was alive without a break.
    pub connections_max: u64,
    /// Responses with a status from 400.
    pub errors: u64,
    /// The same by status, in order.
    pub by_status: Vec<(u16, u64)>,
    /// Endpoints, the most used in front.
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints there are, shown or not.
    pub endpoints_total: u64,
    /// Requests by instance, in the order of their names.
    pub instances: Vec<(String, u64)>,
    /// Processes that are alive.
    pub alive: u64,
    /// Since when one was alive without a break; `None` when none is.
    pub started_us: Option<i64>,
    /// Requests by hour, the oldest first; the hour's start in epoch milliseconds.
    pub hourly: Vec<(i64, u64)>,
}

/// One endpoint of a report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// `METHOD /template`, or [`super::UNMATCHED`] or [`super::OVERFLOW`].
    pub name: String,
    /// Requests.
    pub count: u64,
    /// Those with a status from 400.
    pub errors: u64,
    /// The mean, rounded down to a microsecond.
    pub avg_us: u64,
    /// Percentiles by nearest rank, each within 1/128 of the exact one.
    pub p50_us: u64,
    /// Of 100 requests, 95 took no longer.
    pub p95_us: u64,
    /// Of 100 requests, 99 took no longer.
    pub p99_us: u64,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Instances forgotten.
    pub left: u64,
}

/// How a flush ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Added; so many endpoints were over the cap.
    Added { kept_out: u64 },
    /// It was there already.
    Repeat,
    /// Its hour has not begun; the store's time.
    Ahead { now_ms: i64 },
}

/// The totals, and the statuses that were seen.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) report: Report,
    pub(super) statuses: Vec<u16>,
}

/// Buckets and, where they were kept beside them, sum and errors.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) sketch: Sketch,
    pub(super) sum_us: u64,
    pub(super) errors: u64,
}

pub(super) fn flushed(op: &'static str, reply: Reply) -> Result<Flushed> {
    match stats_flush::Reply::read(op, reply)? {
        stats_flush::Reply::Flushed { kept_out } => Ok(Flushed::Added { kept_out: counted(kept_out) }),
        stats_flush::Reply::Repeat => Ok(Flushed::Repeat),
        stats_flush::Reply::Ahead { now_ms } => Ok(Flushed::Ahead { now_ms }),
        stats_flush::Reply::Malformed { key } => Err(malformed(op, &key)),
        stats_flush::Reply::Conflict => {
            let detail = "request_id was already used for another number of requests";
            Err(Error::new(op, Code::RequestReused, detail).field("request_id"))
        }
    }
}

pub(super) fn totals(op: &'static str, reply: Reply, hours: &[i64]) -> Result<Totals> {
    let (now_ms, mut parts) = match stats_report::Reply::read(op, reply)? {
        stats_report::Reply::Report { now_ms, totals } => (now_ms, totals),
        stats_report::Reply::Malformed { key } => return Err(malformed(op, &key)),
    };
    let mut report = Report { now_us: now_ms * 1000, ..Report::default() };
    for field in [
        &mut report.total,
        &mut report.accepted,
        &mut report.errors,
        &mut report.connections,
        &mut report.connections_max,
        &mut report.speed_per_second,
        &mut report.max_speed_per_second,
        &mut report.alive,
    ] {
        *field = parts.count()?;
    }
    let started_us = parts.int()? * 1000;
    report.started_us = (report.alive > 0 && started_us > 0).then_some(started_us);
    let (mut named, mut statuses) = (parts.table()?, Vec::new());
    while let Some(status) = named.next_bytes()? {
        statuses.extend(text(&status).parse::<u16>());
    }
    statuses.sort_unstable();
    let mut counts = parts.table()?;
    for hour_ms in hours.iter().copied() {
        let count = counts.count()?;
        if count > 0 {
            report.hourly.push((hour_ms, count));
        }
    }
    Ok(Totals { report, statuses })
}

pub(super) fn names(op: &'static str, reply: Reply) -> Result<Vec<(String, i64)>> {
    let stats_names::Reply::Names { names } = stats_names::Reply::read(op, reply)?;
    Ok(names.into_iter().map(|row| (text(&row.name), row.last_ms)).collect())
}

/// Instances that have been silent for a day.
pub(super) fn silent(op: &'static str, reply: Reply) -> Result<Vec<String>> {
    let stats_silent::Reply::Silent { names } = stats_silent::Reply::read(op, reply)?;
    Ok(names.iter().map(|name| text(name)).collect())
}

/// Counters; what another program spoiled counts as 0.
pub(super) fn counts(op: &'static str, reply: Reply) -> Result<Vec<u64>> {
    let stats_counts::Reply::Counts { counts: mut parts } = stats_counts::Reply::read(op, reply)?;
    let mut counts = Vec::new();
    while !parts.is_empty() {
        counts.push(parts.count()?);
    }
    Ok(counts)
}

/// One share per endpoint: `per` sketches are merged into each.
pub(super) fn shares(op: &'static str, reply: Reply, endpoints: usize, per: usize) -> Result<Vec<Share>> {
    let stats_sketches::Reply::Sketches { sums, sketches: mut parts } =
        stats_sketches::Reply::read(op, reply)?;
    let mut sums = sums.unwrap_or(Reply::Nil).parts(op)?;
    let mut shares = Vec::with_capacity(endpoints);
    for _ in 0..endpoints {
        // Without names nobody asked for sums.
        let sum_us = if sums.is_empty() { 0 } else { sums.count()? };
        let mut share = Share { sum_us, ..Share::default() };
        for _ in 0..per {
            let mut words = parts.table()?;
            while let Some(field) = words.next_bytes()? {
                share.add(&field, words.count()?);
            }
        }
        shares.push(share);
    }
    Ok(shares)
}

impl Share {
    /// One field of a sketch's hash: the sum, the errors, or a bucket. A field that another program wrote is left out.
    fn add(&mut self, field: &[u8], value: u64) {
        match field {
            b"us" => self.sum_us = self.sum_us.saturating_add(value),
            b"errors" => self.errors = self.errors.saturating_add(value),
            bucket => {
                let bucket = std::str::from_utf8(bucket).ok().and_then(|bucket| bucket.parse().ok());
                if let Some(bucket) = bucket.filter(|at: &u16| usize::from(*at) < super::sketch::BUCKETS) {
                    self.sketch.add(bucket, value);
                }
            }
        }
    }
}

pub(super) fn left(op: &'static str, reply: Reply) -> Result<u64> {
    let stats_leave::Reply::Left { count } = stats_leave::Reply::read(op, reply)?;
    Ok(counted(count))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn counted(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn malformed(op: &'static str, key: &[u8]) -> Error {
    let detail = format!("{} does not hold a count: inspect it, or remove it", text(key));
    Error::new(op, Code::KeyMalformed, detail)
}
