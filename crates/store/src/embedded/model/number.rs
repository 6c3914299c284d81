//! Numbers as Redis reads and writes them.

use std::io::Write as _;

/// A 64-bit integer in the one spelling Redis accepts: no sign but `-`, no spaces, no leading zeros.
pub(crate) fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits cannot overflow a u64.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// A double as `strtod` reads it, the whole text and nothing else; never NaN. Hexadecimal is not read.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let named = text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    let out_of_range = if value.is_infinite() {
        !named
    } else {
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        value == 0.0 && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
    };
    (!value.is_nan() && !out_of_range).then_some(value)
}

/// A bound of a score range, which Redis reads less strictly than a score: blanks before it, nothing at all
/// (zero) and what is too large or too small for a double are accepted.
pub(crate) fn parse_bound(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Appends a double as C's `%.17g` writes it, which is what Redis 7.0 does with scores and with Lua numbers.
pub(crate) fn write_float(value: f64, out: &mut Vec<u8>) {
    // 2^53: beyond it not every integer is a double, below it the decimal digits are exact.
    if value.fract() == 0.0
        && value.abs() < 9_007_199_254_740_992.0
        && !(value == 0.0 && value.is_sign_negative())
    {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
        return;
    }
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    // d.dddddddddddddddde±x, seventeen significant digits, correctly rounded.
    let scientific = format!("{:.16e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let significant = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    let digits = &digits[..significant];
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if (-4..17).contains(&exponent) {
        let point = exponent + 1;
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
            out.extend_from_slice(digits);
        } else {
            let point = point as usize;
            out.extend_from_slice(&digits[..point.min(digits.len())]);
            if digits.len() > point {
                out.push(b'.');
                out.extend_from_slice(&digits[point..]);
            } else {
                out.extend(std::iter::repeat_n(b'0', point - digits.len()));
            }
        }
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a Vec cannot fail.
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        write_float(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("1e3", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn floats_are_written_as_percent_17g_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.5, "0.5"),
            (0.1, "0.10000000000000001"),
            (1.25, "1.25"),
            (-2.75, "-2.75"),
            (1e15, "1000000000000000"),
            (1_763_230_000_123_456.0, "1763230000123456"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (1.5e300, "1.5000000000000001e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (100.25, "100.25"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn floats_out_of_range_or_not_numbers_are_refused() {
        for text in ["", " 1", "1 ", "nan", "-nan", "1e400", "-1e400", "1e-400", "abc", "1,5", "--1"] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
        for (text, value) in
            [("inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY), ("+5", 5.0), (".5", 0.5)]
        {
            assert_eq!(parse_float(text.as_bytes()), Some(value), "{text:?}");
        }
        assert_eq!(parse_float(b"0e-400"), Some(0.0));
        for (text, value) in [("", 0.0), (" 1", 1.0), ("1e400", f64::INFINITY), ("1e-400", 0.0)] {
            assert_eq!(parse_bound(text.as_bytes()), Some(value), "{text:?}");
        }
        for text in ["nan", " ", "1 ", "x"] {
            assert_eq!(parse_bound(text.as_bytes()), None, "{text:?}");
        }
    }
}
