//! Uploads in Prometheus' text format. The four that the document names are here: chunks queued, and the times from a
//! chunk's head to its acknowledgement, from the store to the object store, and from an upload's beginning to its end.

use std::fmt::Write as _;
use std::time::Duration;

use quaymaster::upload::InFlight;
use quaymaster_upload::{BOUNDS_US, Figures, Histogram, Uploads};

use super::metrics::label;
use crate::app::App;
use crate::depot::Berth;
use crate::metrics::{header, histogram};

/// How long all of them together may take to tell what is in flight.
const PATIENCE: Duration = Duration::from_secs(2);

/// Appends the families of uploads; none where the schema has no uploads.
pub(super) async fn write(out: &mut String, app: &App) {
    let berths = app.depot.berths();
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
            "From an upload's creation to its completion.",
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
