//! The same requests recorded by the document's separate commands and by the recorder: round trips and bytes that
//! Redis sees for one request. Counts, not times: the same on a busy machine.

mod documented;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::stats::Seen;
use quaymaster_store::redis::{RedisOptions, RedisStore};
use tokio::runtime::Runtime;

use crate::fact::Fact;
use crate::process::Redis;
use crate::psp::witness;
use crate::{Findings, Settings};
use documented::Way;

/// Requests of the documented ways; the figures are per request and do not depend on how many.
const REQUESTS: u64 = 2_000;
/// Requests a second of the recorder's runs: it flushes once a second, so the rate is what matters.
const RATES: [u64; 3] = [100, 1_000, 10_000];
const ROUTES: u64 = 20;

const SCHEMA: &str = "[schema]\nname = \"bench\"\nowner = \"benches\"\nprefix = \"ha:\"\n[stats.ha]\n";

/// One request of the traffic: twenty routes, one in twenty an error, times with a long tail.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    random: fastrand::Rng,
}

#[derive(Debug)]
pub(crate) struct Served {
    route: String,
    status: u16,
    elapsed: Duration,
}

impl Traffic {
    fn new() -> Self {
        Self { random: fastrand::Rng::with_seed(7) }
    }

    fn next(&mut self) -> Served {
        let route = format!("/api/things{}/{{id}}", self.random.u64(..ROUTES));
        let status = if self.random.u64(..20) == 0 { 500 } else { 200 };
        let micros = 500.0 * (self.random.f64() * 6.0).exp();
        Served { route, status, elapsed: Duration::from_micros(micros as u64) }
    }
}

/// What Redis counted in a while.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    round_trips: f64,
    bytes_in: f64,
    bytes_out: f64,
}

/// Bytes that Redis has read and written so far.
fn bytes(redis: &Redis) -> Result<(u64, u64)> {
    let info: String = redis::cmd("INFO").arg("stats").query(&mut redis.connect()?)?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse::<u64>().ok()).with_context(|| format!("no {name}"))
    };
    Ok((field("total_net_input_bytes")?, field("total_net_output_bytes")?))
}

/// Runs twice: once for the bytes, once under MONITOR for the round trips, of which `waits` names the commands; all
/// but the setting up of connections without it.
fn cost(
    redis: &Redis,
    requests: u64,
    waits: Option<&str>,
    mut run: impl FnMut() -> Result<()>,
) -> Result<Cost> {
    // What looking costs is not part of it.
    let (nothing, looked) = (bytes(redis)?, bytes(redis)?);
    let before = bytes(redis)?;
    run()?;
    let after = bytes(redis)?;
    let ((), commands) = witness::listen(redis, run)?;
    let about = ["info", "client", "hello", "ping", "select", "command"];
    let counts = |name: &str| waits.map_or(!about.contains(&name), |waits| name == waits);
    let sent: u64 = commands.iter().filter(|(name, _)| counts(name)).map(|(_, count)| count).sum();
    let each = |before: u64, after: u64, looking: u64| (after - before - looking) as f64 / requests as f64;
    Ok(Cost {
        round_trips: sent as f64 / requests as f64,
        bytes_in: each(before.0, after.0, looked.0 - nothing.0),
        bytes_out: each(before.1, after.1, looked.1 - nothing.1),
    })
}

/// Requests at a steady rate for a while, all of them in the store at the end.
async fn record(quaymaster: &Quaymaster, rate: u64, seconds: u64) -> Result<()> {
    let recorder = quaymaster.stats("ha")?.recorder("bench");
    let mut traffic = Traffic::new();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..seconds * 10 {
        tick.tick().await;
        for _ in 0..rate / 10 {
            let Served { route, status, elapsed } = traffic.next();
            let seen = Seen { method: &Method::GET, route: Some(&route), status, elapsed, accepted: true };
            recorder.record(&seen);
        }
    }
    recorder.shutdown().await;
    Ok(())
}

pub(crate) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let folder = settings.folder()?;
    let mut table = String::from(
        "\n| recorded | requests a second | round trips a request | bytes to Redis | bytes from Redis |\n\
         |---|--:|--:|--:|--:|\n",
    );
    let mut row = |name: &str, rate: &str, cost: Cost| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {name} | {rate} | {:.4} | {:.1} | {:.1} |",
            cost.round_trips, cost.bytes_in, cost.bytes_out
        );
    };
    for way in [Way::Separate, Way::Transaction] {
        let redis = Redis::start(folder.path(), None::<&str>)?;
        let cost = cost(&redis, REQUESTS, way.waits_for(), || {
            documented::record(&redis, way, Traffic::new(), REQUESTS)
        })?;
        check_total(&redis, 2 * REQUESTS)?;
        row(way.name(), "any", cost);
    }
    let seconds = (settings.seconds.ceil() as u64).max(3);
    for rate in RATES {
        let redis = Redis::start(folder.path(), None::<&str>)?;
        let schema =
            load(&[Source { name: "stats.toml", text: SCHEMA }], &|_| None).schema.context("a schema")?;
        let engine = runtime.block_on(RedisStore::connect(RedisOptions::from_url(&redis.url())?))?;
        let quaymaster = Quaymaster::new(Arc::new(schema), Arc::new(engine));
        // Scripts are loaded once in a store's life.
        runtime.block_on(record(&quaymaster, 10, 1))?;
        let requests = rate * seconds;
        let cost = cost(&redis, requests, None, || runtime.block_on(record(&quaymaster, rate, seconds)))?;
        check_total(&redis, 10 + 2 * requests)?;
        row("by the recorder", &crate::report::grouped(rate), cost);
        let what = format!("round trips of a thousand recorded requests, {rate} a second");
        let fact = Fact::new("stats", what, "round trips", [cost.round_trips * 1000.0]);
        // One flush a second is all there is to save: at a hundred requests a second that is one in a hundred.
        findings.facts.push(if rate > 100 { fact.at_most(10.0) } else { fact });
        runtime.block_on(quaymaster.engine().close())?;
    }
    findings.sections.push(table);
    Ok(())
}

/// Cheap figures of requests that were not counted would be no figures.
fn check_total(redis: &Redis, expected: u64) -> Result<()> {
    let total: u64 = redis::cmd("GET").arg("ha:requests:total").query(&mut redis.connect()?)?;
    ensure!(total == expected, "{total} of {expected} requests are counted");
    Ok(())
}
