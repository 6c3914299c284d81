//! What one script call costs on the embedded store in memory: processor time per call, the whole way through
//! `Engine::run`, median of several runs.
//!
//! `cargo run --release -p quaymaster-store --example vm_cost [calls per run] [script]`

use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Effect, Engine, Invocation, Script, Workload};

const RUNS: usize = 9;

static TWO: Script = Script {
    id: "cost.two",
    source: "
local used = redis.call('INCRBY', KEYS[1], ARGV[1])
local left = redis.call('PTTL', KEYS[1])
return {used, left}",
    sha: "two",
    effect: Effect::Writes,
};

static TWO_READ: Script = Script {
    id: "cost.two_read",
    source: "
local used = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
return {used, left}",
    sha: "two_read",
    effect: Effect::Reads,
};

static FIVE: Script = Script {
    id: "cost.five",
    source: "
local now = redis.call('TIME')
local us = now[1] * 1000000 + now[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', us - 1000)
local used = redis.call('ZCARD', KEYS[1])
redis.call('ZADD', KEYS[1], us, ARGV[1])
redis.call('PEXPIRE', KEYS[1], 60000)
return {'ok', used}",
    sha: "five",
    effect: Effect::Writes,
};

static NONE: Script = Script { id: "cost.none", source: "return 1", sha: "none", effect: Effect::Reads };

/// Nanoseconds this thread has run on a processor.
fn processor_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: usize = std::env::args().nth(1).map_or(Ok(200_000), |text| text.parse())?;
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        println!("{:<16}{:>12}{:>14}", "script", "keys", "ns per call");
        for keys in [1_000, 1_000_000] {
            for script in
                [&NONE, &TWO_READ, &TWO, &FIVE].into_iter().filter(|script| script.id.ends_with(&wanted))
            {
                let store = EmbeddedStore::memory(EmbeddedOptions::default()).await?;
                run(&store, script, keys, keys).await?;
                let mut costs = Vec::with_capacity(RUNS);
                for _ in 0..RUNS {
                    let before = processor_ns();
                    run(&store, script, keys, calls).await?;
                    costs.push((processor_ns() - before) / calls as u64);
                }
                costs.sort_unstable();
                println!("{:<16}{keys:>12}{:>14}", script.id, costs[RUNS / 2]);
                store.close().await?;
            }
        }
        Ok(())
    })
}

async fn run(
    store: &EmbeddedStore,
    script: &'static Script,
    keys: usize,
    calls: usize,
) -> quaymaster_store::Result<()> {
    let mut at: usize = 0;
    for number in 0..calls {
        // A stride that is prime to both key counts: no two neighbours in memory follow one another.
        at = (at + 7919) % keys;
        let mut call = Invocation::new(script, Workload::RateLimit);
        // The cost of a test's own formatting is kept out: digits only.
        call.keys.push_int(at as i64 + 1_000_000_000_000);
        call.args.push_int(number as i64 % 7 + 1);
        store.run(call).await?;
    }
    Ok(())
}
