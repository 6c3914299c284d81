//! Histories from seeds.

use fastrand::Rng;

use super::dialect::Dialect;
use super::grammar;
use super::history::{Action, Command, History, Step};
use super::values;

/// Most steps of one history.
const STEPS: usize = 14;

/// How far time goes between two steps, in microseconds; standing still half of the time.
pub(super) fn moments(rng: &mut Rng, dialect: Dialect) -> Vec<i64> {
    let mut now_us = rng.i64(0..3_600_000_000);
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..16) {
                8 => 61_000_000,
                9 if rng.u8(..4) == 0 => 3_661_000_000,
                _ if dialect.coarse_time() => 0,
                0 => 1,
                1 => rng.i64(0..1000),
                2 | 3 => 1000,
                4 => 2000,
                5 => 99_000,
                6 => 1_000_000,
                7 => rng.i64(0..5_000_000),
                _ => 0,
            };
            now_us
        })
        .collect()
}

/// The history of a seed at these moments.
pub(super) fn history(seed: u64, moments: &[i64], dialect: Dialect) -> History {
    let mut rng = Rng::with_seed(seed);
    let filled = Action::Each((0..10).map(|_| grammar::growth(&mut rng, dialect)).collect());
    let actions = std::iter::once(filled).chain(std::iter::repeat_with(|| action(&mut rng, dialect)));
    let steps = moments.iter().zip(actions).map(|(at_us, action)| Step { at_us: *at_us, action }).collect();
    History { seed, steps }
}

fn action(rng: &mut Rng, dialect: Dialect) -> Action {
    match rng.u8(..32) {
        0 => Action::Value(described(rng)),
        1 => Action::Numbers((0..4).map(|_| values::number(rng)).collect()),
        2 => Action::Doomed(several(rng, dialect)),
        3..=8 => Action::Call(grammar::command(rng, dialect)),
        _ => Action::Each(several(rng, dialect)),
    }
}

fn several(rng: &mut Rng, dialect: Dialect) -> Vec<Command> {
    let one = |rng: &mut Rng| match rng.u8(..6) {
        0 => grammar::growth(rng, dialect),
        _ => grammar::command(rng, dialect),
    };
    (0..rng.usize(1..9)).map(|_| one(rng)).collect()
}

/// A value for Lua to build: scalars, statuses, errors, and tables with holes, three deep.
fn described(rng: &mut Rng) -> Vec<String> {
    let mut words = Vec::new();
    describe(rng, 0, &mut words);
    words
}

fn describe(rng: &mut Rng, depth: u32, words: &mut Vec<String>) {
    match rng.u8(..12) {
        0 => words.push("t".to_owned()),
        1 => words.push("f".to_owned()),
        2 => words.push("z".to_owned()),
        3 => words.push("oFINE".to_owned()),
        // Inside a table an error is text to Redis and a failed script to us: no script of ours says one.
        4 if depth == 0 => words.push("eERR told by a script".to_owned()),
        4 => words.push("hname".to_owned()),
        5 => words.push(["s", "sa", "s0", "s\r\n"][rng.usize(..4)].to_owned()),
        6 | 7 => words.push(format!("n{}", values::number(rng))),
        _ if depth < 3 => {
            let length = rng.usize(..5);
            words.push(format!("[{length}"));
            for _ in 0..length {
                describe(rng, depth + 1, words);
            }
        }
        _ => words.push("n1".to_owned()),
    }
}
