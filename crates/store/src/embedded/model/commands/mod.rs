//! The commands a script may use, with Redis' semantics. `commands.txt` is their list; a test compares.
//!
//! A command checks everything, then writes: an error means that it changed nothing, because a script may
//! catch it with `redis.pcall` and go on. Costs are Redis' but for ranks: a zset has no rank tree, so
//! ZRANK, ZRANGE by index and ZREMRANGEBYRANK walk from the nearer end of the index they are given.
#![expect(clippy::unnecessary_wraps, reason = "commands have one signature, also those that refuse nothing")]

mod hashes;
mod keys;
mod lists;
mod ranges;
mod sets;
mod strings;
mod zsets;

use super::{Fault, Model, Out, Outcome, Room};

type Run = fn(&mut Model, &[&[u8]], &mut Out) -> Outcome;

/// One command: its arguments are counted without its name.
struct Command {
    name: &'static str,
    least: usize,
    most: usize,
    run: Run,
    effect: Effect,
}

/// What a command may do to the data; Redis calls the last `denyoom`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    /// Changes no data, and is no read either.
    Tells,
    Writes,
    Grows,
}

const MANY: usize = usize::MAX;

const fn reads(name: &'static str, least: usize, most: usize, run: Run) -> Command {
    Command { name, least, most, run, effect: Effect::Reads }
}

const fn tells(name: &'static str, least: usize, most: usize, run: Run) -> Command {
    Command { name, least, most, run, effect: Effect::Tells }
}

const fn writes(name: &'static str, least: usize, most: usize, run: Run) -> Command {
    Command { name, least, most, run, effect: Effect::Writes }
}

const fn grows(name: &'static str, least: usize, most: usize, run: Run) -> Command {
    Command { name, least, most, run, effect: Effect::Grows }
}

/// Sorted by name as [`code`] orders them: looked up by halving.
static COMMANDS: &[Command] = &[
    grows("APPEND", 2, 2, strings::append),
    grows("DECRBY", 2, 2, strings::decrby),
    writes("DEL", 1, MANY, keys::del),
    reads("EXISTS", 1, MANY, keys::exists),
    writes("EXPIRE", 2, 2, keys::expire),
    reads("GET", 1, 1, strings::get),
    writes("GETDEL", 1, 1, strings::getdel),
    reads("GETRANGE", 3, 3, strings::getrange),
    writes("HDEL", 2, MANY, hashes::hdel),
    reads("HEXISTS", 2, 2, hashes::hexists),
    reads("HGET", 2, 2, hashes::hget),
    reads("HGETALL", 1, 1, hashes::hgetall),
    grows("HINCRBY", 3, 3, hashes::hincrby),
    reads("HLEN", 1, 1, hashes::hlen),
    reads("HMGET", 2, MANY, hashes::hmget),
    grows("HSET", 3, MANY, hashes::hset),
    grows("HSETNX", 3, 3, hashes::hsetnx),
    grows("INCR", 1, 1, strings::incr),
    grows("INCRBY", 2, 2, strings::incrby),
    reads("LINDEX", 2, 2, lists::lindex),
    reads("LLEN", 1, 1, lists::llen),
    grows("LMOVE", 4, 4, lists::lmove),
    writes("LPOP", 1, MANY, lists::lpop),
    grows("LPUSH", 2, MANY, lists::lpush),
    reads("LRANGE", 3, 3, lists::lrange),
    writes("LREM", 3, 3, lists::lrem),
    grows("LSET", 3, 3, lists::lset),
    writes("LTRIM", 3, 3, lists::ltrim),
    reads("MGET", 1, MANY, strings::mget),
    writes("PERSIST", 1, 1, keys::persist),
    writes("PEXPIRE", 2, 2, keys::pexpire),
    writes("PEXPIREAT", 2, 2, keys::pexpireat),
    reads("PTTL", 1, 1, keys::pttl),
    tells("PUBLISH", 2, 2, keys::publish),
    writes("RENAME", 2, 2, keys::rename),
    writes("RPOP", 1, MANY, lists::rpop),
    grows("RPUSH", 2, MANY, lists::rpush),
    grows("SADD", 2, MANY, sets::sadd),
    reads("SCARD", 1, 1, sets::scard),
    grows("SET", 2, MANY, strings::set),
    grows("SETNX", 2, 2, strings::setnx),
    grows("SETRANGE", 3, 3, strings::setrange),
    reads("SISMEMBER", 2, 2, sets::sismember),
    reads("SMEMBERS", 1, 1, sets::smembers),
    writes("SREM", 2, MANY, sets::srem),
    reads("STRLEN", 1, 1, strings::strlen),
    reads("TIME", 0, 0, keys::time),
    reads("TTL", 1, 1, keys::ttl),
    reads("TYPE", 1, 1, keys::kind),
    grows("ZADD", 3, MANY, zsets::zadd),
    reads("ZCARD", 1, 1, zsets::zcard),
    reads("ZCOUNT", 3, 3, ranges::zcount),
    grows("ZINCRBY", 3, 3, zsets::zincrby),
    writes("ZPOPMAX", 1, MANY, zsets::zpopmax),
    writes("ZPOPMIN", 1, MANY, zsets::zpopmin),
    reads("ZRANGE", 3, MANY, ranges::zrange),
    reads("ZRANGEBYSCORE", 3, MANY, ranges::zrangebyscore),
    reads("ZRANK", 2, 2, zsets::zrank),
    writes("ZREM", 2, MANY, zsets::zrem),
    writes("ZREMRANGEBYRANK", 3, 3, ranges::zremrangebyrank),
    writes("ZREMRANGEBYSCORE", 3, 3, ranges::zremrangebyscore),
    reads("ZREVRANGE", 3, MANY, ranges::zrevrange),
    reads("ZSCORE", 2, 2, zsets::zscore),
];

/// A name as a number that sorts as the name does; no command has more than sixteen letters.
const fn code(name: &[u8]) -> Option<u128> {
    if name.len() > 16 {
        return None;
    }
    let mut code = 0;
    let mut at = 0;
    while at < 16 {
        let letter = if at < name.len() { name[at].to_ascii_uppercase() } else { 0 };
        code = code << 8 | letter as u128;
        at += 1;
    }
    Some(code)
}

static CODES: [u128; COMMANDS.len()] = {
    let mut codes = [0; COMMANDS.len()];
    let mut at = 0;
    while at < codes.len() {
        if let Some(code) = code(COMMANDS[at].name.as_bytes()) {
            codes[at] = code;
        }
        at += 1;
    }
    codes
};

/// [`code`] of a name that a script wrote, without a branch for every letter.
fn code_of(name: &[u8]) -> Option<u128> {
    let mut letters = [0; 16];
    letters.get_mut(..name.len())?.copy_from_slice(name);
    letters.make_ascii_uppercase();
    Some(u128::from_be_bytes(letters))
}

/// Runs one command; `words[0]` is its name. The answer is in `out` when it succeeds.
pub(crate) fn run(model: &mut Model, words: &[&[u8]], out: &mut Out) -> Outcome {
    out.clear();
    let [name, args @ ..] = words else { return Err(Fault::ARITY) };
    let command = code_of(name)
        .and_then(|code| CODES.binary_search(&code).ok())
        .map(|at| &COMMANDS[at])
        .ok_or(Fault::UNKNOWN)?;
    if args.len() < command.least || args.len() > command.most {
        return Err(Fault::ARITY);
    }
    if model.room == Room::Full {
        match command.effect {
            Effect::Reads | Effect::Tells => {}
            Effect::Writes => model.room = Room::Free,
            Effect::Grows => return Err(Fault::FULL),
        }
    }
    (command.run)(model, args, out)
}

fn int(text: &[u8]) -> Outcome<i64> {
    super::number::parse_int(text).ok_or(Fault::NOT_INT)
}

/// A count that must not be negative.
fn count(text: &[u8]) -> Outcome<usize> {
    super::number::parse_int(text).and_then(|count| usize::try_from(count).ok()).ok_or(Fault::NOT_POSITIVE)
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Redis' inclusive index range, negative from the end, as a plain one; empty when nothing is in it.
fn index_range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let size = len as i64;
    let from = if start < 0 { start.saturating_add(size).max(0) } else { start };
    let to = if stop < 0 { stop.saturating_add(size) } else { stop.min(size - 1) };
    if from > to || from >= size { 0..0 } else { from as usize..to as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_is_the_list_that_scripts_are_checked_against() {
        assert!(CODES.is_sorted());
        for command in COMMANDS {
            assert_eq!(code_of(command.name.to_ascii_lowercase().as_bytes()), code(command.name.as_bytes()));
        }
        let listed: Vec<(&str, bool)> = include_str!("../../../../commands.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_whitespace().next().zip(Some(line.contains(" write"))))
            .collect();
        let built: Vec<(&str, bool)> =
            COMMANDS.iter().map(|command| (command.name, command.effect != Effect::Reads)).collect();
        assert_eq!(built, listed);
    }

    #[test]
    fn index_ranges_clamp_as_redis_clamps_them() {
        for (start, stop, len, expected) in [
            (0, -1, 3, 0..3),
            (0, 0, 3, 0..1),
            (-2, -1, 3, 1..3),
            (-100, 100, 3, 0..3),
            (2, 1, 3, 0..0),
            (3, 5, 3, 0..0),
            (0, -4, 3, 0..0),
            (0, -1, 0, 0..0),
            (i64::MIN, i64::MAX, 3, 0..3),
            (i64::MAX, i64::MIN, 3, 0..0),
        ] {
            assert_eq!(index_range(start, stop, len), expected, "{start} {stop} {len}");
        }
    }
}
