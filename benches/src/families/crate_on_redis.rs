//! The crate on Redis, 64 tasks: how much of the bare script's rate is left, and how far ahead of the
//! limiter most services use.

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::drive::{Load, drive};
use crate::ours::Limiter;
use crate::peer::{node, redis_benchmark};
use crate::process::Redis;
use crate::recorder::Call;
use crate::{Findings, Settings};

const TASKS: usize = 64;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let limiter = Limiter::redis(runtime, &redis)?;
    let call = Call::of_take(runtime)?;
    let load = Load { tasks: TASKS, keys: settings.keys, lasting: settings.lasting() };
    let processes = [("redis", redis.pid())];
    let ours = || {
        let limiter = limiter.clone();
        drive(runtime, load, &processes, move |caller| limiter.clone().take(caller))
    };
    let contest = |theirs: &str, target| Contest {
        family: "redis",
        op: "limit take fixed_window".into(),
        ours: "crate on Redis".into(),
        theirs: theirs.into(),
        concurrency: TASKS,
        target: Some(target),
    };
    findings.outcomes.push(contest("redis-benchmark EVALSHA -c 64 -P 16", 0.85).run(
        settings,
        ours,
        || redis_benchmark::evalsha(&redis, &call, settings.keys, settings.lasting()),
    )?);
    findings.outcomes.push(contest("rate-limiter-flexible on ioredis", 1.5).run(settings, ours, || {
        node::rate_limiter_flexible(&redis, &settings.node, TASKS, settings.keys, settings.lasting())
    })?);
    let failed = redis.calls("evalsha")?.failed;
    // One miss per script and connection is how EVALSHA learns a script; more is a failure in disguise.
    ensure!(failed <= 64, "{failed} EVALSHA failed on the Redis of this family");
    Ok(())
}
