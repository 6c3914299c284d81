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

use super::{Fault, Model, Out, Outcome};

type Run = fn(&mut Model, &[&[u8]], &mut Out) -> Outcome;

/// One command: its arguments are counted without its name.
struct Command {
    name: &'static str,
    least: usize,
    most: usize,
    run: Run,
}

const MANY: usize = usize::MAX;

const fn command(name: &'static str, least: usize, most: usize, run: Run) -> Command {
    Command { name, least, most, run }
}

/// Sorted by name as [`code`] orders them: looked up by halving.
static COMMANDS: &[Command] = &[
    command("APPEND", 2, 2, strings::append),
    command("DECRBY", 2, 2, strings::decrby),
    command("DEL", 1, MANY, keys::del),
    command("EXISTS", 1, MANY, keys::exists),
    command("EXPIRE", 2, 2, keys::expire),
    command("GET", 1, 1, strings::get),
    command("GETDEL", 1, 1, strings::getdel),
    command("GETRANGE", 3, 3, strings::getrange),
    command("HDEL", 2, MANY, hashes::hdel),
    command("HEXISTS", 2, 2, hashes::hexists),
    command("HGET", 2, 2, hashes::hget),
    command("HGETALL", 1, 1, hashes::hgetall),
    command("HINCRBY", 3, 3, hashes::hincrby),
    command("HLEN", 1, 1, hashes::hlen),
    command("HMGET", 2, MANY, hashes::hmget),
    command("HSET", 3, MANY, hashes::hset),
    command("HSETNX", 3, 3, hashes::hsetnx),
    command("INCR", 1, 1, strings::incr),
    command("INCRBY", 2, 2, strings::incrby),
    command("LINDEX", 2, 2, lists::lindex),
    command("LLEN", 1, 1, lists::llen),
    command("LMOVE", 4, 4, lists::lmove),
    command("LPOP", 1, MANY, lists::lpop),
    command("LPUSH", 2, MANY, lists::lpush),
    command("LRANGE", 3, 3, lists::lrange),
    command("LREM", 3, 3, lists::lrem),
    command("LSET", 3, 3, lists::lset),
    command("LTRIM", 3, 3, lists::ltrim),
    command("MGET", 1, MANY, strings::mget),
    command("PERSIST", 1, 1, keys::persist),
    command("PEXPIRE", 2, 2, keys::pexpire),
    command("PEXPIREAT", 2, 2, keys::pexpireat),
    command("PTTL", 1, 1, keys::pttl),
    command("PUBLISH", 2, 2, keys::publish),
    command("RENAME", 2, 2, keys::rename),
    command("RPOP", 1, MANY, lists::rpop),
    command("RPUSH", 2, MANY, lists::rpush),
    command("SADD", 2, MANY, sets::sadd),
    command("SCARD", 1, 1, sets::scard),
    command("SET", 2, MANY, strings::set),
    command("SETNX", 2, 2, strings::setnx),
    command("SETRANGE", 3, 3, strings::setrange),
    command("SISMEMBER", 2, 2, sets::sismember),
    command("SMEMBERS", 1, 1, sets::smembers),
    command("SREM", 2, MANY, sets::srem),
    command("STRLEN", 1, 1, strings::strlen),
    command("TIME", 0, 0, keys::time),
    command("TTL", 1, 1, keys::ttl),
    command("TYPE", 1, 1, keys::kind),
    command("ZADD", 3, MANY, zsets::zadd),
    command("ZCARD", 1, 1, zsets::zcard),
    command("ZCOUNT", 3, 3, ranges::zcount),
    command("ZINCRBY", 3, 3, zsets::zincrby),
    command("ZPOPMAX", 1, MANY, zsets::zpopmax),
    command("ZPOPMIN", 1, MANY, zsets::zpopmin),
    command("ZRANGE", 3, MANY, ranges::zrange),
    command("ZRANGEBYSCORE", 3, MANY, ranges::zrangebyscore),
    command("ZRANK", 2, 2, zsets::zrank),
    command("ZREM", 2, MANY, zsets::zrem),
    command("ZREMRANGEBYRANK", 3, 3, ranges::zremrangebyrank),
    command("ZREMRANGEBYSCORE", 3, 3, ranges::zremrangebyscore),
    command("ZREVRANGE", 3, MANY, ranges::zrevrange),
    command("ZSCORE", 2, 2, zsets::zscore),
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
        let listed: Vec<&str> = include_str!("../../../../commands.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let built: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
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
