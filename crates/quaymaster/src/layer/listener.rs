//! Connections of an axum server, counted while they are open.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::connect_info;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Peer, Trust};
use crate::stats::{Connected, Recorder};

/// A listener whose connections are counted; from [`Recorder::listener`].
pub struct CountedListener<L> {
    inner: L,
    recorder: Recorder,
    trust: Trust,
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub struct CountedIo<T> {
    inner: T,
    /// `None` for one from an address that the schema ignores.
    _open: Option<Connected>,
}

impl<L> fmt::Debug for CountedListener<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedListener").finish_non_exhaustive()
    }
}

impl Recorder {
    /// The same listener, for [`axum::serve()`], with its connections counted while they are open, WebSockets too.
    ///
    /// Serve with `into_make_service_with_connect_info::<Peer>()` where callers' addresses matter.
    pub fn listener<L: Listener>(&self, inner: L) -> CountedListener<L> {
        CountedListener { inner, recorder: self.clone(), trust: Trust::nobody() }
    }
}

impl<L> CountedListener<L> {
    /// Counts connections of these proxies too where the schema ignores their addresses: what comes over them is
    /// others' requests.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }
}

impl<L> Listener for CountedListener<L>
where
    L: Listener,
    L::Addr: 'static,
{
    type Io = CountedIo<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, L::Addr) {
        let (inner, address) = self.inner.accept().await;
        let socket = (&address as &dyn Any).downcast_ref::<SocketAddr>();
        let ignored = socket.is_some_and(|socket| {
            let address = socket.ip().to_canonical();
            self.recorder.ignores(address) && !self.trust.is_trusted(address)
        });
        let open = (!ignored).then(|| self.recorder.connected());
        (CountedIo { inner, _open: open }, address)
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.inner.local_addr()
    }
}

impl<L> connect_info::Connected<IncomingStream<'_, CountedListener<L>>> for Peer
where
    L: Listener<Addr = SocketAddr>,
{
    fn connect_info(stream: IncomingStream<'_, CountedListener<L>>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
