//! `always`: acknowledged after the disk. One caller beside the bare disk, many beside Redis with the
//! same promise.

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::drive::{Load, drive};
use crate::ours::{Durability, Limiter};
use crate::peer::disk::{Shape, fdatasync};
use crate::process::Redis;
use crate::sample::Sample;
use crate::{Findings, Settings};

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let (folder, data) = (settings.folder()?, settings.folder()?);
    let store = Limiter::disk(runtime, data.path(), Durability::Always)?;
    let contest = |theirs: &str, concurrency, target| Contest {
        family: "always",
        op: "limit take fixed_window".into(),
        ours: "embedded, always".into(),
        theirs: theirs.into(),
        concurrency,
        target,
    };
    let side = |limiter: &Limiter, tasks, processes: &[(&'static str, u32)]| -> Result<Sample> {
        let limiter = limiter.clone();
        let load = Load { tasks, keys: settings.keys, lasting: settings.lasting() };
        drive(runtime, load, processes, move |caller| limiter.clone().take(caller))
    };
    for (name, shape, target) in [
        ("write + fdatasync, growing file", Shape::Growing, Some(0.8)),
        ("write + fdatasync, file of full length", Shape::Filled, None),
    ] {
        findings.outcomes.push(contest(name, 1, target).run(
            settings,
            || side(&store, 1, &[]),
            || fdatasync(folder.path(), shape, settings.lasting()),
        )?);
    }
    let redis = Redis::start(folder.path(), ["--appendonly", "yes", "--appendfsync", "always"])?;
    let setting: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("appendfsync").query(&mut redis.connect()?)?;
    ensure!(setting.last().is_some_and(|value| value == "always"), "Redis is not on always: {setting:?}");
    let on_redis = Limiter::redis(runtime, &redis)?;
    for (tasks, target) in [(64, Some(1.0)), (1, None)] {
        findings.outcomes.push(contest("crate on Redis, appendfsync always", tasks, target).run(
            settings,
            || side(&store, tasks, &[]),
            || side(&on_redis, tasks, &[("redis", redis.pid())]),
        )?);
    }
    store.close(runtime)
}
