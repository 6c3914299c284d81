//! Every operation of batches on both stores, under a clock that both share.
//!
//! A batch's id is random: answers and keyspaces are compared with the ids numbered in the order in which they came.
//! Batches that are due at one moment are closed in the order of their ids, so a history has one camera.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use futures_util::future::join_all;
use parking_lot::Mutex;
use quaymaster::batch::Add;
use quaymaster::queue::{Ack, Claim, Then};
use quaymaster::store::Reply;
use quaymaster::{Engine, Quaymaster, Result as Answer};

use super::limits::bind;
use super::side::Side;
use super::{Pair, rounds, shrink};
use crate::conformance::command;

const STEPS: usize = 40;
const BATCH: usize = 60;

const SCHEMA: &str = r#"
[queue.work]
[queue.done]
[batch.camera]
key = "batch:{camera_id}:current"
by = "camera_id"
window = "9s"
idle = "3s"
max_items = 5
to = "done"
ttl = "60s"
items = "detections"
items_as = "detection_ids"
"#;

#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Add {
        item: &'static str,
        id: Option<u8>,
        request: Option<u8>,
    },
    Close,
    List,
    Sweep,
    /// A job is acked, and its detection added in the same step.
    Detect {
        item: &'static str,
    },
    Take,
    Foreign {
        key: &'static str,
        words: Vec<&'static str>,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    deed: Deed,
}

/// Detections of a camera.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchHistory {
    seed: u64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct BatchMismatch {
    history: BatchHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct BatchTally {
    /// Histories.
    pub histories: u64,
    /// Answers by deed and first word, or by deed and error code.
    pub answers: BTreeMap<String, u64>,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for BatchMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "batch history of seed {}:", self.history.seed)?;
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
            now_us += match rng.u8(..12) {
                0 => rng.i64(0..4_000_000),
                // The ends of windows and silences, and right beside them.
                1 => [2_999_000, 3_000_000, 3_001_000, 8_999_999, 9_000_000][rng.usize(..5)],
                2 => 1000,
                3 if rng.u8(..6) == 0 => 61_000_000,
                _ => 0,
            };
            now_us
        })
        .collect()
}

fn deed(rng: &mut Rng) -> Deed {
    let item = ["1", "\"a,]b\"", "{\"n\": [1, 2]}", "null", "[]", " 7 "][rng.usize(..6)];
    match rng.u8(..32) {
        0..=15 => Deed::Add {
            item,
            id: (rng.u8(..3) == 0).then(|| rng.u8(..3)),
            request: (rng.u8(..6) == 0).then(|| rng.u8(..3)),
        },
        16..=18 => Deed::Close,
        19..=21 => Deed::List,
        22..=25 => Deed::Sweep,
        26 | 27 => Deed::Detect { item },
        28 | 29 => Deed::Take,
        30 => Deed::Foreign { key: "done", words: vec!["RPUSH", "{\"foreign\":1}"] },
        _ => {
            // What leaves a second batch open at the same moment is left out.
            let words: &[&[&'static str]] = &[&["PEXPIRE", "1500"], &["RPUSH", "odd"], &["PERSIST"]];
            Deed::Foreign { key: "batch:front:current", words: words[rng.usize(..words.len())].to_vec() }
        }
    }
}

fn history(seed: u64, moments: &[i64]) -> BatchHistory {
    let mut rng = Rng::with_seed(seed);
    let steps = moments.iter().map(|at_us| Step { at_us: *at_us, deed: deed(&mut rng) }).collect();
    BatchHistory { seed, steps }
}

/// Batches' ids, numbered as they come.
#[derive(Debug, Default)]
struct Names(Vec<String>);

impl Names {
    /// The text with every id replaced by its number.
    fn mask(&mut self, text: &str) -> String {
        let (bytes, mut masked, mut at) = (text.as_bytes(), String::new(), 0);
        let is_id = |piece: &[u8]| {
            piece.len() == 25
                && piece[12] == b'-'
                && piece.iter().enumerate().all(|(at, byte)| at == 12 || byte.is_ascii_hexdigit())
        };
        while at < text.len() {
            if bytes.get(at..at + 25).is_some_and(is_id) {
                let id = &text[at..at + 25];
                let known = self.0.iter().position(|name| name == id);
                let number = known.unwrap_or_else(|| {
                    self.0.push(id.to_owned());
                    self.0.len() - 1
                });
                masked.push('#');
                masked.push_str(&number.to_string());
                at += 25;
            } else {
                let next = text[at..].chars().next().map_or(1, char::len_utf8);
                masked.push_str(&text[at..at + next]);
                at += next;
            }
        }
        masked
    }
}

struct World {
    quaymaster: Quaymaster,
    prefix: String,
    names: Mutex<Names>,
}

impl World {
    async fn act(&self, deed: &Deed, round: usize) -> String {
        let said = match self.answer(deed, round).await {
            Ok(said) => said,
            Err(error) => error.code.name().to_owned(),
        };
        self.names.lock().mask(&said)
    }

    async fn answer(&self, deed: &Deed, round: usize) -> Answer<String> {
        let batch = self.quaymaster.batch("camera")?;
        let key = [("camera_id", "front")];
        Ok(match deed {
            Deed::Add { item, id, request } => {
                let (id, request) = (id.map(|id| format!("i{id}")), request.map(|id| format!("r{id}")));
                let add = Add { item: item.as_bytes(), id: id.as_deref(), request_id: request.as_deref() };
                format!("{:?}", batch.add(&key, add).await?)
            }
            Deed::Close => {
                format!("{:?}", batch.close(&key, None).await?)
            }
            Deed::List => format!("List {:?}", batch.list(0, 10).await?),
            Deed::Sweep => format!("{:?}", batch.sweep().await?),
            Deed::Detect { item } => {
                let queue = self.quaymaster.queue("work")?;
                let push = quaymaster::queue::Push::one(round.to_string());
                let _ = queue.push(push).await?;
                let request_id = Some(format!("claim{round}"));
                let jobs = queue.claim(Claim { count: 10, request_id, ..Claim::default() }).await?;
                let key = vec![("camera_id".to_owned(), "front".to_owned())];
                let (name, item, id) = ("camera".to_owned(), (*item).into(), None);
                let mut ack = Ack::of(jobs.into_iter().map(|job| job.lease).collect());
                ack.then.push(Then::BatchAdd { name, key, item, id });
                // Its batch is named here, if it is a new one.
                format!("{:?} {:?}", queue.ack(ack).await?, batch.list(0, 10).await?)
            }
            Deed::Take => {
                let (queue, request_id) = (self.quaymaster.queue("done")?, Some(format!("take{round}")));
                let jobs = queue.claim(Claim { count: 100, request_id, ..Claim::default() }).await?;
                let text = |job: &quaymaster::queue::Job| {
                    self.names.lock().mask(&String::from_utf8_lossy(&job.payload))
                };
                let mut texts: Vec<String> = jobs.iter().map(text).collect();
                let _ = queue.ack(Ack::of(jobs.into_iter().map(|job| job.lease).collect())).await?;
                // One sweep closes several at once, in any order.
                texts.sort_unstable();
                format!("Took {texts:?}")
            }
            Deed::Foreign { key, words } => {
                let key = format!("{}{key}", self.prefix);
                let mut all: Vec<&[u8]> = vec![words[0].as_bytes(), key.as_bytes()];
                all.extend(words[1..].iter().map(|word| word.as_bytes()));
                format!("{:?}", command(&**self.quaymaster.engine(), key.as_bytes(), &all).await?)
            }
        })
    }
}

impl rounds::World for World {
    /// Every key with all there is to see of it, sorted once the ids are masked.
    async fn everything(&self, side: &Side) -> Vec<String> {
        let held = side.keyspace(&self.prefix).await;
        let mut names = self.names.lock();
        // What one sweep closes is queued in any order.
        let mut all = Vec::new();
        for (key, held) in &held {
            match &held.content {
                Reply::Array(parts) if held.kind == "list" => {
                    all.extend(
                        parts.iter().map(|part| names.mask(&format!("{} {part:?}", key.escape_ascii()))),
                    );
                }
                _ => all.push(names.mask(&format!("{} {held:?}", key.escape_ascii()))),
            }
        }
        all.sort_unstable();
        all
    }
}

impl Pair {
    /// Runs the batch histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_batches(&self, seeds: Range<u64>) -> Result<BatchTally, BatchMismatch> {
        let mut tally = BatchTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let moments = moments(&mut Rng::with_seed(batch[0]));
            let histories: Vec<BatchHistory> = batch.iter().map(|seed| history(*seed, &moments)).collect();
            if let Some((index, difference)) = self.run_batches(&histories, &mut tally).await {
                return Err(self.shrink_batches(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_batches(
        &self,
        histories: &[BatchHistory],
        tally: &mut BatchTally,
    ) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        let base = format!("b{}:", start_us / super::DAY_US);
        let world = |index: usize, engine: &Arc<dyn Engine>| {
            let prefix = format!("{base}u{index}:");
            let head =
                format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
            World { quaymaster: bind(&(head + SCHEMA), engine.clone()), prefix, names: Mutex::default() }
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
                Some((ours.act(deed, round).await, theirs.act(deed, round).await))
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

    async fn shrink_batches(&self, history: BatchHistory, difference: String) -> BatchMismatch {
        let differs =
            async |tried: &[BatchHistory; 1]| self.run_batches(tried, &mut BatchTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        BatchMismatch { history, difference }
    }
}

impl BatchTally {
    fn note(&mut self, deed: &Deed, said: &str) {
        let end = |text: &str| text.find(['(', ' ', '{']).unwrap_or(text.len());
        let deed = format!("{deed:?}");
        *self.answers.entry(format!("{} {}", &deed[..end(&deed)], &said[..end(said)])).or_default() += 1;
    }

    /// How often a deed was answered so: `Add Added`, `Close None`.
    pub fn answered(&self, word: &str) -> u64 {
        self.answers.get(word).copied().unwrap_or(0)
    }
}
