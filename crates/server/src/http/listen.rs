//! Where the server listens: a TCP address or a Unix socket.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, SockFilter, SockRef, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::socket::Socket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Where to listen, or where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(SocketAddr),
    /// A socket file, written `unix:PATH`.
    Unix(PathBuf),
}

impl Address {
    /// Host and port; none for a socket file.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// How a client names it: `http://127.0.0.1:7420` or `unix:PATH`.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }

    /// Whether only this machine can reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An open listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Callers over a socket file are of this machine.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Listener {
    pub(crate) async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Unix(path) => bind_unix(path),
        }
    }

    /// The real address: the port that was given where 0 was asked for.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| (Socket::Tcp(stream), peer)),
            Self::Unix(listener, _) => {
                listener.accept().await.map(|(stream, _)| (Socket::Unix(stream), LOCAL))
            }
        }
    }

    /// A connection that is waiting now, asked of the system itself: the runtime may not have heard of it yet.
    pub(crate) fn accept_now(&self) -> io::Result<Option<(Socket, SocketAddr)>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = match self {
            Self::Tcp(listener) => rustix::net::accept_with(listener, flags),
            Self::Unix(listener, _) => rustix::net::accept_with(listener, flags),
        };
        let accepted: OwnedFd = match accepted {
            Ok(accepted) => accepted,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match self {
            Self::Tcp(_) => {
                let stream = std::net::TcpStream::from(accepted);
                let peer = stream.peer_addr()?;
                (Socket::Tcp(TcpStream::from_std(stream)?), peer)
            }
            Self::Unix(..) => {
                (Socket::Unix(UnixStream::from_std(std::os::unix::net::UnixStream::from(accepted))?), LOCAL)
            }
        }))
    }

    /// Lets nobody new begin to connect. Those who have begun can still be accepted, so that nobody who was connected,
    /// and may have sent a request, is cut off when the listener is closed.
    pub(crate) fn refuse_new(&mut self) {
        match self {
            Self::Tcp(listener) => {
                // The flags of a TCP segment are its 14th byte; 2 is SYN, with which a client begins. A dropped SYN is
                // sent again after a second, and is refused then.
                let begins = [
                    SockFilter::new(0x30, 0, 0, 13),
                    SockFilter::new(0x45, 0, 1, 0x02),
                    SockFilter::new(0x06, 0, 0, 0),
                    SockFilter::new(0x06, 0, 0, u32::MAX),
                ];
                if let Err(error) = SockRef::from(&*listener).attach_filter(&begins) {
                    tracing::debug!(%error, "new connections cannot be turned away before the listener closes");
                }
            }
            Self::Unix(_, file) => file.remove(),
        }
    }
}

/// A socket file of ours, removed with its listener.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another server may have put its own in our place. `None` once it is removed.
    ours: Option<(u64, u64)>,
}

impl SocketFile {
    fn remove(&mut self) {
        let Some(ours) = self.ours.take() else { return };
        if identity(&self.path).is_ok_and(|now| now == ours) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Listens on a socket file that only its owner may use. One that a dead server left behind is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
    // Two servers that start at once must not each take the other's socket for a dead one's.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::File::open(folder)?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    remove_stale(path)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), ours: Some(identity(path)?) };
    // Nobody can connect before `listen`.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(OwnedFd::from(socket)))?;
    Ok(Listener::Unix(listener, file))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is not a socket"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another server listens there")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}
