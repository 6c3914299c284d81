//! Processor time of one script of two commands on the embedded store, everything on the way included:
//! the future, the queue to the engine, Lua, the data model, the reply.

use std::sync::Arc;

use anyhow::{Result, ensure};
use quaymaster_store::{Effect, Invocation, Reply, Script, Workload};
use tokio::runtime::Runtime;

use crate::cpu;
use crate::fact::Fact;
use crate::ours::memory_engine;
use crate::{Findings, Settings};

const SOURCE: &str = "local seen = redis.call('GET', KEYS[1])\n\
                      redis.call('SET', KEYS[1], ARGV[1])\n\
                      return { 'seen', seen or '' }\n";
const CALLS: u32 = 200_000;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let sha: &'static str = Box::leak(sha1_smol::Sha1::from(SOURCE).digest().to_string().into_boxed_str());
    let script: &'static Script =
        Box::leak(Box::new(Script { id: "bench.two_commands", source: SOURCE, sha, effect: Effect::Writes }));
    let engine = memory_engine(runtime)?;
    let call = |number: u32| {
        let mut call = Invocation::new(script, Workload::RateLimit);
        call.keys.push(format!("two:{}", number % 1_000));
        call.args.push("1");
        call
    };
    let lap = || {
        let engine = Arc::clone(&engine);
        let before = cpu::own();
        let last = runtime.block_on(async {
            let mut last = Reply::Nil;
            for number in 0..CALLS {
                last = engine.run(call(number)).await?;
            }
            anyhow::Ok(last)
        })?;
        let spent = cpu::own() - before;
        ensure!(matches!(&last, Reply::Array(parts) if parts.len() == 2), "unexpected {last:?}");
        anyhow::Ok(spent * 1e6 / f64::from(CALLS))
    };
    lap()?;
    let laps = (0..settings.pairs.max(3)).map(|_| lap()).collect::<Result<Vec<f64>>>()?;
    let what = "processor time of one script of two commands, in memory";
    findings.facts.push(Fact::new("script", what, "µs a call", laps).at_most(2.0));
    runtime.block_on(engine.close())?;
    Ok(())
}
