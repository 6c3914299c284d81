//! A client that sends exactly the bytes it is told to.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header's value; names without regard to case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {text}", self.head))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// What a connection lies on: TCP, or TLS on it.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// One kept connection.
pub(crate) struct Connection {
    stream: Box<dyn Wire>,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn of(stream: impl Wire + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new() }
    }

    /// Whether it could be sent.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next answer, which may be waited for again when this is dropped.
    pub(crate) async fn receive_soon(&mut self) -> Answer {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let length: usize = String::from_utf8_lossy(&self.buffer[..end])
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                    .unwrap_or(0);
                if self.buffer.len() >= end + 4 + length {
                    return self.receive().await.expect("it is here");
                }
            }
            assert!(self.more().await, "the connection ended without an answer");
        }
    }

    /// The next answer; `None` when the connection ends before one begins.
    pub(crate) async fn receive(&mut self) -> Option<Answer> {
        let mut answer = self.receive_head().await?;
        let length: usize = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
        while self.buffer.len() < length {
            assert!(self.more().await, "the body broke off: {}", answer.head);
        }
        answer.body = self.buffer.drain(..length).collect();
        Some(answer)
    }

    /// The next answer's head, whatever length it announces: what HEAD gets.
    pub(crate) async fn receive_head(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head, body: Vec::new() })
    }

    /// Takes its leave, as a program does that ends.
    pub(crate) async fn close(mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Everything until the connection ends, as it came.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    async fn more(&mut self) -> bool {
        let mut piece = [0; 8192];
        match self.stream.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

/// A request's bytes. What is posted is JSON unless the headers say otherwise.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if method == "POST" && !body.is_empty() && !typed {
        head.push_str("content-type: application/json\r\n");
    }
    if !body.is_empty() || method == "POST" {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
