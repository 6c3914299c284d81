//! `wrk`: 64 keep-alive connections on an HTTP server, ours or webdis.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cpu::{Own, Watch};
use crate::process::output;
use crate::sample::{Latency, Sample};

#[derive(Debug, Deserialize)]
struct Figures {
    n: u64,
    seconds: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    bad: u64,
}

/// One prepared request: method, path and body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: String,
}

/// Sends `requests` in turn from 64 connections; an answer other than 2xx or 3xx fails the run.
pub(crate) fn load(
    port: u16,
    requests: &[Request],
    processes: &[(&'static str, u32)],
    lasting: Duration,
) -> Result<Sample> {
    let mut list = tempfile::NamedTempFile::new()?;
    for Request { method, path, body } in requests {
        writeln!(list, "{method} {path} {body}")?;
    }
    list.flush()?;
    run(port, list.path(), 1)?;
    let watch = Watch::start(processes);
    let figures = run(port, list.path(), lasting.as_secs().max(1))?;
    ensure!(figures.bad == 0, "{} of {} answers were bad", figures.bad, figures.n);
    let mut sample = Sample::new(figures.n, Duration::from_secs_f64(figures.seconds));
    sample.latency = Some(Latency { p50_ms: figures.p50_ms, p95_ms: figures.p95_ms, p99_ms: figures.p99_ms });
    Ok(watch.note(sample, Own::Idle))
}

fn run(port: u16, requests: &Path, seconds: u64) -> Result<Figures> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/load.lua");
    let printed = output(
        Command::new("wrk")
            .args(["-t1", "-c64", "--latency", &format!("-d{seconds}s"), "-s"])
            .arg(script)
            .arg(format!("http://127.0.0.1:{port}"))
            .env("REQUESTS", requests),
    )?;
    let line = printed.lines().find(|line| line.starts_with('{')).context("wrk printed no figures")?;
    serde_json::from_str(line).with_context(|| format!("not figures: {line}"))
}
