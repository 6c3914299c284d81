//! Two contestants, taking turns. The host drifts by half and more within minutes, so only runs that
//! alternate are compared, and the ratio is taken pair by pair.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::Settings;
use crate::sample::Sample;

/// What is compared with what.
#[derive(Debug, Clone)]
pub(crate) struct Contest {
    pub(crate) family: &'static str,
    pub(crate) op: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
    pub(crate) concurrency: usize,
    /// The ratio ours / theirs we promise to reach; `None` when the row only informs.
    pub(crate) target: Option<f64>,
}

/// A contest with its runs.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) contest: Contest,
    pub(crate) pairs: Vec<(Sample, Sample)>,
}

/// A median with the lowest and highest beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Contest {
    /// Runs the pairs; who goes first changes from pair to pair.
    pub(crate) fn run(
        self,
        settings: &Settings,
        mut ours: impl FnMut() -> Result<Sample>,
        mut theirs: impl FnMut() -> Result<Sample>,
    ) -> Result<Outcome> {
        ensure!(settings.pairs > 0, "no pairs, no ratio");
        let mut pairs = Vec::with_capacity(settings.pairs);
        for pair in 0..settings.pairs {
            let (mine, other) = if pair % 2 == 0 {
                let mine = ours()?;
                (mine, theirs()?)
            } else {
                let other = theirs()?;
                (ours()?, other)
            };
            eprintln!(
                "{} {}: pair {}: {:.0} and {:.0} a second, ratio {:.2}",
                self.family,
                self.op,
                pair + 1,
                mine.ops_per_s(),
                other.ops_per_s(),
                mine.ops_per_s() / other.ops_per_s(),
            );
            settings.record(&self, &self.ours, &mine)?;
            settings.record(&self, &self.theirs, &other)?;
            pairs.push((mine, other));
        }
        Ok(Outcome { contest: self, pairs })
    }

    /// The line of one run, in the format the peers' own harness prints.
    pub(crate) fn line(&self, peer: &str, sample: &Sample) -> String {
        let ms = |pick: fn(&crate::sample::Latency) -> f64| {
            sample.latency.as_ref().map(pick).map(|ms| (ms * 1e3).round() / 1e3)
        };
        json!({
            "peer": peer,
            "family": self.family,
            "op": self.op,
            "concurrency": self.concurrency,
            "n": sample.n,
            "ops_per_s": sample.ops_per_s().round(),
            "p50_ms": ms(|l| l.p50_ms),
            "p95_ms": ms(|l| l.p95_ms),
            "p99_ms": ms(|l| l.p99_ms),
            "notes": sample.notes,
        })
        .to_string()
    }
}

impl Outcome {
    pub(crate) fn ratio(&self) -> Spread {
        Spread::of(self.pairs.iter().map(|(ours, theirs)| ours.ops_per_s() / theirs.ops_per_s()))
    }

    /// Whether the median of the ratios keeps the promise; `None` without one.
    pub(crate) fn kept(&self) -> Option<bool> {
        self.contest.target.map(|least| self.ratio().median >= least)
    }

    /// The middle run of one side by its rate, for the figures that stand beside the ratio.
    pub(crate) fn middle(&self, side: fn(&(Sample, Sample)) -> &Sample) -> &Sample {
        let mut runs: Vec<&Sample> = self.pairs.iter().map(side).collect();
        runs.sort_by(|a, b| a.ops_per_s().total_cmp(&b.ops_per_s()));
        runs[runs.len() / 2]
    }
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (last, middle) = (sorted.len() - 1, sorted.len() / 2);
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Self { low: sorted[0], median, high: sorted[last] }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn contest(target: f64) -> Contest {
        Contest {
            family: "test",
            op: "op".into(),
            ours: "ours".into(),
            theirs: "theirs".into(),
            concurrency: 1,
            target: Some(target),
        }
    }

    fn rate(n: u64) -> Sample {
        Sample::new(n, Duration::from_secs(1))
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_not_of_the_rates() {
        let pairs = vec![(rate(100), rate(100)), (rate(50), rate(25)), (rate(400), rate(100))];
        let outcome = Outcome { contest: contest(2.0), pairs };
        assert_eq!(outcome.ratio(), Spread { low: 1.0, median: 2.0, high: 4.0 });
        assert_eq!(outcome.kept(), Some(true));
        assert_eq!(outcome.middle(|pair| &pair.0).n, 100);
    }

    #[test]
    fn a_median_below_the_target_is_a_broken_promise() {
        let pairs = vec![(rate(14), rate(10)), (rate(10), rate(10)), (rate(15), rate(10))];
        let outcome = Outcome { contest: contest(1.41), pairs };
        assert_eq!(outcome.kept(), Some(false));
    }

    #[test]
    fn contestants_take_turns_at_going_first() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                Ok(rate(1))
            }
        };
        let outcome = contest(1.0).run(&Settings::quiet(3), side('o'), side('t'));
        assert_eq!(outcome.map(|outcome| outcome.pairs.len()).ok(), Some(3));
        assert_eq!(order.into_inner(), "ottoot");
    }
}
