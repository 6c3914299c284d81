//! One request on one connection.

use std::net::SocketAddr;
use std::time::Duration;

use quaymaster_testkit::servers::any_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// No answer takes longer.
const BOUND: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// All field lines of this name, in order.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The only field line of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values = self.headers(name);
        assert!(values.len() < 2, "{name} is there {} times: {}", values.len(), self.head);
        values.first().copied()
    }

    /// The body as a problem.
    pub(crate) fn problem(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status, "{self:?}");
        problem
    }

    pub(crate) fn code(&self) -> String {
        self.problem()["code"].as_str().unwrap().to_owned()
    }
}

/// A connection from an address of its own: all of 127.0.0.0/8 is this machine.
pub(crate) async fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends a request's head, with header lines that each end in `\r\n`.
pub(crate) async fn send(stream: &mut TcpStream, line: &str, headers: &str) {
    let head = format!("{line} HTTP/1.1\r\nhost: layers\r\n{headers}content-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

/// One request from `from`, on a connection of its own.
pub(crate) async fn ask_from(from: &str, to: SocketAddr, line: &str, headers: &str) -> Answer {
    let exchange = async {
        let mut stream = connect_from(from, to).await;
        send(&mut stream, line, &format!("connection: close\r\n{headers}")).await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    let text = tokio::time::timeout(BOUND, exchange).await.unwrap_or_else(|_| panic!("{line} hangs"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) async fn ask(to: SocketAddr, line: &str, headers: &str) -> Answer {
    ask_from("127.0.0.1", to, line, headers).await
}

pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}
