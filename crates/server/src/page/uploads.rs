//! Uploads for `/metrics`, `/v1/status` and the dashboard.
//!
//! In Prometheus' text format. The four that the document names are here: chunks queued, and the times from a
//! chunk's head to its acknowledgement, from the store to the object store, and from an upload's first chunk to its end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quaymaster::run::moment;
use quaymaster::upload::InFlight;
use quaymaster_upload::ledger::{Failure, Step, Tally};
use quaymaster_upload::{BOUNDS_US, Figures, Histogram, Uploads};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use super::metrics::label;
use crate::app::App;
use crate::depot::Berth;
use crate::metrics::{header, histogram};

/// How long all of them together may take to tell what is in flight.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what the database said is good for.
const FRESH: Duration = Duration::from_secs(2);
/// Failures shown of one resource.
const SHOWN: u32 = 10;

/// What was last heard of the uploads.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<Option<(Instant, Vec<UploadStatus>)>>);

/// The uploads of one name, over all nodes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct UploadStatus {
    name: String,
    /// Uploads by status, those that ended and are still kept included.
    by_status: UploadsByStatus,
    /// There are more uploads than were counted.
    more: bool,
    /// Bytes received or being received and not yet durable; null when the store did not say.
    bytes_in_flight: Option<u64>,
    max_bytes_in_flight: u64,
    /// Chunks they belong to; null when the store did not say.
    chunks_queued: Option<u64>,
    /// The last ones that have FAILED, the newest first.
    failures: Vec<UploadFailure>,
}

impl UploadStatus {
    /// Its name in the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// How many uploads have each status.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub(crate) struct UploadsByStatus {
    /// PENDING or UPLOADING.
    open: u64,
    /// COMPLETING: all parts are there, and object, row or event are not yet.
    completing: u64,
    /// COMPLETED.
    completed: u64,
    /// FAILED: given up, and can be resumed.
    failed: u64,
    /// EXPIRED.
    expired: u64,
    /// Called off by its client.
    aborted: u64,
}

/// An upload that was given up.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct UploadFailure {
    upload_id: String,
    node_id: String,
    /// Why.
    reason: String,
    failed_at: String,
}

impl UploadsByStatus {
    fn of(tally: &Tally) -> Self {
        let mut told = Self::default();
        for (step, count) in &tally.by_step {
            let held = match step {
                Step::Created | Step::Open => &mut told.open,
                Step::Completing | Step::Proved | Step::Recorded | Step::Announced => &mut told.completing,
                Step::Done => &mut told.completed,
                Step::Failed => &mut told.failed,
                Step::Expiring | Step::Expired => &mut told.expired,
                Step::Aborting | Step::Aborted => &mut told.aborted,
            };
            *held += count;
        }
        told
    }
}

/// The uploads of every name that somebody has used and that could be asked.
pub(super) async fn status(app: &App) -> Vec<UploadStatus> {
    let mut last = app.counted.0.lock().await;
    if let Some((at, known)) = &*last
        && at.elapsed() < FRESH
    {
        return known.clone();
    }
    let asked = app.services.depot.berths().iter().map(|berth| async move {
        let (uploads, store) = (berth.at_hand()?, berth.store());
        let tally = tokio::time::timeout(PATIENCE, uploads.ledger().tally(store.name(), SHOWN)).await;
        let tally = tally.ok()?.ok()?;
        let told = tokio::time::timeout(PATIENCE, store.in_flight()).await.ok().and_then(Result::ok);
        Some(UploadStatus {
            name: store.name().to_owned(),
            by_status: UploadsByStatus::of(&tally),
            more: tally.more,
            bytes_in_flight: told.as_ref().map(|told| told.bytes),
            max_bytes_in_flight: store.spec().max_bytes_in_flight,
            chunks_queued: told.as_ref().map(|told| told.names),
            failures: tally.failures.into_iter().map(failure).collect(),
        })
    });
    let known: Vec<UploadStatus> =
        futures_util::future::join_all(asked).await.into_iter().flatten().collect();
    *last = Some((Instant::now(), known.clone()));
    known
}

fn failure(failure: Failure) -> UploadFailure {
    let Failure { upload_id, node_id, reason, at_ms } = failure;
    UploadFailure { upload_id, node_id, reason, failed_at: moment(at_ms.saturating_mul(1000)) }
}

/// Appends the families of uploads; none where the schema has no uploads.
pub(super) async fn write(out: &mut String, app: &App) {
    let berths = app.services.depot.berths();
    if berths.is_empty() {
        return;
    }
    in_flight(out, berths).await;
    let family = "quaymaster_upload_chunks_total";
    header(out, family, "counter", "What became of chunks in this process, by upload and outcome.");
    for berth in berths {
        let (name, counts) = (label(berth.store().name()), berth.store().counts());
        for (outcome, count) in [
            ("received", counts.taken()),
            ("repeated", counts.known()),
            ("refused", counts.refused()),
            ("busy", counts.busy()),
            ("shipped", counts.shipped()),
            ("failed", counts.failed()),
            ("missing", counts.missing()),
        ] {
            let _ = writeln!(out, "{family}{{upload=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_upload_received_bytes_total";
    header(out, family, "counter", "Bytes of the chunks that this process received.");
    for berth in berths {
        let (name, counts) = (label(berth.store().name()), berth.store().counts());
        let _ = writeln!(out, "{family}{{upload=\"{name}\"}} {}", counts.taken_bytes());
    }
    type Figure = fn(&Figures) -> &Histogram;
    let families: [(&str, &str, Figure); 3] = [
        (
            "quaymaster_upload_chunk_latency_seconds",
            "From a chunk's head to its acknowledgement.",
            |figures| &figures.acknowledged,
        ),
        (
            "quaymaster_s3_upload_latency_seconds",
            "Of a chunk from the store to the object store.",
            |figures| &figures.shipped,
        ),
        (
            "quaymaster_upload_completion_latency_seconds",
            "From an upload's first chunk to its completion.",
            |figures| &figures.completed,
        ),
    ];
    let nothing = Figures::default();
    for (family, help, figure) in families {
        header(out, family, "histogram", help);
        for berth in berths {
            let figures = berth.at_hand().map_or(&nothing, Uploads::figures);
            let (buckets, sum_us) = figure(figures).read();
            let label = format!("upload=\"{}\"", label(berth.store().name()));
            histogram(out, family, &label, &BOUNDS_US, &buckets, sum_us);
        }
    }
}

/// What the store tells; what it does not tell in time is left out.
async fn in_flight(out: &mut String, berths: &[Berth]) {
    let asked = berths.iter().map(|berth| async move {
        let told = tokio::time::timeout(PATIENCE, berth.store().in_flight()).await;
        Some((label(berth.store().name()), told.ok()?.ok()?))
    });
    let told = futures_util::future::join_all(asked).await;
    let told: Vec<_> = told.into_iter().flatten().collect();
    type Figure = fn(&InFlight) -> u64;
    let families: [(&str, &str, Figure); 3] = [
        (
            "quaymaster_chunks_queued",
            "Chunks on their way: being received, or received and not yet durable, over all nodes.",
            |told| told.names,
        ),
        ("quaymaster_upload_bytes_in_flight", "Their bytes.", |told| told.bytes),
        ("quaymaster_upload_max_bytes_in_flight", "How many bytes there may be.", |told| told.max_bytes),
    ];
    for (family, help, figure) in families {
        header(out, family, "gauge", help);
        for (name, told) in &told {
            let _ = writeln!(out, "{family}{{upload=\"{name}\"}} {}", figure(told));
        }
    }
}
