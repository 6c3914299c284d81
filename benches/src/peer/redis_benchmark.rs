//! `redis-benchmark`: as fast as this Redis runs our script when nothing but bytes is done at the client.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cpu::{Own, Watch};
use crate::process::{Redis, output};
use crate::recorder::Call;
use crate::sample::{Latency, Sample};

/// Pipelined EVALSHA of `call` over `keys` callers from 64 connections, 16 deep.
pub(crate) fn evalsha(redis: &Redis, call: &Call, keys: u64, lasting: Duration) -> Result<Sample> {
    call.load_into(redis)?;
    // redis-benchmark is bounded by a count, so a short run says which count lasts long enough.
    let probe = run(redis, call, keys, 40_000)?;
    let count = (probe.ops_per_s() * lasting.as_secs_f64()) as u64;
    let before = redis.calls("evalsha")?;
    let watch = Watch::start(&[("redis", redis.pid())]);
    let sample = watch.note(run(redis, call, keys, count)?, Own::Idle);
    let after = redis.calls("evalsha")?;
    ensure!(after.failed == before.failed, "redis-benchmark's calls failed: {after:?}");
    ensure!(after.made - before.made >= count, "redis-benchmark made fewer calls than it says: {after:?}");
    Ok(sample.note("pipeline", 16))
}

fn run(redis: &Redis, call: &Call, keys: u64, count: u64) -> Result<Sample> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &redis.port.to_string(), "-c", "64", "-P", "16", "--csv"]);
    command.args(["-n", &count.to_string(), "-r", &keys.to_string()]);
    // `__rand_int__` becomes twelve digits, as wide as the callers' names on our side.
    command.args(call.evalsha("__rand_int__"));
    parse(&output(&mut command)?, count)
}

/// The last line's figures: rps, avg, min, p50, p95, p99, max. Before them stands the command itself,
/// whose arguments may hold anything.
fn parse(csv: &str, count: u64) -> Result<Sample> {
    let line = csv.lines().rev().find(|line| line.starts_with('"')).context("no figures")?;
    let figures: Vec<f64> = line
        .rsplit(',')
        .take(7)
        .map(|field| field.trim_matches('"').parse())
        .collect::<Result<_, _>>()
        .with_context(|| format!("not figures: {line}"))?;
    let [_max, p99_ms, p95_ms, p50_ms, _min, _avg, rps] = figures[..] else {
        anyhow::bail!("too few figures: {line}");
    };
    let mut sample = Sample::new(count, Duration::from_secs_f64(count as f64 / rps));
    sample.latency = Some(Latency { p50_ms, p95_ms, p99_ms });
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_right() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\
                   \"EVALSHA a, 1\",\"50000.00\",\"0.6\",\"0.1\",\"0.5\",\"0.9\",\"1.1\",\"2.0\"\n";
        let sample = parse(csv, 100_000).ok();
        let latency = sample.as_ref().and_then(|sample| sample.latency);
        assert_eq!(sample.map(|sample| sample.seconds.round() as u64), Some(2));
        assert_eq!(latency.map(|l| (l.p50_ms, l.p95_ms, l.p99_ms)), Some((0.5, 0.9, 1.1)));
    }
}
