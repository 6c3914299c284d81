//! Many callers in several processes want one entry: one of them loads it.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    stdin: ChildStdin,
    told: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Process {
    fn start(store: &str, callers: u64, lease_ms: u64) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cache_loader"))
            .args([store, &callers.to_string(), &lease_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cache_loader can be started");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let told = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let heard = told.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                heard.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                heard.1.notify_all();
            }
        });
        Self { child, stdin, told }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it listens");
    }

    fn count(&self, line: &str) -> usize {
        let told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().filter(|said| *said == line).count()
    }

    fn wait_for(&self, line: &str) {
        let until = Instant::now() + PATIENCE;
        let mut told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !told.iter().any(|said| said == line) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it never said {line}: {told:?}");
            told = self.told.1.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn failures(&self) -> usize {
        let told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().filter(|said| said.starts_with("failed ")).count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CALLERS: [u64; 3] = [34, 33, 33];

/// Three processes with a hundred callers, all of whom have missed.
fn stampede(store: &str, lease_ms: u64) -> Vec<Process> {
    let mut all: Vec<Process> =
        CALLERS.iter().map(|callers| Process::start(store, *callers, lease_ms)).collect();
    for process in &mut all {
        process.wait_for("ready");
        process.tell("start");
    }
    for process in &all {
        process.wait_for("missed");
    }
    all
}

/// The one process whose loader runs, once one does.
fn loading(all: &[Process], so_far: usize) -> usize {
    let until = Instant::now() + PATIENCE;
    loop {
        let running: Vec<usize> = (0..all.len()).filter(|at| all[*at].count("loading") > 0).collect();
        assert!(running.len() <= so_far + 1, "several load at once: {running:?}");
        if running.len() == so_far + 1 {
            return *running.last().expect("one");
        }
        assert!(Instant::now() < until, "nobody loads");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn one_load_serves_a_hundred_callers(store: &str) {
    // Far shorter than the load: only a lease that is renewed keeps the others from loading.
    let lease_ms = 300;
    let mut all = stampede(store, lease_ms);
    let loader = loading(&all, 0);
    let slow = Instant::now() + Duration::from_millis(lease_ms * 5);
    while Instant::now() < slow {
        assert_eq!(all.iter().map(|process| process.count("loading")).sum::<usize>(), 1);
        std::thread::sleep(Duration::from_millis(20));
    }
    all[loader].tell("go the value");
    for (process, callers) in all.iter().zip(CALLERS) {
        process.wait_for("done");
        assert_eq!(process.count("got the value"), callers as usize);
    }
    assert_eq!(all.iter().map(|process| process.count("loading")).sum::<usize>(), 1, "one load");
}

fn a_loader_that_is_killed_is_followed_by_another(store: &str) {
    let mut all = stampede(store, 500);
    let first = loading(&all, 0);
    let mut dead = all.remove(first);
    dead.child.kill().expect("it can be killed");
    dead.child.wait().expect("it is ours");
    let second = loading(&all, 0);
    all[second].tell("go after all");
    for process in &all {
        process.wait_for("done");
        assert_eq!(process.failures(), 0);
        assert!(process.count("got after all") >= 33);
    }
    assert_eq!(dead.count("got after all"), 0);
}

fn a_loader_that_fails_is_followed_by_another_process(store: &str) {
    let mut all = stampede(store, 60_000);
    let first = loading(&all, 0);
    all[first].tell("fail");
    all[first].wait_for("done");
    assert_eq!(all[first].failures(), CALLERS[first] as usize, "its own callers are told why");
    let failed = all.remove(first);
    let second = loading(&all, 0);
    all[second].tell("go after all");
    for process in &all {
        process.wait_for("done");
        assert_eq!((process.failures(), process.count("got after all") >= 33), (0, true));
    }
    drop(failed);
}

fn on_redis(check: fn(&str)) {
    let server = RedisServer::start(RedisConfig::of(Binary::Redis7));
    check(&server.url());
}

fn on_one_folder(check: fn(&str)) {
    let folder = tempfile::tempdir().expect("a folder");
    check(&format!("embedded:{}", folder.path().display()));
}

#[test]
fn one_load_serves_a_hundred_callers_in_three_processes_on_redis() {
    on_redis(one_load_serves_a_hundred_callers);
}

#[test]
fn one_load_serves_a_hundred_callers_in_three_processes_on_one_folder() {
    on_one_folder(one_load_serves_a_hundred_callers);
}

#[test]
fn a_loader_that_is_killed_is_followed_by_another_on_redis() {
    on_redis(a_loader_that_is_killed_is_followed_by_another);
}

#[test]
fn a_loader_that_is_killed_is_followed_by_another_on_one_folder() {
    on_one_folder(a_loader_that_is_killed_is_followed_by_another);
}

#[test]
fn a_loader_that_fails_is_followed_by_another_process_on_redis() {
    on_redis(a_loader_that_fails_is_followed_by_another_process);
}

#[test]
fn a_loader_that_fails_is_followed_by_another_process_on_one_folder() {
    on_one_folder(a_loader_that_fails_is_followed_by_another_process);
}
