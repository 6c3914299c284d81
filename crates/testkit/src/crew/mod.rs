//! Processes at work on one store, stopped past their leases and killed at random moments, and what they tell.
//!
//! A worker prints `ready`, then one line per event, and `done` when its standard input was closed and it has ended
//! what it had begun. [`actor`] is the worker's side of this, [`events!`](crate::events) the vocabulary of its lines.

#![expect(clippy::expect_used, reason = "what cannot be set up or told fails the test that asked for it")]

pub mod actor;
mod events;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::differential::seed;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(150);
/// How many work at once.
pub const WORKERS: usize = 4;

/// What one process told.
pub trait Log: Default + Send + 'static {
    /// Reads one line; a killed process may have left half of one.
    fn note(&mut self, line: &str);
    /// It was killed: its last words may be missing.
    fn end_by_kill(&mut self);
}

/// Hears every line as it comes.
pub type Watch = Arc<dyn Fn(&str) + Send + Sync>;

/// One process at work.
#[derive(Debug)]
pub struct Worker<L> {
    child: Child,
    stdin: Option<ChildStdin>,
    log: Arc<Mutex<L>>,
    reader: JoinHandle<()>,
    said: Receiver<&'static str>,
}

impl<L: Log> Worker<L> {
    /// Starts `program` and waits until it is ready.
    pub fn start(mut program: Command, watch: Watch) -> Self {
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?} cannot be started: {error}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(L::default()));
        let (say, said) = channel();
        let reader = std::thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    match &*line {
                        "ready" => drop(say.send("ready")),
                        "done" => drop(say.send("done")),
                        line => {
                            log.lock().note(line);
                            watch(line);
                        }
                    }
                }
            }
        });
        let worker = Self { child, stdin, log, reader, said };
        worker.expect("ready");
        worker
    }

    fn expect(&self, word: &str) {
        match self.said.recv_timeout(PATIENCE) {
            Ok(told) => assert_eq!(told, word),
            Err(RecvTimeoutError::Timeout) => panic!("a worker is not {word} in time"),
            Err(RecvTimeoutError::Disconnected) => panic!("a worker ended before it was {word}"),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("the worker can be signalled");
    }

    /// SIGKILL; what it had told until then.
    pub fn kill9(mut self) -> L {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is ours");
        let mut log = self.taken();
        log.end_by_kill();
        log
    }

    /// Lets it end what it has begun.
    pub fn finish(mut self) -> L {
        drop(self.stdin.take());
        self.expect("done");
        assert!(self.child.wait().expect("it is ours").success());
        self.taken()
    }

    fn taken(self) -> L {
        self.reader.join().expect("the reader ends with the process");
        std::mem::take(&mut self.log.lock())
    }
}

/// Workers that roam over a store.
#[derive(Debug, Clone)]
pub struct Crew<'a> {
    /// The worker's program.
    pub program: &'a str,
    /// The store's URL.
    pub store: &'a str,
    /// Operation, old and new text of a defect in its scripts; nothing for scripts as they are.
    pub defect: &'a [&'a str],
    /// How long a stop lasts that outlives every lease, in milliseconds.
    pub past_lease_ms: Range<u64>,
    /// Longer than the whole may take.
    pub most: Duration,
}

impl Crew<'_> {
    /// Stops and kills at random until `progress` is 1; the logs of all who lived.
    pub fn roam<L: Log>(&self, watch: &Watch, progress: impl Fn() -> f64) -> Vec<L> {
        let mut rng = Rng::with_seed(seed());
        let mut born = seed() * 100;
        let mut worker = || {
            born += 1;
            let mut program = Command::new(self.program);
            program.arg(self.store).arg(born.to_string()).args(self.defect);
            Worker::<L>::start(program, watch.clone())
        };
        let mut workers: Vec<Worker<L>> = (0..WORKERS).map(|_| worker()).collect();
        let mut logs = Vec::new();
        let began = Instant::now();
        let mut first_lives = true;
        loop {
            let done = progress();
            if done >= 1.0 {
                break;
            }
            assert!(began.elapsed() < self.most, "only {done} of the histories in {:?}", self.most);
            // The first one owns an embedded store: its death is never left to chance.
            if first_lives && done > 0.5 {
                first_lives = false;
                logs.push(std::mem::replace(&mut workers[0], worker()).kill9());
            }
            // Faults come at random moments; nothing waits for these pauses.
            std::thread::sleep(Duration::from_millis(rng.u64(10..120)));
            let chosen = rng.usize(0..WORKERS);
            match rng.u8(0..12) {
                0..6 => {
                    workers[chosen].signal(Signal::STOP);
                    let within = 5..60;
                    let pause = if rng.bool() { self.past_lease_ms.clone() } else { within };
                    std::thread::sleep(Duration::from_millis(rng.u64(pause)));
                    workers[chosen].signal(Signal::CONT);
                }
                6..8 => logs.push(std::mem::replace(&mut workers[chosen], worker()).kill9()),
                _ => {}
            }
        }
        logs.extend(workers.into_iter().map(Worker::finish));
        logs
    }
}

/// Hears nothing.
pub fn unwatched() -> Watch {
    Arc::new(|_| ())
}
