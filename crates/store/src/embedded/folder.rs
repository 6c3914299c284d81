//! The data folder: who owns it, and where its owner can be reached.
//!
//! ```text
//! DIR/lock     held (flock) by the owner for as long as it lives; never deleted
//! DIR/socket   the owner's Unix socket, mode 0600
//! ```
//! The kernel gives the lock up with the process, however that ends. Only the holder of the lock touches
//! the socket file.
//!
//! Whoever can write the folder can put his own socket, lock or database there, so the folder belongs to this
//! process's user and nobody else writes it. No symbolic link in it is followed.

use std::fs::{self, DirBuilder, File, FileType, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
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
    file: File,
}

/// Makes the folder if it is not there, readable by its user alone.
pub(super) fn make(dir: &Path) -> Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| failed(dir, error))?;
    if !fs::metadata(dir).map_err(|error| failed(dir, error))?.is_dir() {
        return Err(failed(dir, io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let dir = fs::canonicalize(dir).map_err(|error| failed(dir, error))?;
    check(&dir)?;
    Ok(dir)
}

/// Refuses a folder of another user, or one that others can write.
pub(super) fn check(dir: &Path) -> Result<()> {
    let (folder, us) = (fs::metadata(dir).map_err(|error| failed(dir, error))?, own_user());
    let wrong = if folder.uid() != us {
        let owner = folder.uid();
        format!(
            "it belongs to user {owner} and this process is user {us}; run as its owner, or chown it to {us}"
        )
    } else if folder.mode() & 0o022 != 0 {
        let mode = folder.mode() & 0o777;
        format!(
            "others can write it (mode {mode:03o}); run `chmod go-w` on it, or name a folder of its own inside it"
        )
    } else {
        return Ok(());
    };
    Err(Error::new("store.open", Code::StoreFolder, format!("{}: {wrong}", dir.display())))
}

pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens a file of the folder itself, never what a symbolic link points to. One that is made is readable by its user
/// alone.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(number) if number == Errno::LOOP.raw_os_error() => link(path),
        _ => error,
    })
}

fn link(path: &Path) -> io::Error {
    let detail = format!("{} is a symbolic link; remove it", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, detail)
}

/// Reads a whole file of the folder.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, File::options().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a whole file of the folder, whatever was there before.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = open(path, File::options().write(true).create(true).truncate(true))?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Refuses `path` where it is a symbolic link; what is not there is none.
pub fn check_link(path: &Path) -> io::Result<()> {
    kind_of(path).map(drop)
}

/// Refuses `path` where it, or something in it, is a symbolic link; what is not there is none.
pub(super) fn check_links(path: &Path) -> io::Result<()> {
    if kind_of(path)?.is_some_and(|kind| kind.is_dir()) {
        for entry in fs::read_dir(path)? {
            check_links(&entry?.path())?;
        }
    }
    Ok(())
}

fn kind_of(path: &Path) -> io::Result<Option<FileType>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(entry) if entry.is_symlink() => Err(link(path)),
        entry => entry.map(|entry| Some(entry.file_type())),
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    let detail = format!("{}: {}", path.display(), reason(&error));
    Error::new("store.open", Code::StoreFolder, detail).because(error)
}

/// What went wrong with a file, in words that say what to change.
pub(super) fn reason(error: &io::Error) -> String {
    use io::ErrorKind::{
        AlreadyExists, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    if error.get_ref().is_some() {
        return error.to_string();
    }
    let words = match error.kind() {
        NotADirectory | AlreadyExists => "a part of this path is a file, not a folder",
        NotFound => "it is not there, or was removed",
        PermissionDenied => "this user may not read or write it",
        ReadOnlyFilesystem => "it lies on a read-only file system",
        StorageFull | io::ErrorKind::QuotaExceeded => "there is no space left",
        _ => return error.to_string(),
    };
    format!("{words} ({error})")
}

impl Lock {
    /// Takes the lock, or learns that another process has it.
    pub(super) fn try_take(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(LOCK);
        let opened = open(&path, File::options().create(true).truncate(false).write(true));
        let file = opened.map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(&path, error)),
        }
        let mut lock = Self { file };
        if !lock.is_held(dir) {
            return Ok(None);
        }
        // For whoever looks into the folder; nothing reads it back.
        let _ = lock.file.set_len(0).and_then(|()| writeln!(lock.file, "{}", std::process::id()));
        Ok(Some(lock))
    }

    /// Whether the file that is locked is still the folder's: a lock on one that was removed or replaced
    /// protects nothing. A file system that does not answer proves nothing either way.
    pub(super) fn is_held(&self, dir: &Path) -> bool {
        let place = |file: io::Result<fs::Metadata>| file.map(|file| (file.dev(), file.ino()));
        match (place(fs::symlink_metadata(dir.join(LOCK))), place(self.file.metadata())) {
            (Ok(there), Ok(held)) => there == held,
            (Err(error), _) => {
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
            (_, Err(_)) => true,
        }
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
pub(super) fn unlisten(dir: &Path, lock: &Lock) {
    // In a folder that was replaced the socket is somebody else's.
    if lock.is_held(dir) {
        // A name left behind is removed by the next owner.
        let _ = remove(&dir.join(SOCKET));
    }
}

pub(super) async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let (address, _folder) = address(dir, SOCKET)?;
    UnixStream::connect(address).await
}

/// The other side's user, unless it is ours: the socket's mode is not looked at everywhere.
pub(super) fn stranger(stream: &UnixStream) -> Option<String> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own_user() => None,
        Ok(peer) => Some(format!("user {}", peer.uid())),
        Err(error) => Some(format!("an unknown user ({error})")),
    }
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

    #[test]
    fn a_lock_on_a_file_that_was_replaced_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let old = Lock::try_take(dir.path()).unwrap().unwrap();
        assert!(old.is_held(dir.path()));
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        assert!(!old.is_held(dir.path()));
        let new = Lock::try_take(dir.path()).unwrap().unwrap();
        assert!(new.is_held(dir.path()) && !old.is_held(dir.path()));
        fs::write(dir.path().join(SOCKET), b"").unwrap();
        unlisten(dir.path(), &old);
        assert!(dir.path().join(SOCKET).exists(), "it belongs to the new owner");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused_with_what_to_do() {
        let parent = tempfile::tempdir().unwrap();
        let dir = make(&parent.path().join("data")).unwrap();
        for mode in [0o720, 0o702, 0o777, 0o1777] {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            let error = make(&dir).unwrap_err();
            assert_eq!(error.code, Code::StoreFolder, "{mode:o}");
            assert!(error.detail.contains("chmod go-w"), "{error}");
        }
        for mode in [0o700, 0o755] {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            make(&dir).unwrap();
        }
    }

    #[test]
    fn a_link_in_the_folder_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(LOCK)).unwrap();
        let error = Lock::try_take(dir.path()).unwrap_err();
        assert_eq!(error.code, Code::StoreFolder);
        assert!(error.detail.contains("symbolic link"), "{error}");
        assert!(read(&dir.path().join(LOCK)).is_err() && write(&dir.path().join(LOCK), b"x").is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(reason(&check_links(dir.path()).unwrap_err()).contains("lock is a symbolic link"));
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        check_links(dir.path()).unwrap();
        check_links(&dir.path().join("absent")).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_folder_is_said_in_words() {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        for (kind, words) in [
            (ReadOnlyFilesystem, "read-only file system"),
            (PermissionDenied, "may not read or write"),
            (StorageFull, "no space left"),
        ] {
            let error = failed(Path::new("here"), io::Error::from(kind));
            assert_eq!(error.code, Code::StoreFolder);
            assert!(error.detail.starts_with("here: ") && error.detail.contains(words), "{error}");
        }
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
