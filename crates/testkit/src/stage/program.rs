//! The program under test, run as a user runs it.
#![expect(clippy::unwrap_used, reason = "a program that does not run fails the test")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Names another program than the one built beside the test.
const BINARY: &str = "QUAYMASTER_CORPUS_BINARY";

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Said {
    /// The standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A program in `folder`, with nothing of the test's environment.
pub(super) fn command(folder: &Path, program: &Path) -> Command {
    // setpriv becomes the command, which ends with the thread that started it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("NO_COLOR", "1");
    command
}

/// Runs a command to its end.
pub(super) fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct Served {
    child: Child,
    _out: BufReader<ChildStdout>,
    pub(super) address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Starts it and waits for the line with its address; it writes its log to the end of the file `log`.
    pub(super) fn start(command: &mut Command, log: &Path) -> Self {
        let file = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let address = address.unwrap_or_else(|| {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("it did not start: {line}{log}")
        });
        Self { child, _out: out, address }
    }

    /// SIGTERM, and waits for its end; the exit code.
    pub(super) fn stop(mut self) -> i32 {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// The program under test: the one that is named, else the one that was built beside this test.
pub(super) fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os(BINARY) {
        return named.into();
    }
    let test = std::env::current_exe().unwrap();
    fresh(test.parent().and_then(Path::parent).unwrap().join("quaymaster"), "quaymaster-cli")
}

/// Another program of the workspace, built beside it; its package has its name.
pub(super) fn neighbour(name: &str) -> PathBuf {
    fresh(binary().with_file_name(name), name)
}

/// The file, which must be there and no older than what it was built from.
fn fresh(file: PathBuf, package: &str) -> PathBuf {
    let built =
        || format!("`cargo build -p {package}` makes {}; or name another in {BINARY}", file.display());
    let age = |path: &Path| path.metadata().and_then(|meta| meta.modified());
    let made = age(&file).unwrap_or_else(|error| panic!("{error}: {}", built()));
    // What it was built from stands beside it: yesterday's program would prove nothing. What a build makes of its
    // sources is written again, the same, by a build with other features; its sources are listed too.
    let sources = std::fs::read_to_string(file.with_extension("d")).unwrap_or_default();
    let made_by_build = file.with_file_name("build");
    let newer = sources
        .split_whitespace()
        .skip(1)
        .map(Path::new)
        .find(|source| !source.starts_with(&made_by_build) && age(source).is_ok_and(|age| age > made));
    assert_eq!(newer, None, "it is newer than the program: {}", built());
    file
}
