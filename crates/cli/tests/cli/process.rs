//! Runs the built command, in a folder of its own and without the caller's environment.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The command with nothing of this test's environment.
pub(crate) fn command(folder: &Path) -> Command {
    // No test leaves a process behind, not even one that was killed itself: setpriv becomes the command, which then ends
    // with the thread that started it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_quaymaster")]);
    command.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.process_group(0);
    command
}

/// Runs to its end.
pub(crate) fn run(folder: &Path, args: &[&str]) -> Said {
    said(command(folder).args(args))
}

pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The same with something on its standard input.
pub(crate) fn said_after(command: &mut Command, typed: &str) -> Said {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that was started and has said nothing yet.
pub(crate) struct Started(Child);

impl Started {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Reads what it says besides its answer until a line has `part`; that line.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let mut err = BufReader::with_capacity(1, self.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "it never said {part}");
        }
        self.0.stderr = Some(err.into_inner());
        line
    }

    pub(crate) fn stop_by(self, signal: Signal) -> Said {
        kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), signal).unwrap();
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Said {
        let code = wait(&mut self.0);
        let (mut out, mut err) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Said { code, out, err }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// For `--listen`: any port of the test's own address.
pub(crate) fn any_port() -> String {
    crate::address::any_port().to_string()
}

/// A running `quaymaster serve`.
pub(crate) struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Its one line.
    pub(crate) line: String,
    /// Where it listens.
    pub(crate) address: String,
}

impl Served {
    /// Starts it on a free port and waits for its line.
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Self {
        let mut command = command(folder);
        command.args(["serve", "--listen", &any_port()]).args(args);
        Self::spawn(&mut command)
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.split("://").nth(1).and_then(|rest| rest.split(' ').next());
        let Some(address) = address.map(str::to_owned) else {
            let _ = child.kill();
            let mut err = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut err);
            panic!("it did not start: {line}{err}");
        };
        Self { child, out, line, address }
    }

    /// Starts something that serves nobody, and waits for its line.
    pub(crate) fn spawn_saying(command: &mut Command, wanted: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if !line.starts_with(wanted) {
            let _ = child.kill();
            let mut err = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut err);
            panic!("it did not start: {line}{err}");
        }
        Self { child, out, line, address: String::new() }
    }

    pub(crate) fn take_get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// One request on a connection of its own: status and body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        ask(&self.address, method, path, body)
    }

    pub(crate) fn take(&self, path: &str, body: &str) -> Value {
        let (status, body) = self.ask("POST", path, body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Waits until it has ended by itself; its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        wait(&mut self.child)
    }

    /// The most memory it ever had.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Lets every write to a file fail, for it alone. It must ignore SIGXFSZ.
    pub(crate) fn forbid_writes(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        prlimit(Some(pid), Resource::Fsize, none).unwrap();
    }

    /// Reads its log until a line has `part`.
    pub(crate) fn wait_for_log(&mut self, part: &str) {
        let mut err = BufReader::new(self.child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "it never said {part}");
        }
        self.child.stderr = Some(err.into_inner());
    }

    /// The next line of its standard output; 0 at its end.
    pub(crate) fn read_line(&mut self, line: &mut String) -> usize {
        self.out.read_line(line).unwrap()
    }

    /// Waits for its end.
    pub(crate) fn stop_code(mut self) -> i32 {
        wait(&mut self.child)
    }

    /// Stops it cleanly; what it said besides its line.
    pub(crate) fn stop(self) -> Said {
        self.stop_by(Signal::TERM)
    }

    pub(crate) fn stop_by(mut self, signal: Signal) -> Said {
        self.signal(signal);
        let status = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Said { code: status, out, err }
    }
}

/// One request to this address on a connection of its own: status and body.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let kind = if body.is_empty() || method == "PUT" { "" } else { "content-type: application/json\r\n" };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> i32 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

pub(crate) const SCHEMA: &str = r#"
[schema]
name = "shop"
owner = "checkout"

[limit.orders]
key = "orders:{customer}"
algorithm = "sliding_log"
limit = 3
window = "1h"
description = "orders of one customer"
"#;
