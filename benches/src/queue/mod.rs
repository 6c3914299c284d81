//! Queues beside BullMQ, bee-queue and bare lists on one Redis with AOF everysec, and events to many readers.

pub(crate) mod fanout;
mod node;
mod ours;

use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::fact::Fact;
use crate::ours::Durability;
use crate::process::Redis;
use crate::sample::Sample;
use crate::{Findings, Settings};
use node::{Peer, Work};
use ours::Ours;

/// The schema of our side; `feed` is what the WebSocket readers read.
const SCHEMA: &str = include_str!("../../queue.toml");
/// What every job carries, on every side.
const PAYLOAD: &str = r#"{"camera_id":"front_door","file_path":"/export/front door/image_001.jpg","timestamp":"2026-01-24T10:30:00.000000"}"#;
/// Jobs in one bulk push.
const BATCH: usize = 1_000;
/// Handlers at once.
const HANDLERS: usize = 100;
/// Callers that push one job at a time.
const PUSHERS: usize = 64;
/// Jobs a second of the latency runs.
const RATE: u64 = 1_000;
/// Takers of the bare list: each is a connection, and more of them are slower.
const TAKERS: usize = 16;

pub(crate) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let (_folder, redis, on_redis) = start(settings, runtime)?;
    beside_peers(settings, runtime, &redis, &on_redis, findings)?;
    memory(settings, runtime, &redis, &on_redis, findings)
}

fn start(settings: &Settings, runtime: &Runtime) -> Result<(tempfile::TempDir, Redis, Ours)> {
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), ["--appendonly", "yes", "--appendfsync", "everysec"])?;
    let ours = Ours::redis(runtime, &redis)?;
    Ok((folder, redis, ours))
}

fn contest(op: &str, ours: &str, theirs: &str, concurrency: usize, target: Option<f64>) -> Contest {
    Contest { family: "queue", op: op.into(), ours: ours.into(), theirs: theirs.into(), concurrency, target }
}

fn beside_peers(
    settings: &Settings,
    runtime: &Runtime,
    redis: &Redis,
    ours: &Ours,
    findings: &mut Findings,
) -> Result<()> {
    let lasting = settings.lasting();
    let work = |run, tasks| Work { run, tasks, batch: BATCH, jobs: settings.jobs, lasting, rate: RATE };
    // What is promised against whom: pushes ahead of both queues, five and three times from claim to ack, and no
    // slower end to end than lists that lose a job with its taker.
    let rows: [(&str, &'static str, usize, [Option<f64>; 3]); 5] = [
        ("push", "push", PUSHERS, [Some(1.0), Some(1.0), None]),
        ("push, 1,000 at once", "bulk", 1, [Some(1.0), Some(1.0), None]),
        ("claim to ack of waiting jobs", "work", HANDLERS, [Some(5.0), Some(3.0), None]),
        ("push to ack", "both", HANDLERS, [None, None, Some(1.0)]),
        ("push to handler at 1,000/s", "steady", HANDLERS, [None, None, None]),
    ];
    for (op, run, tasks, targets) in rows {
        for (peer, target) in [Peer::BullMq, Peer::Bee, Peer::List].into_iter().zip(targets) {
            let theirs = if peer == Peer::List && tasks == HANDLERS { TAKERS } else { tasks };
            findings.outcomes.push(contest(op, "crate on Redis", peer.title(), tasks, target).run(
                settings,
                || {
                    redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()?)?;
                    ours.run(runtime, work(run, tasks), &[("redis", redis.pid())]).map(with_median)
                },
                || peer.run(redis, &settings.node, work(run, theirs)).map(with_median),
            )?);
        }
    }
    Ok(())
}

/// The table has a column for the 99th percentile only.
fn with_median(sample: Sample) -> Sample {
    match sample.latency {
        Some(latency) => sample.note("p50_ms", format_args!("{:.3}", latency.p50_ms)),
        None => sample,
    }
}

/// What Redis holds for one waiting job.
fn memory(
    settings: &Settings,
    runtime: &Runtime,
    redis: &Redis,
    ours: &Ours,
    findings: &mut Findings,
) -> Result<()> {
    let fill =
        Work { run: "fill", tasks: 1, batch: BATCH, jobs: settings.jobs, lasting: Duration::ZERO, rate: 0 };
    let used = || -> Result<u64> {
        let info: String = redis::cmd("INFO").arg("memory").query(&mut redis.connect()?)?;
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(line.unwrap_or_default().trim().parse()?)
    };
    let mut per_job = |name: &str, filling: &mut dyn FnMut() -> Result<Sample>| -> Result<()> {
        redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()?)?;
        let before = used()?;
        filling()?;
        let bytes = (used()? - before) as f64 / settings.jobs as f64;
        let what = format!("Redis memory per waiting job of {} bytes, {name}", PAYLOAD.len());
        findings.facts.push(Fact::new("queue", what, "bytes", [bytes]));
        Ok(())
    };
    per_job("ours", &mut || ours.run(runtime, fill, &[]))?;
    for peer in [Peer::BullMq, Peer::Bee, Peer::List] {
        per_job(peer.title(), &mut || peer.run(redis, &settings.node, fill))?;
    }
    Ok(())
}

pub(crate) fn embedded(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let (_folder, _redis, on_redis) = start(settings, runtime)?;
    let (everysec, always) = (settings.folder()?, settings.folder()?);
    let stores = [
        ("embedded, in memory", Ours::memory(runtime)?),
        ("embedded, everysec", Ours::disk(runtime, everysec.path(), Durability::EverySec)?),
        ("embedded, always", Ours::disk(runtime, always.path(), Durability::Always)?),
    ];
    let lasting = settings.lasting();
    for (name, store) in &stores {
        for (op, run, tasks) in [
            ("push", "push", PUSHERS),
            ("claim to ack of waiting jobs", "work", HANDLERS),
            ("push to ack", "both", HANDLERS),
        ] {
            let work = Work { run, tasks, batch: BATCH, jobs: settings.jobs, lasting, rate: RATE };
            findings.outcomes.push(contest(op, name, "crate on Redis, AOF everysec", tasks, None).run(
                settings,
                || store.run(runtime, work, &[]),
                || on_redis.run(runtime, work, &[]),
            )?);
        }
    }
    for (_, store) in stores {
        store.close(runtime)?;
    }
    Ok(())
}
