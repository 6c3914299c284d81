//! One number and what belongs to it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

/// What one run of one contestant measured.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Calls made.
    pub(crate) n: u64,
    /// How long they took together.
    pub(crate) seconds: f64,
    /// Their latencies, when the contestant tells them.
    pub(crate) latency: Option<Latency>,
    /// `key=value` pairs, among them the processor time each side spent.
    pub(crate) notes: String,
}

/// Quantiles in milliseconds.
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name wherever a number has one")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Sample {
    pub(crate) fn new(n: u64, took: Duration) -> Self {
        Self { n, seconds: took.as_secs_f64(), latency: None, notes: String::new() }
    }

    pub(crate) fn ops_per_s(&self) -> f64 {
        self.n as f64 / self.seconds
    }

    pub(crate) fn note(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        let space = if self.notes.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(self.notes, "{space}{key}={value}");
        self
    }
}

/// Nanoseconds up to a minute, to three digits; what takes longer counts as a minute.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

impl From<&Histogram<u64>> for Latency {
    fn from(nanoseconds: &Histogram<u64>) -> Self {
        let at = |q| nanoseconds.value_at_quantile(q) as f64 / 1e6;
        Self { p50_ms: at(0.50), p95_ms: at(0.95), p99_ms: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_back_in_milliseconds() -> Result<()> {
        let mut kept = histogram()?;
        for ms in 1..=100 {
            kept.saturating_record(ms * 1_000_000);
        }
        let Latency { p50_ms, p95_ms, p99_ms } = Latency::from(&kept);
        assert_eq!([p50_ms, p95_ms, p99_ms].map(|ms| ms.round() as u64), [50, 95, 99]);
        Ok(())
    }
}
