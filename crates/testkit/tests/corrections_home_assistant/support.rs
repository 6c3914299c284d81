//! The bundled system on a server of its own, and the documented commands of a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::Quaymaster;
use quaymaster::schema::{BUNDLED, Source, load};
use quaymaster::stats::{Endpoint, Record, Recorder, Report, ReportAsk, Request, Seen};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::RedisServer;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// The hour in which the documented examples happen.
pub(crate) const HOUR_MS: &str = "1672531200000";

pub(crate) fn home_assistant() -> &'static str {
    let (_, text) =
        BUNDLED.iter().find(|(name, _)| name.contains("home-assistant")).expect("the system is bundled");
    text
}

/// The system with more lines for `stats.ha`; what it has of the same name goes.
pub(crate) fn stats_with(lines: &str) -> String {
    let named = |line: &str| line.split('=').next().map(str::trim).unwrap_or_default().to_owned();
    let given: Vec<String> = lines.lines().map(named).collect();
    let mut text = String::new();
    let mut inside = false;
    for line in home_assistant().lines() {
        if line.starts_with('[') {
            inside = line == "[stats.ha]";
        }
        if !(inside && given.contains(&named(line))) {
            text.push_str(line);
            text.push('\n');
        }
        if line == "[stats.ha]" {
            text.push_str(lines);
            text.push('\n');
        }
    }
    text
}

/// A node on the store at `url`, which may be a proxy's.
pub(crate) async fn bind(url: &str, text: &str, env: &[(&str, &str)]) -> Quaymaster {
    let lookup =
        |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let loaded = load(&[Source { name: "home-assistant.toml", text }], &lookup);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let options = RedisOptions::from_url(url).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    Quaymaster::new(Arc::new(schema), Arc::new(engine))
}

pub(crate) async fn ours(server: &RedisServer) -> Quaymaster {
    bind(&server.url(), home_assistant(), &[]).await
}

/// The integer at a key; 0 when there is none.
pub(crate) fn number(server: &RedisServer, key: &str) -> i64 {
    server.command::<Option<i64>>(&["GET", key]).unwrap_or(0)
}

/// How many keys begin so.
pub(crate) fn keys(server: &RedisServer, prefix: &str) -> usize {
    server.command::<Vec<String>>(&["KEYS", &format!("{prefix}*")]).len()
}

/// Looks until there is something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "waited too long until {what}");
        tokio::time::sleep(GLANCE).await;
    }
}

/// A request that somebody served.
#[derive(Debug, Clone)]
pub(crate) struct Took {
    instance: String,
    path: String,
    elapsed: Duration,
}

impl Took {
    /// `GET`, answered with 200.
    pub(crate) fn get(instance: &str, path: &str, ms: f64) -> Self {
        Self {
            instance: instance.to_owned(),
            path: path.to_owned(),
            elapsed: Duration::from_secs_f64(ms / 1000.0),
        }
    }
}

/// Records all of them in one call.
pub(crate) async fn record(quaymaster: &Quaymaster, took: &[Took]) {
    let requests: Vec<Request<'_>> = took
        .iter()
        .map(|took| Request {
            instance: &took.instance,
            method: "GET",
            path: &took.path,
            status: 200,
            elapsed: took.elapsed,
            remote: Some("192.168.1.100"),
            accepted: None,
        })
        .collect();
    let stats = quaymaster.stats("ha").expect("declared");
    let recorded = stats.record(Record { requests: &requests, ..Record::default() }).await.expect("recorded");
    assert_eq!(recorded.recorded, took.len() as u64);
}

/// An instance tells how many connections it has.
pub(crate) async fn connections(quaymaster: &Quaymaster, instance: &str, open: u64) {
    let stats = quaymaster.stats("ha").expect("declared");
    let record = Record { connections: &[(instance, open)], ..Record::default() };
    let _ = stats.record(record).await.expect("recorded");
}

/// A request that this process served.
pub(crate) fn seen(recorder: &Recorder, route: &str, status: u16, ms: u64) {
    let elapsed = Duration::from_millis(ms);
    recorder.record(&Seen {
        method: &axum::http::Method::GET,
        route: Some(route),
        status,
        elapsed,
        accepted: true,
    });
}

pub(crate) async fn report(quaymaster: &Quaymaster) -> Report {
    let stats = quaymaster.stats("ha").expect("declared");
    stats.report(ReportAsk::default()).await.expect("a report")
}

/// What the report says of one endpoint.
pub(crate) async fn report_of(quaymaster: &Quaymaster, endpoint: &str) -> Endpoint {
    let report = report(quaymaster).await;
    let found = report.endpoints.iter().find(|one| one.name == endpoint).cloned();
    found.unwrap_or_else(|| panic!("{endpoint} is not in {report:?}"))
}
