//! Batches and events in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::metrics::label;
use crate::app::App;
use crate::metrics::header;

/// Appends the families of batches, events and their readers.
pub(super) fn write(out: &mut String, app: &App) {
    batches(out, app);
    events(out, app);
    let counts = &app.fan.counts;
    for (name, kind, help, value) in [
        (
            "quaymaster_event_readers",
            "gauge",
            "Readers of event streams and WebSockets of this process.",
            counts.readers.load(Relaxed) as u64,
        ),
        (
            "quaymaster_event_messages_total",
            "counter",
            "Messages that came from the store for those readers.",
            counts.messages.load(Relaxed),
        ),
        (
            "quaymaster_event_missed_total",
            "counter",
            "Messages that readers were too slow for, each reader by itself.",
            counts.missed.load(Relaxed),
        ),
        (
            "quaymaster_event_readers_cut_total",
            "counter",
            "Readers cut because they took nothing, or answered nothing, for too long.",
            counts.cut.load(Relaxed),
        ),
        (
            "quaymaster_event_readers_refused_total",
            "counter",
            "Readers refused because every place was taken.",
            counts.refused.load(Relaxed),
        ),
    ] {
        header(out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    }
}

fn batches(out: &mut String, app: &App) {
    let mut batches: Vec<_> = app.services.quaymaster.batches().collect();
    batches.sort_by_key(|batch| batch.name());
    let family = "quaymaster_batch_items_total";
    header(out, family, "counter", "Items given to batches, by batch and answer.");
    for batch in &batches {
        let (name, counts) = (label(batch.name()), batch.counts());
        for (outcome, count) in
            [("added", counts.added()), ("duplicate", counts.duplicates()), ("error", counts.errors())]
        {
            let _ = writeln!(out, "{family}{{batch=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_batch_closed_total";
    header(out, family, "counter", "Batches that this process queued, or found expired.");
    for batch in &batches {
        let (name, counts) = (label(batch.name()), batch.counts());
        for (outcome, count) in [("queued", counts.closed()), ("expired", counts.expired())] {
            let _ = writeln!(out, "{family}{{batch=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
}

fn events(out: &mut String, app: &App) {
    let mut events: Vec<_> = app.services.quaymaster.events().collect();
    events.sort_by_key(|event| event.name());
    let family = "quaymaster_event_calls_total";
    header(out, family, "counter", "What this process did with events, by event and answer.");
    for event in &events {
        let (name, counts) = (label(event.name()), event.counts());
        for (outcome, count) in [
            ("published", counts.published()),
            ("status", counts.statuses()),
            ("subscribed", counts.subscribed()),
            ("error", counts.errors()),
        ] {
            let _ = writeln!(out, "{family}{{event=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
}
