//! The embedded store against a real server: the same random histories on both, every reply and the
//! whole keyspace compared.
//!
//! Both clocks are held by the test and stand still between steps, so that times to live are compared to
//! the millisecond. Histories run side by side in batches, each under keys of its own; a history that
//! differs is cut down to the steps and commands that still differ and printed with its seed.
//! `QUAYMASTER_SEED` chooses other histories, `QUAYMASTER_HISTORIES` how many.

#![expect(clippy::expect_used, reason = "what cannot be set up or told fails the test that asked for it")]

pub mod batches;
mod compare;
mod dialect;
mod fixture;
mod generate;
pub mod grammar;
pub mod guards;
pub mod history;
pub mod limits;
pub mod queues;
mod rounds;
pub mod runs;
mod scripts;
mod shrink;
pub mod side;
pub mod stats;
mod values;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::join_all;
use quaymaster_store::{Code, Reply};

pub use self::compare::Tolerance;
pub use self::dialect::Dialect;
pub use self::fixture::Fixture;
use self::history::{Action, History};
pub use self::side::{Hand, Side};

/// Histories that run side by side.
const BATCH: usize = 250;
/// The first batch's day; every later one has a day of its own, so that clocks only go forward.
const FIRST_DAY: i64 = 23_000;
const DAY_US: i64 = 86_400_000_000;

/// The embedded store and the server it must equal.
#[derive(Debug)]
pub struct Pair {
    /// The embedded store.
    pub ours: Side,
    /// The server.
    pub theirs: Side,
    /// What the server can be asked.
    pub dialect: Dialect,
    /// How exactly it is followed.
    pub tolerance: Tolerance,
    /// Whether the keys of histories stay when they were compared.
    pub keep: bool,
    days: AtomicU64,
}

/// A history on which the two differ, cut down.
#[derive(Debug)]
pub struct Mismatch {
    /// What happened.
    pub history: History,
    /// Where they differ.
    pub difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct Tally {
    /// Histories.
    pub histories: u64,
    /// Steps.
    pub steps: u64,
    /// Keys in final keyspaces.
    pub keys: u64,
    /// Per command: answers and errors.
    pub commands: BTreeMap<String, (u64, u64)>,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}differs:\n{}", self.history, self.difference)
    }
}

/// How many histories to run: `short` in an ordinary run, `soak` in a long one, or as the environment says.
pub fn count(short: u64, soak: u64) -> u64 {
    let wanted =
        std::env::var("QUAYMASTER_HISTORIES").ok().map(|text| text.parse().expect("a number of histories"));
    wanted.unwrap_or(if std::env::var_os("QUAYMASTER_SOAK").is_some() { soak } else { short })
}

/// The seed of the first history.
pub fn seed() -> u64 {
    std::env::var("QUAYMASTER_SEED").map_or(1, |text| text.parse().expect("QUAYMASTER_SEED is a number"))
}

impl Pair {
    /// Two stores to compare.
    pub fn new(ours: Side, theirs: Side, dialect: Dialect, tolerance: Tolerance) -> Self {
        Self { ours, theirs, dialect, tolerance, keep: false, days: AtomicU64::new(0) }
    }

    /// Runs the histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare(&self, seeds: std::ops::Range<u64>) -> Result<Tally, Mismatch> {
        let mut tally = Tally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            // One sequence of moments for the whole batch: the clocks can only be in one place.
            let moments = generate::moments(&mut Rng::with_seed(batch[0]), self.dialect);
            let histories: Vec<History> =
                batch.iter().map(|seed| generate::history(*seed, &moments, self.dialect)).collect();
            if let Some((index, difference)) = self.run(&histories, &mut tally).await {
                return Err(shrink::shrink(self, histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    /// A day nobody used yet, in microseconds since the epoch.
    pub(super) fn next_day_us(&self) -> i64 {
        (FIRST_DAY + self.days.fetch_add(1, Ordering::Relaxed) as i64) * DAY_US
    }

    /// Runs histories of one sequence of moments side by side; the first that differs, and how.
    async fn run(&self, histories: &[History], tally: &mut Tally) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let base = format!("d{}:", start_us / DAY_US);
        let prefixes: Vec<String> = (0..histories.len()).map(|index| format!("{base}{index}:")).collect();
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let moment =
                histories.iter().find_map(|history| history.steps.get(round)).map_or(0, |step| step.at_us);
            self.ours.set_time(start_us + moment).await;
            self.theirs.set_time(start_us + moment).await;
            let compared = histories.iter().zip(&prefixes).map(|(history, prefix)| async move {
                let step = history.steps.get(round)?;
                assert_eq!(step.at_us, moment, "histories that run side by side share their moments");
                Some(self.step(step, prefix, start_us).await)
            });
            for (index, outcome) in join_all(compared).await.into_iter().enumerate() {
                match outcome {
                    Some(Err(difference)) => return Some((index, difference)),
                    Some(Ok(reply)) => tally.note(&histories[index].steps[round], reply.as_ref()),
                    None => {}
                }
            }
        }
        let (ours, theirs) = (self.ours.keyspace(&base).await, self.theirs.keyspace(&base).await);
        if let Some((key, difference)) = compare::keyspaces(&ours, &theirs, self.tolerance) {
            let index = owner(&key, &base);
            return Some((index, format!("at the end {}\n{difference}", key.escape_ascii())));
        }
        tally.histories += histories.len() as u64;
        tally.keys += ours.len() as u64;
        if !self.keep {
            self.ours.clear(&base).await;
            self.theirs.clear(&base).await;
        }
        None
    }

    /// Where the keys of all histories differ now, if they do; else how many there are.
    pub async fn compare_keys(&self) -> Result<usize, String> {
        let (ours, theirs) = (self.ours.keyspace("d").await, self.theirs.keyspace("d").await);
        match compare::keyspaces(&ours, &theirs, self.tolerance) {
            Some((key, difference)) => Err(format!("{}\n{difference}", key.escape_ascii())),
            None => Ok(ours.len()),
        }
    }

    async fn step(&self, step: &history::Step, prefix: &str, start_us: i64) -> Result<Option<Reply>, String> {
        let ours = self.ours.engine.run(step.call(prefix, start_us)).await;
        if matches!(step.action, Action::Doomed(_)) {
            return match ours {
                Err(error) if error.code == Code::ScriptFailed && error.detail.contains("on purpose") => {
                    Ok(None)
                }
                other => Err(format!("a failing script answered {other:?}")),
            };
        }
        let theirs = self.theirs.engine.run(step.call(prefix, start_us)).await;
        let told = ours.as_ref().ok().cloned();
        match compare::answers(step, ours, theirs, self.tolerance) {
            None => Ok(told),
            Some(difference) => Err(format!("at {:.3} ms\n{difference}", step.at_us as f64 / 1000.0)),
        }
    }
}

/// Which history of the batch a key belongs to.
fn owner(key: &Bytes, base: &str) -> usize {
    let text = String::from_utf8_lossy(key);
    let index = text.strip_prefix(base).and_then(|rest| rest.split(':').next());
    index.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

impl Tally {
    fn note(&mut self, step: &history::Step, reply: Option<&Reply>) {
        self.steps += 1;
        let Some(Reply::Array(told)) = reply else { return };
        if !matches!(step.action, Action::Each(_)) {
            return;
        }
        for (command, told) in step.commands().iter().zip(told) {
            let Some(history::Word::Text(name)) = command.first() else { continue };
            let count = self.commands.entry(String::from_utf8_lossy(name).to_uppercase()).or_default();
            let failed =
                matches!(told, Reply::Array(parts) if parts.first() == Some(&Reply::Bytes("err".into())));
            if failed { count.1 += 1 } else { count.0 += 1 }
        }
    }
}
