//! Latencies of the last minute, per class of call: fine buckets, and quantiles interpolated within one.
//!
//! A call adds one to a counter that only grows. The first call of every ten seconds copies the counters, and
//! the last minute is the difference to the oldest copy that is kept. Time is monotonic and given in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Calls that are compared with one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// One primitive, one item.
    Single,
    /// Several primitives or several items in one script.
    Compound,
    /// Bytes in bulk: as slow as they are many.
    Bulk,
}

impl Class {
    /// All classes, in the order of their table.
    pub const ALL: [Class; 3] = [Class::Single, Class::Compound, Class::Bulk];

    /// The name in settings, metrics and `/v1/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Single => "single",
            Class::Compound => "compound",
            Class::Bulk => "bulk",
        }
    }
}

/// Buckets of each power of two: a quantile is wrong by at most a sixteenth.
const STEPS: usize = 16;
/// Every latency below 2^24 µs, about 17 s, has a bucket; one more has all others.
const TOP_BITS: usize = 24;
const BOUNDED: usize = (TOP_BITS - STEPS.ilog2() as usize + 1) * STEPS;
const BUCKETS: usize = BOUNDED + 1;

/// How often the counters are copied, and how many copies make the recent past: 50 to 60 s of it.
const SLOT_SECS: u64 = 10;
const SLOTS: u64 = 6;

/// A latency that a share of the calls does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    /// In microseconds, interpolated within its bucket.
    Us(u64),
    /// Longer than the longest latency that is told apart, in microseconds.
    Over(u64),
}

impl Quantile {
    /// The latency, or the bound that it is over, in microseconds.
    pub fn at_least_us(self) -> u64 {
        match self {
            Quantile::Us(us) | Quantile::Over(us) => us,
        }
    }

    /// Whether the latency is longer than `limit`. One over the last bound always is.
    pub fn exceeds(self, limit: Duration) -> bool {
        matches!(self, Quantile::Over(_)) || u128::from(self.at_least_us()) > limit.as_micros()
    }
}

impl std::fmt::Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Quantile::Us(us) => write!(f, "{us} µs"),
            Quantile::Over(us) => write!(f, "over {us} µs"),
        }
    }
}

/// Calls of the last minute, counted per bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recent {
    counts: Vec<u64>,
}

impl Recent {
    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latency that the share `q` of the calls does not exceed; `None` without calls.
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let rank = ((q * self.calls() as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            if before + count >= rank {
                let low = lower_us(bucket);
                if bucket == BOUNDED {
                    return Some(Quantile::Over(low));
                }
                let width = lower_us(bucket + 1) - low;
                return Some(Quantile::Us(low + width * (rank - before) / count));
            }
            before += count;
        }
        None
    }

    /// Both together.
    pub fn and(&self, other: &Recent) -> Recent {
        let count = |bucket: usize| {
            let of = |side: &Recent| side.counts.get(bucket).copied().unwrap_or(0);
            of(self) + of(other)
        };
        Recent { counts: (0..self.counts.len().max(other.counts.len())).map(count).collect() }
    }
}

/// The bucket of a latency.
fn bucket_of(us: u64) -> usize {
    let Some(above) = us.checked_ilog2().and_then(|top| top.checked_sub(STEPS.ilog2())) else {
        return us as usize;
    };
    (above as usize * STEPS + (us >> above) as usize).min(BOUNDED)
}

/// The least latency of a bucket, and the end of the one before it.
fn lower_us(bucket: usize) -> u64 {
    match (bucket / STEPS).checked_sub(1) {
        None => bucket as u64,
        Some(above) => ((bucket % STEPS + STEPS) as u64) << above,
    }
}

/// The counters of all classes, and copies of them.
#[derive(Debug)]
pub(crate) struct Latencies {
    born: Instant,
    counts: Box<[AtomicU64]>,
    /// The slot of the newest copy: whether one is due costs a call a load and a comparison.
    slot: AtomicU64,
    /// The counts at the beginning of a slot, oldest first. A slot without calls has none.
    copies: Mutex<VecDeque<(u64, Box<[u64]>)>>,
}

impl Latencies {
    pub(crate) fn new(born: Instant) -> Self {
        let counts: Box<[AtomicU64]> = (0..Class::ALL.len() * BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let none = (0, vec![0; counts.len()].into_boxed_slice());
        Self { born, counts, slot: AtomicU64::new(0), copies: Mutex::new(VecDeque::from([none])) }
    }

    /// Counts a call that ended at `now`.
    pub(crate) fn observe(&self, class: Class, us: u64, now: Instant) {
        let slot = now.saturating_duration_since(self.born).as_secs() / SLOT_SECS;
        if slot > self.slot.load(Relaxed) {
            self.copy(slot);
        }
        self.counts[class as usize * BUCKETS + bucket_of(us)].fetch_add(1, Relaxed);
    }

    /// Keeps what was counted before `slot` began. A call that ends meanwhile is on either side of it.
    #[cold]
    fn copy(&self, slot: u64) {
        let mut copies = self.copies.lock();
        if slot > self.slot.load(Relaxed) {
            copies.push_back((slot, self.counts.iter().map(|count| count.load(Relaxed)).collect()));
            while copies.front().is_some_and(|(old, _)| *old + SLOTS <= slot) {
                copies.pop_front();
            }
            self.slot.store(slot, Relaxed);
        }
    }

    /// The calls of the last minute, per class in the order of [`Class::ALL`].
    pub(crate) fn recent(&self, now: Instant) -> Vec<Recent> {
        let slot = now.saturating_duration_since(self.born).as_secs() / SLOT_SECS;
        let copies = self.copies.lock();
        // All calls between two copies ended in the slot of the first. So the oldest copy within the window is
        // what was counted before the window began; without one, nothing was counted since.
        let Some((_, before)) = copies.iter().find(|(at, _)| *at + SLOTS > slot) else {
            return vec![Recent::default(); Class::ALL.len()];
        };
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        let since: Vec<u64> = counts.iter().zip(before).map(|(now, then)| now - then).collect();
        since.chunks(BUCKETS).map(|counts| Recent { counts: counts.to_vec() }).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn p95(latencies: &Latencies, class: Class, now: Instant) -> Option<Quantile> {
        latencies.recent(now)[class as usize].quantile(0.95)
    }

    #[test]
    fn buckets_touch_and_none_is_wider_than_a_sixteenth_of_its_latency() {
        for bucket in 0..BOUNDED {
            let (low, end) = (lower_us(bucket), lower_us(bucket + 1));
            assert!(
                low < end && (end - low == 1 || (end - low) * STEPS as u64 <= low),
                "{bucket}: {low} {end}"
            );
            assert_eq!((bucket_of(low), bucket_of(end - 1), bucket_of(end)), (bucket, bucket, bucket + 1));
        }
        assert_eq!(lower_us(BOUNDED), 1 << TOP_BITS);
        assert_eq!(bucket_of(u64::MAX), BOUNDED);
    }

    #[test]
    fn a_p95_of_1100_us_is_not_over_2_ms_and_one_of_1500_ms_has_a_value() {
        let born = Instant::now();
        let latencies = Latencies::new(born);
        assert_eq!(p95(&latencies, Class::Single, born), None);
        for _ in 0..100 {
            latencies.observe(Class::Single, 1_100, born);
            latencies.observe(Class::Compound, 1_500_000, born);
        }
        let single = p95(&latencies, Class::Single, born).unwrap();
        assert!(
            !single.exceeds(Duration::from_millis(2)) && single.exceeds(Duration::from_millis(1)),
            "{single}"
        );
        assert!((1_088..=1_152).contains(&single.at_least_us()), "{single}");
        let Some(Quantile::Us(slow)) = p95(&latencies, Class::Compound, born) else { panic!("no value") };
        assert!((1_441_792..=1_572_864).contains(&slow), "{slow}");
    }

    #[test]
    fn a_quantile_lies_where_its_rank_lies_in_the_bucket() {
        let born = Instant::now();
        let latencies = Latencies::new(born);
        for us in 1_000..2_000 {
            latencies.observe(Class::Single, us, born);
        }
        let recent = &latencies.recent(born)[0];
        for (q, exact) in [(0.05, 1_050), (0.5, 1_500), (0.95, 1_950)] {
            let us = recent.quantile(q).unwrap().at_least_us();
            assert!(us.abs_diff(exact) <= 10, "{q}: {us}, not {exact}");
        }
    }

    #[test]
    fn an_overflow_exceeds_every_threshold_and_says_over_what() {
        let born = Instant::now();
        let latencies = Latencies::new(born);
        latencies.observe(Class::Single, 60_000_000, born);
        let over = p95(&latencies, Class::Single, born).unwrap();
        assert_eq!(over, Quantile::Over(1 << TOP_BITS));
        assert!(over.exceeds(Duration::from_secs(3_600)));
        assert_eq!(over.to_string(), "over 16777216 µs");
    }

    #[test]
    fn only_the_last_minute_counts() {
        let born = Instant::now();
        let at = |secs| born + Duration::from_secs(secs);
        let latencies = Latencies::new(born);
        for _ in 0..1_000 {
            latencies.observe(Class::Single, 5_000, at(3));
        }
        for secs in 10..60 {
            latencies.observe(Class::Single, 100, at(secs));
        }
        assert!(p95(&latencies, Class::Single, at(59)).unwrap().at_least_us() > 4_000);
        // The slow ones left the window, whether somebody called meanwhile or not.
        assert!(p95(&latencies, Class::Single, at(60)).unwrap().at_least_us() < 200);
        assert_eq!(latencies.recent(at(60))[0].calls(), 50);
        assert_eq!(latencies.recent(at(105))[0].calls(), 10);
        assert_eq!(p95(&latencies, Class::Single, at(110)), None);
        // A call after a long silence is alone.
        latencies.observe(Class::Single, 7, at(900));
        assert_eq!(p95(&latencies, Class::Single, at(901)), Some(Quantile::Us(8)));
        // A thread that looked at the clock before the others is counted too.
        latencies.observe(Class::Single, 7, at(880));
        assert_eq!(latencies.recent(at(902))[0].calls(), 2);
    }

    #[test]
    fn classes_are_counted_apart_and_can_be_added() {
        let born = Instant::now();
        let latencies = Latencies::new(born);
        latencies.observe(Class::Compound, 3_000, born);
        latencies.observe(Class::Bulk, 900_000, born);
        assert_eq!(p95(&latencies, Class::Single, born), None);
        let recent = latencies.recent(born);
        assert_eq!(recent.iter().map(Recent::calls).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(recent[1].and(&recent[2]).calls(), 2);
        assert_eq!(Recent::default().and(&recent[1]), recent[1]);
    }
}
