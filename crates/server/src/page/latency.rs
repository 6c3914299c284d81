//! The store's latency of the last minute, class by class, and the threshold of its 95th percentile.

use std::time::Duration;

use quaymaster::store::Health;
use quaymaster::store::latency::{Class, Quantile};
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Thresholds;
use crate::threshold::{Exceeded, Threshold};

/// The share of calls that a latency threshold is about.
pub(super) const P95: f64 = 0.95;

/// Fewer calls of the last minute are compared only when they are slower than [`SLOW`]: some cold calls are no trend.
const ENOUGH_CALLS: u64 = 100;
const SLOW: Duration = Duration::from_secs(1);

/// Calls of one class in the last minute.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClassLatency {
    /// `single`: one primitive, one item; `compound`: several in one call; `bulk`: bytes of uploads.
    class: &'static str,
    calls: u64,
    /// The 95th percentile; null without calls.
    p95_us: Option<u64>,
    /// Whether it is longer than `p95_us`, which is then the longest latency that is told apart.
    p95_over: bool,
}

impl ClassLatency {
    pub(super) fn all(health: &Health) -> Vec<Self> {
        Class::ALL.map(|class| Self::new(health, class)).into()
    }

    fn new(health: &Health, class: Class) -> Self {
        let recent = health.recent(class);
        let p95 = recent.quantile(P95);
        Self {
            class: class.name(),
            calls: recent.calls(),
            p95_us: p95.map(Quantile::at_least_us),
            p95_over: matches!(p95, Some(Quantile::Over(_))),
        }
    }
}

/// The 95th percentile of single and compound calls together, in microseconds.
pub(super) fn p95_us(health: &Health) -> Option<u64> {
    let both = health.recent(Class::Single).and(&health.recent(Class::Compound));
    both.quantile(P95).map(Quantile::at_least_us)
}

/// Each class whose p95 is over its threshold.
pub(crate) fn slow(limits: &Thresholds, health: &Health) -> Vec<Exceeded> {
    let mut out = Vec::new();
    for (class, limit) in [(Class::Single, limits.p95_single), (Class::Compound, limits.p95_compound)] {
        let recent = health.recent(class);
        let (calls, name, limit_us) = (recent.calls(), class.name(), limit.as_micros());
        if let Some(p95) = recent.quantile(P95)
            && p95.exceeds(limit)
            && (calls >= ENOUGH_CALLS || p95.exceeds(SLOW))
        {
            let sentence = format!(
                "p95 of the store's {name} calls is {p95}, threshold {limit_us} µs (calls of the last minute: {calls})"
            );
            out.push(Exceeded::new(Threshold::P95, name, sentence));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]

    use std::time::Instant;

    use quaymaster::store::health::Counters;

    use super::*;

    /// Calls of one class that took so long, told without waiting for them.
    fn counted(calls: &[(Class, u32, Duration)]) -> Health {
        let counters = Counters::default();
        for (class, count, took) in calls {
            let started = Instant::now().checked_sub(*took).expect("the machine is up for some seconds");
            (0..*count).for_each(|_| counters.success(*class, started));
        }
        counters.snapshot()
    }

    fn warned(calls: &[(Class, u32, Duration)]) -> Vec<String> {
        slow(&Thresholds::default(), &counted(calls)).iter().map(Exceeded::sentence).collect()
    }

    #[test]
    fn a_p95_over_a_second_is_told_and_warned_about() {
        let calls = [
            (Class::Single, 10, Duration::from_millis(1)),
            (Class::Single, 324, Duration::from_millis(1_500)),
        ];
        let sentences = warned(&calls);
        assert!(sentences[0].starts_with("p95 of the store's single calls is 15"), "{sentences:?}");
        let told = ClassLatency::new(&counted(&calls), Class::Single);
        assert!(told.calls == 334 && told.p95_us > Some(1_400_000) && !told.p95_over, "{told:?}");
    }

    #[test]
    fn an_overflow_is_warned_about_however_few_calls_there_were() {
        let calls = [(Class::Compound, 1, Duration::from_secs(20))];
        assert!(
            warned(&calls)[0].contains(
                "compound calls is over 16777216 µs, threshold 2000 µs (calls of the last minute: 1)"
            )
        );
        assert!(ClassLatency::new(&counted(&calls), Class::Compound).p95_over);
    }

    #[test]
    fn a_p95_of_1100_us_is_under_a_threshold_of_2_ms() {
        assert_eq!(warned(&[(Class::Single, 200, Duration::from_micros(1_100))]), Vec::<String>::new());
        assert_eq!(warned(&[(Class::Single, 200, Duration::from_micros(2_600))]).len(), 1);
    }

    #[test]
    fn each_class_has_its_own_threshold_and_bytes_in_bulk_have_none() {
        let calls = [
            (Class::Single, 150, Duration::from_micros(1_500)),
            (Class::Compound, 150, Duration::from_micros(1_500)),
            (Class::Bulk, 150, Duration::from_secs(3)),
        ];
        let limits = Thresholds { p95_single: Duration::from_millis(1), ..Thresholds::default() };
        let found = slow(&limits, &counted(&calls));
        assert_eq!(found.len(), 1);
        assert!(found[0].sentence().contains("single"), "{found:?}");
    }

    #[test]
    fn some_cold_calls_are_no_trend() {
        assert!(warned(&[(Class::Compound, 99, Duration::from_millis(30))]).is_empty());
        assert_eq!(warned(&[(Class::Compound, 100, Duration::from_millis(30))]).len(), 1);
    }
}
