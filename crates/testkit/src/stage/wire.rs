//! A client that sends exactly the bytes it is told to, and reads what comes.
#![expect(clippy::unwrap_used, reason = "a server that does not answer fails the test")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// What says nothing about the answer: the date, and how its bytes come. The content type stands beside the status.
const PASSED_OVER: [&str; 5] = ["date", "content-length", "transfer-encoding", "connection", "content-type"];

/// A request's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// As they are sent.
    pub headers: Vec<(String, String)>,
    /// As it is sent.
    pub body: Option<Vec<u8>>,
}

impl Ask {
    /// A request without a body.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    /// The same with one more header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with these bytes as its body.
    pub fn carrying(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The same with this text as its JSON body.
    pub fn json(self, body: &str) -> Self {
        self.with("content-type", "application/json").carrying(body)
    }
}

/// An answer as it came.
#[derive(Debug, Default)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as JSON; panics unless the status is `status`.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The status and what the body is.
    pub fn kind(&self) -> String {
        format!("{} {}", self.status, self.header("content-type").unwrap_or("-"))
    }

    /// Headers that are compared, sorted by name.
    pub fn told(&self) -> Vec<String> {
        let told = self.headers.iter().filter(|(name, _)| !PASSED_OVER.contains(&name.as_str()));
        let mut told: Vec<String> = told.map(|(name, value)| format!("{name}: {value}")).collect();
        told.sort();
        told
    }
}

/// One kept connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    chunked: bool,
}

impl Wire {
    /// Connects.
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new(), chunked: false }
    }

    /// Sends a request and takes its whole answer; whether the connection goes on.
    pub fn ask(&mut self, ask: &Ask) -> (Answer, bool) {
        let mut answer = self.open_answer(ask);
        let none = ask.method == "HEAD" || matches!(answer.status, 204 | 304);
        if !none {
            answer.body = match answer.header("content-length") {
                Some(length) => self.take(length.parse().unwrap()),
                None => self.hear("END"),
            };
        }
        let goes_on = answer.header("connection") != Some("close");
        (answer, goes_on)
    }

    /// Sends a request and takes the head of its answer.
    pub fn open_answer(&mut self, ask: &Ask) -> Answer {
        // What is refused early may close the connection while the rest is still being sent.
        let _ = self.stream.write_all(&bytes_of(ask));
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "the connection ended without an answer: {ask:?}");
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        let answer = Answer { status, headers: headers.collect(), body: Vec::new() };
        self.chunked = answer.header("transfer-encoding") == Some("chunked");
        answer
    }

    /// What comes until `text` was heard, or with `END` until nothing more comes.
    pub fn hear(&mut self, text: &str) -> Vec<u8> {
        let mut heard = Vec::new();
        while text == "END" || find(&heard, text.as_bytes()).is_none() {
            if !self.chunked {
                let more = self.more();
                heard.append(&mut self.buffer);
                if more {
                    continue;
                }
                break;
            }
            let piece = self.chunk();
            if piece.is_empty() {
                break;
            }
            heard.extend_from_slice(&piece);
        }
        heard
    }

    /// The next piece of a chunked body; none at its end.
    fn chunk(&mut self) -> Vec<u8> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at + 2;
            }
            assert!(self.more(), "the body broke off");
        };
        let line: Vec<u8> = self.buffer.drain(..end).collect();
        let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut piece = self.take(length + 2);
        piece.truncate(length);
        piece
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.more(), "the body broke off");
        }
        self.buffer.drain(..length).collect()
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 16_384];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) => panic!("no answer within {PATIENCE:?}: {error}"),
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn bytes_of(ask: &Ask) -> Vec<u8> {
    let mut out = format!("{} {} HTTP/1.1\r\nhost: localhost\r\n", ask.method, ask.path);
    for (name, value) in &ask.headers {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    if let Some(body) = &ask.body {
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    out.push_str("\r\n");
    [out.as_bytes(), ask.body.as_deref().unwrap_or_default()].concat()
}
