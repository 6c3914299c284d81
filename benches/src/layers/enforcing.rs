//! Enforcing a limit per caller's address: in process beside `tower_governor`, on Redis beside rate-limiter-flexible.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::body::Body;
use http::{Request, Response};
use quaymaster::layer::{LimitLayer, LimitService};
use quaymaster::schema::{Source, load};
use quaymaster::{Engine, Quaymaster};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use tokio::runtime::Runtime;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_layer::Layer as _;
use tower_service::Service;

use super::handler::{Handler, request};
use crate::contest::Contest;
use crate::drive::{Load, drive};
use crate::ours::memory_engine;
use crate::peer::node;
use crate::process::Redis;
use crate::{Findings, Settings};

/// One limit, never reached. The same arithmetic as the peer's: a bucket that fills up evenly.
const SCHEMA: &str = r#"
[schema]
name = "enforcing"
owner = "bench"

[limit.callers]
key = "callers:{address}"
algorithm = "token_bucket"
limit = 1_000_000
window = "1s"

[limit.counted]
key = "counted:{address}"
algorithm = "fixed_window"
limit = 1_000_000_000
window = "365d"
"#;

fn layered(engine: Arc<dyn Engine>, limit: &str) -> Result<LimitService<Handler>> {
    let loaded = load(&[Source { name: "enforcing.toml", text: SCHEMA }], &|_| None);
    let schema = loaded.schema.with_context(|| format!("{:?}", loaded.diagnostics))?;
    let limit = Quaymaster::new(Arc::new(schema), engine).limit(limit)?.clone();
    Ok(LimitLayer::by_address(limit)?.layer(Handler))
}

/// One request of one caller, which must pass.
async fn pass<S, R>(mut service: S, caller: u64) -> Result<()>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
{
    let Ok(response) = service.call(request(caller)?).await;
    ensure!(response.status() == 200, "answered {}", response.status());
    Ok(())
}

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    in_process(settings, runtime, findings)?;
    on_redis(settings, runtime, findings)
}

/// Both in memory: theirs knows one process, ours is the store that several processes share.
fn in_process(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let engine = memory_engine(runtime)?;
    let ours = layered(engine.clone(), "callers")?;
    let governed = GovernorConfigBuilder::default()
        .per_nanosecond(1000)
        .burst_size(1_000_000)
        .use_headers()
        .finish()
        .context("a configuration")?;
    let theirs = GovernorLayer::new(governed).layer(Handler);
    let load = Load { tasks: 1, keys: settings.keys, lasting: settings.lasting() };
    let contest = Contest {
        family: "layers",
        op: "a request through the limit, headers included".into(),
        ours: "LimitLayer, embedded in memory".into(),
        theirs: "tower_governor".into(),
        concurrency: 1,
        target: None,
    };
    let outcome = contest.run(
        settings,
        || {
            let ours = ours.clone();
            drive(runtime, load, &[], move |caller| pass(ours.clone(), caller))
        },
        || {
            let theirs = theirs.clone();
            drive(runtime, load, &[], move |caller| pass(theirs.clone(), caller))
        },
    )?;
    findings.outcomes.push(outcome);
    runtime.block_on(engine.close())?;
    Ok(())
}

/// Both on one Redis, 64 requests at once.
fn on_redis(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    const TASKS: usize = 64;
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let options = RedisOptions::from_url(&redis.url())?;
    let engine: Arc<dyn Engine> = Arc::new(runtime.block_on(RedisStore::connect(options))?);
    let ours = layered(engine.clone(), "counted")?;
    let load = Load { tasks: TASKS, keys: settings.keys, lasting: settings.lasting() };
    let processes = [("redis", redis.pid())];
    let contest = Contest {
        family: "layers",
        op: "a request through the limit, headers included".into(),
        ours: "LimitLayer on Redis".into(),
        theirs: "rate-limiter-flexible, no request around it".into(),
        concurrency: TASKS,
        target: Some(1.5),
    };
    let outcome = contest.run(
        settings,
        || {
            let ours = ours.clone();
            drive(runtime, load, &processes, move |caller| pass(ours.clone(), caller))
        },
        || node::rate_limiter_flexible(&redis, &settings.node, TASKS, settings.keys, settings.lasting()),
    )?;
    findings.outcomes.push(outcome);
    runtime.block_on(engine.close())?;
    Ok(())
}
