//! Idempotencies under processes that are stopped past their claims and killed at any moment: thousands of random
//! histories, in none of which an operation finishes twice, a replay differs or a live claim is reclaimed.
//!
//! Fifty histories a store by default, three thousand under `QUAYMASTER_SOAK=1`; `QUAYMASTER_HISTORIES` and
//! `QUAYMASTER_SEED` choose others. A seed gives the same intentions, not the same interleaving.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use quaymaster_testkit::differential::{count, seed};
use quaymaster_testkit::idempotency_history::{EPOCH_US, LANES, Log, Tally, check};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);
const WORKERS: usize = 4;

/// One process at work.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    log: Arc<Mutex<Log>>,
    reader: std::thread::JoinHandle<()>,
    said: Receiver<&'static str>,
}

impl Worker {
    fn start(store: &str, seed: u64, defect: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idempotency_worker"))
            .args([store, &seed.to_string()])
            .args(defect)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("idempotency_worker can be started");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(Log::default()));
        let (say, said) = channel();
        let reader = std::thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    match &*line {
                        "ready" => drop(say.send("ready")),
                        "done" => drop(say.send("done")),
                        line => log.lock().note(line),
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

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("the worker can be signalled");
    }

    /// SIGKILL; what it had told until then.
    fn kill9(mut self) -> Log {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is ours");
        let mut log = self.taken();
        log.killed = true;
        log
    }

    /// Lets it end what it has begun.
    fn finish(mut self) -> Log {
        drop(self.stdin.take());
        self.expect("done");
        assert!(self.child.wait().expect("it is ours").success());
        self.taken()
    }

    fn taken(self) -> Log {
        self.reader.join().expect("the reader ends with the process");
        std::mem::take(&mut self.log.lock())
    }
}

/// Workers on `store`, stopped and killed at random, until so many histories are made.
fn roam(store: &str, histories: u64, defect: &[&str]) -> Vec<Log> {
    let mut rng = Rng::with_seed(seed());
    let mut born = seed() * 100;
    let mut worker = || {
        born += 1;
        Worker::start(store, born, defect)
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| worker()).collect();
    let mut logs = Vec::new();
    let epochs = u32::try_from(histories.div_ceil(LANES as u64)).expect("not as many") + 1;
    let (began, until) = (Instant::now(), Duration::from_micros(EPOCH_US as u64) * epochs);
    let mut first_lives = true;
    while began.elapsed() < until {
        // The first one owns an embedded store: its death is never left to chance.
        if first_lives && began.elapsed() > until / 2 {
            first_lives = false;
            logs.push(std::mem::replace(&mut workers[0], worker()).kill9());
        }
        // Faults come at random moments; nothing waits for these pauses.
        std::thread::sleep(Duration::from_millis(rng.u64(10..120)));
        let chosen = rng.usize(0..WORKERS);
        match rng.u8(0..12) {
            0..6 => {
                workers[chosen].signal(Signal::STOP);
                // Past a claim, or within one.
                let pause = if rng.bool() { rng.u64(110..300) } else { rng.u64(5..60) };
                std::thread::sleep(Duration::from_millis(pause));
                workers[chosen].signal(Signal::CONT);
            }
            6..8 => logs.push(std::mem::replace(&mut workers[chosen], worker()).kill9()),
            _ => {}
        }
    }
    logs.extend(workers.into_iter().map(Worker::finish));
    logs
}

fn holds(store: &str, url: &str) {
    let histories = count(50, 3000);
    let logs = roam(url, histories, &[]);
    let tally = check(&logs).unwrap_or_else(|wrong| panic!("{store}: {wrong}"));
    println!("{store}: {} killed, {tally:?}", logs.iter().filter(|log| log.killed).count());
    meaningful(&tally, histories);
}

/// A run in which nothing happened proves nothing.
fn meaningful(tally: &Tally, histories: u64) {
    assert!(tally.records as u64 >= histories * 9 / 10, "{tally:?}");
    let seen = [
        tally.finished,
        tally.reclaimed,
        tally.replays / 4,
        tally.abandoned,
        tally.again * 4,
        tally.lost * 4,
    ];
    for seen in seen {
        assert!(seen as u64 >= histories / 10, "{tally:?}");
    }
}

#[test]
fn on_disk_every_history_holds_through_the_owners_death() {
    let folder = tempfile::tempdir().expect("a folder");
    holds("embedded", &format!("embedded:{}", folder.path().display()));
}

#[test]
fn on_redis_7_every_history_holds() {
    let server = RedisServer::start(RedisConfig::default());
    holds("redis7", &server.url());
}

#[test]
fn on_valkey_9_every_history_holds() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9));
    holds("valkey9", &server.url());
}

#[test]
fn on_a_cluster_every_history_holds() {
    let cluster = Cluster::start(ClusterConfig::default());
    holds("cluster", &cluster.url());
}

/// What is found when `new` stands in place of `old` in the scripts of `operation`.
fn found(operation: &str, old: &str, new: &str) -> String {
    let server = RedisServer::start(RedisConfig::default());
    let logs = roam(&server.url(), 100, &[operation, old, new]);
    let wrong = check(&logs).expect_err("the defect must be found");
    println!("{operation}: {wrong}");
    wrong
}

#[test]
fn a_finish_that_compares_no_token_is_found() {
    let _ = found("idempotency.finish", "holder ~= token or ", "");
}

#[test]
fn an_abandon_that_compares_no_token_is_found() {
    let _ = found("idempotency.abandon", "holder ~= token or ", "");
}

#[test]
fn a_begin_that_takes_a_live_claim_over_is_found() {
    let wrong = found("idempotency.begin", "x <= now_ms", "x - 50 <= now_ms");
    assert!(wrong.contains("reclaimed") || wrong.contains("told that it is lost"), "{wrong}");
}

#[test]
fn a_finish_that_writes_over_another_is_found() {
    let _ = found(
        "idempotency.finish",
        "if state == \"f\" and holder == tail then",
        "if state == \"f\" then state, holder, x = \"p\", token, now_ms + 1 end if false then",
    );
}
