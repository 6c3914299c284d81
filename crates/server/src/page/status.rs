//! `/v1/status`: the store, the schema and the limits' counts in one document; what the dashboard draws.

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use quaymaster::schema::Kind;
use quaymaster::store::{Deployment, Health};
use schemars::JsonSchema;
use serde::Serialize;

use super::latency::{self, ClassLatency};
use super::queues::{self, QueueStatus};
use super::runs::{self, RunStatus};
use super::stats::StatsStatus;
use super::uploads::UploadStatus;
use super::{Access, Packs, Page, Place, json};
use crate::app::App;
use crate::doctor::{self, Eviction};
use crate::http::rights::Rights;
use crate::probe;
use crate::threshold::{Exceeded, exceeded};

pub(super) const PAGE: Page = Page {
    path: "/v1/status",
    access: Access::Token,
    place: Place::Needed,
    packs: Packs::Gzip,
    run: |app, visit| status(app, visit.rights).map(Ok).boxed(),
};

/// The whole document.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// The server's version.
    version: &'static str,
    /// How long the process has been up.
    uptime_ms: u64,
    /// The store.
    store: StoreStatus,
    /// What happened while the store could not be asked.
    outages: OutageStatus,
    /// What is beyond its threshold or stored readable, a sentence each.
    warnings: Vec<String>,
    /// What is beyond its threshold, and what to do about each.
    thresholds: Vec<Exceeded>,
    /// Counts of each limit since this process started.
    limits: Vec<LimitStatus>,
    /// Reads and loads of each cache since this process started.
    caches: Vec<CacheStatus>,
    /// How full each queue is; those that could not be asked are not there.
    queues: Vec<QueueStatus>,
    /// The last active runs, ten of each name; those that could not be asked are not there.
    runs: Vec<RunStatus>,
    /// What instances counted; those that could not be asked, or that nobody counts into, are not there.
    stats: Vec<StatsStatus>,
    /// Uploads of every name; those that nobody has used or that could not be asked are not there.
    uploads: Vec<UploadStatus>,
    /// Everything the schema declares.
    resources: Vec<ResourceStatus>,
}

/// Answers given while the store could not be asked.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutageStatus {
    /// Nodes among which limits with `on_outage = "local"` are divided.
    nodes: u32,
    /// Whether a database is configured for `on_outage = "database"`.
    database: bool,
    /// Keys counted by this node alone that the store does not know yet.
    uncarried_local_keys: u64,
    /// Whether this node counted in the database what may not be in the store yet.
    uncarried_database: bool,
    /// Resources that answered by policy since the process started.
    answers: Vec<OutageAnswers>,
}

/// One resource that answered by policy.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutageAnswers {
    kind: &'static str,
    name: String,
    policy: &'static str,
    answers: u64,
}

async fn outages(app: &App, rights: Rights<'_>) -> OutageStatus {
    let outages = app.services.quaymaster.outages();
    let waiting = outages.uncarried().await;
    let answers =
        |(kind, name, policy, answers): (quaymaster::schema::Kind, &str, quaymaster::Outage, u64)| {
            OutageAnswers { kind: kind.name(), name: name.to_owned(), policy: policy.name(), answers }
        };
    let mut given: Vec<OutageAnswers> = outages
        .counts()
        .filter(|(kind, name, _, answers)| *answers > 0 && rights.reach(*kind, name))
        .map(answers)
        .collect();
    given.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    OutageStatus {
        nodes: outages.nodes(),
        database: outages.has_database(),
        uncarried_local_keys: waiting.local_keys,
        uncarried_database: waiting.database,
        answers: given,
    }
}

/// What the store says about itself, and how it answered so far.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StoreStatus {
    /// Whether it was last heard of well.
    pub(crate) connected: bool,
    /// Why not, when it is not.
    pub(crate) reason: Option<String>,
    /// `redis`, `valkey` or `embedded`.
    product: Option<String>,
    version: Option<String>,
    /// The version of the Redis or Valkey server; null for an embedded store.
    redis_version: Option<String>,
    /// `standalone`, `sentinel`, `cluster`, `owner`, `attached` or `memory`.
    mode: Option<String>,
    /// `always`, `everysec`, `rdb` or `none`.
    persistence: Option<String>,
    eviction_policy: Option<String>,
    used_memory_bytes: Option<u64>,
    max_memory_bytes: Option<u64>,
    connected_clients: Option<u64>,
    /// Whether calls are held back after repeated failures.
    breaker_open: bool,
    /// Connections tried, and those that failed; of this process.
    connect_attempts: u64,
    connect_failures: u64,
    /// Connections that did not fail, of all that were tried.
    connect_success_rate: f64,
    operations: u64,
    failures: u64,
    consecutive_failures: u64,
    retries: u64,
    /// Calls that did not fail, of all calls.
    success_rate: f64,
    latency_mean_us: u64,
    /// The 95th percentile of the last minute's calls, single and compound together; null without calls.
    latency_p95_us: Option<u64>,
    /// The last minute's calls, class by class.
    latency: Vec<ClassLatency>,
    /// The store's clock minus this node's.
    clock_offset_us: i64,
    /// How often the machine's clock was set while the store was open; embedded.
    clock_steps: Option<u64>,
    /// 1 when the data was from the future when the folder was opened: the clock had been ahead; embedded.
    future_data: Option<u64>,
}

/// One limit.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LimitStatus {
    name: String,
    algorithm: &'static str,
    /// Units per window, after the safety buffer.
    limit: u64,
    window_ms: u64,
    /// Takes that passed.
    allowed: u64,
    /// Takes that were refused.
    limited: u64,
    errors: u64,
    /// Keys rendered again because the store's time was another one.
    stale: u64,
}

/// One cache.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CacheStatus {
    name: String,
    /// Reads that found a value.
    hits: u64,
    /// Reads that found none.
    misses: u64,
    /// The share of reads that hit; null without reads.
    hit_ratio: Option<f64>,
    /// The same of the last minutes, at most five.
    recent_hit_ratio: Option<f64>,
    errors: u64,
}

fn caches(app: &App, rights: Rights<'_>) -> Vec<CacheStatus> {
    let mut caches: Vec<CacheStatus> = app
        .services
        .quaymaster
        .caches()
        .filter(|cache| rights.reach(Kind::Cache, cache.name()))
        .map(|cache| CacheStatus {
            name: cache.name().to_owned(),
            hits: cache.counts().reads().hits,
            misses: cache.counts().reads().misses,
            hit_ratio: cache.counts().reads().hit_ratio(),
            recent_hit_ratio: cache.counts().recent().hit_ratio(),
            errors: cache.counts().errors(),
        })
        .collect();
    caches.sort_by(|a, b| a.name.cmp(&b.name));
    caches
}

/// One resource of the schema.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResourceStatus {
    kind: &'static str,
    name: String,
    document: String,
    owner: Option<String>,
    description: Option<String>,
    keys: Vec<KeyStatus>,
}

/// One key pattern.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyStatus {
    role: &'static str,
    pattern: String,
    r#type: &'static str,
    ttl: String,
}

impl StoreStatus {
    pub(crate) fn new(health: &Health, told: &Result<Deployment, crate::http::problem::Problem>) -> Self {
        let facts = told.as_ref().ok();
        // What the store said is up to two seconds old; what the engine knows of itself is not.
        let reason = match told {
            Err(problem) => Some(format!("{}: {}", problem.code, problem.detail)),
            Ok(_) if !health.connected => Some(probe::UNWELL.to_owned()),
            Ok(_) => None,
        };
        Self {
            connected: reason.is_none(),
            reason,
            product: facts.map(|facts| facts.product.clone()),
            version: facts.map(|facts| facts.version.clone()),
            redis_version: facts.and_then(|facts| facts.redis_version().map(str::to_owned)),
            mode: facts.map(|facts| facts.mode.clone()),
            persistence: facts.and_then(|facts| facts.persistence.clone()),
            eviction_policy: facts.and_then(|facts| facts.eviction_policy.clone()),
            used_memory_bytes: facts.and_then(|facts| facts.used_memory_bytes),
            max_memory_bytes: facts.and_then(|facts| facts.max_memory_bytes),
            connected_clients: facts.and_then(|facts| facts.connected_clients),
            breaker_open: health.breaker_open,
            connect_attempts: health.connect_attempts,
            connect_failures: health.connect_failures,
            connect_success_rate: health.connect_success_rate(),
            operations: health.operations,
            failures: health.failures,
            consecutive_failures: health.consecutive_failures,
            retries: health.retries,
            success_rate: health.success_rate(),
            latency_mean_us: health.mean_latency_us(),
            latency_p95_us: latency::p95_us(health),
            latency: ClassLatency::all(health),
            clock_offset_us: health.clock_offset_us,
            clock_steps: facts.and_then(|facts| facts.clock_steps),
            future_data: facts.and_then(|facts| facts.future_data),
        }
    }
}

/// An embedded store whose time is not the machine's, because that clock was set.
fn clock_warning(health: &Health, facts: Option<&Deployment>) -> Option<String> {
    let embedded = facts.is_some_and(|facts| facts.clock_steps.is_some());
    let seconds = health.clock_offset_us.abs() / 1_000_000;
    let side = if health.clock_offset_us < 0 { "behind" } else { "ahead of" };
    (embedded && seconds > 0).then(|| {
        format!(
            "the store's time is {seconds} s {side} the machine's clock, which was set; it approaches it by 5 %; to take the \
             machine's date at once, make the file take-date in the data folder and restart"
        )
    })
}

/// The store, the schema and the limits' counts: as much of them as the caller reaches.
async fn status(app: &App, rights: Rights<'_>) -> Response<Body> {
    let engine = app.services.quaymaster.engine();
    let (told, refused) =
        tokio::join!(app.probe.deployment(&**engine), app.probe.refused(&app.services.quaymaster));
    let health = engine.health();
    let facts = told.as_ref().ok();
    let thresholds = exceeded(&app.thresholds, &health, facts, &app.services.quaymaster, rights);
    let mut queues = queues::status(app).await;
    queues.retain(|queue| rights.reach(Kind::Queue, queue.name()));
    let mut runs = runs::status(app).await;
    runs.retain(|run| rights.reach(Kind::Run, run.name()));
    let mut stats = super::stats::status(app).await;
    stats.retain(|stats| rights.reach(Kind::Stats, stats.name()));
    let mut uploads = super::uploads::status(app).await;
    uploads.retain(|upload| rights.reach(Kind::Upload, upload.name()));
    let mut warnings: Vec<String> = thresholds.iter().map(Exceeded::sentence).collect();
    warnings.extend(refused.map(|problem| {
        format!("not ready: {}: {}; {}", problem.code, problem.detail, problem.code.advice())
    }));
    warnings.extend(general_warnings(app, rights, &health, facts));
    warnings.extend(queues::warnings(&queues));
    warnings.extend(runs::warnings(&runs));
    json(&Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: app.probe.started.elapsed().as_millis() as u64,
        store: StoreStatus::new(&health, &told),
        outages: outages(app, rights).await,
        warnings,
        thresholds,
        limits: limits(app, rights),
        caches: caches(app, rights),
        queues,
        runs,
        stats,
        uploads,
        resources: resources(app, rights),
    })
}

/// What is to be said of the store and of the schema as a whole. Findings about the schema name resources: they are for
/// those who reach all of them.
fn general_warnings(
    app: &App,
    rights: Rights<'_>,
    health: &Health,
    facts: Option<&Deployment>,
) -> Vec<String> {
    let quaymaster = &app.services.quaymaster;
    let mut warnings: Vec<String> = clock_warning(health, facts).into_iter().collect();
    let unsealed =
        doctor::unsealed(quaymaster.schema()).filter(|_| rights.reach_all() && !quaymaster.seals());
    warnings.extend(unsealed.map(|finding| format!("{}; {}", finding.message, finding.fix)));
    let policy = facts.and_then(|facts| facts.eviction_policy.as_deref()).filter(|_| rights.reach_all());
    let evicts = policy.and_then(|policy| doctor::evicts(quaymaster.schema(), policy, Eviction::Accepted));
    warnings.extend(evicts.map(|finding| format!("{}; {}", finding.message, finding.fix)));
    warnings
}

fn limits(app: &App, rights: Rights<'_>) -> Vec<LimitStatus> {
    let limits = app.services.quaymaster.limits().filter(|limit| rights.reach(Kind::Limit, limit.name()));
    let shown = limits.map(|limit| LimitStatus {
        name: limit.name().to_owned(),
        algorithm: limit.spec().algorithm.name(),
        limit: limit.spec().effective(),
        window_ms: limit.spec().window.as_millis() as u64,
        allowed: limit.counts().allowed(),
        limited: limit.counts().limited(),
        errors: limit.counts().errors(),
        stale: limit.counts().stale(),
    });
    let mut limits: Vec<LimitStatus> = shown.collect();
    limits.sort_by(|a, b| a.name.cmp(&b.name));
    limits
}

fn resources(app: &App, rights: Rights<'_>) -> Vec<ResourceStatus> {
    let key = |row: &quaymaster::schema::KeyRow| KeyStatus {
        role: row.role,
        pattern: row.pattern.text().to_owned(),
        r#type: row.kind.name(),
        ttl: row.ttl.to_string(),
    };
    app.services
        .quaymaster
        .schema()
        .resources()
        .filter(|resource| rights.reach(resource.kind, &resource.name))
        .map(|resource| ResourceStatus {
            kind: resource.kind.name(),
            name: resource.name.clone(),
            document: resource.document.clone(),
            owner: resource.owner.clone(),
            description: resource.description.clone(),
            keys: resource.keys.iter().map(key).collect(),
        })
        .collect()
}
