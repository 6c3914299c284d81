//! The embedded store beside the same crate on Redis: what leaving the process costs.

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::drive::{Load, drive};
use crate::ours::{Durability, Limiter};
use crate::process::Redis;
use crate::{Findings, Settings};

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let (folder, data) = (settings.folder()?, settings.folder()?);
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let on_redis = Limiter::redis(runtime, &redis)?;
    let stores = [
        ("embedded, in memory", Limiter::memory(runtime)?),
        ("embedded, everysec", Limiter::disk(runtime, data.path(), Durability::EverySec)?),
    ];
    for (name, store) in &stores {
        for (tasks, target) in [(1, 10.0), (64, 1.5)] {
            let load = Load { tasks, keys: settings.keys, lasting: settings.lasting() };
            let contest = Contest {
                family: "embedded",
                op: "limit take fixed_window".into(),
                ours: (*name).into(),
                theirs: "crate on Redis".into(),
                concurrency: tasks,
                target: Some(target),
            };
            let side = |limiter: &Limiter, processes: &[(&'static str, u32)]| {
                let limiter = limiter.clone();
                drive(runtime, load, processes, move |caller| limiter.clone().take(caller))
            };
            findings.outcomes.push(contest.run(
                settings,
                || side(store, &[]),
                || side(&on_redis, &[("redis", redis.pid())]),
            )?);
        }
    }
    for (_, store) in stores {
        store.close(runtime)?;
    }
    Ok(())
}
