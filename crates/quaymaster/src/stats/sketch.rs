//! Response times in mergeable buckets.
//!
//! A time in whole microseconds falls into one of 64 buckets per power of two; below 128 µs every microsecond has its
//! own. A bucket is told by its middle, which is at most 1/128 of the true value away from anything in it. Counts of
//! buckets are added, so a percentile over instances and hours is that of all their requests together.

/// Buckets per power of two.
const PER_OCTAVE: u64 = 64;

/// `log2` of it.
const OCTAVE_BITS: u32 = 6;

/// Longer times count as this: 19 hours.
pub(crate) const MAX_US: u64 = (1 << 36) - 1;

/// How many buckets there are.
pub(crate) const BUCKETS: usize = 64 + 30 * 64;

/// The relative error of a percentile is at most one part in so many.
pub const ERROR_ONE_IN: u32 = 128;

/// The bucket of a time.
#[inline]
pub(crate) fn bucket(us: u64) -> u16 {
    let us = us.min(MAX_US);
    if us < PER_OCTAVE {
        return us as u16;
    }
    let octave = us.ilog2() - OCTAVE_BITS;
    let within = (us >> octave) - PER_OCTAVE;
    (PER_OCTAVE * (u64::from(octave) + 1) + within) as u16
}

/// The time that a bucket stands for: its middle.
pub(crate) fn middle_us(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let width = 1_u64 << octave;
    ((PER_OCTAVE + bucket % PER_OCTAVE) << octave) + (width - 1) / 2
}

/// Counts by bucket, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sketch {
    buckets: std::collections::BTreeMap<u16, u64>,
    count: u64,
}

impl Sketch {
    /// Adds so many to a bucket.
    pub(crate) fn add(&mut self, bucket: u16, count: u64) {
        let held = self.buckets.entry(bucket).or_default();
        *held = held.saturating_add(count);
        self.count = self.count.saturating_add(count);
    }

    /// How many times are in it.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many times are in one bucket.
    #[cfg(test)]
    pub(crate) fn count_of(&self, bucket: u16) -> u64 {
        self.buckets.get(&bucket).copied().unwrap_or(0)
    }

    /// The nearest-rank percentile in microseconds; 0 when nothing is in it.
    pub(crate) fn percentile_us(&self, percent: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0_u128;
        for (bucket, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= rank {
                return middle_us(*bucket);
            }
        }
        0
    }
}
