//! The tower layers: what recording adds to a request, in time and in instructions; enforcing a limit beside a limiter
//! in process and a limiter on Redis.

mod enforcing;
mod handler;
pub(crate) mod instructions;
mod recording;

pub(crate) use recording::Subject;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::{Findings, Settings};

pub(crate) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    // Instructions first: they are the same on a busy machine.
    instructions::run(findings)?;
    recording::run(settings, runtime, findings)?;
    enforcing::run(settings, runtime, findings)
}
