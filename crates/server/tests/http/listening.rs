//! Clients that listen: server-sent events read byte by byte, and WebSockets by a client of its own.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::client::request;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of server-sent events.
pub(crate) struct Sse {
    stream: TcpStream,
    raw: Vec<u8>,
    text: String,
    ended: bool,
}

impl Sse {
    /// Listens; whatever is published after this returns will come.
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&request("GET", path, headers, b"")).await.unwrap();
        let mut sse = Self { stream, raw: Vec::new(), text: String::new(), ended: false };
        let head = loop {
            if let Some(at) = sse.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8(sse.raw.drain(..at + 4).collect()).unwrap();
            }
            assert!(sse.fill().await, "no answer");
        };
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert_eq!(sse.block().await.as_deref(), Some(": listening"));
        sse
    }

    async fn fill(&mut self) -> bool {
        let mut piece = vec![0; 64 << 10];
        let count =
            tokio::time::timeout(PATIENCE, self.stream.read(&mut piece)).await.expect("nothing comes");
        let count = count.unwrap_or(0);
        self.raw.extend_from_slice(&piece[..count]);
        count > 0
    }

    /// Undoes the chunks of HTTP.
    fn unchunk(&mut self) {
        while let Some(at) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..at]).unwrap(), 16).unwrap();
            if self.raw.len() < at + 2 + size + 2 {
                return;
            }
            self.text.push_str(std::str::from_utf8(&self.raw[at + 2..at + 2 + size]).unwrap());
            self.raw.drain(..at + 2 + size + 2);
            self.ended |= size == 0;
        }
    }

    /// The next block: an event, or a comment. `None` when the stream ended as it should.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            self.unchunk();
            if let Some(at) = self.text.find("\n\n") {
                let block = self.text[..at].to_owned();
                self.text.drain(..at + 2);
                return Some(block);
            }
            if self.ended {
                return None;
            }
            assert!(self.fill().await, "the stream broke off: {:?}", self.text);
        }
    }

    /// The data of the next event, comments passed over.
    pub(crate) async fn data(&mut self) -> String {
        loop {
            let block = self.block().await.expect("the stream goes on");
            let data: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            if !data.is_empty() {
                return data.join("\n");
            }
        }
    }

    /// The name of the next event, if it has one, and its data.
    pub(crate) async fn named(&mut self) -> (Option<String>, String) {
        let block = loop {
            let block = self.block().await.expect("the stream goes on");
            if block.contains("data: ") {
                break block;
            }
        };
        let name = block.lines().find_map(|line| line.strip_prefix("event: ")).map(str::to_owned);
        (name, block.lines().filter_map(|line| line.strip_prefix("data: ")).collect())
    }

    /// The data of the next event, which has this name.
    pub(crate) async fn event(&mut self, wanted: &str) -> String {
        let (name, data) = self.named().await;
        assert_eq!(name.as_deref(), Some(wanted), "{data}");
        data
    }

    /// Reads until the server hangs up, orderly or not; answers what came.
    pub(crate) async fn rest(mut self) -> usize {
        while self.fill().await {}
        self.raw.len()
    }
}

pub(crate) type Socket = WebSocketStream<TcpStream>;

pub(crate) async fn ws(address: SocketAddr, path: &str) -> Socket {
    let stream = TcpStream::connect(address).await.unwrap();
    let opened = tokio_tungstenite::client_async(format!("ws://localhost{path}"), stream).await;
    opened.unwrap_or_else(|error| panic!("{error:?}")).0
}

/// The next message that is no heartbeat.
pub(crate) async fn next(socket: &mut Socket) -> Message {
    loop {
        let next = tokio::time::timeout(PATIENCE, socket.next()).await.expect("nothing comes");
        match next.expect("the socket goes on").expect("a message") {
            Message::Ping(_) | Message::Pong(_) => {}
            message => return message,
        }
    }
}

pub(crate) async fn text(socket: &mut Socket) -> String {
    match next(socket).await {
        Message::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}
