//! Files and folders that reach the disk when that is asked for.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::objects::{Fsync, Look};

/// As soon as so much is written, the disk begins with it: when the file is whole, little is left to wait for.
#[cfg(target_os = "linux")]
const AHEAD: u64 = 1024 * 1024;

/// A file that is written from its beginning to its end, and synced then.
#[derive(Debug)]
pub(crate) struct Synced {
    file: File,
    fsync: Fsync,
    written: u64,
    /// Up to here the disk was told to begin.
    #[cfg(target_os = "linux")]
    begun: u64,
}

impl Synced {
    /// One that was not there.
    pub(crate) fn create_new(path: &Path, fsync: Fsync) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(path)?,
            fsync,
            written: 0,
            #[cfg(target_os = "linux")]
            begun: 0,
        })
    }

    /// These bytes come next.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        #[cfg(target_os = "linux")]
        self.begin();
        Ok(())
    }

    /// So many have come.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// How it looks now.
    pub(crate) fn look(&self) -> io::Result<Look> {
        Look::of(&self.file)
    }

    /// Once all of it is on the disk, if that is asked for.
    pub(crate) fn sync(&self) -> io::Result<()> {
        sync_file(&self.file, self.fsync)
    }

    /// Linux begins to write what is said not to be needed, and forgets of it only what is written already, which of
    /// these bytes is nothing.
    #[cfg(target_os = "linux")]
    fn begin(&mut self) {
        let length = std::num::NonZeroU64::new(self.written - self.begun);
        if self.fsync == Fsync::Always && length.is_some_and(|length| length.get() >= AHEAD) {
            // Whatever comes of it, the sync at the end decides.
            let _ = rustix::fs::fadvise(&self.file, self.begun, length, rustix::fs::Advice::DontNeed);
            self.begun = self.written;
        }
    }
}

/// All of a file.
pub(crate) fn sync_file(file: &File, fsync: Fsync) -> io::Result<()> {
    match fsync {
        Fsync::Always => file.sync_all(),
        Fsync::Never => Ok(()),
    }
}

/// A file's or folder's change of names reaches the disk with its folder.
pub(crate) fn sync_folder(folder: &Path, fsync: Fsync) -> io::Result<()> {
    match fsync {
        Fsync::Always => File::open(folder)?.sync_all(),
        Fsync::Never => Ok(()),
    }
}
