//! Every operation of stats on both stores, under a clock that both share, and so do their nodes.
//!
//! What tells one sample or one life of an instance from another is random: it is compared as if it were not there.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use http::Method;
use quaymaster::stats::{Record, ReportAsk, Request, Seen};
use quaymaster::store::Reply;
use quaymaster::{Engine, Quaymaster, Result as Answer};

use super::limits::bind;
use super::side::Side;
use super::{DAY_US, Pair, rounds, shrink};
use crate::conformance::command;
use crate::liar::Liar;

const STEPS: usize = 24;
const BATCH: usize = 50;

const SCHEMA: &str = r#"
[stats.web]
key = "web:"
flush = "1s"
heartbeat = "5s"
samples = 6
max_endpoints = 4
max_instances = 3
"#;

const PATHS: [&str; 7] = ["/", "/a/{id}", "/a/:id", "/b?x=1", "/c", "/d", "*"];
const INSTANCES: [&str; 5] = ["0", "1", "node a", "::1", "e"];

#[derive(Debug, Clone, PartialEq)]
struct One {
    instance: usize,
    path: usize,
    status: u16,
    us: u64,
    accepted: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
enum Deed {
    Record {
        requests: Vec<One>,
        open: Option<(usize, u64)>,
        request: Option<u8>,
    },
    Report {
        hours: Option<u32>,
        endpoints: Option<usize>,
    },
    Sweep,
    /// A process that counts, flushes twice, and ends.
    Live {
        requests: Vec<One>,
        open: usize,
    },
    Foreign {
        key: String,
        words: Vec<&'static str>,
    },
}

/// Keys that other programs write to.
const FOREIGN: [&str; 7] = [
    "requests:total",
    "errors:total",
    "requests:endpoint:GET /c",
    "response_times:GET /c",
    "requests:instance:0",
    "connections:http:current",
    "avg_response:GET /",
];

#[derive(Debug, Clone, PartialEq)]
struct Step {
    at_us: i64,
    /// How wrong the node's clock is.
    lie_us: i64,
    deed: Deed,
}

/// What instances counted.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsHistory {
    seed: u64,
    steps: Vec<Step>,
}

/// A history on which the two stores differ, cut down.
#[derive(Debug)]
pub struct StatsMismatch {
    history: StatsHistory,
    difference: String,
}

/// How many of what was compared.
#[derive(Debug, Default)]
pub struct StatsTally {
    /// Histories.
    pub histories: u64,
    /// Answers by deed and first word, or by deed and error code.
    pub answers: BTreeMap<String, u64>,
    /// Keys in final keyspaces.
    pub keys: u64,
}

impl fmt::Display for StatsMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stats history of seed {}:", self.history.seed)?;
        for step in &self.history.steps {
            writeln!(
                f,
                "  {:>14.3} ms  {} us off  {:?}",
                step.at_us as f64 / 1000.0,
                step.lie_us,
                step.deed
            )?;
        }
        write!(f, "differs:\n{}", self.difference)
    }
}

/// Moments and the lies told at them; one day after the other, for what is forgotten after one.
fn moments(rng: &mut Rng) -> Vec<(i64, i64)> {
    let mut now_us = rng.i64(1..3_600_000_000);
    let mut days = 0;
    (0..STEPS)
        .map(|_| {
            now_us += match rng.u8(..16) {
                0..=3 => rng.i64(0..2_000_000),
                // The ends of heartbeats, and right beside them.
                4 => [4_999_000, 5_000_000, 5_001_000][rng.usize(..3)],
                5 => 120_000_000 + rng.i64(0..5_000_000),
                // The end of the hour, and a millisecond before.
                6 => 3_600_000_000 - now_us % 3_600_000_000 - [0, 1000][rng.usize(..2)],
                7 => rng.i64(3_600_000_000..14_400_000_000),
                8 if days == 0 => {
                    days = 1;
                    DAY_US + rng.i64(0..2) * 1_000_000
                }
                _ => 0,
            };
            let lie_us = match rng.u8(..12) {
                0 => 4_000_000,
                1 => 3_600_000_000,
                2 => -3_600_000_000,
                3 => -1_000_000,
                _ => 0,
            };
            (now_us, lie_us)
        })
        .collect()
}

fn requests(rng: &mut Rng) -> Vec<One> {
    let many = if rng.u8(..10) == 0 { 90 } else { rng.usize(0..6) };
    (0..many)
        .map(|_| One {
            instance: rng.usize(..INSTANCES.len()),
            path: rng.usize(..PATHS.len()),
            status: [200, 200, 200, 404, 429, 500, 101, 999][rng.usize(..8)],
            us: [0, 1, 127, 128, 5_000, 5_000, 150_123, 9_007_199_254][rng.usize(..8)],
            accepted: [None, None, Some(true), Some(false)][rng.usize(..4)],
        })
        .collect()
}

fn deed(rng: &mut Rng) -> Deed {
    match rng.u8(..24) {
        0..=9 => Deed::Record {
            requests: requests(rng),
            open: (rng.u8(..2) == 0).then(|| (rng.usize(..INSTANCES.len()), rng.u64(0..9))),
            request: (rng.u8(..4) == 0).then(|| rng.u8(..2)),
        },
        10..=14 => Deed::Report {
            hours: [None, None, Some(1), Some(2), Some(24)][rng.usize(..5)],
            endpoints: [None, None, Some(2)][rng.usize(..3)],
        },
        15 | 16 => Deed::Sweep,
        17..=20 => Deed::Live { requests: requests(rng), open: rng.usize(0..4) },
        _ => {
            let key = FOREIGN[rng.usize(..FOREIGN.len())];
            let words: &[&[&'static str]] = &[
                &["INCRBY", "7"],
                &["SET", "odd"],
                &["SET", "-3"],
                &["RPUSH", "x"],
                &["ZADD", "1", "150"],
                &["PEXPIRE", "1500"],
                &["DEL"],
                &["DEL"],
                &["DEL"],
            ];
            Deed::Foreign { key: format!("web:{key}"), words: words[rng.usize(..words.len())].to_vec() }
        }
    }
}

fn history(seed: u64, moments: &[(i64, i64)]) -> StatsHistory {
    let mut rng = Rng::with_seed(seed);
    let step = |(at_us, lie_us): &(i64, i64)| Step { at_us: *at_us, lie_us: *lie_us, deed: deed(&mut rng) };
    StatsHistory { seed, steps: moments.iter().map(step).collect() }
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
        let stats = self.quaymaster.stats("web")?;
        Ok(match deed {
            Deed::Record { requests, open, request } => {
                let requests: Vec<Request<'_>> = requests
                    .iter()
                    .map(|one| Request {
                        instance: INSTANCES[one.instance],
                        method: ["get", "POST", "brew"][one.path % 3],
                        path: PATHS[one.path],
                        status: one.status,
                        elapsed: Duration::from_micros(one.us),
                        remote: None,
                        accepted: one.accepted,
                    })
                    .collect();
                let connections: Vec<(&str, u64)> =
                    open.iter().map(|(instance, open)| (INSTANCES[*instance], *open)).collect();
                let id = request.map(|id| format!("r{id}"));
                let record =
                    Record { requests: &requests, connections: &connections, request_id: id.as_deref() };
                format!("{:?}", stats.record(record).await?)
            }
            Deed::Report { hours, endpoints } => {
                let ask = ReportAsk { hours: *hours, endpoints: *endpoints };
                format!("{:?}", stats.report(ask).await?)
            }
            Deed::Sweep => format!("{:?}", stats.sweep().await?),
            Deed::Live { requests, open } => {
                // A recorder sweeps once it has flushed, unless it is stopped before: all there is to forget is forgotten first.
                let _ = stats.sweep().await;
                // It cuts what it delivers where its ticks fall, and what one spoilt key holds up depends on the cut.
                for key in FOREIGN {
                    let key = format!("{}web:{key}", self.prefix);
                    let words = [b"DEL".as_slice(), key.as_bytes()];
                    command(&**self.quaymaster.engine(), key.as_bytes(), &words).await?;
                }
                let recorder = stats.recorder(INSTANCES[requests.len() % INSTANCES.len()]);
                let connections: Vec<_> = (0..*open).map(|_| recorder.connected()).collect();
                let (first, second) = requests.split_at(requests.len() / 2);
                let count = |one: &One| {
                    recorder.record(&Seen {
                        method: &Method::GET,
                        route: (one.path != 6).then_some(PATHS[one.path]),
                        status: one.status,
                        elapsed: Duration::from_micros(one.us),
                        accepted: one.accepted.unwrap_or(true),
                    });
                };
                first.iter().for_each(count);
                let told = recorder.flush().await;
                second.iter().for_each(count);
                drop(connections);
                recorder.shutdown().await;
                told?;
                "Lived".to_owned()
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

/// A word without the suffix of a sample and without the incarnation of a process.
fn masked(part: &Reply) -> String {
    let Reply::Bytes(text) = part else { return format!("{part:?}") };
    let text = String::from_utf8_lossy(text);
    let incarnation = |word: &str| word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (text.split_once('#'), text.split_once(' ')) {
        (Some((ms, _)), _) => format!("{ms}#"),
        (_, Some((word, instance))) if incarnation(word) => format!("# {instance}"),
        _ => text.into_owned(),
    }
}

impl rounds::World for World {
    /// Every key with all there is to see of it, but for what is random.
    async fn everything(&self, side: &Side) -> Vec<String> {
        let held = side.keyspace(&self.prefix).await;
        let mut all = Vec::new();
        for (key, held) in &held {
            let key = key.escape_ascii().to_string();
            let mut parts = match &held.content {
                Reply::Array(parts) => parts.iter().map(masked).collect(),
                other => vec![masked(other)],
            };
            // How many flushes a process needed depends on when its first tick came.
            if key.ends_with("}:flushes") {
                parts.retain(|part| part.contains(' '));
            }
            parts.sort_unstable();
            all.push(format!("{key} {} {} {parts:?}", held.kind, held.ttl_ms));
        }
        all.sort_unstable();
        all
    }
}

impl Pair {
    /// Runs the stats histories of `seeds`; the first difference, cut down, or what was compared.
    pub async fn compare_stats(&self, seeds: Range<u64>) -> Result<StatsTally, StatsMismatch> {
        let mut tally = StatsTally::default();
        let all: Vec<u64> = seeds.collect();
        for batch in all.chunks(BATCH) {
            let moments = moments(&mut Rng::with_seed(batch[0]));
            let histories: Vec<StatsHistory> = batch.iter().map(|seed| history(*seed, &moments)).collect();
            if let Some((index, difference)) = self.run_stats(&histories, &mut tally).await {
                return Err(self.shrink_stats(histories[index].clone(), difference).await);
            }
        }
        Ok(tally)
    }

    async fn run_stats(&self, histories: &[StatsHistory], tally: &mut StatsTally) -> Option<(usize, String)> {
        let start_us = self.next_day_us();
        // The history may last for several days.
        for _ in 0..6 {
            self.next_day_us();
        }
        let base = format!("s{}:", start_us / DAY_US);
        let told_us = Arc::new(AtomicI64::new(start_us));
        let world = |index: usize, engine: &Arc<dyn Engine>| {
            let prefix = format!("{base}u{index}:");
            let head =
                format!("[schema]\nname = \"differential\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n");
            let node = Arc::new(Liar::told(engine.clone(), told_us.clone()));
            World { quaymaster: bind(&(head + SCHEMA), node), prefix }
        };
        let both = |index| (world(index, &self.ours.engine), world(index, &self.theirs.engine));
        let worlds: Vec<(World, World)> = (0..histories.len()).map(both).collect();
        let rounds = histories.iter().map(|history| history.steps.len()).max().unwrap_or(0);
        for round in 0..rounds {
            let Some(step) = histories.iter().find_map(|history| history.steps.get(round)) else { continue };
            self.set_time(start_us + step.at_us).await;
            told_us.store(start_us + step.at_us + step.lie_us, SeqCst);
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

    async fn shrink_stats(&self, history: StatsHistory, difference: String) -> StatsMismatch {
        let differs =
            async |tried: &[StatsHistory; 1]| self.run_stats(tried, &mut StatsTally::default()).await;
        let (history, difference) =
            shrink::fewer_steps(history, difference, |history| &mut history.steps, differs).await;
        StatsMismatch { history, difference }
    }
}

impl StatsTally {
    fn note(&mut self, deed: &Deed, said: &str) {
        let end = |text: &str| text.find(['(', ' ', '{']).unwrap_or(text.len());
        let deed = format!("{deed:?}");
        *self.answers.entry(format!("{} {}", &deed[..end(&deed)], &said[..end(said)])).or_default() += 1;
    }

    /// How often a deed was answered so: `Record Recorded`, `Report Report`.
    pub fn answered(&self, word: &str) -> u64 {
        self.answers.get(word).copied().unwrap_or(0)
    }
}
