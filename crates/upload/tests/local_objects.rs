//! Objects on local disk: moved, not copied; whole or not there; and what a crash leaves behind.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/servers.rs"]
mod servers;
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use quaymaster_upload::objects::{
    Abort, Completed, Fsync, MultipartId, Objects, ObjectsOptions, PartBody, Source, Then,
};
use quaymaster_upload::{Sha256, Trouble};
use support::parts::{about, bytes, done, in_pieces, read, recorded, send, unknown};
use tempfile::TempDir;

const KEY: &str = "connectors/default/a.pb";

struct Disk {
    folder: TempDir,
    objects: Objects,
}

impl Disk {
    async fn new() -> Self {
        // Not in memory, as the system's own temporary folder may be.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let objects = open(folder.path()).await;
        Self { folder, objects }
    }

    fn path(&self, rest: &str) -> PathBuf {
        self.folder.path().join(rest)
    }

    fn names(&self, rest: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(rest))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn spool(&self, bytes: &Bytes) -> PathBuf {
        let path = self.path(&format!("spooled-{}", fastrand::u64(..)));
        fs::write(&path, bytes).unwrap();
        path
    }
}

async fn open(folder: &Path) -> Objects {
    Objects::open(&format!("file:{}", folder.display()), &ObjectsOptions::default()).await.unwrap()
}

fn taken(path: &Path, bytes: &Bytes) -> PartBody {
    let source = Source::File(path.to_owned(), Then::Take);
    PartBody { size: bytes.len() as u64, digest: Sha256::of(bytes).into(), source }
}

#[tokio::test]
async fn a_spooled_part_is_moved_into_the_object_and_never_copied() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let mut parts = Vec::new();
    let mut inodes = Vec::new();
    for number in 1..=3 {
        let bytes = bytes(u64::from(number), 10_000);
        let path = disk.spool(&bytes);
        inodes.push(fs::metadata(&path).unwrap().ino());
        let etag = disk.objects.part(KEY, &id, number, taken(&path, &bytes)).await.unwrap();
        parts.push(recorded(number, etag, &bytes));
        assert!(!path.exists(), "it is in the store now");
        // The answer may have been lost: whoever repeats the call has no file any more.
        let again = disk.objects.part(KEY, &id, number, taken(&path, &bytes)).await.unwrap();
        assert_eq!(again, parts.last().unwrap().etag);
    }
    done(disk.objects.complete(KEY, &id, &parts).await.unwrap());
    let folder = format!("objects/{KEY}");
    let names = disk.names(&folder);
    assert_eq!(names.len(), 4, "three parts and a manifest: {names:?}");
    let found: Vec<u64> =
        names[..3].iter().map(|name| disk.path(&folder).join(name).metadata().unwrap().ino()).collect();
    assert_eq!(found, inodes, "the very files that were spooled");
}

#[tokio::test]
async fn a_part_on_another_file_system_is_copied_and_checked() {
    let disk = Disk::new().await;
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    assert_ne!(
        fs::metadata(elsewhere.path()).unwrap().dev(),
        fs::metadata(disk.folder.path()).unwrap().dev(),
        "the test needs two file systems"
    );
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let (right, path) = (bytes(1, 600_000), elsewhere.path().join("spooled"));
    fs::write(&path, bytes(2, 600_000)).unwrap();
    let error = disk.objects.part(KEY, &id, 1, taken(&path, &right)).await.unwrap_err();
    assert_eq!(error.said(), Some("BadDigest"));
    assert!(path.exists(), "what was not taken stays");
    fs::write(&path, &right).unwrap();
    let etag = disk.objects.part(KEY, &id, 1, taken(&path, &right)).await.unwrap();
    assert!(!path.exists());
    assert_eq!(disk.names("uploads").len(), 1);
    done(disk.objects.complete(KEY, &id, &[recorded(1, etag, &right)]).await.unwrap());
    assert!(read(&disk.objects, KEY, None).await == right);
}

#[tokio::test]
async fn only_recorded_parts_are_in_the_object() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let (right, late) = (bytes(1, 1000), bytes(2, 1000));
    let part = send(&disk.objects, KEY, &id, 1, &right).await;
    // Somebody whose lease has lapsed sends other bytes under the same number; and something half written is left.
    send(&disk.objects, KEY, &id, 1, &late).await;
    fs::write(disk.path("uploads").join(id.as_str()).join(".tmp-left"), "half").unwrap();
    fs::write(disk.path("uploads").join(id.as_str()).join("manifest.json"), "{\"size\":").unwrap();
    done(disk.objects.complete(KEY, &id, &[part]).await.unwrap());
    assert!(read(&disk.objects, KEY, None).await == right);
    assert_eq!(disk.names(&format!("objects/{KEY}")).len(), 2, "one part and the manifest");
    assert_eq!(disk.names("uploads"), Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_size_is_no_part() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let (bytes, path) = (bytes(1, 1000), disk.path("spooled"));
    fs::write(&path, &bytes[..999]).unwrap();
    assert!(disk.objects.part(KEY, &id, 1, taken(&path, &bytes)).await.is_err());
    assert!(path.exists());
    let error = disk.objects.part(KEY, &id, 1, taken(&disk.path("none"), &bytes)).await.unwrap_err();
    assert_eq!(error.said(), Some("NotFound"));
}

#[tokio::test]
async fn an_object_is_replaced_whole() {
    let disk = Disk::new().await;
    for (n, token) in ["first", "second", "third"].iter().enumerate() {
        let id = disk.objects.begin(KEY, &about(token)).await.unwrap();
        let bytes = bytes(n as u64, 1000 * (3 - n));
        let part = send(&disk.objects, KEY, &id, 1, &bytes).await;
        done(disk.objects.complete(KEY, &id, &[part]).await.unwrap());
        assert_eq!(disk.objects.head(KEY).await.unwrap().unwrap().token.as_deref(), Some(*token));
        assert!(read(&disk.objects, KEY, None).await == bytes);
    }
    disk.objects.put_empty(KEY, &about("empty")).await.unwrap();
    assert_eq!(disk.objects.head(KEY).await.unwrap().unwrap().size, 0);
    assert!(disk.names("uploads").is_empty() && disk.names("trash").is_empty());
}

#[tokio::test]
async fn an_object_holds_no_other_object() {
    let disk = Disk::new().await;
    disk.objects.put_empty("a/b", &about("t")).await.unwrap();
    for key in ["a/b/c", "a/b/c/d", "a"] {
        let error = disk.objects.put_empty(key, &about("t")).await.unwrap_err();
        assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("key")), "{key}: {error}");
        assert_eq!(disk.objects.head(key).await.unwrap(), None);
    }
    assert!(disk.objects.head("a/b").await.unwrap().is_some());
    // Not even by its name: a part and a manifest are no objects.
    for key in ["a/b/manifest.json", "a"] {
        assert_eq!(disk.objects.head(key).await.unwrap(), None, "{key}");
    }
}

#[tokio::test]
async fn an_upload_is_of_its_own_key_alone() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let part = send(&disk.objects, KEY, &id, 1, &bytes(1, 10)).await;
    let error = disk.objects.complete("other", &id, std::slice::from_ref(&part)).await.unwrap_err();
    assert_eq!(error.said(), Some("key"));
    done(disk.objects.complete(KEY, &id, &[part]).await.unwrap());
}

#[tokio::test]
async fn an_id_names_uploads_and_nothing_else() {
    let disk = Disk::new().await;
    disk.objects.put_empty("a", &about("ours")).await.unwrap();
    let ids = ["../objects/a", "..", ".", "", "/", "a/b", "0123456789abcdef0123456789abcdeg"];
    for id in ids.map(MultipartId::new) {
        assert_eq!(disk.objects.abort("a", &id).await.unwrap(), Abort::Gone, "{id}");
        let bytes = bytes(1, 10);
        let error = disk.objects.part("a", &id, 1, in_pieces(&bytes)).await.unwrap_err();
        assert_eq!(error.said(), Some("NoSuchUpload"), "{id}");
        let parts = [recorded(1, format!("\"{}\"", Sha256::of(&bytes)), &bytes)];
        assert_eq!(
            unknown(disk.objects.complete("a", &id, &parts).await.unwrap()).said(),
            Some("NoSuchUpload")
        );
    }
    assert!(disk.objects.head("a").await.unwrap().is_some());
    assert_eq!(disk.names("objects/a"), ["manifest.json"]);
}

#[tokio::test]
async fn damage_is_told_and_not_read_over() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let part = send(&disk.objects, KEY, &id, 1, &bytes(1, 1000)).await;
    done(disk.objects.complete(KEY, &id, &[part]).await.unwrap());
    let folder = disk.path(&format!("objects/{KEY}"));
    let file = folder.join(&disk.names(&format!("objects/{KEY}"))[0]);
    fs::write(&file, "short").unwrap();
    let pieces = disk.objects.read(KEY, None).await.unwrap().unwrap();
    let error = pieces.try_for_each(async |_| Ok(())).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("damaged")));
    fs::write(folder.join("manifest.json"), "{").unwrap();
    assert_eq!(disk.objects.head(KEY).await.unwrap_err().said(), Some("damaged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_and_calling_off_at_once_leave_all_or_nothing() {
    let disk = Disk::new().await;
    let objects = Arc::new(open(disk.folder.path()).await);
    let (mut completed, mut aborted) = (0, 0);
    for round in 0..60 {
        let key = format!("race/{round}");
        let id = objects.begin(&key, &about("ours")).await.unwrap();
        let part = send(&objects, &key, &id, 1, &bytes(round, 100)).await;
        let complete = {
            let (objects, key, id) = (Arc::clone(&objects), key.clone(), id.clone());
            tokio::spawn(async move { objects.complete(&key, &id, &[part]).await })
        };
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let abort = objects.abort(&key, &id).await.unwrap();
        let answer = complete.await.unwrap();
        let there = objects.head(&key).await.unwrap().is_some();
        match answer {
            Ok(Completed::Done { .. }) => assert!(there, "{key}"),
            // The parts went while it looked for them.
            Ok(Completed::Unknown(_)) | Err(_) => assert!(!there, "{key}"),
        }
        assert_eq!(there, abort == Abort::Gone, "{key}");
        if there {
            assert!(read(&objects, &key, None).await == bytes(round, 100));
            completed += 1;
        } else {
            aborted += 1;
        }
    }
    assert_eq!(completed + aborted, 60);
    assert!(disk.names("uploads").is_empty() && disk.names("trash").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_at_once_make_one_object() {
    let disk = Disk::new().await;
    let objects = Arc::new(open(disk.folder.path()).await);
    let id = objects.begin(KEY, &about("ours")).await.unwrap();
    let part = send(&objects, KEY, &id, 1, &bytes(1, 1000)).await;
    let completes = (0..8).map(|_| {
        let (objects, id, part) = (Arc::clone(&objects), id.clone(), part.clone());
        tokio::spawn(async move { objects.complete(KEY, &id, &[part]).await })
    });
    let mut dones = 0;
    for complete in completes.collect::<Vec<_>>() {
        dones += u32::from(matches!(complete.await.unwrap(), Ok(Completed::Done { .. })));
    }
    assert_eq!(dones, 1);
    assert!(read(&objects, KEY, None).await == bytes(1, 1000));
}

#[tokio::test]
async fn a_store_that_is_opened_again_goes_on() {
    let disk = Disk::new().await;
    let id = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let part = send(&disk.objects, KEY, &id, 1, &bytes(1, 1000)).await;
    fs::create_dir_all(disk.path("trash/left")).unwrap();
    fs::write(disk.path("trash/left/00001-x"), "x").unwrap();
    fs::create_dir(disk.path("uploads/stillborn")).unwrap();
    let again = open(disk.folder.path()).await;
    assert!(disk.names("trash").is_empty());
    let pending = again.pending("connectors/", None).await.unwrap().uploads;
    assert_eq!(pending.iter().map(|found| &found.id).collect::<Vec<_>>(), [&id]);
    done(again.complete(KEY, &id, std::slice::from_ref(&part)).await.unwrap());
    // Its answer was lost: completed before, aborted or never begun look the same, and a look tells.
    assert_eq!(unknown(again.complete(KEY, &id, &[part]).await.unwrap()).said(), Some("NoSuchUpload"));
    assert_eq!(again.head(KEY).await.unwrap().unwrap().token.as_deref(), Some("ours"));
    assert_eq!(again.abort(KEY, &id).await.unwrap(), Abort::Gone);
    assert!(again.head(KEY).await.unwrap().is_some(), "an object is not touched by that");
}

#[tokio::test]
async fn pending_uploads_come_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let options = ObjectsOptions { fsync: Fsync::Never, ..ObjectsOptions::default() };
    let url = format!("file:{}", folder.path().display());
    let objects = Objects::open(&url, &options).await.unwrap();
    for n in 0..1003 {
        objects.begin(&format!("many/{n}"), &about("t")).await.unwrap();
    }
    let first = objects.pending("many/", None).await.unwrap();
    assert_eq!(first.uploads.len(), 1000);
    let rest = objects.pending("many/", first.next.as_ref()).await.unwrap();
    assert_eq!((rest.uploads.len(), rest.next), (3, None));
    let ids: std::collections::HashSet<_> =
        first.uploads.iter().chain(&rest.uploads).map(|found| found.id.clone()).collect();
    assert_eq!(ids.len(), 1003);
}

#[tokio::test]
async fn one_damaged_upload_hides_no_other() {
    let disk = Disk::new().await;
    let other = "connectors/default/other.pb";
    let sound = disk.objects.begin(KEY, &about("ours")).await.unwrap();
    let damaged = disk.objects.begin(other, &about("theirs")).await.unwrap();
    let found = async |key: &str| {
        let page = disk.objects.pending_of(key, None).await.unwrap();
        page.uploads.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    assert_eq!((found(KEY).await, found(other).await), (vec![sound.clone()], vec![damaged.clone()]));
    fs::write(disk.path(&format!("uploads/{damaged}/upload.json")), "{").unwrap();
    assert_eq!((found(KEY).await, found(other).await), (vec![sound.clone()], vec![]));
    let all = disk.objects.pending("connectors/", None).await.unwrap().uploads;
    assert_eq!(all.iter().map(|found| &found.id).collect::<Vec<_>>(), [&sound]);
}
