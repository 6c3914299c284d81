//! Moments as the documents write them.

use jiff::Timestamp;
use jiff::tz::Offset;

/// `2026-01-24T10:30:00.000000`: UTC, microseconds, no zone.
pub(crate) fn document_text(us: i64) -> String {
    let at = Offset::UTC.to_datetime(Timestamp::from_microsecond(us).unwrap_or_default());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        us.rem_euclid(1_000_000)
    )
}

/// Seconds since the epoch with a decimal fraction, as other programs write them; `None` for what is none.
pub(crate) fn from_seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(part) {
        return None;
    }
    let seconds: i64 = whole.parse().ok().filter(|seconds| *seconds < 253_402_300_800)?;
    let mut micros = 0;
    for at in 0..6 {
        micros = micros * 10 + i64::from(part.as_bytes().get(at).map_or(0, |digit| digit - b'0'));
    }
    Some(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_the_documents_write_it() {
        assert_eq!(document_text(1_769_250_600_000_000), "2026-01-24T10:30:00.000000");
        assert_eq!(document_text(1_769_250_600_000_042), "2026-01-24T10:30:00.000042");
        assert_eq!(document_text(0), "1970-01-01T00:00:00.000000");
    }

    #[test]
    fn seconds_of_other_programs_are_read_to_the_microsecond() {
        assert_eq!(from_seconds(b"1769250600.123456"), Some(1_769_250_600_123_456));
        assert_eq!(from_seconds(b"1769250600.1234567"), Some(1_769_250_600_123_456));
        assert_eq!(from_seconds(b"1769250600.5"), Some(1_769_250_600_500_000));
        assert_eq!(from_seconds(b"1769250600"), Some(1_769_250_600_000_000));
        for bad in [&b""[..], b".5", b"-1.0", b"1e9", b"now", b"99999999999999999999", b"\xff"] {
            assert_eq!(from_seconds(bad), None, "{bad:?}");
        }
    }
}
