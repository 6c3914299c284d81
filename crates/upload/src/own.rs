//! What of an upload lies in the data folder: its user's alone, and no symbolic link there is followed.
//!
//! A place outside of the folder is the operator's own: it may be a link, and keeps the mode it has.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use quaymaster::Code;
use quaymaster::store::embedded::check_link;
use quaymaster::upload::Upload;
use rustix::fs::OFlags;

use crate::uploads::Settings;
use crate::{Error, Result, Trouble};

const OP: &str = "upload.open";

/// Files that SQLite keeps beside a database, with its mode.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Folders in a folder of objects.
const PARTS: [&str; 3] = ["objects", "uploads", "trash"];

/// The places in the data folder.
pub(crate) struct Own {
    folder: PathBuf,
    spool: Option<PathBuf>,
    objects: Option<PathBuf>,
    database: Option<PathBuf>,
}

impl Own {
    pub(crate) fn of(store: &Upload, settings: &Settings) -> Self {
        let spec = store.spec();
        let inside = |path: &str| inside(&settings.folder, path);
        let named = |url: &str, scheme: &str| url.strip_prefix(scheme).and_then(inside);
        let spool = match &spec.chunks {
            Some(url) => named(url, "file:").map(|folder| folder.join(store.name())),
            None => settings.spool.as_deref().and_then(Path::to_str).and_then(inside),
        };
        let database = spec.database.split('?').next().unwrap_or_default();
        Self {
            folder: settings.folder.clone(),
            spool,
            objects: named(&spec.objects, "file:"),
            database: named(database, "sqlite:"),
        }
    }

    /// Refuses symbolic links.
    pub(crate) fn check(&self) -> Result<()> {
        let mut places = Vec::new();
        places.extend(self.spool.clone());
        if let Some(objects) = &self.objects {
            places.extend(PARTS.map(|part| objects.join(part)));
        }
        if let Some(database) = &self.database {
            places.push(database.clone());
            places.extend(BESIDE.map(|end| with_end(database, end)));
        }
        for place in places {
            let mut path = self.folder.clone();
            for part in place.components() {
                path.push(part);
                check_link(&path).map_err(|error| refused(&path, error))?;
            }
        }
        Ok(())
    }

    /// Makes the database's file before SQLite does, with the mode that the process has for files.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.check()?;
        let Some(database) = &self.database else { return Ok(()) };
        let path = self.folder.join(database);
        let made = path.parent().map_or(Ok(()), make_folder).and_then(|()| make_file(&path));
        made.map_err(|error| Error::io(OP, path.display(), error))
    }

    /// Takes from others what they could read, also of what was there before.
    pub(crate) fn close(&self) {
        let parts = self.objects.iter().flat_map(|objects| PARTS.map(|part| objects.join(part)));
        for place in self.spool.iter().cloned().chain(parts) {
            // The first folder in the data folder keeps others out of all that are in it.
            if let Some(first) = place.components().next() {
                close(&self.folder.join(first), 0o700);
            }
        }
        if let Some(database) = &self.database {
            let path = self.folder.join(database);
            close(&path, 0o600);
            for end in BESIDE {
                close(&with_end(&path, end), 0o600);
            }
        }
    }
}

/// A path that stays inside of the folder it is taken from, from there on.
fn inside(folder: &Path, path: &str) -> Option<PathBuf> {
    let text = path.strip_prefix("//").unwrap_or(path);
    let named = Path::new(text);
    let path = match std::path::absolute(folder) {
        Ok(whole) => named.strip_prefix(whole).unwrap_or(named),
        Err(_) => named,
    };
    let mut parts = path.components().filter(|part| *part != Component::CurDir);
    let stays = !text.is_empty() && parts.clone().all(|part| matches!(part, Component::Normal(_)));
    stays.then(|| parts.by_ref().collect())
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// SQLite would make it with the mode that the process has for files.
fn make_file(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(path).map(drop)
}

/// Takes all rights beyond `mode`; what is not there has none.
fn close(path: &Path, mode: u32) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let now = found.permissions().mode() & 0o777;
    if now & !mode == 0 {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(now & mode)) {
        let path = path.display();
        tracing::warn!(%path, %error, "other users may read what is uploaded");
    }
}

fn refused(path: &Path, error: io::Error) -> Error {
    if error.get_ref().is_none() {
        return Error::io(OP, path.display(), error);
    }
    let detail = format!("{error}, or name the place it leads to by its absolute path in the schema");
    Error::new(OP, Trouble::Never, detail).coded(Code::StoreFolder).because(error)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::symlink;

    use super::*;

    fn own(folder: &Path) -> Own {
        Own {
            folder: folder.to_owned(),
            spool: inside(folder, "spool/docs"),
            objects: inside(folder, "./store/objects"),
            database: inside(folder, "//uploads.db"),
        }
    }

    #[test]
    fn a_place_is_in_the_folder_unless_its_path_leads_elsewhere() {
        for (path, within) in [
            ("objects", Some("objects")),
            ("//a/b", Some("a/b")),
            ("./a", Some("a")),
            (".", Some("")),
            ("a/./b", Some("a/b")),
            ("/a", None),
            ("///a", None),
            ("../a", None),
            ("a/../../b", None),
            ("/srv/data/spool", Some("spool")),
            ("///srv/data/spool/../../x", None),
            ("/srv/database", None),
            ("", None),
        ] {
            assert_eq!(inside(Path::new("/srv/data"), path).as_deref(), within.map(Path::new), "{path}");
        }
    }

    #[test]
    fn what_is_made_and_what_was_there_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        fs::create_dir(folder.path().join("spool")).unwrap();
        fs::set_permissions(folder.path().join("spool"), Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("uploads.db-wal"), "").unwrap();
        fs::set_permissions(folder.path().join("uploads.db-wal"), Permissions::from_mode(0o664)).unwrap();
        own(folder.path()).prepare().unwrap();
        assert_eq!(mode("uploads.db"), 0o600);
        make_folder(&folder.path().join("store/objects/objects")).unwrap();
        fs::set_permissions(folder.path().join("store"), Permissions::from_mode(0o770)).unwrap();
        own(folder.path()).close();
        assert_eq!(["spool", "store"].map(mode), [0o700; 2]);
        assert_eq!(["uploads.db", "uploads.db-wal"].map(mode), [0o600; 2]);
        assert!(!folder.path().join("uploads.db-shm").exists());
        // What is not in the data folder is left as it is, and so is the folder.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let own = Own { objects: inside(folder.path(), "."), spool: None, ..own(folder.path()) };
        own.close();
        assert_eq!(mode(""), 0o755);
    }

    #[test]
    fn no_link_is_followed_on_the_way_to_a_place() {
        for name in ["spool", "spool/docs", "store", "store/objects/uploads", "uploads.db", "uploads.db-shm"]
        {
            let (folder, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let link = folder.path().join(name);
            make_folder(link.parent().unwrap()).unwrap();
            symlink(victim.path(), &link).unwrap();
            for refused in [own(folder.path()).check(), own(folder.path()).prepare()] {
                let error = refused.unwrap_err();
                assert_eq!((error.code(), error.trouble()), (Some(Code::StoreFolder), Trouble::Never));
                assert!(error.detail().contains(&format!("{name} is a symbolic link")), "{error}");
            }
            assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0, "{name}");
        }
    }
}
