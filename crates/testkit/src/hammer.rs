//! Worker processes that take from a limit, and the ledger of what they were told.

#![expect(clippy::expect_used, reason = "what cannot be set up or told fails the test that asked for it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// What became of a call, as far as its caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Begun; nothing heard since.
    Open,
    /// Allowed.
    Allowed,
    /// Refused.
    Limited,
    /// The reply was lost: it may have run.
    Lost,
    /// It did not run.
    NotRun,
}

/// Every call of one process.
#[derive(Debug, Default)]
struct Ledger {
    ready: bool,
    done: bool,
    ended: bool,
    calls: BTreeMap<(usize, u64), Fate>,
    allowed: u64,
    limited: u64,
    answered: u64,
    lost: u64,
    codes: BTreeMap<String, u64>,
}

impl Ledger {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let sign = words.next().unwrap_or_default();
        match sign {
            "ready" => self.ready = true,
            "done" => self.done = true,
            _ => {
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
                let place = (number() as usize, number());
                let fate = match sign {
                    "?" => Fate::Open,
                    "+" => Fate::Allowed,
                    "-" => Fate::Limited,
                    "!" => Fate::Lost,
                    "~" => Fate::NotRun,
                    other => panic!("a worker said {other:?}"),
                };
                self.allowed += u64::from(fate == Fate::Allowed);
                self.limited += u64::from(fate == Fate::Limited);
                self.answered += u64::from(matches!(fate, Fate::Allowed | Fate::Limited));
                self.lost += u64::from(fate == Fate::Lost);
                if let Some(code) = words.next() {
                    *self.codes.entry(code.to_owned()).or_default() += 1;
                }
                // Once a reply was lost the call may have run, whatever a later attempt is told.
                let before = self.calls.insert(place, fate);
                if matches!(fate, Fate::Open | Fate::NotRun) && before == Some(Fate::Lost) {
                    self.calls.insert(place, Fate::Lost);
                }
            }
        }
    }
}

/// One worker process.
#[derive(Debug)]
pub struct Hammer {
    child: Child,
    stdin: Option<ChildStdin>,
    shared: Arc<(Mutex<Ledger>, Condvar)>,
    ids: Option<String>,
}

/// How a worker is started.
#[derive(Debug, Clone, Default)]
pub struct HammerConfig {
    /// `redis://…` or `embedded:DIR`.
    pub store: String,
    /// The limit's name in the schema.
    pub limit: String,
    /// Values of the key's placeholders.
    pub key: Vec<(String, String)>,
    /// Deadline of its calls.
    pub deadline: Option<Duration>,
    /// How long one attempt of a call waits for its reply; on Redis.
    pub response_timeout: Option<Duration>,
    /// A prefix for request ids; with one, calls are repeated until answered.
    pub request_ids: Option<String>,
    /// Where it counts while the store is away.
    pub database: Option<String>,
    /// Wait with the first call until [`Hammer::go`].
    pub hold: bool,
    /// By how much its idea of the store's clock is wrong.
    pub lie_ms: i64,
    /// Environment, such as a held clock's.
    pub env: Vec<(String, String)>,
}

impl Hammer {
    /// Starts `program` (the `limit_hammer` binary) with sixteen tasks.
    pub fn start(program: &str, schema: &Path, config: &HammerConfig) -> Self {
        let mut command = Command::new(program);
        command.arg("--schema").arg(schema);
        command.args(["--store", &config.store, "--limit", &config.limit, "--tasks", "16"]);
        command.args(["--lie-ms", &config.lie_ms.to_string()]);
        for (name, value) in &config.key {
            command.args(["--key", &format!("{name}={value}")]);
        }
        if let Some(deadline) = config.deadline {
            command.args(["--deadline-ms", &deadline.as_millis().to_string()]);
        }
        if let Some(timeout) = config.response_timeout {
            command.args(["--response-timeout-ms", &timeout.as_millis().to_string()]);
        }
        if let Some(prefix) = &config.request_ids {
            command.args(["--request-ids", prefix]);
        }
        if let Some(url) = &config.database {
            command.args(["--database", url]);
        }
        if config.hold {
            command.args(["--hold", "yes"]);
        }
        command.envs(config.env.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("limit_hammer can be started");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let shared = Arc::new((Mutex::new(Ledger::default()), Condvar::new()));
        let ledger = Arc::clone(&shared);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                ledger.0.lock().unwrap_or_else(PoisonError::into_inner).note(&line);
                ledger.1.notify_all();
            }
            ledger.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            ledger.1.notify_all();
        });
        Self { child, stdin, shared, ids: config.request_ids.clone() }
    }

    fn wait<T>(&self, what: &str, mut look: impl FnMut(&Ledger) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut ledger = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = look(&ledger) {
                return found;
            }
            assert!(!ledger.ended, "the worker ended before {what}: {:?}", ledger.codes);
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| {
                panic!("{what} never came: {} calls, {:?}", ledger.calls.len(), ledger.codes)
            });
            ledger = self.shared.1.wait_timeout(ledger, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until its store is open.
    pub fn wait_ready(&self) {
        self.wait("it was ready", |ledger| ledger.ready.then_some(()));
    }

    /// Lets a worker that was held begin.
    pub fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("it was not told to finish");
        stdin.write_all(b"go\n").expect("the worker listens");
    }

    /// Waits until it has been told this many answers more than now.
    pub fn wait_more_answers(&self, more: u64) {
        let mut target = None;
        self.wait("more answers", |ledger| {
            let target = *target.get_or_insert(ledger.answered + more);
            (ledger.answered >= target).then_some(())
        });
    }

    /// Waits until it has been refused this often.
    pub fn wait_limited(&self, at_least: u64) {
        self.wait("refusals", |ledger| (ledger.limited >= at_least).then_some(()));
    }

    /// Waits until this many replies were lost.
    pub fn wait_lost(&self, at_least: u64) {
        self.wait("lost replies", |ledger| (ledger.lost >= at_least).then_some(()));
    }

    /// SIGKILL.
    pub fn kill9(&mut self) {
        self.child.kill().expect("the worker can be killed");
        self.child.wait().expect("it is ours");
        self.wait("its last words", |ledger| ledger.ended.then_some(()));
    }

    /// SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("the worker can be signalled");
    }

    /// Lets it finish its calls and end.
    pub fn finish(&mut self) {
        self.stdin = None;
        self.wait("it was done", |ledger| ledger.done.then_some(()));
        let status = self.child.wait().expect("it is ours");
        assert!(status.success(), "{status}");
    }

    /// Calls it was told are allowed.
    pub fn allowed(&self) -> u64 {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).allowed
    }

    /// The calls that ended without an answer, by their request ids (empty strings without ids).
    pub fn unanswered(&self) -> Vec<String> {
        let ledger = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = ledger.calls.iter().filter(|(_, fate)| matches!(fate, Fate::Open | Fate::Lost));
        open.map(|((task, call), _)| {
            self.ids.as_ref().map_or(String::new(), |ids| format!("{ids}-{task}-{call}"))
        })
        .collect()
    }

    /// Error codes it met, with their counts.
    pub fn codes(&self) -> BTreeMap<String, u64> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).codes.clone()
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
