//! Durations, sizes and numbers as people write them.

use std::fmt::Write as _;
use std::time::Duration;

const DURATIONS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Digits with single underscores between them.
pub(crate) fn parse_count(text: &str) -> Option<u64> {
    let sound = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        && !text.starts_with('_')
        && !text.ends_with('_')
        && !text.contains("__");
    if sound { text.replace('_', "").parse().ok() } else { None }
}

/// `250ms`, `60s`, `5m`, `2h`, `7d`, `1h30m`; larger units first, each once.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '_')?;
        let amount = parse_count(&rest[..digits])?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = duration_unit(&rest[..end])?;
        if unit >= smallest {
            return None;
        }
        smallest = unit;
        total = total.checked_add(amount.checked_mul(unit)?)?;
        rest = &rest[end..];
    }
    (smallest != u64::MAX).then(|| Duration::from_millis(total))
}

/// The milliseconds of a unit.
pub(crate) fn duration_unit(unit: &str) -> Option<u64> {
    DURATIONS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis)
}

/// `1KiB`, `5MiB`, `100MB`, `512B`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    parse_count(&text[..digits])?.checked_mul(size_unit(&text[digits..])?)
}

/// The bytes of a unit.
pub(crate) fn size_unit(unit: &str) -> Option<u64> {
    SIZES.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
}

/// A duration as [`parse_duration`] reads it.
pub(crate) fn duration_text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0ms".to_owned();
    }
    // A day and an hour is written 25h, as people say it; whole days stay days.
    let units = if left % DURATIONS[0].1 == 0 { &DURATIONS[..] } else { &DURATIONS[1..] };
    let mut text = String::new();
    for (name, millis) in units {
        if left >= *millis {
            let _ = write!(text, "{}{name}", left / millis);
            left %= millis;
        }
    }
    text
}

/// A size as [`parse_size`] reads it, in the largest binary unit that divides it.
pub(crate) fn size_text(bytes: u64) -> String {
    let binary = SIZES[..5].iter().rev();
    let unit = binary.copied().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    let (name, size) = unit.unwrap_or(SIZES[0]);
    format!("{}{name}", bytes / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("60s", 60_000),
            ("5m", 300_000),
            ("25h", 90_000_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("1_000ms", 1000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "60",
            "s",
            "60 s",
            "60S",
            "1m1h",
            "1m1m",
            "-1s",
            "1.5h",
            "99999999999999999999d",
            "1h30",
            "1_s",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("100MB"), Some(100_000_000));
        for bad in ["", "64", "KiB", "64kib", "1.5MB", "-1B", "99999999999TB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1000, "1000B"),
            (65_536, "64KiB"),
            (5 << 30, "5GiB"),
            (1 << 50, "1024TiB"),
        ] {
            assert_eq!((size_text(bytes).as_str(), parse_size(text)), (text, Some(bytes)));
        }
    }

    #[test]
    fn every_unit_of_the_tables_is_one_that_a_variable_may_have() {
        let known: Vec<&str> = DURATIONS.iter().rev().chain(&SIZES).map(|(name, _)| *name).collect();
        assert_eq!(crate::field::document::env::UNITS, known);
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for text in ["250ms", "1m", "25h", "7d", "1h30m", "1s500ms", "24h"] {
            let written = parse_duration(text).map(duration_text);
            assert_eq!(written.as_deref(), Some(if text == "24h" { "1d" } else { text }));
        }
    }
}
