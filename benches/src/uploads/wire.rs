//! HTTP as plain as it can be sent: one keep-alive connection, a head, bytes, an answer. The same for every side, so
//! that no client library is measured.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    port: u16,
    stream: TcpStream,
    input: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// An answer that is not a success ends the run.
    pub(super) fn good(self) -> Result<Self> {
        ensure!(
            (200..300).contains(&self.status),
            "{}: {}",
            self.head.lines().next().unwrap_or_default(),
            String::from_utf8_lossy(&self.body)
        );
        Ok(self)
    }

    pub(super) fn json(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

impl Connection {
    pub(super) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { port, stream, input: Vec::with_capacity(4096) })
    }

    pub(super) async fn reopen(&mut self) -> Result<()> {
        *self = Self::open(self.port).await?;
        Ok(())
    }

    /// Sends a request, `headers` ending with a line's end each, and reads the whole answer.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[Bytes],
    ) -> Result<Answer> {
        let (status, head, length) = self.begin(method, path, headers, body).await?;
        let body = match length {
            Some(length) => self.next(length).await?,
            None => self.chunked().await?,
        };
        Ok(Answer { status, head, body })
    }

    async fn next(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.input.len() < length {
            self.more().await?;
        }
        Ok(self.input.drain(..length).collect())
    }

    async fn more(&mut self) -> Result<()> {
        ensure!(self.stream.read_buf(&mut self.input).await? > 0, "the connection was closed");
        Ok(())
    }

    async fn until(&mut self, end: &[u8]) -> Result<String> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|found| found == end) {
                return Ok(String::from_utf8(self.input.drain(..at + end.len()).collect())?);
            }
            self.more().await?;
        }
    }

    /// A body in pieces, each after its length, as Node sends what it has not counted.
    async fn chunked(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(self.until(b"\r\n").await?.trim(), 16)?;
            body.extend(self.next(length).await?);
            self.next(2).await?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Reads an answer of any length without keeping it.
    pub(super) async fn read(&mut self, path: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
        let (status, head, length) = self.begin("GET", path, "", &[]).await?;
        ensure!(status == 200, "{path}: {}", head.lines().next().unwrap_or_default());
        let mut left = length.with_context(|| format!("{path}: an answer without its length"))?;
        let mut piece = std::mem::take(&mut self.input);
        piece.reserve(256 << 10);
        loop {
            ensure!(piece.len() <= left, "{path}: more than was announced");
            each(&piece);
            left -= piece.len();
            piece.clear();
            if left == 0 {
                return Ok(());
            }
            ensure!(self.stream.read_buf(&mut piece).await? > 0, "{path}: {left} bytes are missing");
        }
    }

    async fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[Bytes],
    ) -> Result<(u16, String, Option<usize>)> {
        let length: usize = body.iter().map(Bytes::len).sum();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-length: {length}\r\n{headers}\r\n",
            self.port
        );
        self.stream.write_all(head.as_bytes()).await?;
        for piece in body {
            self.stream.write_all(piece).await?;
        }
        let head = self.until(b"\r\n\r\n").await?;
        let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("not an answer: {head}"))?;
        // 204 has no body, and need not say so.
        let length = match header(&head, "content-length") {
            Some(length) => Some(length.parse()?),
            None if status == 204 => Some(0),
            None => {
                ensure!(header(&head, "transfer-encoding") == Some("chunked"), "no length: {head}");
                None
            }
        };
        Ok((status, head, length))
    }
}
