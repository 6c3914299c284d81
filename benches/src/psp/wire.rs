//! Connections that carry one request at a time, as a client without pipelining uses them.

use std::io::ErrorKind;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// At most this many at once; the document's pool has 10 to 200.
const CONNECTIONS: usize = 64;

/// A pool of connections to one loopback port. The one used last is used next.
#[derive(Debug)]
pub(super) struct Pool {
    port: u16,
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
}

/// A connection with what is to be sent and what was read on it.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

/// What a reader makes of the bytes so far: an answer and its length, or `None` while it is incomplete.
pub(super) type Read<T> = Result<Option<(T, usize)>>;

impl Pool {
    pub(super) fn new(port: u16) -> Self {
        Self { port, idle: Mutex::default(), turns: Semaphore::new(CONNECTIONS) }
    }

    /// Sends `request` and hands what comes back to `read` until that makes an answer of it.
    pub(super) async fn ask<T>(&self, request: &[u8], read: impl Fn(&[u8]) -> Read<T>) -> Result<T> {
        let _turn = self.turns.acquire().await?;
        let mut connection = match self.waiting() {
            Some(connection) => connection,
            None => Connection::open(self.port).await?,
        };
        // After an error the connection is not put back: nobody knows what still comes on it.
        let answer = connection.ask(request, read).await?;
        self.idle.lock().push(connection);
        Ok(answer)
    }

    /// An idle connection that is still open: a server may close those that were not used for a while.
    fn waiting(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(connection) = idle.pop() {
            let nothing_came = connection.stream.try_read(&mut [0; 1]);
            if nothing_came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return Some(connection);
            }
        }
        None
    }
}

impl Connection {
    async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::with_capacity(4096) })
    }

    async fn ask<T>(&mut self, mut request: &[u8], read: impl Fn(&[u8]) -> Read<T>) -> Result<T> {
        while !request.is_empty() {
            match self.stream.try_write(request) {
                Ok(sent) => request = &request[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.stream.writable().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.input.clear();
        loop {
            self.stream.readable().await?;
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => bail!("the connection was closed"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            if let Some((answer, length)) = read(&self.input)? {
                anyhow::ensure!(length == self.input.len(), "more came back than was asked for");
                return Ok(answer);
            }
        }
    }
}
