//! `/metrics` in Prometheus' text format: requests, limits, store. Nothing here scans; its size is fixed by the schema.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use quaymaster::schema::Kind;
use quaymaster::store::health::LATENCY_BOUNDS_US;
use quaymaster::store::{Class, Deployment, Health};

use super::{Access, Packs, Page, Place, latency, process, queues, text};
use crate::app::App;
use crate::http::rights::Rights;
use crate::metrics::{header, histogram, seconds};
use crate::threshold::{Threshold, exceeded};

pub(super) const PAGE: Page = Page {
    path: "/metrics",
    access: Access::Token,
    place: Place::Exempt,
    packs: Packs::Gzip,
    run: |app, visit| metrics(app, visit.rights).map(Ok).boxed(),
};

/// Counters and gauges for Prometheus.
async fn metrics(app: &App, rights: Rights<'_>) -> Response<Body> {
    let engine = app.services.quaymaster.engine();
    let (told, refused) =
        tokio::join!(app.probe.deployment(&**engine), app.probe.refused(&app.services.quaymaster));
    let health = engine.health();
    let mut out = String::with_capacity(8 * 1024);
    let version = env!("CARGO_PKG_VERSION");
    header(&mut out, "quaymaster_build_info", "gauge", "The server's version, as a label.");
    let _ = writeln!(out, "quaymaster_build_info{{version=\"{version}\"}} 1");
    gauge(
        &mut out,
        "quaymaster_uptime_seconds",
        "Since the process started.",
        app.probe.started.elapsed().as_secs(),
    );
    process::write(&mut out);
    app.metrics.write(&mut out, app.in_flight.load(Relaxed), app.services.waiting.load(Relaxed));
    if let Some(log) = &app.access {
        let counts = log.counts();
        let (written, dropped) = (counts.written.load(Relaxed), counts.dropped.load(Relaxed));
        let help = "Lines of the access log that were written.";
        counter(&mut out, "quaymaster_access_log_lines_total", help, Some(written));
        let help = "Lines of the access log that were lost because its disk was slow or full.";
        counter(&mut out, "quaymaster_access_log_dropped_total", help, Some(dropped));
    }
    for (name, help, count) in [
        (
            "quaymaster_http_tokens_failed_total",
            "Requests with a token that is none of ours.",
            &app.guesses.failed,
        ),
        (
            "quaymaster_http_tokens_slowed_total",
            "Those among them whose answer was held back.",
            &app.guesses.slowed,
        ),
    ] {
        counter(&mut out, name, help, Some(count.load(Relaxed)));
    }
    limits(&mut out, app);
    idempotencies(&mut out, app);
    locks(&mut out, app);
    caches(&mut out, app);
    dedupes(&mut out, app);
    guards(&mut out, app);
    queues::write(&mut out, app).await;
    super::events::write(&mut out, app);
    super::runs::write(&mut out, app);
    super::stats::write(&mut out, app).await;
    super::uploads::write(&mut out, app).await;
    outages(&mut out, app).await;
    store(&mut out, &health, told.is_ok() && health.connected);
    let help = "Whether the store accepted the last write that was tried, once a second.";
    gauge(&mut out, "quaymaster_store_ready", help, u8::from(refused.is_none()));
    if let Ok(facts) = &told {
        deployment(&mut out, app, facts);
    }
    header(&mut out, "quaymaster_threshold_exceeded", "gauge", "1 while a configured threshold is exceeded.");
    let exceeded = exceeded(&app.thresholds, &health, told.as_ref().ok(), &app.services.quaymaster, rights);
    let value = |threshold| u8::from(exceeded.iter().any(|one| one.is_of(threshold)));
    for threshold in Threshold::ALL {
        let (name, value) = (threshold.name(), value(threshold));
        let _ = writeln!(out, "quaymaster_threshold_exceeded{{threshold=\"{name}\"}} {value}");
    }
    let family = "quaymaster_threshold_action";
    header(
        &mut out,
        family,
        "gauge",
        "1 while a configured threshold is exceeded, with what to do about it.",
    );
    for threshold in Threshold::ALL {
        let (name, action, value) = (threshold.name(), threshold.action(), value(threshold));
        let _ = writeln!(out, "{family}{{threshold=\"{name}\",action=\"{action}\"}} {value}");
    }
    if !rights.reach_all() {
        out = reachable(&out, rights);
    }
    text("text/plain; version=0.0.4; charset=utf-8", out)
}

/// Leaves out samples of resources that the caller does not reach.
fn reachable(all: &str, rights: Rights<'_>) -> String {
    let shown = |line: &&str| resource(line).is_none_or(|(kind, name)| rights.reach(kind, name));
    all.split_inclusive('\n').filter(shown).collect()
}

/// The resource that a sample is about: its first label is the kind, or is called `kind`, and the next one `name`.
fn resource(line: &str) -> Option<(Kind, &str)> {
    let (family, labels) = line.split_once('{')?;
    if family.starts_with('#') {
        return None;
    }
    // Names of resources have neither quotes nor backslashes.
    let (label, rest) = labels.split_once("=\"")?;
    let (value, rest) = rest.split_once('"')?;
    match label {
        "kind" => Some((value.parse().ok()?, rest.strip_prefix(",name=\"")?.split_once('"')?.0)),
        _ => Some((label.parse().ok()?, value)),
    }
}

fn limits(out: &mut String, app: &App) {
    let mut limits: Vec<_> = app.services.quaymaster.limits().collect();
    limits.sort_by_key(|limit| limit.name());
    header(out, "quaymaster_limit_takes_total", "counter", "Takes, by limit and answer.");
    for limit in &limits {
        let (name, counts) = (label(limit.name()), limit.counts());
        for (outcome, count) in
            [("allowed", counts.allowed()), ("limited", counts.limited()), ("error", counts.errors())]
        {
            let _ = writeln!(
                out,
                "quaymaster_limit_takes_total{{limit=\"{name}\",outcome=\"{outcome}\"}} {count}"
            );
        }
    }
    let family = "quaymaster_limit_stale_total";
    header(out, family, "counter", "Keys rendered again because the store's time was in another bucket.");
    for limit in &limits {
        let _ = writeln!(out, "{family}{{limit=\"{}\"}} {}", label(limit.name()), limit.counts().stale());
    }
}

fn locks(out: &mut String, app: &App) {
    let mut locks: Vec<_> = app.services.quaymaster.locks().collect();
    locks.sort_by_key(|lock| lock.name());
    let family = "quaymaster_lock_calls_total";
    header(out, family, "counter", "Calls on locks, by lock, verb and answer.");
    for lock in &locks {
        let (name, counts) = (label(lock.name()), lock.counts());
        for (verb, outcome, count) in [
            ("acquire", "ours", counts.acquired()),
            ("acquire", "held", counts.held()),
            ("renew", "ours", counts.renewed()),
            ("renew", "lost", counts.renew_lost()),
            ("release", "released", counts.released()),
            ("release", "lost", counts.release_lost()),
            ("any", "error", counts.errors()),
        ] {
            let _ =
                writeln!(out, "{family}{{lock=\"{name}\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_lock_waiting";
    header(out, family, "gauge", "Calls of this process that wait for a lock now.");
    for lock in &locks {
        let _ = writeln!(out, "{family}{{lock=\"{}\"}} {}", label(lock.name()), lock.counts().waiting());
    }
}

fn caches(out: &mut String, app: &App) {
    let mut caches: Vec<_> = app.services.quaymaster.caches().collect();
    caches.sort_by_key(|cache| cache.name());
    let family = "quaymaster_cache_reads_total";
    header(out, family, "counter", "Reads of caches, by cache and answer.");
    for cache in &caches {
        let (name, reads) = (label(cache.name()), cache.counts().reads());
        for (outcome, count) in [("hit", reads.hits), ("miss", reads.misses)] {
            let _ = writeln!(out, "{family}{{cache=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_cache_hit_ratio";
    header(out, family, "gauge", "Reads of the last minutes that hit, of all; absent without reads.");
    for cache in &caches {
        if let Some(ratio) = cache.counts().recent().hit_ratio() {
            let _ = writeln!(out, "{family}{{cache=\"{}\"}} {ratio}", label(cache.name()));
        }
    }
    let family = "quaymaster_cache_errors_total";
    header(out, family, "counter", "Calls on caches that failed.");
    for cache in &caches {
        let _ = writeln!(out, "{family}{{cache=\"{}\"}} {}", label(cache.name()), cache.counts().errors());
    }
}

fn dedupes(out: &mut String, app: &App) {
    let mut dedupes: Vec<_> = app.services.quaymaster.dedupes().collect();
    dedupes.sort_by_key(|dedupe| dedupe.name());
    let family = "quaymaster_dedupe_calls_total";
    header(out, family, "counter", "Calls on dedupes, by dedupe and answer.");
    for dedupe in &dedupes {
        let (name, counts) = (label(dedupe.name()), dedupe.counts());
        for (outcome, count) in
            [("first", counts.first()), ("duplicate", counts.duplicates()), ("error", counts.errors())]
        {
            let _ = writeln!(out, "{family}{{dedupe=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
}

async fn outages(out: &mut String, app: &App) {
    let outages = app.services.quaymaster.outages();
    let mut counts: Vec<_> = outages.counts().collect();
    counts.sort_by_key(|(kind, name, ..)| (kind.name(), *name));
    let family = "quaymaster_outage_answers_total";
    header(out, family, "counter", "Answers given by policy while the store could not be asked.");
    for (kind, name, policy, answers) in counts {
        let (name, policy) = (label(name), policy.name());
        let _ = writeln!(out, "{family}{{kind=\"{kind}\",name=\"{name}\",policy=\"{policy}\"}} {answers}");
    }
    let waiting = outages.uncarried().await;
    let family = "quaymaster_outage_uncarried";
    header(
        out,
        family,
        "gauge",
        "Counted while the store was away and not in it yet: keys; 1 for a database.",
    );
    let _ = writeln!(out, "{family}{{policy=\"local\"}} {}", waiting.local_keys);
    let _ = writeln!(out, "{family}{{policy=\"database\"}} {}", u8::from(waiting.database));
}

fn idempotencies(out: &mut String, app: &App) {
    let mut all: Vec<_> = app.services.quaymaster.idempotencies().collect();
    all.sort_by_key(|idempotency| idempotency.name());
    let family = "quaymaster_idempotency_calls_total";
    header(out, family, "counter", "Calls on idempotencies, by idempotency, verb and answer.");
    for idempotency in &all {
        let (name, counts) = (label(idempotency.name()), idempotency.counts());
        for (verb, outcome, count) in [
            ("begin", "started", counts.started()),
            ("begin", "in_progress", counts.in_progress()),
            ("begin", "finished", counts.replayed()),
            ("begin", "mismatch", counts.mismatch()),
            ("begin", "error", counts.begin_errors()),
            ("finish", "finished", counts.finished()),
            ("abandon", "abandoned", counts.abandoned()),
            ("settle", "lost", counts.lost()),
            ("settle", "error", counts.settle_errors()),
        ] {
            let _ = writeln!(
                out,
                "{family}{{idempotency=\"{name}\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}"
            );
        }
    }
    let family = "quaymaster_idempotency_waits_total";
    header(out, family, "counter", "Begins that waited for another's claim to end.");
    for idempotency in &all {
        let (name, waited) = (label(idempotency.name()), idempotency.counts().waited());
        let _ = writeln!(out, "{family}{{idempotency=\"{name}\"}} {waited}");
    }
    let family = "quaymaster_idempotency_responses_not_kept_total";
    header(
        out,
        family,
        "counter",
        "Responses over their bound, or of compact records: finished, not replayed.",
    );
    for idempotency in &all {
        let (name, not_kept) = (label(idempotency.name()), idempotency.counts().not_kept());
        let _ = writeln!(out, "{family}{{idempotency=\"{name}\"}} {not_kept}");
    }
}

fn guards(out: &mut String, app: &App) {
    let mut guards: Vec<_> = app.services.quaymaster.guards().collect();
    guards.sort_by_key(|guard| guard.name());
    let family = "quaymaster_guard_calls_total";
    header(out, family, "counter", "Calls on guards, by guard, verb and answer.");
    for guard in &guards {
        let (name, counts) = (label(guard.name()), guard.counts());
        for (verb, outcome, count) in [
            ("enter", "entered", counts.entered()),
            ("enter", "mismatch", counts.mismatch()),
            ("enter", "finished", counts.replayed()),
            ("enter", "in_progress", counts.in_progress()),
            ("enter", "held", counts.held()),
            ("enter", "limited", counts.limited()),
            ("enter", "error", counts.enter_errors()),
            ("leave", "left", counts.left()),
            ("leave", "lost", counts.left_lost()),
            ("leave", "error", counts.leave_errors()),
        ] {
            let _ =
                writeln!(out, "{family}{{guard=\"{name}\",verb=\"{verb}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let family = "quaymaster_guard_steps_returned_total";
    header(
        out,
        family,
        "counter",
        "Steps of an enter given back because a later one said no (cluster only).",
    );
    for guard in &guards {
        let (name, counts) = (label(guard.name()), guard.counts());
        for (outcome, count) in [("done", counts.given_back()), ("failed", counts.not_given_back())] {
            let _ = writeln!(out, "{family}{{guard=\"{name}\",outcome=\"{outcome}\"}} {count}");
        }
    }
}

fn store(out: &mut String, health: &Health, up: bool) {
    gauge(out, "quaymaster_store_up", "Whether the store answered just now.", u8::from(up));
    gauge(
        out,
        "quaymaster_store_breaker_open",
        "Whether calls are held back.",
        u8::from(health.breaker_open),
    );
    for (name, help, value) in [
        ("quaymaster_store_connect_attempts_total", "Connections tried.", health.connect_attempts),
        ("quaymaster_store_connect_failures_total", "Connections that failed.", health.connect_failures),
        ("quaymaster_store_operations_total", "Calls made to the store.", health.operations),
        ("quaymaster_store_failures_total", "Calls that failed because of the store.", health.failures),
        ("quaymaster_store_retries_total", "Calls sent again.", health.retries),
    ] {
        header(out, name, "counter", help);
        let _ = writeln!(out, "{name} {value}");
    }
    let help = "Failures since the last success.";
    gauge(out, "quaymaster_store_consecutive_failures", help, health.consecutive_failures);
    gauge(
        out,
        "quaymaster_store_success_ratio",
        "Calls that did not fail, of all calls.",
        health.success_rate(),
    );
    gauge(
        out,
        "quaymaster_store_connect_success_ratio",
        "Connections that did not fail, of all that were tried.",
        health.connect_success_rate(),
    );
    let help = "The store's clock minus this node's.";
    gauge(out, "quaymaster_store_clock_offset_seconds", help, health.clock_offset_us as f64 / 1e6);
    let help = "How wrong that offset can be.";
    gauge(out, "quaymaster_store_clock_error_seconds", help, health.clock_error_us as f64 / 1e6);
    let family = "quaymaster_store_operation_duration_seconds";
    header(out, family, "histogram", "From a call to its reply.");
    histogram(out, family, "", &LATENCY_BOUNDS_US, &health.latency_buckets, health.latency_sum_us);
    let (p95, calls) = ("quaymaster_store_recent_p95_seconds", "quaymaster_store_recent_calls");
    header(out, p95, "gauge", "95 % of the last minute's calls were answered within this, by class.");
    for class in Class::ALL {
        if let Some(found) = health.recent(class).quantile(latency::P95) {
            let value = seconds(found.at_least_us());
            let _ = writeln!(out, "{p95}{{class=\"{}\"}} {value}", class.name());
        }
    }
    header(out, calls, "gauge", "Calls of the last minute, by class.");
    for class in Class::ALL {
        let _ = writeln!(out, "{calls}{{class=\"{}\"}} {}", class.name(), health.recent(class).calls());
    }
}

/// What the store tells about itself: under the exporter's established names where it is Redis or Valkey.
fn deployment(out: &mut String, app: &App, facts: &Deployment) {
    let redis = matches!(facts.product.as_str(), "redis" | "valkey");
    let name = if redis { "redis_memory_used_bytes" } else { "quaymaster_store_memory_used_bytes" };
    if let Some(used) = facts.used_memory_bytes {
        gauge(out, name, "Memory used by the store's data.", used);
    }
    if !redis {
        if let Some(max) = facts.max_memory_bytes {
            let help = "How much it may be before nothing is accepted that could grow it, 0 for no bound.";
            gauge(out, "quaymaster_store_memory_max_bytes", help, max);
        }
        let help = "How often the machine's clock was set while the store was open.";
        counter(out, "quaymaster_store_clock_steps_total", help, facts.clock_steps);
        let help = "How often the folder was opened with data from the future.";
        counter(out, "quaymaster_store_future_data_total", help, facts.future_data);
        return;
    }
    if let Some(max) = facts.max_memory_bytes {
        gauge(out, "redis_memory_max_bytes", "The store's maxmemory, 0 for none.", max);
    }
    if let Some(clients) = facts.connected_clients {
        gauge(out, "redis_connected_clients", "Clients connected to the store.", clients);
    }
    if let Some(policy) = &facts.eviction_policy {
        let name = "quaymaster_store_eviction_policy";
        header(out, name, "gauge", "The store's maxmemory-policy, as a label.");
        let _ = writeln!(out, "{name}{{policy=\"{}\"}} 1", label(policy));
        let lossy = !app.services.quaymaster.schema().eviction_losses(policy).is_empty();
        let help = "1 while that policy can destroy what the schema holds.";
        gauge(out, "quaymaster_store_evicts", help, u8::from(lossy));
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    header(out, name, "gauge", help);
    let _ = writeln!(out, "{name} {value}");
}

fn counter(out: &mut String, name: &str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        header(out, name, "counter", help);
        let _ = writeln!(out, "{name} {value}");
    }
}

/// A label's value, escaped.
pub(super) fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
