//! What instances counted: for `/metrics`, `/v1/status` and the dashboard. At most one report of each stats per five
//! seconds, however many ask; a report reads in short pages and scans nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quaymaster::stats::{Report, ReportAsk};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use super::metrics::label;
use crate::app::App;
use crate::call::stats::{StatsReport, shown};
use crate::metrics::{header, seconds};

/// How long what was heard is good for.
const FRESH: Duration = Duration::from_secs(5);

/// How long all reports together may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Endpoints that are exported, the most used; the number of series is bounded by it.
const ENDPOINTS: usize = 100;

/// Endpoints of one stats on the dashboard.
const SHOWN: usize = 20;

/// What was last heard of every stats.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Option<(Instant, Known)>>);

type Known = BTreeMap<String, Report>;

impl Reports {
    /// Every stats that could be asked, by name.
    async fn now(&self, app: &App) -> Known {
        let mut last = self.0.lock().await;
        if let Some((at, known)) = &*last
            && at.elapsed() < FRESH
        {
            return known.clone();
        }
        let ask = ReportAsk { hours: None, endpoints: Some(ENDPOINTS) };
        let asked = app.services.quaymaster.all_stats().map(|stats| async move {
            let told = AssertUnwindSafe(stats.report(ask)).catch_unwind().await;
            told.ok()?.ok().map(|told| (stats.name().to_owned(), told))
        });
        let told = tokio::time::timeout(PATIENCE, futures_util::future::join_all(asked)).await;
        let known: Known = told.unwrap_or_default().into_iter().flatten().collect();
        *last = Some((Instant::now(), known.clone()));
        known
    }
}

/// One stats.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatsStatus {
    name: String,
    #[serde(flatten)]
    report: StatsReport,
}

impl StatsStatus {
    /// Its name in the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// All stats that anybody counted into and that could be asked.
pub(crate) async fn status(app: &App) -> Vec<StatsStatus> {
    let known = app.reports.now(app).await;
    known
        .into_iter()
        .filter(|(_, report)| report.total > 0 || report.alive > 0)
        .map(|(name, mut report)| {
            report.endpoints.truncate(SHOWN);
            StatsStatus { name, report: shown(report) }
        })
        .collect()
}

/// Appends the families of stats.
pub(super) async fn write(out: &mut String, app: &App) {
    let known = app.reports.now(app).await;
    totals(out, &known);
    endpoints(out, &known);
    process(out, app);
}

fn totals(out: &mut String, known: &Known) {
    type Read = fn(&Report) -> u64;
    let families: [(&str, &str, &str, Read); 8] = [
        ("quaymaster_stats_requests_total", "counter", "Requests of all instances.", |told| told.total),
        ("quaymaster_stats_requests_accepted_total", "counter", "Those that were not refused.", |told| {
            told.accepted
        }),
        ("quaymaster_stats_requests_per_second", "gauge", "Requests in the last complete second.", |told| {
            told.speed_per_second
        }),
        ("quaymaster_stats_requests_per_second_max", "gauge", "The most since startup.", |told| {
            told.max_speed_per_second
        }),
        ("quaymaster_stats_connections", "gauge", "Open connections of instances that are alive.", |told| {
            told.connections
        }),
        ("quaymaster_stats_connections_max", "gauge", "The most since startup.", |told| told.connections_max),
        ("quaymaster_stats_processes", "gauge", "Processes that flushed within their heartbeat.", |told| {
            told.alive
        }),
        ("quaymaster_stats_endpoints", "gauge", "Endpoints told apart.", |told| told.endpoints_total),
    ];
    for (family, kind, help, read) in families {
        header(out, family, kind, help);
        for (name, told) in known {
            let _ = writeln!(out, "{family}{{stats=\"{}\"}} {}", label(name), read(told));
        }
    }
    let family = "quaymaster_stats_errors_total";
    header(out, family, "counter", "Responses with a status from 400, by status.");
    for (name, told) in known {
        for (status, count) in &told.by_status {
            let _ = writeln!(out, "{family}{{stats=\"{}\",status=\"{status}\"}} {count}", label(name));
        }
    }
    let family = "quaymaster_stats_instance_requests_total";
    header(out, family, "counter", "Requests by instance.");
    for (name, told) in known {
        for (instance, count) in &told.instances {
            let (name, instance) = (label(name), label(instance));
            let _ = writeln!(out, "{family}{{stats=\"{name}\",instance_id=\"{instance}\"}} {count}");
        }
    }
}

fn endpoints(out: &mut String, known: &Known) {
    let each = || known.iter().flat_map(|(name, told)| told.endpoints.iter().map(move |found| (name, found)));
    let labels =
        |name: &str, endpoint: &str| format!("stats=\"{}\",endpoint=\"{}\"", label(name), label(endpoint));
    let family = "quaymaster_stats_endpoint_requests_total";
    header(out, family, "counter", "Requests by endpoint, of the most used ones.");
    for (name, found) in each() {
        let _ = writeln!(out, "{family}{{{}}} {}", labels(name, &found.name), found.count);
    }
    let family = "quaymaster_stats_endpoint_errors_total";
    header(out, family, "counter", "Errors by endpoint, of the most used ones.");
    for (name, found) in each() {
        let _ = writeln!(out, "{family}{{{}}} {}", labels(name, &found.name), found.errors);
    }
    let family = "quaymaster_stats_endpoint_duration_seconds";
    let help = "Response times over all instances and all time, each quantile within 1/128 of the exact one.";
    // Quantiles belong to summaries; one without sum and count is sound, and these are families of their own.
    header(out, family, "summary", help);
    for (name, found) in each() {
        for (quantile, us) in [("0.5", found.p50_us), ("0.95", found.p95_us), ("0.99", found.p99_us)] {
            let labels = labels(name, &found.name);
            let _ = writeln!(out, "{family}{{{labels},quantile=\"{quantile}\"}} {}", seconds(us));
        }
    }
}

/// What this process itself delivered.
fn process(out: &mut String, app: &App) {
    let mut all: Vec<_> = app.services.quaymaster.all_stats().collect();
    all.sort_by_key(|stats| stats.name());
    let family = "quaymaster_stats_flushes_total";
    header(out, family, "counter", "Flushes of this process, by what came of them.");
    for stats in &all {
        let (name, counts) = (label(stats.name()), stats.counts());
        for (outcome, count) in
            [("taken", counts.flushes()), ("repeated", counts.repeats()), ("failed", counts.failures())]
        {
            let _ = writeln!(out, "{family}{{stats=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_stats_recorded_total";
    header(
        out,
        family,
        "counter",
        "Requests that this process brought to the store, ignored, or lost at its end.",
    );
    for stats in &all {
        let (name, counts) = (label(stats.name()), stats.counts());
        for (outcome, count) in
            [("recorded", counts.recorded()), ("ignored", counts.ignored()), ("lost", counts.lost())]
        {
            let _ = writeln!(out, "{family}{{stats=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_stats_kept_out_total";
    header(out, family, "counter", "Endpoints of flushes that were counted as overflow.");
    for stats in &all {
        let _ = writeln!(out, "{family}{{stats=\"{}\"}} {}", label(stats.name()), stats.counts().kept_out());
    }
    let family = "quaymaster_stats_errors_of_calls_total";
    header(out, family, "counter", "Calls of record, report and sweep that failed.");
    for stats in &all {
        let _ = writeln!(out, "{family}{{stats=\"{}\"}} {}", label(stats.name()), stats.counts().errors());
    }
}
