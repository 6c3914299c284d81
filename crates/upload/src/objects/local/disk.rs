//! Steps on the file system, each finished (synced, if that is asked for) when it returns.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::super::options::Fsync;
use crate::sha::hex;
use crate::synced::{Synced, sync_file, sync_folder};
use crate::{Digest, Digester, Error, Result, Trouble};

/// Read and written at once.
pub(super) const PIECE: usize = 256 * 1024;

/// A name nobody else has.
pub(super) fn unique() -> io::Result<String> {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 16];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(hex(&bytes))
}

/// Makes a folder and those above it, each synced with the one it is in.
pub(super) fn make_folders(folder: &Path, fsync: Fsync) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(parent) = folder.parent() {
                make_folders(parent, fsync)?;
            }
            match fs::create_dir(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Err(error) => return Err(error),
    }
    folder.parent().map_or(Ok(()), |parent| sync_folder(parent, fsync))
}

/// Writes a small file under a temporary name, then gives it its own.
pub(super) fn write_whole(path: &Path, bytes: &[u8], fsync: Fsync) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary = folder.join(format!(".tmp-{}", unique()?));
    let mut file = File::create_new(&temporary)?;
    let named = file
        .write_all(bytes)
        .and_then(|()| sync_file(&file, fsync))
        .and_then(|()| fs::rename(&temporary, path));
    if named.is_err() {
        // A full disk is not filled with what did not fit.
        let _ = fs::remove_file(&temporary);
    }
    named?;
    sync_folder(folder, fsync)
}

/// Moves a file that is whole already to its place. `CrossesDevices` when it lies on another file system.
pub(super) fn move_file(from: &Path, to: &Path, size: u64, fsync: Fsync) -> io::Result<()> {
    let file = File::open(from)?;
    let found = file.metadata()?.len();
    if found != size {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("the part has {found} bytes, not the {size} it should have"),
        ));
    }
    sync_file(&file, fsync)?;
    fs::rename(from, to)?;
    to.parent().map_or(Ok(()), |folder| sync_folder(folder, fsync))
}

/// A part being written: it gets its name only if its bytes are the right ones.
pub(super) struct Writing {
    file: Synced,
    temporary: PathBuf,
    to: PathBuf,
    digester: Digester,
    digest: Digest,
    fsync: Fsync,
}

impl Writing {
    /// To become a part of this digest.
    pub(super) fn begin(to: &Path, digest: Digest, fsync: Fsync) -> io::Result<Self> {
        let folder = to.parent().unwrap_or(Path::new("."));
        let temporary = folder.join(format!(".tmp-{}", unique()?));
        let file = Synced::create_new(&temporary, fsync)?;
        let digester = Digester::like(&digest);
        Ok(Self { file, temporary, to: to.to_owned(), digester, digest, fsync })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digester.update(bytes);
        self.file.write(bytes)
    }

    pub(super) fn finish(mut self, size: u64) -> Result<()> {
        const OP: &str = "objects.part";
        let unused = Digester::like(&self.digest);
        let digest = std::mem::replace(&mut self.digester, unused).finish();
        let written = self.file.written();
        if (written, digest) != (size, self.digest) {
            let detail =
                format!("the part has {written} bytes of digest {digest}, not {size} of {}", self.digest);
            return Err(Error::new(OP, Trouble::Passing, detail).saying("BadDigest"));
        }
        let named = self
            .file
            .sync()
            .and_then(|()| fs::rename(&self.temporary, &self.to))
            .and_then(|()| self.to.parent().map_or(Ok(()), |folder| sync_folder(folder, self.fsync)));
        named.map_err(|error| Error::io(OP, "the part", error))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Gone already if it got its name.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Copies a file's bytes into a part.
pub(super) fn copy(from: &Path, writing: &mut Writing) -> io::Result<()> {
    let mut file = File::open(from)?;
    let mut buffer = vec![0; PIECE];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            length => writing.write(&buffer[..length])?,
        }
    }
}

/// Exchanges two folders in one step, where the file system can.
pub(super) fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).map_err(io::Error::from)
}
