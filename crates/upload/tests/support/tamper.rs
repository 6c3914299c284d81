//! An HTTP proxy that tampers with chosen requests: answers for the server, loses or changes its answers, cuts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::servers::any_port;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The server never hears of it; this is the answer.
    Answer(u16, &'static str),
    /// The server does it, and this is the answer instead of its own.
    DoneBut(u16, &'static str),
    /// The server does it, and the connection ends after so many bytes of its answer.
    LoseAnswerAfter(usize),
    /// The connection ends after so many bytes of the request's body; the server gets those.
    CutBodyAfter(usize),
    /// The server hears of it this late.
    Late(Duration),
    /// A byte in the middle of the body arrives as another.
    FlipByte,
}

/// Not one of a test's own parts.
pub const PROBE: &str = "PROBE";

type Rule = (&'static str, &'static str, usize, Fault);

/// The proxy; dropping it closes it.
pub struct Tamper {
    address: SocketAddr,
    rules: Arc<Mutex<Vec<Rule>>>,
    heard: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Tamper {
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (rules, heard) = (Arc::<Mutex<Vec<Rule>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let shared = (Arc::clone(&rules), Arc::clone(&heard));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (rules, heard) = shared.clone();
                tokio::spawn(async move {
                    let _ = serve(client, upstream, rules, heard).await;
                });
            }
        });
        Self { address, rules, heard, accepting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next `times` requests of this method whose target contains `part` meet the fault. The method of the part of
    /// one byte by which a store is tried is [`PROBE`].
    pub fn next(&self, method: &'static str, part: &'static str, times: usize, fault: Fault) {
        self.rules.lock().unwrap().push((method, part, times, fault));
    }

    /// Method (or [`PROBE`]) and target of every request so far, in the order in which they began.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// The weather is fair from now on.
    pub fn clear(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// How many faults were not met.
    pub fn left(&self) -> usize {
        self.rules.lock().unwrap().iter().map(|rule| rule.2).sum()
    }
}

impl Drop for Tamper {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn pick(rules: &Mutex<Vec<Rule>>, target: &str) -> Option<Fault> {
    let mut rules = rules.lock().unwrap();
    let rule = rules
        .iter_mut()
        .find(|(method, part, times, _)| *times > 0 && target.starts_with(method) && target.contains(part))?;
    rule.2 -= 1;
    Some(rule.3.clone())
}

/// One request and its answer.
async fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    rules: Arc<Mutex<Vec<Rule>>>,
    heard: Arc<Mutex<Vec<String>>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let body_at = loop {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..body_at]).into_owned();
    let length: usize = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    let mut target: Vec<&str> = head.split(' ').take(2).collect();
    if length == 1 && target.last().is_some_and(|target| target.contains("partNumber=1&")) {
        target[0] = PROBE;
    }
    let target = target.join(" ");
    heard.lock().unwrap().push(target.clone());
    let fault = pick(&rules, &target);
    let wanted = match fault {
        Some(Fault::CutBodyAfter(bytes)) => bytes.min(length),
        _ => length,
    };
    while request.len() < body_at + wanted {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    if let Some(Fault::Answer(status, body)) = fault {
        return answer(&mut client, status, body).await;
    }
    if let Some(Fault::Late(late)) = fault {
        tokio::time::sleep(late).await;
    }
    if let Some(Fault::FlipByte) = fault {
        request[body_at + length / 2] ^= 1;
    }
    let mut server = TcpStream::connect(upstream).await?;
    // One request a connection; the header is not part of the signature.
    server.write_all(&request[..body_at - 2]).await?;
    server.write_all(b"connection: close\r\n\r\n").await?;
    server.write_all(&request[body_at..body_at + wanted]).await?;
    if let Some(Fault::CutBodyAfter(_)) = fault {
        return Ok(());
    }
    match fault {
        Some(Fault::DoneBut(status, body)) => {
            tokio::io::copy(&mut server, &mut tokio::io::sink()).await?;
            answer(&mut client, status, body).await
        }
        Some(Fault::LoseAnswerAfter(bytes)) => {
            let mut said = Vec::new();
            server.read_to_end(&mut said).await?;
            client.write_all(&said[..bytes.min(said.len())]).await
        }
        _ => tokio::io::copy(&mut server, &mut client).await.map(drop),
    }
}

async fn answer(client: &mut TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await
}
