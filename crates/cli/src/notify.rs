//! Tells systemd, or whoever else started the process, that it is ready and that it stops: a datagram to the socket in
//! `NOTIFY_SOCKET` (sd_notify(3)). Without that variable nothing happens.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    /// Calls are answered from now on.
    Ready,
    /// A stop was asked for.
    Stopping,
}

/// Tells it; a failure is no reason not to go on.
pub(crate) fn tell(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    let text = match state {
        State::Ready => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!(%error, text, "NOTIFY_SOCKET does not listen");
    }
}
