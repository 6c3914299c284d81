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

/// The bytes in flight that are allowed, as the schema is told: little more than its largest chunk.
const IN_FLIGHT: &str = "128MiB";
const IN_FLIGHT_MIB: f64 = 128.0;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let bound = ("UPLOAD_MAX_BYTES_IN_FLIGHT", IN_FLIGHT.to_owned());
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let embedded = Place { environment: vec![bound], ..Place::default() };
    let on_redis = Place { store: Some(redis.url()), ..embedded.clone() };
    for (name, place) in [("embedded, spooled", &embedded), ("on Redis, chunks through it", &on_redis)] {
        for uploads in AT_ONCE {
            redis::cmd("FLUSHALL").query::<()>(&mut redis.connect()?)?;
            let server = Server::start(settings, place)?;
            let load = Load::new(TOTAL_MIB / uploads)?;
            let idle = runtime.block_on(async {
                server.warm_up().await?;
                mib(server.pid(), "VmRSS:")
            })?;
            let all = (0..uploads).map(|_| ours::upload(server.port, &load, 1));
            let ids = runtime.block_on(try_join_all(all))?;
            let peak = mib(server.pid(), "VmHWM:")?;
            runtime.block_on(ours::verify(server.port, &ids[0].0, &load))?;
            eprintln!("uploads memory: {name}, {uploads} at once: {idle:.1} MiB idle, {peak:.1} MiB at most");
            let what = format!(
                "server {name}: resident at most, {uploads} uploads at once of {} MiB, {IN_FLIGHT} in flight allowed",
                TOTAL_MIB / uploads
            );
            findings.facts.push(Fact::new("uploads", what, "MiB", [peak]).at_most(idle + IN_FLIGHT_MIB));
        }
    }
    Ok(())
}

fn mib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: f64 = line.split_whitespace().next().context("an empty line")?.parse()?;
    Ok(kib / 1024.0)
}
