//! rate-limiter-flexible on Node: the limiter most services of that world use.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cpu::{Own, Watch};
use crate::process::{Redis, output};
use crate::sample::{Latency, Sample};

#[derive(Debug, Deserialize)]
struct Figures {
    n: u64,
    seconds: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    client_cpu: String,
}

/// Checks over `keys` callers with `tasks` calls in flight; none is refused.
pub(crate) fn rate_limiter_flexible(
    redis: &Redis,
    modules: &Path,
    tasks: usize,
    keys: u64,
    lasting: Duration,
) -> Result<Sample> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/limiter.mjs");
    let watch = Watch::start(&[("redis", redis.pid())]);
    let printed = output(
        Command::new("node")
            .arg(script)
            .env("NODE_MODULES", modules)
            .env("REDIS_PORT", redis.port.to_string())
            .env("TASKS", tasks.to_string())
            .env("KEYS", keys.to_string())
            .env("SECONDS", lasting.as_secs_f64().to_string()),
    )?;
    let figures: Figures =
        serde_json::from_str(&printed).with_context(|| format!("not figures: {printed}"))?;
    ensure!(figures.n > 0, "rate-limiter-flexible made no call");
    let mut sample = Sample::new(figures.n, Duration::from_secs_f64(figures.seconds));
    sample.latency = Some(Latency { p50_ms: figures.p50_ms, p95_ms: figures.p95_ms, p99_ms: figures.p99_ms });
    sample = sample.note("client_cpu", figures.client_cpu);
    // Over the whole life of the process: Node's start and the warm-up are in it, so the share is a little too
    // low and the time per call a little too high.
    Ok(watch.note(sample, Own::Idle))
}
