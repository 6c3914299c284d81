//! Quaymaster beside its peers: alternating pairs in one run, one Markdown table with ratios.
//!
//! `scripts/bench` builds this, installs the peers and runs it. JSON lines of every single run go to a
//! file on the side. Everything listens on loopback and is stopped when its measurement ends.

mod contest;
mod cpu;
mod drive;
mod fact;
mod families;
mod knee;
mod layers;
mod ours;
mod peer;
mod process;
mod psp;
mod queue;
mod recorder;
mod report;
mod sample;
mod stats;
mod uploads;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use tokio::runtime::Builder;

use contest::{Contest, Outcome};
use fact::Fact;
use families::Family;
use sample::Sample;

/// How the measurements are made.
#[derive(Debug, Parser)]
#[command(name = "scripts/bench", about = "Quaymaster beside its peers")]
pub(crate) struct Settings {
    /// Families to run; all without one.
    #[arg(value_enum)]
    families: Vec<Family>,
    /// Pairs of runs per row.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Seconds per run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Callers (distinct keys) where a row does not say otherwise.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Keys of the large stores in the `keys` and `startup` families.
    #[arg(long, default_value_t = 1_000_000)]
    many: u64,
    /// Worker threads of our side. redis-benchmark and Node have one; with two cores the other is Redis's.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Operations a second of the `psp` family's runs.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// The `psp` family as its promise says: a minute a run, longer probes.
    #[arg(long)]
    full: bool,
    /// Jobs of one run of the queue families that works them off: several seconds of the slowest.
    #[arg(long, default_value_t = 100_000)]
    jobs: u64,
    /// MiB of the file that the `uploads` family sends: whole chunks of 8.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Only the parts of the `uploads` family that have this in their name: into files, into SeaweedFS, memory, small.
    #[arg(long, default_value = "")]
    only: String,
    /// Where data folders are made; must be a disk for figures about disks.
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// The folder with the peers' node_modules.
    #[arg(long, default_value = "target/bench-tools/node")]
    node: PathBuf,
    /// The folder with the tools of the tests, SeaweedFS among them.
    #[arg(long, default_value = "target/test-tools")]
    tools: PathBuf,
    /// The server under test.
    #[arg(long, default_value = "target/release/quaymaster")]
    server: PathBuf,
    /// JSON lines of every run are appended here.
    #[arg(long, default_value = "target/bench-data/runs.jsonl")]
    json: Option<PathBuf>,
    /// First wait until the machine is quiet (load under 0.7), at most a quarter of an hour.
    #[arg(long)]
    wait: bool,
    /// Opens the embedded store in this folder, prints what that cost, and ends. The `startup` family
    /// calls itself so, to measure in a process that did nothing else.
    #[arg(long, hide = true)]
    open: Option<PathBuf>,
    /// Writes the bodies of PUTs on this port to files of the folder `to`. The `uploads` family calls itself so.
    #[arg(long, hide = true, requires = "to")]
    put: Option<u16>,
    /// Where to.
    #[arg(long, hide = true)]
    to: Option<PathBuf>,
    /// Makes `requests` of this kind and ends. The `layers` family calls itself so under valgrind.
    #[arg(long, hide = true, value_enum)]
    count: Option<layers::Subject>,
    /// How many.
    #[arg(long, hide = true, default_value_t = 1000)]
    requests: u64,
}

/// What the families found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    outcomes: Vec<Outcome>,
    facts: Vec<Fact>,
    /// Families with tables of their own.
    sections: Vec<String>,
}

impl Settings {
    pub(crate) fn lasting(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// A fresh folder on the disk under test, gone when the value is.
    pub(crate) fn folder(&self) -> Result<tempfile::TempDir> {
        std::fs::create_dir_all(&self.data)?;
        tempfile::tempdir_in(&self.data).context("cannot make a data folder")
    }

    fn record(&self, contest: &Contest, peer: &str, sample: &Sample) -> Result<()> {
        self.append(&contest.line(peer, sample))
    }

    /// Keeps the line of one run.
    pub(crate) fn append(&self, line: &str) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{line}")?;
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn quiet(pairs: usize) -> Self {
        let mut settings = Self::parse_from(["bench"]);
        settings.pairs = pairs;
        settings.json = None;
        settings
    }
}

fn main() -> ExitCode {
    match measure(&Settings::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the families and prints the tables; a family that failed is named and makes the whole a failure.
fn measure(settings: &Settings) -> Result<ExitCode> {
    if let Some(subject) = settings.count {
        layers::instructions::serve(subject, settings.requests)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(port), Some(folder)) = (settings.put, &settings.to) {
        uploads::put::serve(port, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = Builder::new_multi_thread().worker_threads(settings.threads).enable_all().build()?;
    if let Some(folder) = &settings.open {
        families::startup::open(&runtime, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let families: &[Family] = if settings.families.is_empty() { &Family::ALL } else { &settings.families };
    if settings.wait {
        wait_for_quiet();
    }
    let mut findings = Findings::default();
    let mut failed = Vec::new();
    for family in families {
        // One peer that cannot be measured does not take the other figures with it.
        if let Err(error) = family.run(settings, &runtime, &mut findings) {
            eprintln!("{family:?} failed: {error:#}");
            failed.push(*family);
        }
    }
    println!("{}", report::conditions(settings));
    println!("{}", report::markdown(&findings));
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("families without a complete result: {failed:?}");
    Ok(ExitCode::FAILURE)
}

/// Somebody else's compiler makes every figure meaningless; a figure after a warning is better than none.
fn wait_for_quiet() {
    let load = || {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        text.split_whitespace().next().and_then(|load| load.parse::<f64>().ok()).unwrap_or(0.0)
    };
    for _ in 0..90 {
        if load() < 0.7 {
            return;
        }
        std::thread::sleep(Duration::from_secs(10));
    }
    eprintln!("the load is still {}; measuring all the same", load());
}
