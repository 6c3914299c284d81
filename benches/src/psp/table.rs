//! What was found, as Markdown.

use std::fmt::Write as _;

use super::arena::Figures;
use super::bytes::Record;
use super::mix::{Operation, steps_per_s};
use super::{Report, WayReport};
use crate::contest::Spread;
use crate::report::grouped;
use crate::sample::Latency;

/// Operations a day in the document: 10,000 a second.
const A_DAY: f64 = 864e6;

// Writing to a string cannot fail: the results below are dropped for that reason.

pub(super) fn markdown(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "## psp\n\n{} operations a second ({} steps) for {:.0} s, {} round(s) in turn, arrivals at random; latency in ms from \
         when an operation was due. Median of the rounds, lowest–highest.\n",
        grouped(report.plan.operations_per_s as u64),
        grouped(steps_per_s(report.plan.operations_per_s) as u64),
        report.plan.lasting.as_secs_f64(),
        report.ways[0].runs.len(),
    );
    latencies(&mut out, report);
    each(&mut out, report);
    costs(&mut out, report);
    insides(&mut out, report);
    knees(&mut out, report);
    ratios(&mut out, report);
    weights(&mut out, report);
    out
}

fn latencies(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "| way | operations a second | steps a second | single p50 | p95 | p99 | compound p50 | p95 | p99 | p95 < 1 and < 2 |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    );
    for way in &report.ways {
        let ms = |pick: fn(&Figures) -> f64| range(way.spread(pick), 3);
        let kept = way.runs.iter().filter(|run| run.hold()).count();
        let all = way.runs.len();
        let overloaded = way.runs.iter().any(|run| run.overloaded);
        let verdict = if kept * 2 > all {
            "held"
        } else if overloaded {
            "**missed**, overloaded"
        } else {
            "**missed**"
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {verdict} ({kept} of {all} rounds) |",
            way.name,
            grouped(way.spread(Figures::operations_per_s).median as u64),
            grouped(way.spread(Figures::steps_per_s).median as u64),
            ms(|run| run.single.p50_ms),
            ms(|run| run.single.p95_ms),
            ms(|run| run.single.p99_ms),
            ms(|run| run.compound.p50_ms),
            ms(|run| run.compound.p95_ms),
            ms(|run| run.compound.p99_ms),
        );
    }
    out.push('\n');
}

/// p95 of every operation, the median of the rounds.
fn each(out: &mut String, report: &Report) {
    out.push_str("| p95, ms |");
    for operation in Operation::ALL {
        let _ = write!(out, " {} |", operation.name());
    }
    out.push_str("\n|---|");
    out.push_str(&"--:|".repeat(Operation::ALL.len()));
    out.push('\n');
    for way in &report.ways {
        let _ = write!(out, "| {} |", way.name);
        for at in 0..Operation::ALL.len() {
            let p95 = |latency: &Latency| latency.p95_ms;
            if way.runs.iter().all(|run| run.by_operation[at].1 == 0) {
                out.push_str(" – |");
            } else {
                let spread = Spread::of(way.runs.iter().map(|run| p95(&run.by_operation[at].2)));
                let _ = write!(out, " {:.3} |", spread.median);
            }
        }
        out.push('\n');
    }
    out.push('\n');
}

fn costs(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "| way | round trips an operation | a step | what clients sent (MONITOR) | an operation | processor µs an operation: generator | server | Redis | all, a step |\n\
         |---|--:|--:|---|--:|--:|--:|--:|--:|"
    );
    for way in &report.ways {
        let us = |pick: fn(&Figures) -> f64| format!("{:.1}", way.spread(pick).median);
        let sent: Vec<String> = way.seen.sent().map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(
            out,
            "| {} | {:.3} | {:.2} | {} | {:.3} | {} | {} | {} | {} |",
            way.name,
            way.spread(|run| run.round_trips as f64 / run.operations as f64).median,
            way.spread(trips_a_step).median,
            sent.join(", "),
            way.seen.per_operation(),
            us(|run| run.generator_s * 1e6 / run.operations as f64),
            us(|run| run.server_s * 1e6 / run.operations as f64),
            us(|run| run.redis_s * 1e6 / run.operations as f64),
            us(|run| (run.generator_s + run.server_s + run.redis_s) * 1e6 / run.steps as f64),
        );
    }
    out.push('\n');
}

fn insides(out: &mut String, report: &Report) {
    out.push_str("Inside Redis, median µs a call:\n\n");
    for way in &report.ways {
        let each: Vec<String> = way.inside.iter().map(|(name, us)| format!("{name} {us}")).collect();
        let _ = writeln!(out, "- {}: {}", way.name, each.join(", "));
    }
    out.push('\n');
}

fn knees(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "Knee: the highest rate at which both p95 hold, by probes, two of three deciding.\n\n\
         | way | operations a second | steps a second |\n|---|--:|--:|"
    );
    for way in &report.ways {
        let spread = Spread::of(way.knees.iter().map(|knee| knee.unwrap_or(0.0)));
        let steps = Spread::of(way.knees.iter().map(|knee| steps_per_s(knee.unwrap_or(0.0))));
        let text = |spread: Spread| {
            let round = |rate: f64| match (rate / 100.0).round() as u64 * 100 {
                0 => "none".to_owned(),
                rate => grouped(rate),
            };
            format!("**{}** ({}–{})", round(spread.median), round(spread.low), round(spread.high))
        };
        let _ = writeln!(out, "| {} | {} | {} |", way.name, text(spread), text(steps));
    }
    out.push('\n');
}

/// Each of ours over the documented way, within a round. Fewer than three rounds make no ratio.
fn ratios(out: &mut String, report: &Report) {
    let Some((documented, ours)) = report.ways.split_last().filter(|(last, _)| last.runs.len() >= 3) else {
        out.push_str("No ratios: they want at least three rounds (`--pairs`).\n\n");
        return;
    };
    let _ = writeln!(
        out,
        "Ratios within a round to the same steps {}, median (lowest–highest):\n\n\
         | way | knee | guard.enter p95 | round trips a step | Redis processor a step |\n|---|--:|--:|--:|--:|",
        documented.name,
    );
    for way in ours {
        let ratio = |pick: fn(&Figures) -> f64| {
            let pairs = way.runs.iter().zip(&documented.runs);
            range(Spread::of(pairs.map(|(ours, theirs)| pick(ours) / pick(theirs))), 2)
        };
        let knees: Vec<f64> = way
            .knees
            .iter()
            .zip(&documented.knees)
            .filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?))
            .collect();
        let knee = if knees.is_empty() { "–".into() } else { range(Spread::of(knees.into_iter()), 2) };
        let _ = writeln!(
            out,
            "| {} | {knee} | {} | {} | {} |",
            way.name,
            ratio(enter_p95),
            ratio(trips_a_step),
            ratio(|run| run.redis_s / run.steps as f64),
        );
    }
    out.push('\n');
}

fn weights(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "Memory of one idempotency key, {} keys of the four documented shapes in equal parts on a fresh Redis; a day at 10,000 \
         a second is 864 million of them, for which the document expects 2–4 GB:\n\n\
         | record | bytes a key | GB a day | over the document's `\"1\"` |\n|---|--:|--:|--:|",
        grouped(report.many),
    );
    let one = report.weights.iter().find(|weight| weight.record == Record::One).map(|weight| weight.bytes);
    for weight in &report.weights {
        let _ = writeln!(
            out,
            "| {} | {:.1} | {:.0} | {} |",
            weight.record.name(),
            weight.bytes,
            weight.bytes * A_DAY / 1e9,
            one.map_or_else(|| "–".into(), |one| format!("{:.2}", weight.bytes / one)),
        );
    }
}

fn enter_p95(run: &Figures) -> f64 {
    run.by_operation[Operation::Enter as usize].2.p95_ms
}

fn trips_a_step(run: &Figures) -> f64 {
    run.round_trips as f64 / run.steps as f64
}

fn range(spread: Spread, digits: usize) -> String {
    let Spread { low, median, high } = spread;
    format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
}

impl WayReport {
    fn spread(&self, pick: impl Fn(&Figures) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(pick))
    }
}
