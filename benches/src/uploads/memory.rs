//! The server's resident memory while it takes one upload and while it takes many.

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use tokio::runtime::Runtime;

use super::load::Load;
use super::ours::{self, Place, Server};
use crate::fact::Fact;
use crate::process::Redis;
use crate::{Findings, Settings};

/// Uploads at once, one sender each; together they always send the same number of bytes.
const AT_ONCE: [u64; 3] = [1, 8, 64];
const TOTAL_MIB: u64 = 512;

/// The bytes in flight that are allowed, as the schema is told: all of them, so that 64 uploads come at once and nobody is
/// told to come again.
const IN_FLIGHT: &str = "512MiB";

/// What a server may have more than idle: an eighth of what is in flight.
const MOST_MIB: f64 = 64.0;

/// What counts as flat: so many times the memory of one upload.
const FLAT: f64 = 1.2;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let bound = ("UPLOAD_MAX_BYTES_IN_FLIGHT", IN_FLIGHT.to_owned());
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let embedded = Place { environment: vec![bound], ..Place::default() };
    let on_redis = Place { store: Some(redis.url()), ..embedded.clone() };
    for (name, place) in [("embedded, spooled", &embedded), ("on Redis, chunks through it", &on_redis)] {
        let mut peaks = AT_ONCE.map(|_| Vec::new());
        let mut least = f64::INFINITY;
        for _ in 0..settings.pairs.max(1) {
            for (uploads, peaks) in AT_ONCE.iter().zip(&mut peaks) {
                redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()?)?;
                let (idle, peak) = resident(settings, runtime, place, *uploads)?;
                eprintln!(
                    "uploads memory: {name}, {uploads} at once: {idle:.1} MiB idle, {peak:.1} MiB at most"
                );
                least = least.min(idle);
                peaks.push(peak);
            }
        }
        let [one, .., many] = &peaks;
        let ratios: Vec<f64> = many.iter().zip(one).map(|(many, one)| many / one).collect();
        for (uploads, peaks) in AT_ONCE.iter().zip(&peaks) {
            let what = format!(
                "server {name}: resident at most, {uploads} uploads at once of {} MiB, {IN_FLIGHT} in flight allowed",
                TOTAL_MIB / uploads
            );
            let bound = least + MOST_MIB;
            findings.facts.push(Fact::new("uploads", what, "MiB", peaks.iter().copied()).at_most(bound));
        }
        let what = format!("server {name}: resident at most, 64 uploads at once beside 1");
        findings.facts.push(Fact::new("uploads", what, "×", ratios).at_most(FLAT));
    }
    Ok(())
}

/// A fresh server's memory before so many uploads, and the most it had until they were done and one was read back.
fn resident(settings: &Settings, runtime: &Runtime, place: &Place, uploads: u64) -> Result<(f64, f64)> {
    let server = Server::start(settings, place)?;
    let load = Load::new(TOTAL_MIB / uploads)?;
    runtime.block_on(async {
        server.warm_up().await?;
        let idle = mib(server.pid(), "VmRSS:")?;
        let ids = try_join_all((0..uploads).map(|_| ours::upload(server.port, &load, 1))).await?;
        ours::verify(server.port, &ids[0].0, &load).await?;
        Ok((idle, mib(server.pid(), "VmHWM:")?))
    })
}

fn mib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: f64 = line.split_whitespace().next().context("an empty line")?.parse()?;
    Ok(kib / 1024.0)
}
