//! Queues on Node: bare lists, BullMQ, bee-queue.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::PAYLOAD;
use crate::cpu::{Own, Watch};
use crate::process::{Redis, output};
use crate::sample::{Latency, Sample};

/// Who is measured beside us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// RPUSH and BLPOP by ioredis: a consumer that dies loses its job.
    List,
    BullMq,
    Bee,
}

/// What is measured of it; the fields not used by a run are left at zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) run: &'static str,
    pub(super) tasks: usize,
    pub(super) batch: usize,
    pub(super) jobs: u64,
    pub(super) lasting: Duration,
    pub(super) rate: u64,
}

#[derive(Debug, Deserialize)]
struct Figures {
    n: u64,
    seconds: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    client_cpu: String,
}

impl Peer {
    pub(super) fn title(self) -> &'static str {
        match self {
            Peer::List => "RPUSH/BLPOP by ioredis, nothing safe",
            Peer::BullMq => "BullMQ",
            Peer::Bee => "bee-queue",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Peer::List => "list",
            Peer::BullMq => "bullmq",
            Peer::Bee => "bee",
        }
    }

    /// One run on a Redis that holds nothing of a run before.
    pub(super) fn run(self, redis: &Redis, modules: &Path, work: Work) -> Result<Sample> {
        redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()?)?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/queues.mjs");
        let watch = Watch::start(&[("redis", redis.pid())]);
        let printed = output(
            Command::new("node")
                .arg(script)
                .env("NODE_MODULES", modules)
                .env("REDIS_PORT", redis.port.to_string())
                .env("PEER", self.word())
                .env("RUN", work.run)
                .env("PAYLOAD", PAYLOAD)
                .env("TASKS", work.tasks.to_string())
                .env("BATCH", work.batch.to_string())
                .env("JOBS", work.jobs.to_string())
                .env("SECONDS", work.lasting.as_secs_f64().to_string())
                .env("RATE", work.rate.to_string()),
        )?;
        let figures: Figures =
            serde_json::from_str(&printed).with_context(|| format!("not figures: {printed}"))?;
        ensure!(figures.n > 0, "{} did nothing", self.title());
        let mut sample = Sample::new(figures.n, Duration::from_secs_f64(figures.seconds));
        if let (Some(p50_ms), Some(p95_ms), Some(p99_ms)) = (figures.p50_ms, figures.p95_ms, figures.p99_ms) {
            sample.latency = Some(Latency { p50_ms, p95_ms, p99_ms });
        }
        sample = sample.note("client_cpu", figures.client_cpu);
        // Over the whole life of the process, filling and warm-up included: a little too high per job.
        Ok(watch.note(sample, Own::Idle))
    }
}
