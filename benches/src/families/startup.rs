//! Opening the embedded store with a million keys, beside Redis loading the same keys.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::fact::Fact;
use crate::ours::{Durability, Limiter};
use crate::process::{Redis, output};
use crate::{Findings, Settings};

/// What opening cost, as the child process prints it.
#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    seconds: f64,
    resident_bytes: u64,
    grown_bytes: u64,
}

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let many = settings.many;
    let data = settings.folder()?;
    let began = Instant::now();
    let store = Limiter::disk(runtime, data.path(), Durability::EverySec)?;
    store.fill(runtime, many)?;
    store.close(runtime)?;
    eprintln!("startup: {many} keys written in {:.1} s", began.elapsed().as_secs_f64());

    let mut runs = Vec::new();
    for _ in 0..settings.pairs {
        let printed = output(Command::new(std::env::current_exe()?).arg("--open").arg(data.path()))?;
        let opened: Opened =
            serde_json::from_str(&printed).with_context(|| format!("not figures: {printed}"))?;
        runs.push(opened);
    }
    let mut fact = |what: &str, unit, of: &dyn Fn(&Opened) -> f64| {
        let what = format!("embedded, {many} keys: {what}");
        findings.facts.push(Fact::new("startup", what, unit, runs.iter().map(of)));
    };
    fact("open to first answer", "s", &|opened| opened.seconds);
    fact("resident after opening", "MiB", &|opened| opened.resident_bytes as f64 / 1_048_576.0);
    fact("memory per key", "bytes", &|opened| opened.grown_bytes as f64 / many as f64);
    findings.facts.push(Fact::new(
        "startup",
        format!("embedded, {many} keys: on disk"),
        "MiB",
        [folder_bytes(data.path())? as f64 / 1_048_576.0],
    ));
    redis_beside(settings, runtime, findings)
}

/// The same keys in Redis, loaded from its append-only file.
fn redis_beside(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let many = settings.many;
    let folder = settings.folder()?;
    let persistent = ["--appendonly", "yes"];
    {
        let redis = Redis::start(folder.path(), persistent)?;
        Limiter::redis(runtime, &redis)?.fill(runtime, many)?;
        // NOSAVE would lose the last second; a plain SHUTDOWN flushes the file. It answers by closing.
        let _: Result<(), _> = redis::cmd("SHUTDOWN").query(&mut redis.connect()?);
    }
    let (mut seconds, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..settings.pairs {
        let began = Instant::now();
        let redis = Redis::start(folder.path(), persistent)?;
        let mut connection = redis.connect()?;
        // It listens while it loads and answers LOADING until it is done.
        let held: u64 = loop {
            match redis::cmd("DBSIZE").query(&mut connection) {
                Ok(held) => break held,
                Err(error) if error.code() == Some("LOADING") => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        };
        seconds.push(began.elapsed().as_secs_f64());
        ensure!(held >= many, "Redis came back with {held} keys of {many}");
        resident.push(resident_bytes(redis.pid())? as f64 / 1_048_576.0);
    }
    let what = |what: &str| format!("Redis, {many} keys, append-only file: {what}");
    findings.facts.push(Fact::new("startup", what("start to first answer"), "s", seconds));
    findings.facts.push(Fact::new("startup", what("resident after loading"), "MiB", resident));
    Ok(())
}

/// The child's part: open, answer once, say what it cost.
pub(crate) fn open(runtime: &Runtime, folder: &Path) -> Result<()> {
    let before = resident_bytes(std::process::id())?;
    let began = Instant::now();
    let store = Limiter::disk(runtime, folder, Durability::EverySec)?;
    runtime.block_on(store.clone().take(0))?;
    let seconds = began.elapsed().as_secs_f64();
    let resident = resident_bytes(std::process::id())?;
    let opened = Opened { seconds, resident_bytes: resident, grown_bytes: resident.saturating_sub(before) };
    println!("{}", serde_json::to_string(&opened)?);
    store.close(runtime)
}

fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().next().context("an empty VmRSS")?.parse()?;
    Ok(kib * 1024)
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { folder_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}
