//! The payment gateway's mix on one Redis, open loop: through the crate, through HTTP, and as its document spells
//! it in separate commands.
//!
//! An *operation* is one call: begin, finish, acquire, release, get, put of one primitive (single), enter or leave of
//! a guard (compound). A *step* is what a gateway is asked for (check, create, execute, update, status): one to four
//! operations one after the other. Rates are operations a second as the crate counts them; the documented way runs
//! the same steps at the same pace.

mod arena;
mod book;
mod bytes;
mod direct;
mod documented;
mod inside;
mod mix;
mod over_http;
mod pace;
mod table;
#[cfg(test)]
mod tests;
mod way;
mod wire;
pub(crate) mod witness;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::knee;
use crate::sample::Latency;
use crate::{Findings, Settings};
use arena::{Arena, Figures};
use bytes::Weight;
use inside::Inside;
use pace::Plan;
use witness::Seen;

/// Everything measured; the ways in the order they were run in.
#[derive(Debug)]
struct Report {
    plan: Plan,
    ways: Vec<WayReport>,
    weights: Vec<Weight>,
    many: u64,
}

#[derive(Debug)]
struct WayReport {
    name: &'static str,
    seen: Seen,
    inside: Inside,
    /// One a round.
    runs: Vec<Figures>,
    /// One a round, operations a second; `None` where no rate held.
    knees: Vec<Option<f64>>,
}

pub(crate) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let (lasting, probe) = if settings.full {
        (Duration::from_secs(60), Duration::from_secs(3))
    } else {
        (settings.lasting(), Duration::from_secs(1))
    };
    // A run sits a hiccup of the machine out; a probe has seen enough.
    let plan = Plan { operations_per_s: settings.rate, lasting, patience: Duration::from_secs(1) };
    let folders = [settings.folder()?, settings.folder()?, settings.folder()?];
    let arenas = [
        Arena::direct(runtime, folders[0].path())?,
        Arena::over_http(&settings.server, folders[1].path())?,
        Arena::documented(folders[2].path())?,
    ];
    let mut ways = Vec::new();
    for arena in &arenas {
        let slow = Plan { operations_per_s: 2_000.0, lasting: Duration::from_millis(500), ..plan };
        let seen = witness::watch(arena, runtime, slow)?;
        let inside = inside::watch(arena, runtime, slow)?;
        ways.push(WayReport { name: arena.way.name(), seen, inside, runs: Vec::new(), knees: Vec::new() });
    }
    for round in 0..settings.pairs {
        // Who goes first changes from round to round.
        for at in (0..arenas.len()).map(|turn| (turn + round) % arenas.len()) {
            let figures = arenas[at].measure(runtime, plan)?;
            eprintln!("psp: round {}: {}", round + 1, line(ways[at].name, plan, &figures));
            settings.append(&line(ways[at].name, plan, &figures))?;
            ways[at].runs.push(figures);
        }
    }
    for round in 0..settings.pairs {
        for at in (0..arenas.len()).map(|turn| (turn + round) % arenas.len()) {
            let start = ways[at].knees.last().copied().flatten().unwrap_or(settings.rate);
            let found = find_knee(settings, &arenas[at], runtime, start, probe)?;
            ways[at].knees.push(found);
        }
    }
    drop(arenas);
    let weights = bytes::weigh(settings, runtime)?;
    findings.sections.push(table::markdown(&Report { plan, ways, weights, many: settings.many }));
    Ok(())
}

fn find_knee(
    settings: &Settings,
    arena: &Arena,
    runtime: &Runtime,
    start: f64,
    lasting: Duration,
) -> Result<Option<f64>> {
    let name = arena.way.name();
    let found = knee::find(start, |operations_per_s| {
        let plan = Plan { operations_per_s, lasting, patience: Duration::from_millis(250) };
        let holds = knee::majority(|| {
            let figures = arena.measure(runtime, plan)?;
            settings.append(&line(name, plan, &figures))?;
            Ok(figures.hold())
        })?;
        eprintln!("psp: knee of {name}: {operations_per_s:.0} {}", if holds { "holds" } else { "fails" });
        Ok(holds)
    })?;
    ensure!(found.is_none_or(|rate| rate > 0.0), "a knee is a rate");
    Ok(found)
}

/// One run as a line of JSON.
fn line(way: &str, plan: Plan, figures: &Figures) -> String {
    let ms = |ms: f64| (ms * 1e3).round() / 1e3;
    let quantiles = |latency: &Latency| json!([ms(latency.p50_ms), ms(latency.p95_ms), ms(latency.p99_ms)]);
    let each: serde_json::Map<_, _> = figures
        .by_operation
        .iter()
        .map(|(operation, _, latency)| (operation.name().to_owned(), quantiles(latency)))
        .collect();
    json!({
        "family": "psp",
        "peer": way,
        "op": "mix",
        "asked_per_s": plan.operations_per_s.round(),
        "n": figures.operations,
        "ops_per_s": figures.operations_per_s().round(),
        "single_p50_p95_p99_ms": quantiles(&figures.single),
        "compound_p50_p95_p99_ms": quantiles(&figures.compound),
        "each_p50_p95_p99_ms": each,
        "holds": figures.hold(),
        "overloaded": figures.overloaded,
    })
    .to_string()
}
