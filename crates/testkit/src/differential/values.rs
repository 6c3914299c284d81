//! Words worth trying: edges of integers, indexes, scores, times, and bytes of every kind.

use fastrand::Rng;

use super::dialect::Dialect;
use super::history::Word;

fn text(bytes: impl AsRef<[u8]>) -> Word {
    Word::Text(bytes.as_ref().to_vec())
}

fn one<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.usize(..from.len())]
}

/// Bytes of any kind: short, empty, binary, numbers, sometimes long.
pub(super) fn value(rng: &mut Rng) -> Word {
    match rng.u8(..20) {
        0 => text(""),
        1 => text([0, 255, b'\r', b'\n', 128]),
        2 => text("x".repeat(rng.usize(1..2000))),
        3 => text((0..rng.usize(1..12)).map(|_| rng.u8(..)).collect::<Vec<_>>()),
        4..=8 => int(rng),
        9 => Word::Number(number(rng)),
        _ => text(one(rng, &["a", "b", "c", "value", "0", "1", "10", "hello world", "A"])),
    }
}

/// A member, field or list item: few, so that they meet again.
pub(super) fn member(rng: &mut Rng) -> Word {
    match rng.u8(..24) {
        0 => text(""),
        1 => text([255, 0, 10]),
        2 => value(rng),
        3 => Word::Number(rng.i64(-3..4).to_string()),
        4..=9 => text(one(rng, &["d", "e", "f", "1", "2", "aa"])),
        _ => text(one(rng, &["a", "b", "c"])),
    }
}

/// An integer, mostly small, sometimes at the edges, sometimes none at all.
pub(super) fn int(rng: &mut Rng) -> Word {
    match rng.u8(..16) {
        0 => text(one(rng, &["9223372036854775807", "-9223372036854775808", "9223372036854775806"])),
        1 => text(one(rng, &["9223372036854775808", "-9223372036854775809", "99999999999999999999999"])),
        2 => text(one(rng, &["", " 1", "1 ", "+1", "01", "-0", "1.0", "1e3", "abc", "--1", "-", "0x10"])),
        3 => Word::Number(number(rng)),
        _ => text(rng.i64(-20..100).to_string()),
    }
}

/// An index or count: about the length of the collections here, or absurd.
pub(super) fn index(rng: &mut Rng) -> Word {
    match rng.u8(..16) {
        0 => int(rng),
        1 => text(one(rng, &["1000000", "-1000000", "2147483648", "-2147483649", "4294967296"])),
        2 => Word::Number(rng.i64(-8..9).to_string()),
        _ => text(rng.i64(-8..9).to_string()),
    }
}

/// A place in a string: within it or a little past its end, or where no string reaches.
pub(super) fn offset(rng: &mut Rng) -> Word {
    match rng.u8(..16) {
        0 => {
            text(one(rng, &["-1", "-9223372036854775808", "536870912", "9223372036854775807", "abc", "1.5"]))
        }
        1 => text(one(rng, &["2000", "300", "1999"])),
        2 => Word::Number(rng.i64(0..9).to_string()),
        _ => text(rng.i64(0..12).to_string()),
    }
}

/// How many to pop: never absurdly many of nothing, sometimes negative.
pub(super) fn count(rng: &mut Rng) -> Word {
    match rng.u8(..12) {
        0 => int(rng),
        1 => text(one(rng, &["-1", "0", "4294967296", "9223372036854775807"])),
        _ => text(rng.i64(0..6).to_string()),
    }
}

/// A score. Plain ones are spelled alike by every server; the others only by those that print 17 digits.
pub(super) fn score(rng: &mut Rng, dialect: Dialect) -> Word {
    match rng.u8(..16) {
        0 => text(one(rng, &["inf", "-inf", "+inf", "Infinity", "-Infinity"])),
        1 => text(one(rng, &["", "abc", "nan", "1,5", " 1", "1 ", "--1", "(1"])),
        2 => text(one(rng, &["0.5", "-0.25", "1.75", "+3", ".5", "5.", "1e3", "2.5e2"])),
        3 => text(one(rng, &["9007199254740991", "-9007199254740991", "1763230000123"])),
        4 if !dialect.plain_scores() => text(one(
            rng,
            &[
                "0.1",
                "3.14159",
                "1e17",
                "1e-7",
                "123456789.123456789",
                "9007199254740993",
                "-0",
                "1e300",
                "0.3",
                "1e21",
            ],
        )),
        5 => Word::Number(if dialect.plain_scores() { rng.i64(-9..10).to_string() } else { number(rng) }),
        _ => text(rng.i64(-6..7).to_string()),
    }
}

/// A bound of a range by score.
pub(super) fn bound(rng: &mut Rng, dialect: Dialect) -> Word {
    match rng.u8(..8) {
        0 => text("-inf"),
        1 => text("+inf"),
        2 | 3 => text(format!("({}", rng.i64(-6..7))),
        4 => text(one(rng, &["(", "(inf", "(-inf", "", "abc", "nan", "(nan", "((1", "(0.5"])),
        _ => score(rng, dialect),
    }
}

/// Seconds to live.
pub(super) fn seconds(rng: &mut Rng, dialect: Dialect) -> Word {
    if dialect.coarse_time() {
        return text(one(
            rng,
            &["10", "60", "3600", "0", "-1", "-100", "9223372036854775", "9223372036854776"],
        ));
    }
    match rng.u8(..12) {
        0 => int(rng),
        1 => {
            text(one(rng, &["0", "-1", "-100", "9223372036854775", "9223372036854776", "-9223372036854776"]))
        }
        2 => Word::Number(rng.i64(0..4).to_string()),
        _ => text(one(rng, &["1", "2", "10", "60", "3600"])),
    }
}

/// Milliseconds to live.
pub(super) fn millis(rng: &mut Rng, dialect: Dialect) -> Word {
    if dialect.coarse_time() {
        return text(one(
            rng,
            &["10000", "60000", "100000", "0", "-1", "9223372036854775807", "9223370000000000000"],
        ));
    }
    match rng.u8(..12) {
        0 => int(rng),
        1 => {
            text(one(rng, &["0", "-1", "9223372036854775807", "9223370000000000000", "-9223372036854775808"]))
        }
        2 => Word::Number(rng.i64(0..2000).to_string()),
        _ => text(one(rng, &["1", "2", "5", "100", "999", "1000", "1001", "60000"])),
    }
}

/// A moment, in milliseconds since the epoch: now, just past, about to come.
pub(super) fn moment(rng: &mut Rng, dialect: Dialect) -> Word {
    if dialect.coarse_time() {
        return Word::Moment(*one(rng, &[&-100_000, &-10_000, &10_000, &60_000]));
    }
    match rng.u8(..12) {
        0 => int(rng),
        1 => text(one(rng, &["0", "1", "-1", "9223372036854775807", "-9223372036854775808"])),
        _ => Word::Moment(*one(rng, &[&-1000, &-1, &0, &1, &2, &100, &1000, &60_000])),
    }
}

/// Digits that Lua reads as a number.
pub(super) fn number(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => one(rng, &["1e15", "1e16", "1e17", "1e20", "-1e15", "1e100", "1e-5", "123456789012345678"])
            .to_owned(),
        1 => one(rng, &["9007199254740991", "9007199254740992", "9007199254740993", "1763230000123456"])
            .to_owned(),
        2 => one(rng, &["0.5", "0.1", "-0.1", "3.14159", "1.0", "100.25", "-7.5", "0.0", "-0"]).to_owned(),
        3 => format!("{}", rng.f64() * 1e6),
        _ => rng.i64(-100..1000).to_string(),
    }
}

/// A word that belongs nowhere. None has a NUL: Redis ends a number there, we do not.
pub(super) fn stray(rng: &mut Rng) -> Word {
    text(one(rng, &["", "stray", "0", "-1", "NX", "XX", "WITHSCORES", "LIMIT", "1.5", "LEFT"]))
}
