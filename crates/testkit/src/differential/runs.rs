//! Every operation of runs on both stores, under a clock that both share.
//!
//! Runs have ids of the history's own: one that is made up is the node's guess of the store's time, which two stores do
//! not share to the microsecond.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use quaymaster::limit::Charge;
use quaymaster::run::{FailuresAsk, Fields, Items, RetryAsk};
use quaymaster::{Engine, Quaymaster, Result as Answer};

use super::limits::bind;
use super::side::Side;
use super::{Pair, rounds, shrink};
use crate::conformance::command;

const STEPS: usize = 40;
const BATCH: usize = 60;

const SCHEMA: &str = r#"
[limit.calls]
key = "rate_limit:{hour}"
algorithm = "fixed_window"
limit = 1000
window = "1h"
ttl = "2h"
[run.pipeline]
key = "pipeline:{dag_run_id}"
task_key = "task_start:{dag_run_id}:{task_id}"
failed_key = "failed:{hour}"
state_ttl = "25h"
hour_ttl = "2h"
stale_after = "10m"
limit = "calls"
"#;

const IDS: [&str; 2] = ["a", "manual_2024-09-17T14:30:00+00:00"];
const TEXTS: [&str; 7] = ["1", "2", "3", "quo\"te", "new\nline", "1 2:3", "ü"];

#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Start { run: usize, request: Option<u8> },
    Processed { run: usize, items: Vec<usize>, request: Option<u8> },
    Failed { run: usize, item: usize, request: Option<u8> },
    Update { run: usize, status: Option<&'static str>, own: Option<u8> },
    Finish { run: usize, status: &'static str },
    Show { run: usize, items: bool },
    List,
    Failures { run: Option<usize>, count: u64 },
    Retry { run: Option<usize>, count: u64 },
    Remaining { run: usize },
    TaskStart { run: usize, task: u8 },
    TaskFinish { run: usize, task: u8 },
    Sweep,
    Take,
    Foreign { key: &'static str, words: Vec<&'static str> },
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    deed: Deed,
}

/// What workers tell of two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHistory {
    seed: u64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct RunMismatch {
    history: RunHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct RunTally {
    /// Histories.
    pub histories: u64,
    /// Answers by deed and first word, or by deed and error code.
    pub answers: BTreeMap<String, u64>,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for RunMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "run history of seed {}:", self.history.seed)?;
        for step in &self.history.steps {
            writeln!(f, "  {:>14.3} ms  {:?}", step.at_us as f64 / 1000.0, step.deed)?;
        }
        write!(f, "differs:\n{}", self.difference)
    }
}

fn moments(rng: &mut Rng) -> Vec<i64> {
    let mut now_us = rng.i64(1..3_600_000_000);
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..14) {
                0 => rng.i64(0..4_000_000),
                // Pulses, leases, staleness and their edges.
                1 => [4_999_999, 5_000_000, 5_001_000, 600_000_000, 600_001_000][rng.usize(..5)],
                2 => 1000,
                3 => 299_000_000 + rng.i64(0..2) * 1_000_000,
                // The next hour, or the end of everything.
                4 if rng.u8(..3) == 0 => 3_600_000_000,
                5 if rng.u8(..12) == 0 => 26 * 3_600_000_000,
                _ => rng.i64(0..3000),
            };
            now_us
        })
        .collect()
}

fn deed(rng: &mut Rng) -> Deed {
    let run = usize::from(rng.u8(..4) == 0);
    let request = (rng.u8(..5) == 0).then(|| rng.u8(..3));
    match rng.u8(..46) {
        0..=6 => Deed::Start { run, request },
        7..=14 => {
            let items = (0..rng.usize(1..4)).map(|_| rng.usize(..TEXTS.len())).collect();
            Deed::Processed { run, items, request }
        }
        15..=20 => Deed::Failed { run, item: rng.usize(..TEXTS.len()), request },
        21..=22 => {
            let status = [None, Some("processing"), Some("completed"), Some("stale")][rng.usize(..4)];
            Deed::Update { run, status, own: (rng.u8(..2) == 0).then(|| rng.u8(..3)) }
        }
        23..=24 => Deed::Finish { run, status: ["completed", "failed"][rng.usize(..2)] },
        25..=28 => Deed::Show { run, items: rng.u8(..3) > 0 },
        29 => Deed::List,
        30..=31 => Deed::Failures { run: (rng.u8(..2) == 0).then_some(run), count: rng.u64(1..4) },
        32..=33 => Deed::Retry { run: (rng.u8(..2) == 0).then_some(run), count: rng.u64(1..4) },
        34 => Deed::Remaining { run },
        35..=36 => Deed::TaskStart { run, task: rng.u8(..2) },
        37..=38 => Deed::TaskFinish { run, task: rng.u8(..3) },
        39..=40 => Deed::Sweep,
        41..=42 => Deed::Take,
        _ => {
            let words: &[(&str, &[&'static str])] = &[
                ("pipeline:a", &["DEL"]),
                ("pipeline:a", &["PERSIST"]),
                ("pipeline:a", &["HSET", "status", "completed"]),
                ("pipeline:a", &["HSET", "dockets_processed", "['7', '8']"]),
                ("pipeline:a", &["HSET", "dockets_processed", "odd"]),
                ("pipeline:a", &["HDEL", "status"]),
                ("pipeline:a", &["SET", "text"]),
                ("task_start:a:t2", &["SET", "2024-09-17T14:35:22.456789"]),
                ("task_start:a:t2", &["SET", "then"]),
                ("{pipeline:a}:meta", &["DEL"]),
            ];
            let (key, words) = words[rng.usize(..words.len())];
            Deed::Foreign { key, words: words.to_vec() }
        }
    }
}

fn history(seed: u64, moments: &[i64]) -> RunHistory {
    let mut rng = Rng::with_seed(seed);
    let steps = moments.iter().map(|at_us| Step { at_us: *at_us, deed: deed(&mut rng) }).collect();
    RunHistory { seed, steps }
}

struct World {
    quaymaster: Quaymaster,
    prefix: String,
}

impl World {
    async fn act(&self, deed: &Deed) -> String {
        match self.answer(deed).await {
            Ok(said) => said,
            Err(error) => error.code.name().to_owned(),
        }
    }

    async fn answer(&self, deed: &Deed) -> Answer<String> {
        let run = self.quaymaster.run("pipeline")?;
        let named = |request: &Option<u8>| request.map(|number| format!("q{number}"));
        Ok(match deed {
            Deed::Start { run: id, request } => {
                format!("{:?}", run.start(Some(IDS[*id]), named(request).as_deref()).await?)
            }
            Deed::Processed { run: id, items, request } => {
                let items: Vec<&str> = items.iter().map(|item| TEXTS[*item]).collect();
                format!("{:?}", run.processed(IDS[*id], &items, named(request).as_deref()).await?)
            }
            Deed::Failed { run: id, item, request } => {
                let request = named(request);
                let told = run.failed(IDS[*id], TEXTS[*item], Some("HTTP 500"), request.as_deref()).await?;
                format!("{told:?}")
            }
            Deed::Update { run: id, status, own } => {
                let own: Vec<(&str, &str)> = own
                    .map(|number| (["x", "y", "start_time"][usize::from(number)], "v"))
                    .into_iter()
                    .collect();
                let fields = Fields { status: *status, processed: &[], own: &own };
                format!("{:?}", run.update(IDS[*id], &fields, None).await?)
            }
            Deed::Finish { run: id, status } => format!("{:?}", run.finish(IDS[*id], status, None).await?),
            Deed::Show { run: id, items } => {
                let items = if *items { Items::With } else { Items::Without };
                format!("{:?}", run.show(IDS[*id], items).await?)
            }
            Deed::List => format!("{:?}", run.list(2, None).await?),
            Deed::Failures { run: id, count } => {
                let ask =
                    FailuresAsk { run_id: id.map(|id| IDS[id]), count: *count, ..FailuresAsk::default() };
                format!("{:?}", run.failures(ask).await?)
            }
            Deed::Retry { run: id, count } => {
                let ask = RetryAsk {
                    run_id: id.map(|id| IDS[id]),
                    count: *count,
                    lease: Duration::from_secs(300),
                    request_id: None,
                };
                format!("Retried {:?}", run.retry(ask).await?)
            }
            Deed::Remaining { run: id } => format!("Left {:?}", run.remaining(IDS[*id], &TEXTS).await?),
            Deed::TaskStart { run: id, task } => {
                format!("{:?}", run.task_start(IDS[*id], &format!("t{task}"), None).await?)
            }
            Deed::TaskFinish { run: id, task } => {
                format!("{:?}", run.task_finish(IDS[*id], &format!("t{task}"), None).await?)
            }
            Deed::Sweep => format!("{:?}", run.sweep().await?),
            Deed::Take => format!("{:?}", self.quaymaster.limit("calls")?.take(&[], Charge::one()).await?),
            Deed::Foreign { key, words } => {
                let key = match key.strip_prefix('{') {
                    Some(side) => format!("{0}{{{0}{side}", self.prefix),
                    None => format!("{}{key}", self.prefix),
                };
                let mut all: Vec<&[u8]> = vec![words[0].as_bytes(), key.as_bytes()];
                all.extend(words[1..].iter().map(|word| word.as_bytes()));
                format!("{:?}", command(&**self.quaymaster.engine(), key.as_bytes(), &all).await?)
            }
        })
    }
}

impl rounds::World for World {
    /// Every key with all there is to see of it.
    async fn everything(&self, side: &Side) -> Vec<String> {
        let held = side.keyspace(&self.prefix).await;
        let mut all: Vec<String> =
            held.iter().map(|(key, held)| format!("{} {held:?}", key.escape_ascii())).collect();
        all.sort_unstable();
        all
    }
}

impl Pair {
    /// Runs the run histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_runs(&self, seeds: Range<u64>) -> Result<RunTally, RunMismatch> {
        let mut tally = RunTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let moments = moments(&mut Rng::with_seed(batch[0]));
            let histories: Vec<RunHistory> = batch.iter().map(|seed| history(*seed, &moments)).collect();
            if let Some((index, difference)) = self.run_runs(&histories, &mut tally).await {
                return Err(self.shrink_runs(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_runs(&self, histories: &[RunHistory], tally: &mut RunTally) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let base = format!("r{}:", start_us / super::DAY_US);
        let world = |index: usize, engine: &Arc<dyn Engine>| {
            let prefix = format!("{base}u{index}:");
            let head =
                format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
            World { quaymaster: bind(&(head + SCHEMA), engine.clone()), prefix }
        };
        let both = |index| (world(index, &self.ours.engine), world(index, &self.theirs.engine));
        let worlds: Vec<(World, World)> = (0..histories.len()).map(both).collect();
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let moment =
                histories.iter().find_map(|history| history.steps.get(round)).map_or(0, |step| step.at_us);
            self.set_time(start_us + moment).await;
            let said = histories.iter().zip(&worlds).map(|(history, (ours, theirs))| async move {
                let deed = &history.steps.get(round)?.deed;
                Some((ours.act(deed).await, theirs.act(deed).await))
            });
            let deed_of = |index: usize| &histories[index].steps[round].deed;
            let unlike = rounds::unlike(join_all(said).await, deed_of, |deed, said| tally.note(deed, said));
            if unlike.is_some() {
                return unlike;
            }
        }
        match self.alike_at_end(&base, &worlds).await {
            Ok(keys) => tally.keys += keys,
            Err(unlike) => return Some(unlike),
        }
        tally.histories += histories.len() as u64;
        None
    }

    async fn shrink_runs(&self, history: RunHistory, difference: String) -> RunMismatch {
        let differs = async |tried: &[RunHistory; 1]| self.run_runs(tried, &mut RunTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        RunMismatch { history, difference }
    }
}

impl RunTally {
    fn note(&mut self, deed: &Deed, said: &str) {
        let end = |text: &str| text.find(['(', ' ', '{']).unwrap_or(text.len());
        let deed = format!("{deed:?}");
        *self.answers.entry(format!("{} {}", &deed[..end(&deed)], &said[..end(said)])).or_default() += 1;
    }

    /// How often a deed was answered so: `Start Started`, `Failed run.missing`.
    pub fn answered(&self, word: &str) -> u64 {
        self.answers.get(word).copied().unwrap_or(0)
    }
}
