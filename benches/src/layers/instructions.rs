//! Instructions of one request, counted by callgrind: the same on a busy machine as on a quiet one.
//!
//! This program runs itself under valgrind with few requests and with many; what the difference costs is what the
//! requests cost, without the program's start and end.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tokio::runtime::Builder;

use super::recording::{Subject, ask, bind};
use crate::Findings;
use crate::fact::Fact;
use crate::ours::memory_engine;

const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

pub(super) fn run(findings: &mut Findings) -> Result<()> {
    let of = |subject: &str| -> Result<f64> {
        let (few, many) = (counted(subject, FEW)?, counted(subject, MANY)?);
        Ok((many - few) as f64 / (MANY - FEW) as f64)
    };
    for (what, with, without) in [
        ("instructions the recording layer adds, tower service", "recorded", Some("plain")),
        ("the same, axum router with its matched route", "router-recorded", Some("router")),
        ("instructions of Recorder::record alone", "record", None),
    ] {
        let without = without.map(of).transpose()?.unwrap_or(0.0);
        findings.facts.push(Fact::new("layers", what, "instructions", [of(with)? - without]));
    }
    Ok(())
}

/// All instructions of this program with so many requests.
fn counted(subject: &str, requests: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    command.args(["--count", subject, "--requests", &requests.to_string()]);
    let done = command.output().context("cannot run valgrind")?;
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        bail!("valgrind: {}: {said}", done.status);
    }
    let collected =
        said.lines().find_map(|line| line.split_once("Collected :")).context("nothing collected")?;
    Ok(collected.1.trim().parse()?)
}

/// What valgrind runs: nothing but the requests, in one thread, without a flush among them.
pub(crate) fn serve(subject: Subject, requests: u64) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let engine = memory_engine(&runtime)?;
    let quaymaster = bind(engine, "60s")?;
    runtime.block_on(async {
        let recorder = quaymaster.stats("web")?.recorder("bench");
        ask(subject, &recorder, requests).await.map(drop)
    })
}
