//! A hundred thousand jobs, four workers of the crate's own kind, one killed every second: what each of them told.

use std::collections::{BTreeMap, HashMap};

use crate::crew;

/// The jobs' queue, and where each ack puts its job in the ack's own step: an independent witness of acks.
pub const SCHEMA: &str = r#"
[schema]
name = "storm"
owner = "tests"
[queue.storm]
lease = "2s"
retry = { max_attempts = 5, base = "50ms", max = "200ms", jitter = 0.25 }
colocate = "storm"
[queue.done]
colocate = "storm"
"#;
/// The schema's lease: a store that stood still later than that after a handler's end did not keep its ack waiting.
const LEASE_US: i64 = 2_000_000;
/// How many handlers each worker runs at once.
pub const CONCURRENCY: usize = 10;
/// Every so many jobs, one that always fails.
pub const POISON_EVERY: u64 = 500;
/// What its handler says.
pub const POISON: &str = "this one always fails";

/// Whether no attempt at this job succeeds.
pub fn is_poison(job: u64) -> bool {
    job % POISON_EVERY == POISON_EVERY - 1
}

crate::events! {
    Began "began" { job: u64, attempt: u32, at: i64 }
    Ended "ended" { job: u64, attempt: u32, at: i64 }
    Failed "failed" { job: u64, attempt: u32, at: i64 }
    Lost "lost" { job: u64, attempt: u32, at: i64 }
}

/// Everything one process told.
#[derive(Debug, Default, Clone)]
pub struct Log {
    /// What its handlers told, in order.
    pub lines: Vec<Event>,
    /// It was killed: its last words may be missing.
    pub killed: bool,
}

impl crew::Log for Log {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let event = parse(&mut words);
        // Half a line may look whole; a whole one ends with its full stop.
        if words.next() == Some(".") {
            self.lines.extend(event);
        }
    }

    fn end_by_kill(&mut self) {
        self.killed = true;
    }
}

/// One run of a handler.
#[derive(Debug, Clone, Default)]
struct Run {
    attempt: u32,
    began: i64,
    ended: Option<i64>,
    failed: bool,
    lost: bool,
    killed: bool,
}

/// How often jobs were delivered, and why more than once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Deliveries {
    /// Jobs whose handler began at least once.
    pub jobs: usize,
    /// Times a handler began.
    pub runs: usize,
    /// Runs that a kill cut off.
    pub cut_off: usize,
    /// Repeated runs, by the reason that the run before was not the last.
    pub again: BTreeMap<&'static str, usize>,
    /// Attempts that were counted and that no handler began: claimed by a process that was killed, or whose claim's
    /// reply was lost.
    pub not_begun: usize,
}

/// Counts and explains every repeated run; the first one that nothing explains.
///
/// `away` are the moments between which the store was away, and as long afterwards as its calls take to give up;
/// `still` those between which it answered nobody.
pub fn explain(logs: &[Log], away: (i64, i64), still: &[(i64, i64)]) -> Result<Deliveries, String> {
    let mut jobs: HashMap<u64, Vec<Run>> = HashMap::new();
    for log in logs {
        for event in &log.lines {
            match *event {
                Event::Began { job, attempt, at } => {
                    let run = Run { attempt, began: at, killed: log.killed, ..Run::default() };
                    jobs.entry(job).or_default().push(run);
                }
                Event::Ended { job, attempt, at } => run_of(&mut jobs, job, attempt)?.ended = Some(at),
                Event::Failed { job, attempt, at } => {
                    let run = run_of(&mut jobs, job, attempt)?;
                    (run.ended, run.failed) = (Some(at), true);
                }
                Event::Lost { job, attempt, .. } => run_of(&mut jobs, job, attempt)?.lost = true,
            }
        }
    }
    let mut told = Deliveries { jobs: jobs.len(), ..Deliveries::default() };
    for (job, runs) in &mut jobs {
        runs.sort_by_key(|run| (run.attempt, run.began));
        told.runs += runs.len();
        told.cut_off += runs.iter().filter(|run| run.killed && run.ended.is_none()).count();
        let mut last = 0;
        for run in runs.iter() {
            told.not_begun += (run.attempt.saturating_sub(last + 1)) as usize;
            last = run.attempt;
        }
        for pair in runs.windows(2) {
            let (one, two) = (&pair[0], &pair[1]);
            if one.attempt == two.attempt {
                return Err(format!("job {job}: two runs count as one attempt: {one:?} and {two:?}"));
            }
            let reason = match one {
                Run { failed: true, .. } => "its handler failed",
                Run { killed: true, ended: None, .. } => "its worker was killed inside the handler",
                Run { killed: true, .. } => "its worker was killed before the ack",
                Run { lost: true, .. } => "its lease was lost, and its handler told",
                Run { ended, .. } if ended.is_none_or(|at| at >= away.0) && one.began <= away.1 => {
                    "the store was away when it was to be acked"
                }
                Run { ended: Some(at), .. }
                    if still.iter().any(|(from, to)| *from < two.began.min(at + LEASE_US) && *to > *at) =>
                {
                    "the store stood still when it was to be acked"
                }
                _ => return Err(format!("job {job}: nothing explains {two:?} after {one:?}")),
            };
            *told.again.entry(reason).or_default() += 1;
        }
    }
    Ok(told)
}

fn run_of(jobs: &mut HashMap<u64, Vec<Run>>, job: u64, attempt: u32) -> Result<&mut Run, String> {
    let found = jobs.get_mut(&job).and_then(|runs| runs.iter_mut().rev().find(|run| run.attempt == attempt));
    found.ok_or_else(|| format!("job {job}: attempt {attempt} ended and had not begun"))
}
