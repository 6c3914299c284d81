//! Whether a take costs the same among a million callers as among a thousand.

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::drive::{Load, drive};
use crate::ours::Limiter;
use crate::process::Redis;
use crate::{Findings, Settings};

const FEW: u64 = 1_000;
/// The cost may grow by this factor, so the rate may fall to its inverse.
const GROWTH: f64 = 1.3;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let many = settings.many;
    let (few, all) = (Limiter::memory(runtime)?, Limiter::memory(runtime)?);
    compare(settings, runtime, findings, "embedded, in memory", 1, (&all, many), (&few, FEW))?;
    few.close(runtime)?;
    all.close(runtime)?;

    let (folder, other) = (settings.folder()?, settings.folder()?);
    let few = Redis::start(folder.path(), None::<&str>)?;
    let all = Redis::start(other.path(), None::<&str>)?;
    let (on_few, on_all) = (Limiter::redis(runtime, &few)?, Limiter::redis(runtime, &all)?);
    compare(settings, runtime, findings, "crate on Redis", 64, (&on_all, many), (&on_few, FEW))
}

fn compare(
    settings: &Settings,
    runtime: &Runtime,
    findings: &mut Findings,
    store: &str,
    tasks: usize,
    (all, many): (&Limiter, u64),
    (few, handful): (&Limiter, u64),
) -> Result<()> {
    all.fill(runtime, many)?;
    few.fill(runtime, handful)?;
    let contest = Contest {
        family: "keys",
        op: "limit take fixed_window".into(),
        ours: format!("{store}, {many} callers"),
        theirs: format!("{store}, {handful} callers"),
        concurrency: tasks,
        target: Some(1.0 / GROWTH),
    };
    let side = |limiter: &Limiter, keys| {
        let limiter = limiter.clone();
        let load = Load { tasks, keys, lasting: settings.lasting() };
        drive(runtime, load, &[], move |caller| limiter.clone().take(caller))
    };
    findings.outcomes.push(contest.run(settings, || side(all, many), || side(few, handful))?);
    Ok(())
}
