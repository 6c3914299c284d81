//! Whether whoever asked is still there: a connection whose other end can be noticed to be gone while an answer is
//! being waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BufMut as _;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is read at once: a little less than a power of two, for the connection's buffer doubles whenever a read has
/// filled it, and stays so.
const MOST: usize = 31 * 1024;

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Arc<TcpStream>,
}

/// The other end, as far as it can be seen from here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence(Option<Arc<TcpStream>>);

impl Stream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Arc::new(socket) }
    }

    pub(crate) fn presence(&self) -> Presence {
        Presence(Some(self.socket.clone()))
    }
}

impl Presence {
    /// Ends when the other end has closed its side or is gone. One that went without a word is not noticed, and one
    /// that has sent more is there.
    pub(crate) async fn gone(&self) {
        if let Some(socket) = &self.0
            && matches!(socket.peek(&mut [0]).await, Ok(0) | Err(_))
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Whether it is gone now: asked of the system itself, which may know before we are told.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(socket) = &self.0 else { return false };
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&**socket, &mut [0; 1], look) {
            Ok((_, count)) => count == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            match self.socket.try_read_buf(&mut (&mut *buf).limit(MOST)) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Stream {
    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |socket| socket.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&*self.socket, Shutdown::Write);
        // The other end may have gone first.
        Poll::Ready(shut.or_else(|error| if error == Errno::NOTCONN { Ok(()) } else { Err(error.into()) }))
    }
}
