//! A child process with a log, killed when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use rustix::process::{Pid, Signal, kill_process};

/// Lines of the log shown when a test fails.
const LOG_LINES: usize = 40;

/// A running program.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; both its outputs go to the end of `log`.
    pub fn spawn(program: &Path, args: &[String], env: &[(String, String)], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("the log can be written");
        // setpriv becomes the program, which then dies with us, also when the test runner is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let child = spawn_from_lasting_thread(command)
            .unwrap_or_else(|error| panic!("{name} cannot be started ({error}): run scripts/test-tools"));
        Self { child, name, log: log.to_owned() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a child has a process id");
        kill_process(pid, signal)
            .unwrap_or_else(|error| panic!("{} cannot be signalled: {error}", self.name));
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} (pid {}) said last:\n{}", self.name, self.child.id(), self.log_tail());
        }
        self.kill9();
    }
}

type Order = (Command, Sender<std::io::Result<Child>>);

/// The death signal comes when the *thread* that started the child ends, so one that never does starts all.
fn spawn_from_lasting_thread(command: Command) -> std::io::Result<Child> {
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, done) in inbox {
                let _ = done.send(command.spawn());
            }
        });
        orders
    });
    let (done, result) = channel();
    orders.send((command, done)).expect("the starting thread lives as long as the process");
    result.recv().expect("the starting thread answers every order")
}
