//! Time buckets: `{minute}`, `{hour}`, `{day}`, always UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::kind::BucketUnit;

/// The milliseconds a bucketed key covers: `[start_ms, end_ms)` since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The first millisecond inside.
    pub start_ms: i64,
    /// The first millisecond after it.
    pub end_ms: i64,
}

/// Before the epoch and after the year 9999 no store has ever been; such a clock gets the nearest bucket.
const LAST_US: i64 = 253_402_207_199_999_999;

/// What the bucket of `now_us` covers.
pub(crate) fn at(unit: BucketUnit, now_us: i64) -> Bucket {
    let start_ms = (now_us.clamp(0, LAST_US) / 1000).div_euclid(unit.millis()) * unit.millis();
    Bucket { start_ms, end_ms: start_ms + unit.millis() }
}

/// Appends the bucket of `now_us` and says what it covers.
pub(crate) fn append(unit: BucketUnit, now_us: i64, out: &mut Vec<u8>) -> Bucket {
    let covered = at(unit, now_us);
    let now_us = now_us.clamp(0, LAST_US);
    let time = Timestamp::from_microsecond(now_us).unwrap_or(Timestamp::UNIX_EPOCH);
    let time = Offset::UTC.to_datetime(time);
    let mut text = *b"0000-00-00-00-00";
    digits(&mut text[0..4], i32::from(time.year()));
    digits(&mut text[5..7], i32::from(time.month()));
    digits(&mut text[8..10], i32::from(time.day()));
    digits(&mut text[11..13], i32::from(time.hour()));
    digits(&mut text[14..16], i32::from(time.minute()));
    if unit == BucketUnit::Hour {
        text[10] = b'_';
    }
    out.extend_from_slice(&text[..unit.format().len()]);
    covered
}

fn digits(out: &mut [u8], mut number: i32) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10).unsigned_abs() as u8;
        number /= 10;
    }
}

/// Reads a bucket back; `None` for what no clock has written, such as month 13.
pub(crate) fn parse(unit: BucketUnit, text: &[u8]) -> Option<Bucket> {
    let format = unit.format().as_bytes();
    let fits = |(&byte, &sample): (&u8, &u8)| match sample {
        b'-' | b'_' => byte == sample,
        _ => byte.is_ascii_digit(),
    };
    if text.len() != format.len() || !text.iter().zip(format).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text.get(from..to).map_or(0, |digits| digits.iter().fold(0i16, |n, b| n * 10 + i16::from(b - b'0')))
    };
    let time = DateTime::new(
        number(0, 4),
        number(5, 7) as i8,
        number(8, 10) as i8,
        number(11, 13) as i8,
        number(14, 16) as i8,
        0,
        0,
    )
    .ok()?;
    let start_ms = Offset::UTC.to_timestamp(time).ok()?.as_millisecond();
    Some(Bucket { start_ms, end_ms: start_ms + unit.millis() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn text(unit: BucketUnit, now_us: i64) -> (String, Bucket) {
        let mut out = Vec::new();
        let bucket = append(unit, now_us, &mut out);
        (String::from_utf8(out).unwrap(), bucket)
    }

    #[test]
    fn buckets_are_written_in_the_documents_formats() {
        let at = 1_705_329_059_999_999; // 2024-01-15 14:30:59.999999
        assert_eq!(text(BucketUnit::Minute, at).0, "2024-01-15-14-30");
        assert_eq!(text(BucketUnit::Hour, at).0, "2024-01-15_14");
        assert_eq!(text(BucketUnit::Day, at).0, "2024-01-15");
        assert_eq!(text(BucketUnit::Minute, at + 1).0, "2024-01-15-14-31");
    }

    #[test]
    fn a_bucket_covers_its_first_millisecond_and_not_its_end() {
        let (_, bucket) = text(BucketUnit::Hour, 1_705_329_059_999_999);
        assert_eq!(bucket, Bucket { start_ms: 1_705_327_200_000, end_ms: 1_705_330_800_000 });
        assert_eq!(text(BucketUnit::Hour, bucket.start_ms * 1000).1, bucket);
        assert_eq!(text(BucketUnit::Hour, bucket.end_ms * 1000).1.start_ms, bucket.end_ms);
    }

    #[test]
    fn what_was_written_reads_back_and_nonsense_does_not() {
        for unit in BucketUnit::ALL {
            for now in [0, 1_709_164_800_000_000, i64::MAX, i64::MIN] {
                let (written, bucket) = text(*unit, now);
                assert_eq!(parse(*unit, written.as_bytes()), Some(bucket), "{written}");
            }
        }
        for bad in ["2024-13-01_00", "2024-02-30_00", "2024-01-01-00", "2024-01-01_0", "2024-01-01_24"] {
            assert_eq!(parse(BucketUnit::Hour, bad.as_bytes()), None, "{bad}");
        }
    }
}
