//! One event to a thousand WebSocket readers: the highest rate at which readers that keep up miss nothing.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use crate::contest::Spread;
use crate::fact::Fact;
use crate::knee;
use crate::process::{Owned, free_port};
use crate::{Findings, Settings};

const READERS: u64 = 1_000;
/// How long the last message may be on its way.
const PATIENCE: Duration = Duration::from_secs(2);

/// What all readers got together.
#[derive(Debug, Default)]
struct Got {
    messages: AtomicU64,
    missed: AtomicU64,
}

pub(crate) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let folder = settings.folder()?;
    let schema = folder.path().join("schema.toml");
    std::fs::write(&schema, super::SCHEMA)?;
    let port = free_port()?;
    let mut command = Command::new(settings.server.canonicalize().context("the server is not built")?);
    command.current_dir(folder.path()).arg("serve").arg("--schema").arg(&schema);
    command.args(["--store", "memory", "--listen", &format!("127.0.0.1:{port}")]);
    let _server = Owned::serving(command, port)?;

    let got = Arc::new(Got::default());
    runtime.block_on(listen(port, &got))?;
    let mut knees = Vec::with_capacity(settings.pairs);
    for _ in 0..settings.pairs {
        // In deliveries a second, the figure that does not depend on how many read.
        let found = knee::find(50_000.0, |deliveries| {
            let rate = deliveries / READERS as f64;
            knee::majority(|| runtime.block_on(probe(port, &got, rate, settings.lasting())))
        })?;
        knees.push(found.context("readers that keep up miss messages at any rate")? / READERS as f64);
    }
    findings.facts.push(Fact {
        family: "queue",
        what: format!("WebSocket fan-out to {READERS} readers, nothing missed"),
        unit: "messages/s",
        value: Spread::of(knees.into_iter()),
        at_most: None,
    });
    Ok(())
}

/// Opens all readers; they count until the runtime ends.
async fn listen(port: u16, got: &Arc<Got>) -> Result<()> {
    let ready = Arc::new(Barrier::new(READERS as usize + 1));
    for _ in 0..READERS {
        let stream = open(port).await?;
        let (got, ready) = (got.clone(), ready.clone());
        tokio::spawn(async move {
            ready.wait().await;
            // A reader that is cut counts nothing more, which fails the probe.
            let _ = read(stream, &got).await;
        });
    }
    ready.wait().await;
    Ok(())
}

async fn open(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let ask = "GET /v1/event/feed/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: YmVuY2htYXJrLXJlYWRlcg==\r\n\r\n";
    stream.write_all(ask.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    ensure!(head.starts_with(b"HTTP/1.1 101"), "no WebSocket: {}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Counts text frames. A server's frames are not masked; pings are answered.
async fn read(mut stream: TcpStream, got: &Got) -> Result<()> {
    let mut input = Vec::with_capacity(16 * 1024);
    loop {
        ensure!(stream.read_buf(&mut input).await? > 0, "cut");
        let mut at = 0;
        while let Some((opcode, body, next)) = frame(&input[at..]) {
            match opcode {
                1 if body.starts_with(br#"{"missed""#) => {
                    got.missed.fetch_add(1, Relaxed);
                }
                1 => {
                    got.messages.fetch_add(1, Relaxed);
                }
                8 => bail!("closed"),
                9 => {
                    // A client's frames are masked; a mask of zeros leaves the bytes as they are.
                    let mut pong = vec![0x8A, 0x80 | body.len() as u8, 0, 0, 0, 0];
                    pong.extend_from_slice(body);
                    stream.write_all(&pong).await?;
                }
                _ => {}
            }
            at += next;
        }
        input.drain(..at);
    }
}

/// Opcode, body and length of the first frame, if it is all there.
fn frame(input: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (&first, &second) = (input.first()?, input.get(1)?);
    let (length, head) = match second & 0x7F {
        126 => (usize::from(u16::from_be_bytes(input.get(2..4)?.try_into().ok()?)), 4),
        127 => (usize::try_from(u64::from_be_bytes(input.get(2..10)?.try_into().ok()?)).ok()?, 10),
        short => (usize::from(short), 2),
    };
    Some((first & 0x0F, input.get(head..head + length)?, head + length))
}

/// Publishes at `rate` for a while; true when every reader got everything and the publisher kept its pace.
async fn probe(port: u16, got: &Got, rate: f64, lasting: Duration) -> Result<bool> {
    let (before, missed) = (got.messages.load(Relaxed), got.missed.load(Relaxed));
    let count = (rate * lasting.as_secs_f64()).ceil() as u64;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let body = format!(r#"{{"data":{}}}"#, super::PAYLOAD);
    let ask = format!(
        "POST /v1/event/feed/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let began = Instant::now();
    let mut answer = Vec::new();
    for number in 0..count {
        let due = began + Duration::from_secs_f64(number as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        stream.write_all(ask.as_bytes()).await?;
        answer.clear();
        // The answer is one small JSON object: its end is the body's closing brace.
        while !answer.ends_with(b"}") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the server hung up");
        }
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    let paced = began.elapsed() < lasting.mul_f64(1.1);
    let all = before + count * READERS;
    let end = Instant::now() + PATIENCE;
    let complete = || got.messages.load(Relaxed) == all && got.missed.load(Relaxed) == missed;
    while !complete() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held = complete() && paced;
    // What is still on its way must not count for the next probe.
    let mut last = 0;
    while last != got.messages.load(Relaxed) {
        last = got.messages.load(Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_by_their_three_lengths() {
        let mut input = vec![0x81, 2, b'h', b'i', 0x81, 126, 0, 200];
        input.extend([b'x'; 200]);
        assert_eq!(frame(&input), Some((1, &b"hi"[..], 4)));
        assert_eq!(frame(&input[4..]).map(|(_, body, next)| (body.len(), next)), Some((200, 204)));
        assert_eq!(frame(&input[4..100]), None, "half a frame is none");
        assert_eq!(frame(&[0x89]), None);
    }
}
