//! The server's end of a connection, over TCP or over a Unix socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use bytes::BufMut;
use futures_util::FutureExt as _;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Answers are one small packet each; waiting to join them with a next one would only delay them.
    pub(crate) fn send_at_once(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    pub(crate) fn try_read_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(buffer),
            Self::Unix(stream) => stream.try_read_buf(buffer),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(crate) fn try_write_vectored(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(pieces),
            Self::Unix(stream) => stream.try_write_vectored(pieces),
        }
    }

    /// How many bytes a read of one byte would get, without taking it: 0 when the other end has closed its side.
    pub(crate) fn look(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(self, &mut [0; 1], flags).map(|(_, count)| count).map_err(io::Error::from)
    }

    /// Whether the other end has closed its side, as far as the runtime has heard, whatever there is to read before that.
    pub(crate) fn is_closed(&self) -> bool {
        let ready = match self {
            Self::Tcp(stream) => stream.ready(Interest::READABLE).now_or_never(),
            Self::Unix(stream) => stream.ready(Interest::READABLE).now_or_never(),
        };
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }

    /// Ends when it has. Waits on a descriptor of its own: whoever reads must not miss that there is something to read.
    pub(crate) async fn closed(&self) -> io::Result<()> {
        #[expect(deprecated, reason = "its successor is unsafe; an OwnedFd fulfils what that asks for")]
        let own = AsyncFd::with_interest(self.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        loop {
            let mut ready = own.readable().await?;
            if ready.ready().is_read_closed() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// The same as [`Socket::look`], once there is something to read or the other end has closed its side.
    pub(crate) async fn peek(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.async_io(Interest::READABLE, || self.look()).await,
            Self::Unix(stream) => stream.async_io(Interest::READABLE, || self.look()).await,
        }
    }
}
