//! Uploads beside the floors and `@tus/server`: a file in chunks of 8 MiB, over loopback, into files and into SeaweedFS;
//! the server's memory with one and with many uploads at once; and how long it takes until COMPLETED.
//!
//! Every run has a server of its own, and a figure only if what it stored has the right size and SHA-256.

mod floor;
mod load;
mod memory;
mod ours;
pub(crate) mod put;
mod rounds;
mod seaweed;
mod senders;
mod tus;
mod wire;

use std::cell::RefCell;

use anyhow::{Result, bail};
use tokio::runtime::{Builder, Runtime};

use crate::cpu::{Own, Watch};
use crate::fact::Fact;
use crate::process::Redis;
use crate::sample::Sample;
use crate::{Findings, Settings};
use load::Load;
use ours::{Place, Server, Took};
use rounds::{Contestant, Wanted};
use seaweed::Seaweed;

/// Chunks on their way at once, where a protocol allows several; tus takes one after the other.
const SENDERS: usize = 4;

/// Uploads of one small chunk, one after the other.
const SMALL: usize = 40;
const SMALL_BYTES: usize = 64 << 10;

/// What all rows share.
struct Bench<'a> {
    settings: &'a Settings,
    /// Of all senders; a core each would be too few for the floors, which do everything in this process.
    runtime: Runtime,
    load: Load,
    /// Our uploads of the whole file.
    took: RefCell<Vec<Took>>,
}

/// Some of the rows.
type Part = fn(&Bench<'_>, &mut Findings) -> Result<()>;

pub(crate) fn run(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
    let load = Load::new(settings.mib)?;
    let bench = Bench { settings, runtime, load, took: RefCell::default() };
    let parts: [(&str, Part); 5] = [
        ("into files", into_files),
        ("into SeaweedFS", into_seaweed),
        ("memory", |bench, findings| memory::run(bench.settings, &bench.runtime, findings)),
        ("small", small),
        ("whole", whole),
    ];
    let mut failed = Vec::new();
    for (name, part) in parts.into_iter().filter(|(name, _)| name.contains(&settings.only)) {
        // One peer that cannot be measured does not take the other figures with it.
        if let Err(error) = part(&bench, findings) {
            eprintln!("uploads, {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("without a result: {}", failed.join(", "));
    }
    Ok(())
}

const OURS: &str = "server, embedded, spooled";
const OURS_ALONE: &str = "server, embedded, spooled, one sender";
const OURS_UNSYNCED: &str = "server, embedded, spooled, fsync = \"never\"";
const OURS_UNCHECKED: &str = "server, embedded, spooled, fsync = \"never\", checksums = \"signature\"";
const OURS_AS_IS: &str = "server, embedded, spooled, with all its defaults: synced, 20 parts at once";
const OURS_REDIS: &str = "server on Redis, chunks through it";
const DIRECT: &str = "object_store multipart, nothing between";
const DIRECT_CHECKED: &str = "object_store multipart with SHA-256 checksums, nothing between";
const PUT: &str = "plain HTTP PUT to files";
const TUS: &str = "@tus/server";

/// As little as SeaweedFS does.
const UNSYNCED: &str = "[uploads]\nfsync = \"never\"\n";

/// Beside that, parts are not compared with a checksum of their own, as `object_store` sends them unless told otherwise.
const UNCHECKED: &str = "[uploads]\nfsync = \"never\"\n[uploads.s3]\nchecksums = \"signature\"\n";

/// Both sides have every chunk on the disk before they acknowledge it. The floor of what comes over loopback is the plain
/// server; who writes straight to files has no such way to go, and is beside it to tell what that way costs.
fn into_files(bench: &Bench<'_>, findings: &mut Findings) -> Result<()> {
    let contestants = [
        Contestant { name: OURS, senders: SENDERS },
        Contestant { name: DIRECT, senders: SENDERS },
        Contestant { name: PUT, senders: SENDERS },
        Contestant { name: OURS_ALONE, senders: 1 },
        Contestant { name: TUS, senders: 1 },
    ];
    let wanted = [
        Wanted { ours: OURS, theirs: PUT, target: Some(0.8) },
        Wanted { ours: OURS, theirs: DIRECT, target: None },
        Wanted { ours: PUT, theirs: DIRECT, target: None },
        Wanted { ours: OURS_ALONE, theirs: TUS, target: Some(1.0) },
    ];
    let op = format!("{} MiB in chunks of 8 MiB into files, each synced", bench.load.mib());
    let outcomes = rounds::run(
        bench.settings,
        &op,
        &contestants,
        &wanted,
        || Ok(()),
        |one, ()| match one.name {
            DIRECT => bench.to_disk(one.senders),
            PUT => bench.put(one.senders),
            TUS => bench.tus_files(),
            _ => bench.ours(&Place::default(), one.senders, &[]),
        },
    )?;
    findings.outcomes.extend(outcomes);
    Ok(())
}

/// Rows that promise something are equal: SeaweedFS syncs no bytes, so our spool does not either (our database does all
/// the same); both sides send as many parts at once, for SeaweedFS spends more on many; and both or neither let it
/// compare parts with a checksum, which costs it a tenth. Beside them our server with all its defaults.
fn into_seaweed(bench: &Bench<'_>, findings: &mut Findings) -> Result<()> {
    let contestants = [
        Contestant { name: OURS_UNSYNCED, senders: SENDERS },
        Contestant { name: DIRECT_CHECKED, senders: SENDERS },
        Contestant { name: OURS_UNCHECKED, senders: SENDERS },
        Contestant { name: DIRECT, senders: SENDERS },
        Contestant { name: OURS_AS_IS, senders: SENDERS },
        Contestant { name: OURS_REDIS, senders: SENDERS },
        Contestant { name: OURS_ALONE, senders: 1 },
        Contestant { name: TUS, senders: 1 },
    ];
    let wanted = [
        Wanted { ours: OURS_UNSYNCED, theirs: DIRECT_CHECKED, target: Some(0.8) },
        Wanted { ours: OURS_UNCHECKED, theirs: DIRECT, target: Some(0.8) },
        Wanted { ours: OURS_AS_IS, theirs: DIRECT, target: None },
        Wanted { ours: OURS_REDIS, theirs: DIRECT_CHECKED, target: Some(0.4) },
        Wanted { ours: OURS_ALONE, theirs: TUS, target: Some(1.0) },
    ];
    let op = format!("{} MiB in chunks of 8 MiB into SeaweedFS", bench.load.mib());
    // Anew for every round: what is deleted there is not gone soon.
    let start = || bench.runtime.block_on(Seaweed::start(bench.settings));
    let outcomes =
        rounds::run(bench.settings, &op, &contestants, &wanted, start, |one, seaweed: &Seaweed| {
            let mut environment = seaweed.environment();
            if one.name != OURS_AS_IS {
                environment.push(("UPLOAD_WORKERS", SENDERS.to_string()));
            }
            let config = match one.name {
                OURS_UNSYNCED => UNSYNCED,
                OURS_UNCHECKED => UNCHECKED,
                _ => "",
            };
            let place = Place { environment, config, ..Place::default() };
            let beside = ("seaweed", seaweed.pid());
            match one.name {
                DIRECT => bench.to_s3(seaweed.port, floor::Checks::None, one.senders, beside),
                DIRECT_CHECKED => bench.to_s3(seaweed.port, floor::Checks::Sha256, one.senders, beside),
                TUS => bench.tus_s3(seaweed.port, beside),
                OURS_REDIS => bench.ours_on_redis(&place, one.senders, beside),
                _ => bench.ours(&place, one.senders, &[beside]),
            }
        })?;
    findings.outcomes.extend(outcomes);
    Ok(())
}

impl Bench<'_> {
    fn ours(&self, place: &Place, senders: usize, beside: &[(&'static str, u32)]) -> Result<Sample> {
        let server = Server::start(self.settings, place)?;
        self.runtime.block_on(async {
            server.warm_up().await?;
            let mut processes = vec![("server", server.pid())];
            processes.extend(beside);
            let watch = Watch::start(&processes);
            let (id, took) = ours::upload(server.port, &self.load, senders).await?;
            let sample = watch.note(Sample::new(self.load.mib(), took.whole), Own::Counts);
            ours::verify(server.port, &id, &self.load).await?;
            self.took.borrow_mut().push(took);
            Ok(sample.note("acked_to_completed_ms", took.acked_to_completed.as_millis()))
        })
    }

    /// A Redis without persistence: it syncs as little as SeaweedFS does.
    fn ours_on_redis(&self, place: &Place, senders: usize, beside: (&'static str, u32)) -> Result<Sample> {
        let folder = self.settings.folder()?;
        let redis = Redis::start(folder.path(), None::<&str>)?;
        let place = Place { store: Some(redis.url()), ..place.clone() };
        self.ours(&place, senders, &[("redis", redis.pid()), beside])
    }

    fn to_disk(&self, senders: usize) -> Result<Sample> {
        let folder = self.settings.folder()?;
        let watch = Watch::start(&[]);
        let sample = self.runtime.block_on(floor::to_disk(folder.path(), &self.load, senders))?;
        let sample = watch.note(sample, Own::Counts);
        self.runtime.block_on(floor::verify_disk(folder.path(), floor::NAME, &self.load))?;
        Ok(sample)
    }

    fn to_s3(
        &self,
        port: u16,
        checks: floor::Checks,
        senders: usize,
        beside: (&'static str, u32),
    ) -> Result<Sample> {
        let watch = Watch::start(&[beside]);
        let sample = self.runtime.block_on(floor::to_s3(port, checks, &self.load, senders))?;
        let sample = watch.note(sample, Own::Counts);
        self.runtime.block_on(floor::verify_s3(port, floor::NAME, &self.load))?;
        Ok(sample)
    }

    fn put(&self, senders: usize) -> Result<Sample> {
        let folder = self.settings.folder()?;
        let server = put::Server::start(folder.path())?;
        let watch = Watch::start(&[("server", server.pid())]);
        let sample = self.runtime.block_on(server.upload(&self.load, senders))?;
        let sample = watch.note(sample, Own::Counts);
        server.verify(&self.load)?;
        Ok(sample)
    }

    fn tus_files(&self) -> Result<Sample> {
        let folder = self.settings.folder()?;
        let server = tus::Server::start(self.settings, tus::Store::Files(folder.path()))?;
        let (name, sample) = self.tus(&server, &[])?;
        self.runtime.block_on(floor::verify_disk(folder.path(), &name, &self.load))?;
        Ok(sample)
    }

    fn tus_s3(&self, port: u16, beside: (&'static str, u32)) -> Result<Sample> {
        let server = tus::Server::start(self.settings, tus::Store::S3 { port })?;
        let (name, sample) = self.tus(&server, &[beside])?;
        self.runtime.block_on(floor::verify_s3(port, &name, &self.load))?;
        Ok(sample)
    }

    fn tus(&self, server: &tus::Server, beside: &[(&'static str, u32)]) -> Result<(String, Sample)> {
        let mut processes = vec![("server", server.pid())];
        processes.extend(beside);
        let watch = Watch::start(&processes);
        let (name, sample) = self.runtime.block_on(server.upload(&self.load))?;
        Ok((name, watch.note(sample, Own::Counts)))
    }
}

/// From the chunk to COMPLETED when there is nothing to wait for but the server itself.
fn small(bench: &Bench<'_>, findings: &mut Findings) -> Result<()> {
    let server = Server::start(bench.settings, &Place::default())?;
    let mut took = Vec::with_capacity(SMALL);
    bench.runtime.block_on(async {
        server.warm_up().await?;
        for _ in 0..SMALL {
            took.push(ours::small(server.port, SMALL_BYTES).await?);
        }
        anyhow::Ok(())
    })?;
    let what = format!("first chunk to COMPLETED, {SMALL} uploads of 64 KiB one after the other, embedded");
    let ms = took.iter().map(|took| took.first_to_completed.as_secs_f64() * 1e3);
    findings.facts.push(Fact::new("uploads", what, "ms", ms));
    Ok(())
}

/// The same of the whole files that were sent before.
fn whole(bench: &Bench<'_>, findings: &mut Findings) -> Result<()> {
    let took = bench.took.borrow();
    if took.is_empty() {
        bail!("no upload ended");
    }
    let mib = bench.load.mib();
    let mut fact = |what: &str, unit, of: &dyn Fn(&Took) -> f64| {
        findings.facts.push(Fact::new(
            "uploads",
            format!("{what}, {mib} MiB, all rows"),
            unit,
            took.iter().map(of),
        ));
    };
    fact("first chunk to COMPLETED", "s", &|took| took.first_to_completed.as_secs_f64());
    fact("last acknowledgement to COMPLETED", "ms", &|took| took.acked_to_completed.as_secs_f64() * 1e3);
    Ok(())
}
