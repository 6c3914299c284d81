//! What this process counts about its requests. Labels are routes, never paths: their number is fixed.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quaymaster::clean::Report;

use crate::call::OPERATIONS;
use crate::page::PAGES;

/// Every status we answer with; anything else is counted in the last place, under `other`.
const STATUSES: [u16; 22] = [
    101, 200, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 416, 422, 429, 500, 503,
    0,
];

/// Upper bounds of the request-time buckets, in microseconds; the last bucket has none.
const BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000];

/// What regular clean-ups of this server did.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    /// Walks, those that were broken off too.
    pub(crate) rounds: AtomicU64,
    found: AtomicU64,
    pub(crate) done: AtomicU64,
}

impl Cleaned {
    pub(crate) fn note(&self, report: &Report) {
        self.rounds.fetch_add(1, Relaxed);
        self.found.fetch_add(report.found(), Relaxed);
        self.done.fetch_add(report.done, Relaxed);
    }
}

#[derive(Debug, Default)]
struct RouteCounts {
    by_status: [AtomicU64; STATUSES.len()],
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// Counts per route.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// One per page, one per operation, and one for what matched nothing.
    routes: Vec<RouteCounts>,
    panics: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) cleaned: Cleaned,
}

impl Default for Metrics {
    fn default() -> Self {
        let routes = (0..=PAGES.len() + OPERATIONS.len()).map(|_| RouteCounts::default()).collect();
        Self {
            routes,
            panics: AtomicU64::default(),
            connections: AtomicU64::default(),
            connections_refused: AtomicU64::default(),
            handshakes_failed: AtomicU64::default(),
            cleaned: Cleaned::default(),
        }
    }
}

impl Metrics {
    /// The place of requests that matched no route.
    pub(crate) fn unmatched(&self) -> usize {
        self.routes.len() - 1
    }

    /// The route's name.
    pub(crate) fn template(route: usize) -> &'static str {
        let page = PAGES.get(route).map(|page| page.path);
        let operation = || OPERATIONS.get(route.checked_sub(PAGES.len())?).map(|one| one.template);
        page.or_else(operation).unwrap_or("unmatched")
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn observe(&self, route: usize, status: u16, took: Duration) {
        let Some(counts) = self.routes.get(route) else { return };
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        counts.by_status[place].fetch_add(1, Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        counts.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        counts.sum_us.fetch_add(us, Relaxed);
    }

    /// Appends the HTTP families in Prometheus' text format. Routes nobody asked for yet are left out.
    pub(crate) fn write(&self, out: &mut String, in_flight: usize, waiting: usize) {
        header(out, "quaymaster_http_requests_total", "counter", "Requests answered, by route and status.");
        for (route, counts) in self.routes.iter().enumerate() {
            for (count, status) in counts.by_status.iter().zip(STATUSES) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let name = Self::template(route);
                    let status = if status == 0 { "other".to_owned() } else { status.to_string() };
                    let _ = writeln!(
                        out,
                        "quaymaster_http_requests_total{{route=\"{name}\",status=\"{status}\"}} {count}"
                    );
                }
            }
        }
        let family = "quaymaster_http_request_duration_seconds";
        header(out, family, "histogram", "From a request's head to its answer, by route.");
        for (route, counts) in self.routes.iter().enumerate() {
            let buckets: Vec<u64> = counts.buckets.iter().map(|count| count.load(Relaxed)).collect();
            if buckets.iter().any(|count| *count > 0) {
                let label = format!("route=\"{}\"", Self::template(route));
                histogram(out, family, &label, &BOUNDS_US, &buckets, counts.sum_us.load(Relaxed));
            }
        }
        header(out, "quaymaster_http_requests_in_flight", "gauge", "Requests being answered now.");
        let _ = writeln!(out, "quaymaster_http_requests_in_flight {in_flight}");
        let help = "Calls among them that wait, as wait_ms told them to.";
        header(out, "quaymaster_http_requests_waiting", "gauge", help);
        let _ = writeln!(out, "quaymaster_http_requests_waiting {waiting}");
        for (name, kind, help, value) in [
            ("quaymaster_http_connections", "gauge", "Open connections.", &self.connections),
            (
                "quaymaster_http_connections_refused_total",
                "counter",
                "Connections refused because every place was taken.",
                &self.connections_refused,
            ),
            (
                "quaymaster_tls_handshakes_failed_total",
                "counter",
                "Connections that did not become TLS connections.",
                &self.handshakes_failed,
            ),
            ("quaymaster_http_panics_total", "counter", "Handlers that panicked.", &self.panics),
            (
                "quaymaster_clean_rounds_total",
                "counter",
                "Walks of regular clean-ups that this server made.",
                &self.cleaned.rounds,
            ),
            ("quaymaster_clean_found_total", "counter", "What they found left behind.", &self.cleaned.found),
            ("quaymaster_clean_done_total", "counter", "What of it they put right.", &self.cleaned.done),
        ] {
            header(out, name, kind, help);
            let _ = writeln!(out, "{name} {}", value.load(Relaxed));
        }
    }
}

/// The two comment lines of a family.
pub(crate) fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// A histogram in seconds from counts per bucket in microseconds, the unbounded bucket last.
pub(crate) fn histogram(
    out: &mut String,
    name: &str,
    label: &str,
    bounds_us: &[u64],
    buckets: &[u64],
    sum_us: u64,
) {
    let comma = if label.is_empty() { "" } else { "," };
    let braces = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let mut seen = 0;
    for (bound, count) in bounds_us.iter().zip(buckets) {
        seen += count;
        let le = seconds(*bound);
        let _ = writeln!(out, "{name}_bucket{{{label}{comma}le=\"{le}\"}} {seen}");
    }
    let total: u64 = buckets.iter().sum();
    let _ = writeln!(out, "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {total}");
    let _ = writeln!(out, "{name}_sum{braces} {}", seconds(sum_us));
    let _ = writeln!(out, "{name}_count{braces} {total}");
}

/// Microseconds as seconds, exactly.
pub(crate) fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
