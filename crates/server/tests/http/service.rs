//! A small HTTP service that jobs are sent to, which answers, hangs, cuts and lies as it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;
use quaymaster_testkit::servers::any_port;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) line: String,
    /// By lower-case name.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Which connection it came on.
    pub(crate) connection: usize,
    /// When.
    pub(crate) at: std::time::Instant,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.header("quaymaster-attempt").parse().unwrap()
    }
}

/// What the service does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers with a status, more header lines and a body.
    Answer(u16, &'static str, String),
    /// Answers 200 once a permit was added to [`Service::go`].
    Wait,
    /// Never answers, and keeps the connection.
    Hang,
    /// Closes the connection without a word.
    Cut,
    /// Announces more than it sends, then closes.
    CutInBody,
    /// Answers 200 with so many bytes of JSON.
    Huge(usize),
}

impl Act {
    pub(crate) fn ok(body: &str) -> Self {
        Self::Answer(200, "", body.to_owned())
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, "", "said the service".to_owned())
    }
}

type Script = dyn Fn(&Received) -> Act + Send + Sync;

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
    /// Lets those go on that [`Act::Wait`].
    pub(crate) go: Arc<Semaphore>,
    accepting: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(script: impl Fn(&Received) -> Act + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind(any_port()).await.unwrap(), script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(&Received) -> Act + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let go = Arc::new(Semaphore::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (seen, permits) = (received.clone(), go.clone());
        let accepting = tokio::spawn(async move {
            let connections = AtomicUsize::new(0);
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = connections.fetch_add(1, SeqCst);
                open.spawn(converse(stream, number, script.clone(), seen.clone(), permits.clone()));
            }
        });
        Self { address, received, go, accepting }
    }

    /// The same behind TLS, under a certificate for the test's own address.
    pub(crate) async fn over_tls(
        acceptor: TlsAcceptor,
        script: impl Fn(&Received) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let go = Arc::new(Semaphore::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (seen, permits) = (received.clone(), go.clone());
        let accepting = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, script) = (acceptor.clone(), script.clone());
                let (seen, permits) = (seen.clone(), permits.clone());
                open.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        converse(stream, 0, script, seen, permits).await;
                    }
                });
            }
        });
        Self { address, received, go, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/work?token=hidden", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Received>>>,
    go: Arc<Semaphore>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = receive(&mut stream, &mut buffer, connection).await {
        let act = script(&request);
        seen.lock().push(request);
        let (status, headers, body) = match act {
            Act::Answer(status, headers, body) => (status, headers, body),
            Act::Wait => {
                go.acquire().await.unwrap().forget();
                (200, "", "{}".to_owned())
            }
            Act::Hang => return std::future::pending().await,
            Act::Cut => return,
            Act::CutInBody => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"a\":").await;
                return;
            }
            Act::Huge(bytes) => (200, "", format!("\"{}\"", "x".repeat(bytes - 2))),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} Word\r\n{headers}content-length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Received> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    let body = buffer.drain(..length).collect();
    Some(Received { line, headers, body, connection, at: std::time::Instant::now() })
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(buffer).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
