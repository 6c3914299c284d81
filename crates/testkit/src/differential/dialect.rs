//! Where servers differ among themselves: what no script may lean on, and no history asks.

use super::history::{Command, Word};

/// Which server is at the other end. The data model follows Redis 7.0 to the letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 6.2, the oldest supported.
    Redis62,
    /// 7.0.
    Redis7,
    /// 9, with what changed since 7.0.
    Valkey9,
}

impl Dialect {
    /// Whether scores must be spelled alike by 17 digits and by the shortest that read back, which is what
    /// Redis prints since 7.2.
    pub(super) fn plain_scores(self) -> bool {
        self == Dialect::Valkey9
    }

    /// Whether times must keep seconds away from the edge: Valkey adds microseconds of its own to a clock
    /// that stands still.
    pub(super) fn coarse_time(self) -> bool {
        self == Dialect::Valkey9
    }

    /// Whether this server means by the command what Redis 7.0 means.
    pub(super) fn agrees(self, command: &Command) -> bool {
        let texts: Vec<String> = command
            .iter()
            .map(|word| match word {
                Word::Text(text) => String::from_utf8_lossy(text).to_uppercase(),
                Word::Number(digits) => digits.clone(),
                Word::Key(_) | Word::Moment(_) => String::new(),
            })
            .collect();
        let has = |wanted: &str| texts.iter().any(|text| text == wanted);
        let name = texts.first().map(String::as_str).unwrap_or_default();
        // The sign of a zero score depends on how Redis happens to encode the set.
        if matches!(name, "ZADD" | "ZINCRBY") && has("-0") {
            return false;
        }
        match self {
            Dialect::Redis7 => true,
            // 6.2 negates the smallest integer into itself, refuses NX with GET, looks at no key
            // to pop none of it.
            Dialect::Redis62 => match name {
                "ZPOPMIN" | "ZPOPMAX" => {
                    !texts.iter().any(|text| text.parse::<f64>().is_ok_and(|count| count <= 0.0))
                }
                "DECRBY" => !has("-9223372036854775808"),
                "SET" => !(has("NX") && has("GET")),
                _ => true,
            },
            // Newer servers read a bound to the letter, where older ones skip a space before it, and spell Lua
            // numbers by their shortest digits.
            Dialect::Valkey9 if command.iter().any(spelled_otherwise) => false,
            // There a negative offset counts from the start when the set is large.
            Dialect::Valkey9
                if texts.windows(2).any(|pair| pair[0] == "LIMIT" && pair[1].starts_with('-')) =>
            {
                false
            }
            Dialect::Valkey9 => match name {
                "LREM" => !has("-9223372036854775808"),
                // Short lists are indexed by 32 bits there.
                "LSET" | "LINDEX" => !texts
                    .iter()
                    .any(|text| text.parse::<i64>().is_ok_and(|index| i32::try_from(index).is_err())),
                "ZCOUNT" | "ZRANGE" | "ZRANGEBYSCORE" | "ZREMRANGEBYSCORE" => {
                    !texts.iter().any(|text| text.starts_with(' '))
                }
                _ => true,
            },
        }
    }
}

fn spelled_otherwise(word: &Word) -> bool {
    match word {
        Word::Number(digits) => {
            digits.parse::<i64>().map_or(true, |value| value.abs() > 1 << 53 || digits == "-0")
        }
        _ => false,
    }
}
