//! The table of ratios, the table of facts, and the conditions they were taken in.

use std::fmt::Write as _;

use crate::contest::Outcome;
use crate::fact::Fact;
use crate::sample::Sample;
use crate::{Findings, Settings};

const RATIOS: &str = "\
| row | family | op | tasks | ours | a second | p99 ms | theirs | a second | p99 ms | ratio | low–high | target | kept |\n\
|--:|---|---|--:|---|--:|--:|---|--:|--:|--:|--:|--:|---|\n";

const FACTS: &str = "\
| family | what | median | low–high | unit | target | kept |\n\
|---|---|--:|--:|---|--:|---|\n";

/// When, on what, how.
pub(crate) fn conditions(settings: &Settings) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cores} cores, load {} at the end; {} pairs of {} s; {} worker thread(s) on our side; {} callers where the row does not say otherwise. \
         Ratio: ours / theirs within a pair, the median of the pairs. p99 of the middle run.\n",
        load.split_whitespace().next().unwrap_or("?"),
        settings.pairs,
        settings.seconds,
        settings.threads,
        grouped(settings.keys),
    )
}

/// Everything found, as Markdown.
pub(crate) fn markdown(findings: &Findings) -> String {
    let mut out = String::new();
    if !findings.outcomes.is_empty() {
        out.push_str(RATIOS);
        findings.outcomes.iter().enumerate().for_each(|(at, outcome)| ratio_row(&mut out, at + 1, outcome));
        out.push('\n');
        findings.outcomes.iter().enumerate().for_each(|(at, outcome)| notes(&mut out, at + 1, outcome));
        out.push('\n');
    }
    if !findings.facts.is_empty() {
        out.push_str(FACTS);
        findings.facts.iter().for_each(|fact| fact_row(&mut out, fact));
    }
    findings.sections.iter().for_each(|section| out.push_str(section));
    out
}

// Writing to a string cannot fail: the results below are dropped for that reason.

fn ratio_row(out: &mut String, row: usize, outcome: &Outcome) {
    let contest = &outcome.contest;
    let (ours, theirs) = (outcome.middle(|pair| &pair.0), outcome.middle(|pair| &pair.1));
    let ratio = outcome.ratio();
    let _ = writeln!(
        out,
        "| {row} | {} | {} | {} | {} | {} | {} | {} | {} | {} | **{:.2}** | {:.2}–{:.2} | {} | {} |",
        contest.family,
        contest.op,
        contest.concurrency,
        contest.ours,
        rate(ours),
        p99(ours),
        contest.theirs,
        rate(theirs),
        p99(theirs),
        ratio.median,
        ratio.low,
        ratio.high,
        contest.target.map_or_else(|| "–".into(), |least| format!("≥ {least:.2}")),
        kept(outcome.kept()),
    );
}

fn notes(out: &mut String, row: usize, outcome: &Outcome) {
    let contest = &outcome.contest;
    let sides =
        [(&contest.ours, outcome.middle(|pair| &pair.0)), (&contest.theirs, outcome.middle(|pair| &pair.1))];
    for (peer, sample) in sides {
        if !sample.notes.is_empty() {
            let _ = writeln!(out, "- row {row}, {peer}: {}", sample.notes);
        }
    }
}

fn fact_row(out: &mut String, fact: &Fact) {
    let value = fact.value;
    let _ = writeln!(
        out,
        "| {} | {} | **{:.2}** | {:.2}–{:.2} | {} | {} | {} |",
        fact.family,
        fact.what,
        value.median,
        value.low,
        value.high,
        fact.unit,
        fact.at_most.map_or_else(|| "–".into(), |most| format!("≤ {most:.2}")),
        kept(fact.kept()),
    );
}

fn kept(kept: Option<bool>) -> &'static str {
    match kept {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "–",
    }
}

fn rate(sample: &Sample) -> String {
    grouped(sample.ops_per_s().round() as u64)
}

fn p99(sample: &Sample) -> String {
    sample.latency.map_or_else(|| "–".into(), |latency| format!("{:.3}", latency.p99_ms))
}

pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_broken_promise_stands_out() {
        let fact = Fact::new("script", "two commands", "µs", [2.5, 1.9, 2.1]).at_most(2.0);
        let table = markdown(&Findings { facts: vec![fact], ..Findings::default() });
        assert!(table.contains("| **2.10** | 1.90–2.50 | µs | ≤ 2.00 | **no** |"), "{table}");
    }
}
