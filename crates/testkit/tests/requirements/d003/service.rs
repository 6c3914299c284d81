//! A detector or an analyser on a thread.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use quaymaster_testkit::servers::any_port;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers every call the same, and tells what came.
pub(super) struct Service {
    pub(super) url: String,
    calls: Receiver<Call>,
}

/// A job as it was sent.
pub(super) struct Call {
    /// Which attempt at it, as its header says.
    pub(super) attempt: String,
    pub(super) body: String,
}

impl Service {
    pub(super) fn that_answers(status: &str, body: &str) -> Self {
        let listener = TcpListener::bind(any_port()).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
        let _ = write!(answer, "content-length: {}\r\n\r\n{body}", body.len());
        let (tell, calls) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &answer, &tell);
            }
        });
        Self { url, calls }
    }

    pub(super) fn next(&self) -> Call {
        self.calls.recv_timeout(PATIENCE).unwrap()
    }

    /// Whether nothing came that `next` did not tell.
    pub(super) fn is_quiet(&self) -> bool {
        self.calls.try_recv().is_err()
    }
}

/// One request a connection. A worker that is killed breaks off.
fn serve(mut stream: TcpStream, answer: &str, tell: &Sender<Call>) {
    let (mut length, mut attempt) = (0, String::new());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("quaymaster-attempt", value)) => value.clone_into(&mut attempt),
            _ if line == "\r\n" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_ok() {
        let _ = tell.send(Call { attempt, body: String::from_utf8(body).unwrap() });
        let _ = stream.write_all(answer.as_bytes());
    }
}
