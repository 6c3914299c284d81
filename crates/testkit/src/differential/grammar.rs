//! How every command of the data model is called, rightly and wrongly.

use fastrand::Rng;

use super::dialect::Dialect;
use super::history::{Command, KEYS, Word};
use super::values;

/// Command, how often, and the shape of its arguments:
/// `s h l S z` a key of that type (mostly), `k` any key, `v` value, `m` member or field, `i` integer,
/// `x` index, `o` offset, `c` count, `d` score, `b` bound by score, `E` seconds, `P` milliseconds, `A` moment,
/// `w` channel; `+` after it: one or more, `?`: perhaps. A shape in capitals is drawn by hand below.
const SHAPES: &[(&str, u32, &str)] = &[
    ("APPEND", 3, "s v"),
    ("DECRBY", 3, "s i"),
    ("DEL", 3, "k+"),
    ("EXISTS", 2, "k+"),
    ("EXPIRE", 4, "k E"),
    ("GET", 3, "s"),
    ("GETDEL", 2, "s"),
    ("GETRANGE", 3, "s x x"),
    ("HDEL", 3, "h m+"),
    ("HEXISTS", 2, "h m"),
    ("HGET", 2, "h m"),
    ("HGETALL", 2, "h"),
    ("HINCRBY", 4, "h m i"),
    ("HLEN", 2, "h"),
    ("HMGET", 3, "h m+"),
    ("HSET", 6, "PAIRS"),
    ("HSETNX", 3, "h m v"),
    ("INCR", 4, "s"),
    ("INCRBY", 4, "s i"),
    ("LINDEX", 3, "l x"),
    ("LLEN", 2, "l"),
    ("LMOVE", 4, "LMOVE"),
    ("LPOP", 3, "l c?"),
    ("LPUSH", 5, "l m+"),
    ("LRANGE", 3, "l x x"),
    ("LREM", 5, "l x m"),
    ("LSET", 3, "l x m"),
    ("LTRIM", 3, "l x x"),
    ("MGET", 2, "k+"),
    ("PERSIST", 2, "k"),
    ("PEXPIRE", 5, "k P"),
    ("PEXPIREAT", 5, "k A"),
    ("PTTL", 4, "k"),
    ("PUBLISH", 1, "w v"),
    ("RENAME", 3, "k k"),
    ("RPOP", 3, "l c?"),
    ("RPUSH", 6, "l m+"),
    ("SADD", 5, "S m+"),
    ("SCARD", 2, "S"),
    ("SET", 9, "SET"),
    ("SETNX", 2, "s v"),
    ("SETRANGE", 4, "s o v"),
    ("SISMEMBER", 2, "S m"),
    ("SMEMBERS", 2, "S"),
    ("SREM", 3, "S m+"),
    ("STRLEN", 2, "s"),
    ("TIME", 1, ""),
    ("TTL", 3, "k"),
    ("TYPE", 3, "k"),
    ("ZADD", 9, "ZADD"),
    ("ZCARD", 2, "z"),
    ("ZCOUNT", 3, "z b b"),
    ("ZINCRBY", 4, "z d m"),
    ("ZPOPMAX", 3, "z c?"),
    ("ZPOPMIN", 3, "z c?"),
    ("ZRANGE", 6, "ZRANGE"),
    ("ZRANGEBYSCORE", 5, "ZRANGEBYSCORE"),
    ("ZRANK", 3, "z m"),
    ("ZREM", 3, "z m+"),
    ("ZREMRANGEBYRANK", 3, "z x x"),
    ("ZREMRANGEBYSCORE", 3, "z b b"),
    ("ZREVRANGE", 3, "ZREVRANGE"),
    ("ZSCORE", 2, "z m"),
];

/// The commands that histories are made of.
pub fn commands() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _, _)| *name)
}

/// A command drawn at random, well formed nine times of ten.
pub fn command(rng: &mut Rng, dialect: Dialect) -> Command {
    loop {
        let command = any_command(rng, dialect);
        if dialect.agrees(&command) {
            return command;
        }
    }
}

fn any_command(rng: &mut Rng, dialect: Dialect) -> Command {
    let (name, shape) = draw(rng);
    let mut words = vec![text(name)];
    match shape {
        "PAIRS" => {
            words.push(key(rng, b'h'));
            for _ in 0..rng.usize(1..4) {
                words.extend([values::member(rng), values::value(rng)]);
            }
        }
        "LMOVE" => {
            words.extend([key(rng, b'l'), key(rng, b'l')]);
            for _ in 0..2 {
                words.push(pick(rng, &["LEFT", "RIGHT", "left", "Right"]));
            }
        }
        "SET" => set(rng, dialect, &mut words),
        "ZADD" => zadd(rng, dialect, &mut words),
        "ZRANGE" => zrange(rng, dialect, &mut words),
        "ZRANGEBYSCORE" => {
            words.push(key(rng, b'z'));
            words.extend([values::bound(rng, dialect), values::bound(rng, dialect)]);
            let mut options = Vec::new();
            maybe(rng, 3, &mut options, |_| vec![text("WITHSCORES")]);
            maybe(rng, 3, &mut options, limit);
            rng.shuffle(&mut options);
            words.extend(options.into_iter().flatten());
        }
        "ZREVRANGE" => {
            words.extend([key(rng, b'z'), values::index(rng), values::index(rng)]);
            if rng.bool() {
                words.push(text("WITHSCORES"));
            }
        }
        shape => {
            for token in shape.split_whitespace() {
                repeated(rng, dialect, token.as_bytes(), &mut words);
            }
        }
    }
    spoil(rng, name, &mut words);
    words
}

/// A command that makes one of the keys grow, so that the others find something to work on.
pub fn growth(rng: &mut Rng, dialect: Dialect) -> Command {
    let mut words = match rng.u8(..7) {
        0 => return vec![text("SET"), Word::Key(rng.u8(0..2)), text(rng.i64(-50..50).to_string())],
        1 => vec![text("HSET"), Word::Key(2)],
        2 => vec![text("SADD"), Word::Key(5)],
        3 | 4 => vec![text("ZADD"), Word::Key(rng.u8(6..8))],
        _ => vec![pick(rng, &["RPUSH", "LPUSH"]), Word::Key(rng.u8(3..5))],
    };
    let (pairs, scored) = (matches!(words[1], Word::Key(2 | 6 | 7)), matches!(words[1], Word::Key(6 | 7)));
    for _ in 0..rng.usize(2..9) {
        if scored {
            words.push(values::score(rng, dialect));
        }
        words.push(values::member(rng));
        if pairs && !scored {
            words.push(values::value(rng));
        }
    }
    // Seldom wrong, but it may be: the one refused score spoils the whole command.
    if dialect.agrees(&words) { words } else { growth(rng, dialect) }
}

fn draw(rng: &mut Rng) -> (&'static str, &'static str) {
    let total: u32 = SHAPES.iter().map(|(_, weight, _)| weight).sum();
    let mut at = rng.u32(..total);
    for (name, weight, shape) in SHAPES {
        if at < *weight {
            return (name, shape);
        }
        at -= weight;
    }
    ("TIME", "")
}

fn repeated(rng: &mut Rng, dialect: Dialect, token: &[u8], words: &mut Command) {
    let times = match token.get(1) {
        Some(b'+') => rng.usize(1..4),
        Some(b'?') => rng.usize(..2),
        _ => 1,
    };
    for _ in 0..times {
        words.push(match token[0] {
            b'v' => values::value(rng),
            b'm' => values::member(rng),
            b'i' => values::int(rng),
            b'x' => values::index(rng),
            b'o' => values::offset(rng),
            b'c' => values::count(rng),
            b'd' => values::score(rng, dialect),
            b'b' => values::bound(rng, dialect),
            b'E' => values::seconds(rng, dialect),
            b'P' => values::millis(rng, dialect),
            b'A' => values::moment(rng, dialect),
            b'w' => text("channel"),
            kind => key(rng, kind),
        });
    }
}

/// A key that mostly holds the wanted type: keys 0 and 1 strings, 2 hashes, 3 and 4 lists, 5 sets, 6 and 7 zsets.
fn key(rng: &mut Rng, kind: u8) -> Word {
    let usual = match kind {
        b's' => rng.u8(0..2),
        b'h' => 2,
        b'l' => rng.u8(3..5),
        b'S' => 5,
        b'z' => rng.u8(6..8),
        _ => rng.u8(..KEYS),
    };
    Word::Key(if rng.u8(..16) == 0 { rng.u8(..KEYS) } else { usual })
}

fn set(rng: &mut Rng, dialect: Dialect, words: &mut Command) {
    words.extend([key(rng, b's'), values::value(rng)]);
    let mut options = Vec::new();
    let expiry = |rng: &mut Rng| match rng.u8(..3) {
        0 => vec![text("EX"), values::seconds(rng, dialect)],
        1 => vec![text("px"), values::millis(rng, dialect)],
        _ => vec![text("PXAT"), values::moment(rng, dialect)],
    };
    maybe(rng, 3, &mut options, expiry);
    maybe(rng, 5, &mut options, |_| vec![text("KEEPTTL")]);
    maybe(rng, 24, &mut options, expiry);
    maybe(rng, 5, &mut options, |_| vec![text("XX")]);
    maybe(rng, 5, &mut options, |_| vec![text("nx")]);
    maybe(rng, 5, &mut options, |_| vec![text("GET")]);
    rng.shuffle(&mut options);
    words.extend(options.into_iter().flatten());
}

fn zadd(rng: &mut Rng, dialect: Dialect, words: &mut Command) {
    words.push(key(rng, b'z'));
    let mut options = Vec::new();
    for (name, rarity) in [("NX", 6), ("XX", 6), ("GT", 6), ("LT", 6), ("CH", 4)] {
        maybe(rng, rarity, &mut options, |_| vec![text(name)]);
    }
    rng.shuffle(&mut options);
    words.extend(options.into_iter().flatten());
    for _ in 0..rng.usize(1..4) {
        words.extend([values::score(rng, dialect), values::member(rng)]);
    }
}

fn zrange(rng: &mut Rng, dialect: Dialect, words: &mut Command) {
    words.push(key(rng, b'z'));
    let by_score = rng.bool();
    for _ in 0..2 {
        words.push(if by_score { values::bound(rng, dialect) } else { values::index(rng) });
    }
    let mut options = Vec::new();
    if by_score {
        options.push(vec![text("BYSCORE")]);
    }
    maybe(rng, 3, &mut options, |_| vec![text("rev")]);
    maybe(rng, 2, &mut options, |_| vec![text("WITHSCORES")]);
    // LIMIT without BYSCORE is a syntax error, worth seeing but seldom.
    maybe(rng, if by_score { 3 } else { 20 }, &mut options, limit);
    rng.shuffle(&mut options);
    words.extend(options.into_iter().flatten());
}

fn limit(rng: &mut Rng) -> Vec<Word> {
    vec![text("LIMIT"), values::index(rng), values::index(rng)]
}

fn maybe(rng: &mut Rng, rarity: u32, options: &mut Vec<Command>, option: impl Fn(&mut Rng) -> Command) {
    if rng.u32(..rarity) == 0 {
        options.push(option(rng));
    }
}

/// Makes one command in ten wrong: a word too few, too many, or in the wrong place.
fn spoil(rng: &mut Rng, name: &str, words: &mut Command) {
    // The commands that set an expiry have options on newer servers, which scripts may not use.
    // ZINCRBY shares a parser with ZADD there, and complains about an option it does not have in other words.
    let optionless = matches!(name, "EXPIRE" | "PEXPIRE" | "PEXPIREAT" | "ZINCRBY");
    let every_word_is_a_key = matches!(name, "DEL" | "EXISTS" | "MGET");
    // Keys stay where they are: another word there would be a key that other histories meet.
    let after_keys = words.iter().rposition(|word| matches!(word, Word::Key(_))).unwrap_or(0) + 1;
    match rng.u8(..40) {
        0 if words.len() > after_keys => {
            words.remove(rng.usize(after_keys..words.len()));
        }
        1 if !optionless && !every_word_is_a_key => {
            words.insert(rng.usize(after_keys..=words.len()), values::stray(rng));
        }
        2 if !optionless && words.len() > after_keys => {
            let at = rng.usize(after_keys..words.len());
            words[at] = values::stray(rng);
        }
        3 => words[0] = text(name.to_lowercase()),
        4 if rng.u8(..8) == 0 => words[0] = pick(rng, &["NOSUCH", "GE", ""]),
        5 | 6 if every_word_is_a_key || rng.bool() => words.truncate(1),
        _ => {}
    }
}

fn text(word: impl Into<String>) -> Word {
    Word::Text(word.into().into_bytes())
}

fn pick(rng: &mut Rng, from: &[&str]) -> Word {
    text(from[rng.usize(..from.len())])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_command_of_the_data_model_is_drawn() {
        let table = include_str!("../../../store/commands.txt");
        let wanted: BTreeSet<&str> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|l| l.split_whitespace().next())
            .collect();
        assert_eq!(super::commands().collect::<BTreeSet<_>>(), wanted);
    }
}
