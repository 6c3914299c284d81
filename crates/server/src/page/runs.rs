//! Runs: for `/metrics`, `/v1/status` and the dashboard. The last active ones, asked for at most every two seconds
//! however many look; counts come from the sweeps, which know them anyway.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quaymaster::run::{RunState, moment};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use super::metrics::label;
use crate::app::App;
use crate::metrics::header;

/// How long what was heard is good for.
const FRESH: Duration = Duration::from_secs(2);
/// How long all of them together may take to tell.
const PATIENCE: Duration = Duration::from_secs(2);
/// Runs of one name that are shown.
const SHOWN: u64 = 10;

/// What was last heard of the runs.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Option<(Instant, Known)>>);

type Known = Vec<(String, RunState)>;

impl Recent {
    async fn now(&self, app: &App) -> Known {
        let mut last = self.0.lock().await;
        if let Some((at, known)) = &*last
            && at.elapsed() < FRESH
        {
            return known.clone();
        }
        let asked = app.services.quaymaster.runs().map(|run| async move {
            let told = AssertUnwindSafe(run.list(SHOWN, None)).catch_unwind().await;
            told.ok()?.ok().map(|page| (run.name().to_owned(), page.runs))
        });
        let told = tokio::time::timeout(PATIENCE, futures_util::future::join_all(asked)).await;
        let mut told: Vec<(String, Vec<RunState>)> = told.unwrap_or_default().into_iter().flatten().collect();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        let each = told.into_iter().flat_map(|(name, runs)| {
            runs.into_iter().map(move |run| (name.clone(), run)).collect::<Vec<_>>()
        });
        let known: Known = each.collect();
        *last = Some((Instant::now(), known.clone()));
        known
    }
}

/// One run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunStatus {
    /// Its name in the schema.
    name: String,
    run_id: String,
    status: String,
    /// Whether it gives no sign of life and is not finished.
    stale: bool,
    /// Whether nothing more is expected of it.
    over: bool,
    processed: u64,
    failed: u64,
    /// The calls its limit has counted in the hour.
    calls_this_hour: u64,
    /// The most of them in an hour, and that hour.
    peak_calls: u64,
    peak_hour: Option<String>,
    last_activity: String,
}

impl RunStatus {
    /// Its name in the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The last active runs of every name that could be asked.
pub(crate) async fn status(app: &App) -> Vec<RunStatus> {
    let shown = |(name, run): (String, RunState)| RunStatus {
        name,
        run_id: run.run_id,
        status: run.status,
        stale: run.stale,
        over: run.over,
        processed: run.processed_count,
        failed: run.failed_count,
        calls_this_hour: run.calls_this_hour,
        peak_calls: run.peak_calls,
        peak_hour: run.peak_hour,
        last_activity: moment(run.last_activity_us),
    };
    app.runs.now(app).await.into_iter().map(shown).collect()
}

/// A sentence for each run that somebody should look at.
pub(crate) fn warnings(runs: &[RunStatus]) -> impl Iterator<Item = String> {
    runs.iter().filter(|run| run.stale).map(|run| {
        format!("run.{}: {} gives no sign of life since {}", run.name, run.run_id, run.last_activity)
    })
}

/// Appends the families of runs.
pub(super) fn write(out: &mut String, app: &App) {
    let mut runs: Vec<_> = app.services.quaymaster.runs().collect();
    runs.sort_by_key(|run| run.name());
    let mut family =
        |family: &str, kind: &str, help: &str, read: fn(&quaymaster::run::Counts) -> Vec<(&str, u64)>| {
            header(out, family, kind, help);
            for run in &runs {
                for (outcome, count) in read(run.counts()) {
                    let name = label(run.name());
                    let _ = writeln!(out, "{family}{{run=\"{name}\",outcome=\"{outcome}\"}} {count}");
                }
            }
        };
    family(
        "quaymaster_run_starts_total",
        "counter",
        "Runs that this process began or went on with.",
        |counts| vec![("started", counts.started()), ("resumed", counts.resumed())],
    );
    family(
        "quaymaster_run_ends_total",
        "counter",
        "Runs that this process finished or found stale.",
        |counts| vec![("finished", counts.finished()), ("stale", counts.stale())],
    );
    family(
        "quaymaster_run_items_total",
        "counter",
        "Items that this process noted, each processed one once.",
        |counts| vec![("processed", counts.processed()), ("failed", counts.failed())],
    );
    family("quaymaster_run_errors_total", "counter", "Calls of this process that failed.", |counts| {
        vec![("error", counts.errors())]
    });
    let gauge = "quaymaster_runs";
    header(
        out,
        gauge,
        "gauge",
        "Runs that are known and runs at work, as of the last sweep of this process.",
    );
    for run in &runs {
        let (name, counts) = (label(run.name()), run.counts());
        for (state, count) in [("known", counts.known()), ("at_work", counts.at_work())] {
            let _ = writeln!(out, "{gauge}{{run=\"{name}\",state=\"{state}\"}} {count}");
        }
    }
}
