//! How full the queues are: for `/metrics`, `/v1/status` and the dashboard. One question per queue, none of which walks
//! a list, and at most once a second however many ask.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quaymaster::queue::Pressure;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use super::metrics::label;
use crate::app::App;
use crate::call::queue::state::{QueueOverflow, QueuePressure};
use crate::metrics::{header, histogram, seconds};
use crate::worker::calls::{BOUNDS_US, Outcome};

/// How long what was heard is good for.
const FRESH: Duration = Duration::from_secs(1);
/// How long all queues together may take to tell.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was last heard of every queue.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<Option<(Instant, Known)>>);

type Known = BTreeMap<String, Pressure>;

impl Depths {
    /// Every queue that could be asked, by name.
    async fn now(&self, app: &App) -> Known {
        let mut last = self.0.lock().await;
        if let Some((at, known)) = &*last
            && at.elapsed() < FRESH
        {
            return known.clone();
        }
        // Whoever watches is answered also where a question panics.
        let asked = app.services.quaymaster.queues().map(|queue| async {
            let told = AssertUnwindSafe(queue.pressure()).catch_unwind().await;
            told.ok()?.ok().map(|told| (queue.name().to_owned(), told))
        });
        let told = tokio::time::timeout(PATIENCE, futures_util::future::join_all(asked)).await;
        let known: Known = told.unwrap_or_default().into_iter().flatten().collect();
        *last = Some((Instant::now(), known.clone()));
        known
    }
}

/// One queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueStatus {
    name: String,
    #[serde(flatten)]
    pressure: QueuePressure,
    /// Jobs wait, nobody holds one, and the queue is not paused.
    unattended: bool,
    /// Jobs done since the queue's first push.
    acked: u64,
    /// Calls this process makes at once for it; null when it makes none.
    pushes: Option<u32>,
}

impl QueueStatus {
    /// Its name in the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Retries that are due are not in the list, but they wait: a worker that died with all there was leaves only them.
fn unattended(told: &Pressure) -> bool {
    (told.current_length > 0 || told.oldest_age.is_some()) && told.leased == 0 && !told.paused
}

/// All queues that could be asked.
pub(crate) async fn status(app: &App) -> Vec<QueueStatus> {
    let known = app.depths.now(app).await;
    let pushes = |name: &str| {
        let queues = app.workers.as_ref().map(|workers| workers.queues()).unwrap_or_default();
        queues.iter().find(|queue| queue.name == name).map(|queue| queue.concurrency)
    };
    known
        .into_iter()
        .map(|(name, told)| QueueStatus {
            unattended: unattended(&told),
            acked: told.totals.acked,
            pushes: pushes(&name),
            pressure: told.into(),
            name,
        })
        .collect()
}

/// A sentence for each queue that somebody should look at.
pub(crate) fn warnings(queues: &[QueueStatus]) -> impl Iterator<Item = String> {
    queues.iter().filter(|queue| queue.pressure.is_at_pressure_threshold || queue.pressure.is_full).map(
        |queue| {
            let QueuePressure { current_length, max_size, overflow_policy, .. } = &queue.pressure;
            let of = max_size.map_or_else(String::new, |max| format!(" of {max}"));
            let what = match overflow_policy {
                QueueOverflow::Reject => "pushes are refused when it is full",
                QueueOverflow::Dlq => "the oldest are moved to the overflow list when it is full",
                QueueOverflow::DropOldest => "the oldest are dropped when it is full",
            };
            format!("queue.{}: {current_length}{of} jobs wait; {what}", queue.name)
        },
    )
}

/// Appends the families of queues and workers.
pub(super) async fn write(out: &mut String, app: &App) {
    depths(out, &app.depths.now(app).await);
    calls(out, app);
    workers(out, app);
}

fn depths(out: &mut String, known: &Known) {
    type Read = fn(&Pressure) -> u64;
    let gauges: [(&str, &str, Read); 9] = [
        ("quaymaster_queue_length", "Jobs that wait to be claimed.", |told| told.current_length),
        ("quaymaster_queue_leased", "Jobs claimed and not settled.", |told| told.leased),
        ("quaymaster_queue_delayed", "Jobs that come later: delayed pushes and retries.", |told| {
            told.delayed
        }),
        ("quaymaster_queue_dead", "Dead letters.", |told| told.dead),
        ("quaymaster_queue_overflow", "Items in the overflow list.", |told| told.overflowed),
        ("quaymaster_queue_paused", "1 while claims get nothing.", |told| told.paused.into()),
        ("quaymaster_queue_full", "1 while no more fit.", |told| told.is_full.into()),
        ("quaymaster_queue_at_pressure", "1 from the declared threshold on.", |told| {
            told.is_at_pressure_threshold.into()
        }),
        (
            "quaymaster_queue_unattended",
            "1 while jobs wait, nobody holds one and it is not paused.",
            |told| unattended(told).into(),
        ),
    ];
    for (family, help, read) in gauges {
        header(out, family, "gauge", help);
        for (name, told) in known {
            let _ = writeln!(out, "{family}{{queue=\"{}\"}} {}", label(name), read(told));
        }
    }
    let family = "quaymaster_queue_max_size";
    header(out, family, "gauge", "How many may wait; absent for any number.");
    for (name, told) in known {
        if let Some(max) = told.max_size {
            let _ = writeln!(out, "{family}{{queue=\"{}\"}} {max}", label(name));
        }
    }
    let family = "quaymaster_queue_oldest_age_seconds";
    header(
        out,
        family,
        "gauge",
        "About how long the oldest has waited; 0 when none waits, absent when not known.",
    );
    for (name, told) in known {
        let age = told.oldest_age.or((told.current_length == 0).then_some(Duration::ZERO));
        if let Some(age) = age {
            let us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
            let _ = writeln!(out, "{family}{{queue=\"{}\"}} {}", label(name), seconds(us));
        }
    }
    let family = "quaymaster_queue_jobs_total";
    header(out, family, "counter", "What happened to jobs, by all processes, as the store has counted it.");
    for (name, told) in known {
        let totals = &told.totals;
        for (what, count) in [
            ("pushed", totals.pushed),
            ("acked", totals.acked),
            ("retried", totals.retried),
            ("expired", totals.expired),
            ("dead", totals.dead),
            ("redriven", totals.redriven),
            ("overflowed", totals.overflowed),
            ("dropped", totals.dropped),
        ] {
            let _ = writeln!(out, "{family}{{queue=\"{}\",what=\"{what}\"}} {count}", label(name));
        }
    }
}

/// What this process answered; the store's own counts are those of all processes.
fn calls(out: &mut String, app: &App) {
    let mut queues: Vec<_> = app.services.quaymaster.queues().collect();
    queues.sort_by_key(|queue| queue.name());
    let family = "quaymaster_queue_answers_total";
    header(out, family, "counter", "Answers of this process about jobs, by queue, verb and answer.");
    for queue in &queues {
        let (name, counts) = (label(queue.name()), queue.counts());
        for (verb, outcome, count) in [
            ("push", "accepted", counts.jobs_pushed()),
            ("push", "duplicate", counts.duplicates()),
            ("any", "full", counts.full()),
            ("claim", "claimed", counts.jobs_claimed()),
            ("ack", "acked", counts.jobs_acked()),
            ("nack", "retry", counts.jobs_retried()),
            ("nack", "dead", counts.jobs_dead()),
            ("any", "lost", counts.lost()),
            ("any", "error", counts.errors()),
        ] {
            let _ =
                writeln!(out, "{family}{{queue=\"{name}\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_queue_waiting_claims";
    header(out, family, "gauge", "Claims of this process that wait for a job now.");
    for queue in &queues {
        let _ = writeln!(out, "{family}{{queue=\"{}\"}} {}", label(queue.name()), queue.counts().waiting());
    }
}

fn workers(out: &mut String, app: &App) {
    let queues = app.workers.as_ref().map(|workers| workers.queues()).unwrap_or_default();
    if queues.is_empty() {
        return;
    }
    header(
        out,
        "quaymaster_worker_concurrency",
        "gauge",
        "Calls this process may make at once; 0 once stopped.",
    );
    for queue in queues {
        let most = u64::from(queue.concurrency) * queue.counts().running();
        let _ = writeln!(out, "quaymaster_worker_concurrency{{queue=\"{}\"}} {most}", label(&queue.name));
    }
    header(out, "quaymaster_worker_busy", "gauge", "Jobs this process has in hand now.");
    for queue in queues {
        let _ = writeln!(
            out,
            "quaymaster_worker_busy{{queue=\"{}\"}} {}",
            label(&queue.name),
            queue.counts().busy()
        );
    }
    let family = "quaymaster_worker_jobs_total";
    header(out, family, "counter", "What this process did with jobs.");
    for queue in queues {
        let counts = queue.counts();
        for (what, count) in [
            ("claimed", counts.claimed()),
            ("acked", counts.acked()),
            ("retried", counts.retried()),
            ("dead", counts.dead()),
            ("lost", counts.lost()),
            ("given_back", counts.given_back()),
            ("panicked", counts.panicked()),
        ] {
            let _ = writeln!(out, "{family}{{queue=\"{}\",what=\"{what}\"}} {count}", label(&queue.name));
        }
    }
    let family = "quaymaster_worker_store_errors_total";
    header(out, family, "counter", "Calls of workers to the store that failed.");
    for queue in queues {
        let _ = writeln!(out, "{family}{{queue=\"{}\"}} {}", label(&queue.name), queue.counts().errors());
    }
    let family = "quaymaster_worker_calls_total";
    header(out, family, "counter", "Calls to services, by what came of them.");
    for queue in queues {
        for (outcome, name) in Outcome::ALL {
            let count = queue.calls().outcome(outcome);
            let _ = writeln!(out, "{family}{{queue=\"{}\",outcome=\"{name}\"}} {count}", label(&queue.name));
        }
    }
    let family = "quaymaster_worker_call_duration_seconds";
    header(out, family, "histogram", "From a call to the end of its answer.");
    for queue in queues {
        let (buckets, sum_us) = queue.calls().durations();
        histogram(out, family, &format!("queue=\"{}\"", label(&queue.name)), &BOUNDS_US, &buckets, sum_us);
    }
}
