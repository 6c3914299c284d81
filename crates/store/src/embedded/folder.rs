//! The data folder: who owns it, and where its owner can be reached.
//!
//! ```text
//! DIR/lock     held (flock) by the owner for as long as it lives; never deleted
//! DIR/socket   the owner's Unix socket, mode 0600
//! ```
//! The kernel gives the lock up with the process, however that ends. Only the holder of the lock touches
//! the socket file.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::{Code, Error, Result};

const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const SOCKET_NEW: &str = "socket.new";
/// What fits into a socket address, its final zero included.
const LONGEST_ADDRESS: usize = 108;

/// The folder's lock. Dropping it gives the folder up.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Makes the folder if it is not there, readable by its user alone.
pub(super) fn make(dir: &Path) -> Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| failed(dir, error))?;
    fs::canonicalize(dir).map_err(|error| failed(dir, error))
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::new("store.open", Code::StoreDisk, format!("{}: {error}", path.display())).because(error)
}

impl Lock {
    /// Takes the lock, or learns that another process has it.
    pub(super) fn try_take(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(LOCK);
        let open = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let mut file = open.map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(&path, error)),
        }
        // A lock on a file that somebody has replaced meanwhile protects nothing.
        let here = fs::metadata(&path).map(|there| (there.dev(), there.ino()));
        let held = file.metadata().map(|held| (held.dev(), held.ino()));
        if !matches!((here, held), (Ok(here), Ok(held)) if here == held) {
            return Ok(None);
        }
        // For whoever looks into the folder; nothing reads it back.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Some(Self { _file: file }))
    }
}

/// The address of a file in the folder, through `/proc` where the plain path is too long for an address.
/// The folder stays open for as long as the address is used.
fn address(dir: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    let plain = dir.join(name);
    if plain.as_os_str().len() < LONGEST_ADDRESS {
        return Ok((plain, None));
    }
    let folder = File::open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder)));
    if !short.exists() {
        let detail =
            "the folder's path is too long for a socket address and there is no /proc; use a shorter one";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
    }
    Ok((short.join(name), Some(folder)))
}

/// Listens on the folder's socket in place of whatever was there. Only the holder of the lock may.
pub(super) fn listen(dir: &Path, _lock: &Lock) -> Result<UnixListener> {
    let made = || {
        remove(&dir.join(SOCKET))?;
        remove(&dir.join(SOCKET_NEW))?;
        let (address, _folder) = address(dir, SOCKET_NEW)?;
        let listener = UnixListener::bind(address)?;
        // It gets its name only when nobody else can connect to it any more.
        fs::set_permissions(dir.join(SOCKET_NEW), Permissions::from_mode(0o600))?;
        fs::rename(dir.join(SOCKET_NEW), dir.join(SOCKET))?;
        Ok(listener)
    };
    made().map_err(|error| failed(&dir.join(SOCKET), error))
}

/// Takes the socket's name away, so that nobody connects to an owner that is ending.
pub(super) fn unlisten(dir: &Path, _lock: &Lock) {
    // A name left behind is removed by the next owner.
    let _ = remove(&dir.join(SOCKET));
}

pub(super) async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let (address, _folder) = address(dir, SOCKET)?;
    UnixStream::connect(address).await
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_lock_has_one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::try_take(dir.path()).unwrap().unwrap();
        assert!(Lock::try_take(dir.path()).unwrap().is_none());
        drop(held);
        assert!(Lock::try_take(dir.path()).unwrap().is_some());
    }

    #[tokio::test]
    async fn the_socket_is_the_users_alone_and_replaces_a_stale_one() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::try_take(dir.path()).unwrap().unwrap();
        drop(listen(dir.path(), &lock).unwrap());
        assert!(connect(dir.path()).await.is_err(), "nobody listens there any more");
        let listener = listen(dir.path(), &lock).unwrap();
        let mode = fs::metadata(dir.path().join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        connect(dir.path()).await.unwrap();
        drop(listener);
        unlisten(dir.path(), &lock);
        assert!(!dir.path().join(SOCKET).exists());
    }

    #[tokio::test]
    async fn a_folder_too_long_for_an_address_is_reached_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let long = make(&dir.path().join("x".repeat(120)).join("y".repeat(120))).unwrap();
        let lock = Lock::try_take(&long).unwrap().unwrap();
        let listener = listen(&long, &lock).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), connect(&long));
        accepted.unwrap();
        connected.unwrap();
    }
}
