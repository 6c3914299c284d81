//! Programs of other languages that follow the cameras' document by themselves: redis-py and ioredis.

#![expect(clippy::expect_used, reason = "what cannot be set up or told fails the test that asked for it")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::servers::installed;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// redis-py and zstandard.
    Python,
    /// ioredis and a zstd in WebAssembly.
    Node,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 2] = [Language::Python, Language::Node];
}

/// A running foreign program; killed when dropped.
#[derive(Debug)]
pub struct Foreign {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Foreign {
    /// Starts one on the server at `url`.
    pub fn start(language: Language, url: &str) -> Self {
        let (here, tools) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign"), installed());
        let mut program = match language {
            Language::Python => {
                let mut program = Command::new(tools.join("venv/bin/python"));
                program.arg(here.join("camera.py")).arg(url);
                program
            }
            Language::Node => {
                let mut program = Command::new("node");
                program.arg(here.join("camera.mjs")).arg(url).arg(tools.join("node"));
                program
            }
        };
        let mut child =
            program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!("{language:?} cannot be started ({error}): run scripts/test-tools")
            });
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if answer.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, answers }
    }

    /// Sends one command and waits for its answer.
    pub fn ask(&mut self, command: &Value) -> Value {
        self.send(command);
        self.answer()
    }

    /// Sends one command; [`Foreign::answer`] waits for what it says.
    pub fn send(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").expect("the program listens");
    }

    /// The next answer.
    pub fn answer(&mut self) -> Value {
        let line = self.answers.recv_timeout(PATIENCE).expect("the foreign program answers");
        serde_json::from_str(&line).expect("an answer is JSON")
    }

    /// `RPUSH` of jobs, those over 1 KB compressed.
    pub fn push(&mut self, queue: &str, jobs: &[Value]) -> Value {
        self.ask(&json!({ "do": "push", "queue": queue, "jobs": jobs }))
    }

    /// `BLPOP`, and whether the item was compressed.
    pub fn pop(&mut self, queue: &str) -> (Value, bool) {
        let mut told = self.ask(&json!({ "do": "pop", "queue": queue, "timeout": PATIENCE.as_secs() }));
        (told["job"].take(), told["compressed"].as_bool().expect("something was popped"))
    }

    /// Everything in a list, read as the document says.
    pub fn range(&mut self, list: &str) -> Vec<Value> {
        let told = self.ask(&json!({ "do": "range", "queue": list }));
        told["items"].as_array().expect("a list").clone()
    }

    /// SIGKILL.
    pub fn kill9(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
