//! A byte stream with or without TLS, for connections that come in and for those that go out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One of the two.
#[derive(Debug)]
pub(crate) enum MaybeTls<P, T> {
    Plain(P),
    Tls(Box<T>),
}

macro_rules! either {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            MaybeTls::Plain(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            MaybeTls::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $do
            }
        }
    };
}

impl<P: AsyncRead + Unpin, T: AsyncRead + Unpin> AsyncRead for MaybeTls<P, T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl<P: AsyncWrite + Unpin, T: AsyncWrite + Unpin> AsyncWrite for MaybeTls<P, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}
