mod damage;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::scan::Tail;
use super::*;
use crate::Code;
use crate::embedded::change::{Element, Kind};

/// Whether there is time for thorough tests.
fn soak() -> bool {
    std::env::var_os("QUAYMASTER_SOAK").is_some_and(|soak| soak == "1")
}

fn put(key: &str, value: impl Into<Bytes>) -> Change {
    Change::PutString {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: value.into(),
        expires_at_ms: None,
    }
}

fn list(key: &str, generation: Generation) -> Change {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Change::PutCollection { key, kind: Kind::List, generation, expires_at_ms: None }
}

fn item(generation: Generation, seat: i64) -> Change {
    Change::PutElement { generation, element: Element::Seat(seat), value: Bytes::from_static(b"item") }
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, Loss::Refuse).unwrap()
}

fn refusal(dir: &Path) -> (Code, String) {
    let error = Journal::open(dir, Loss::Refuse).expect_err("the damage must be reported");
    (error.code, error.detail)
}

fn content(journal: &Journal) -> Vec<Change> {
    let mut content = Vec::new();
    journal.load(0, |change| content.push(change)).unwrap();
    content
}

/// A folder with `commits` acknowledged commits of one key each.
fn folder(commits: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for n in 1..=commits {
        journal.commit(n, n, vec![put(&format!("key:{n:06}"), "x".repeat(100))], Sync::Disk).unwrap();
    }
    drop(journal);
    dir
}

fn log(dir: &Path) -> (PathBuf, u64) {
    let stamp = scan::Stamp { keyspace: 3, key: COMMIT_KEY };
    let (path, end, tail) = scan::scan(&dir.join("data"), stamp).unwrap().newest.unwrap();
    assert_eq!(tail, Tail::Clean);
    (path, end)
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for keyspace in 1..=3 {
        let folder = dir.join(format!("data/keyspaces/{keyspace}/tables"));
        found.extend(fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    found
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    assert_eq!(journal.recovered(), 0);
    journal.commit(1, 3, vec![put("a", "1"), list("l", 7), item(7, 2), item(7, -1)], Sync::Disk).unwrap();
    let gone = Change::Remove { key: Bytes::from_static(b"a"), generation: None };
    journal.commit(4, 4, vec![gone], Sync::Disk).unwrap();
    drop(journal);
    let journal = open(dir.path());
    assert_eq!(journal.recovered(), 4);
    assert_eq!(content(&journal), [list("l", 7), item(7, -1), item(7, 2)]);
}

#[test]
fn elements_of_a_removed_collection_are_skipped_and_reaped_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let mut changes = vec![list("l", 7), list("other", 8), item(8, 0)];
    changes.extend((0..25).map(|seat| item(7, seat)));
    journal.commit(1, 1, changes, Sync::Disk).unwrap();
    let gone = Change::Remove { key: Bytes::from_static(b"l"), generation: Some(7) };
    assert_eq!(journal.commit(2, 2, vec![gone], Sync::Disk).unwrap(), [7]);
    drop(journal);
    let journal = open(dir.path());
    let mut restored = Vec::new();
    let loaded = journal.load(0, |change| restored.push(change)).unwrap();
    assert_eq!(restored, [list("other", 8), item(7, 0), item(8, 0)], "one element tells of the generation");
    assert_eq!(loaded.garbage, [7]);
    assert_eq!([10, 10, 5, 0].map(|_| journal.reap(7, 10).unwrap()), [10, 10, 5, 0]);
    drop(journal);
    let journal = open(dir.path());
    assert_eq!(journal.recovered(), 2, "reaping is no commit");
    assert!(journal.load(0, |_| {}).unwrap().garbage.is_empty());
}

#[test]
fn expired_keys_are_not_loaded_and_leave_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let short = |key: &'static str, at| Change::PutString {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::new(),
        expires_at_ms: Some(at),
    };
    let doomed = Change::PutCollection {
        key: Bytes::from_static(b"l"),
        kind: Kind::List,
        generation: 3,
        expires_at_ms: Some(999),
    };
    journal
        .commit(1, 1, vec![short("past", 999), short("now", 1_000), doomed, item(3, 0)], Sync::Disk)
        .unwrap();
    let mut restored = Vec::new();
    let loaded = journal.load(1_000, |change| restored.push(change)).unwrap();
    assert_eq!(restored, [short("now", 1_000), item(3, 0)]);
    assert_eq!((loaded.keys, loaded.expired, loaded.garbage), (1, 2, vec![3]));
    assert_eq!(content(&journal), [short("now", 1_000), item(3, 0)], "time does not bring them back");
}

#[test]
fn a_commit_writes_what_it_changed_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let mut next = 0;
    for piece in 0..if soak() { 100 } else { 5 } {
        let mut changes = vec![list("long", 7)];
        changes.extend((0..10_000).map(|n| item(7, piece * 10_000 + n)));
        next += 1;
        journal.commit(next, next, changes, Sync::System).unwrap();
    }
    journal.sync(next).unwrap();
    let field = Element::Field(Bytes::from_static(b"field"));
    let member = Element::Member(Bytes::from_static(b"member"));
    let value = Bytes::from_static(b"12345678");
    for change in [
        item(7, 1_000_000),
        Change::RemoveElement { generation: 7, element: Element::Seat(25_000) },
        Change::PutElement { generation: 8, element: field, value: value.clone() },
        Change::PutElement { generation: 9, element: member, value },
    ] {
        let (_, before) = log(dir.path());
        next += 1;
        journal.commit(next, next, vec![change.clone()], Sync::Disk).unwrap();
        let (_, after) = log(dir.path());
        assert!((40..200).contains(&(after - before)), "{change:?} wrote {} bytes", after - before);
    }
}

#[test]
fn a_log_cut_short_is_reported_and_left_alone() {
    let dir = folder(50);
    let (path, end) = log(dir.path());
    File::options().write(true).open(&path).unwrap().set_len(end - 300).unwrap();
    let before = fs::read(&path).unwrap();
    let (code, detail) = refusal(dir.path());
    assert_eq!(code, Code::StoreCorrupt);
    assert!(detail.starts_with("2 acknowledged commits are missing"), "{detail}");
    assert_eq!(fs::read(&path).unwrap(), before);
    refusal(dir.path());

    let journal = Journal::open(dir.path(), Loss::Accept).unwrap();
    assert_eq!((journal.recovered(), content(&journal).len()), (48, 48));
    drop(journal);
    assert_eq!(open(dir.path()).recovered(), 48, "loss once accepted is not reported for ever");
}

#[test]
fn a_flipped_byte_anywhere_in_the_log_is_reported_or_harmless() {
    let whole = folder(12);
    let (path, end) = log(whole.path());
    let name = path.strip_prefix(whole.path()).unwrap().to_owned();
    let mut reported = 0;
    let step = if soak() { 1 } else { 37 };
    for at in (0..end).step_by(step) {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        flip(&dir.path().join(&name), at);
        match Journal::open(dir.path(), Loss::Refuse) {
            Err(error) => {
                assert_eq!(error.code, Code::StoreCorrupt, "byte {at}: {error}");
                reported += 1;
            }
            // Numbers of the database's own that no checksum covers, and the format's record.
            Ok(journal) => assert_eq!((journal.recovered(), content(&journal).len()), (12, 12), "byte {at}"),
        }
    }
    let tried = end / step as u64;
    assert!(reported * 10 > tried * 8, "{reported} of {tried}");
}

#[test]
fn damage_at_the_head_of_the_log_keeps_a_copy() {
    let dir = folder(5);
    let (path, _) = log(dir.path());
    let before = fs::read(&path).unwrap();
    flip(&path, 0);
    assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
    let kept = fs::read(dir.path().join("log.damaged")).unwrap();
    assert_eq!((kept.len(), &kept[1..]), (before.len(), &before[1..]));
}

#[test]
fn an_unacknowledged_torn_tail_opens_without_a_word() {
    for torn in [1, 10, 40, 120] {
        let dir = folder(9);
        {
            let journal = open(dir.path());
            // Written, but nobody was told: the mark stays behind.
            journal.commit(10, 10, vec![put("torn", "t".repeat(100))], Sync::System).unwrap();
        }
        let (path, end) = log(dir.path());
        File::options().write(true).open(&path).unwrap().set_len(end - torn).unwrap();
        let journal = open(dir.path());
        assert_eq!((journal.recovered(), content(&journal).len()), (9, 9), "{torn} bytes short");
        journal.commit(10, 10, vec![put("next", "n")], Sync::Disk).unwrap();
        drop(journal);
        assert_eq!(content(&open(dir.path())).len(), 10);
    }
}

#[test]
fn a_flipped_byte_in_a_table_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for n in 1..=200_u64 {
        let changes = (0..10).map(|k| put(&format!("key:{n}:{k}"), "x".repeat(100))).collect();
        journal.commit(n, n, changes, Sync::System).unwrap();
    }
    journal.sync(200).unwrap();
    journal.keys.rotate_memtable_and_wait().unwrap();
    drop(journal);
    let tables = tables(dir.path());
    assert!(!tables.is_empty());
    let mut reported = 0;
    for table in &tables {
        let length = fs::metadata(table).unwrap().len();
        for at in [length / 10, length / 3, length / 2] {
            flip(table, at);
            let found = Journal::open(dir.path(), Loss::Refuse).and_then(|journal| {
                let mut count = 0;
                journal.load(0, |_| count += 1).map(|_| count)
            });
            match found {
                Err(error) => {
                    assert_eq!(error.code, Code::StoreCorrupt, "{error}");
                    reported += 1;
                }
                Ok(count) => assert_eq!(count, 2_000, "{} byte {at}", table.display()),
            }
            flip(table, at);
        }
    }
    assert!(reported >= tables.len(), "{reported} of {}", 3 * tables.len());
    assert_eq!(content(&open(dir.path())).len(), 2_000);
}

#[test]
fn every_missing_file_is_reported() {
    let whole = folder(5);
    let mut files = Vec::new();
    walk(whole.path(), &mut files);
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        fs::remove_file(dir.path().join(&file)).unwrap();
        match Journal::open(dir.path(), Loss::Refuse) {
            Err(error) => assert_eq!(error.code, Code::StoreCorrupt, "{}: {error}", file.display()),
            Ok(journal) => {
                assert_eq!(content(&journal).len(), 5, "{} is missing and nobody said so", file.display());
            }
        }
    }
}

#[test]
fn a_missing_database_is_not_made_anew_over_acknowledged_commits() {
    let dir = folder(3);
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
    assert_eq!(Journal::open(dir.path(), Loss::Accept).unwrap().recovered(), 0);
}

#[test]
fn a_database_half_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("data.new/keyspaces")).unwrap();
    fs::write(dir.path().join("data.new/0.jnl"), b"half").unwrap();
    Mark::open(dir.path(), 0).unwrap();
    assert_eq!(open(dir.path()).recovered(), 0);
}

#[test]
fn a_missing_sealed_log_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let mut next = 0;
    // Big values fill a log file; `meta` is never flushed, so the sealed files stay.
    while fs::read_dir(dir.path().join("data")).unwrap().flatten().filter(is_log).count() < 2 {
        next += 1;
        journal.commit(next, next, vec![put(&format!("{next}"), "x".repeat(1 << 20))], Sync::System).unwrap();
        assert!(next < 400, "the log never rotates");
    }
    // The newest file may have been begun after the last commit: one more, so that it holds what can be missed.
    next += 1;
    journal.commit(next, next, vec![put("last", "x")], Sync::System).unwrap();
    journal.sync(next).unwrap();
    drop(journal);
    let mut logs: Vec<_> = fs::read_dir(dir.path().join("data"))
        .unwrap()
        .flatten()
        .filter(is_log)
        .map(|entry| entry.path())
        .collect();
    logs.sort_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    // A sealed file that ends early is a hole in the middle, though the newest commit is there.
    let whole = fs::read(&logs[0]).unwrap();
    fs::write(&logs[0], &whole[..whole.len() / 2]).unwrap();
    let (_, detail) = refusal(dir.path());
    assert!(detail.contains("commits are missing"), "{detail}");
    fs::write(&logs[0], whole).unwrap();
    for missing in [1, 0] {
        let away = dir.path().join("away");
        fs::rename(&logs[missing], &away).unwrap();
        // However often one looks.
        for _ in 0..2 {
            let (code, detail) = refusal(dir.path());
            assert_eq!(code, Code::StoreCorrupt);
            assert!(detail.contains("commits are missing"), "{detail}");
        }
        fs::rename(&away, &logs[missing]).unwrap();
    }
    assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
    assert_eq!(Journal::open(dir.path(), Loss::Accept).unwrap().recovered(), next);
    assert_eq!(open(dir.path()).recovered(), next);
}

fn is_log(entry: &fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "jnl")
}

#[test]
fn a_mark_that_is_no_mark_is_reported() {
    let dir = folder(3);
    fs::write(dir.path().join("acknowledged"), b"garbage").unwrap();
    assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
    assert_eq!(Journal::open(dir.path(), Loss::Accept).unwrap().recovered(), 3);
    assert_eq!(open(dir.path()).recovered(), 3);
}

#[test]
fn a_format_from_the_future_is_refused() {
    let dir = folder(3);
    {
        let journal = open(dir.path());
        journal.meta.insert(FORMAT_KEY, (FORMAT + 1).to_be_bytes().as_slice()).unwrap();
        journal.db.persist(PersistMode::SyncAll).unwrap();
    }
    let (code, detail) = refusal(dir.path());
    assert_eq!(code, Code::StoreVersion);
    assert!(detail.contains("format 3"), "{detail}");
}

#[test]
fn a_folder_of_the_first_format_is_taken_over_whole_and_kept_from_earlier_versions() {
    let dir = folder(3);
    let format = |journal: &Journal| journal.meta.get(FORMAT_KEY).unwrap().unwrap().to_vec();
    let before = {
        let journal = open(dir.path());
        journal.meta.insert(FORMAT_KEY, FORMAT_UNPREFIXED.to_be_bytes().as_slice()).unwrap();
        journal.db.persist(PersistMode::SyncAll).unwrap();
        assert_eq!(format(&journal), [0, 0, 0, 1]);
        content(&journal)
    };
    for _ in 0..2 {
        let journal = open(dir.path());
        assert_eq!(format(&journal), [0, 0, 0, 2], "a version that reads 1 refuses it");
        assert_eq!((journal.recovered(), content(&journal)), (3, before.clone()));
    }
    let journal = open(dir.path());
    journal.commit(4, 4, vec![put("more", "x")], Sync::Disk).unwrap();
    drop(journal);
    assert_eq!(open(dir.path()).recovered(), 4);
}

fn walk(root: &Path, files: &mut Vec<PathBuf>) {
    fn into(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                into(root, &path, files);
            } else {
                files.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    into(root, root, files);
}

fn copy(from: &Path, to: &Path) {
    let mut files = Vec::new();
    walk(from, &mut files);
    for file in files {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        let bytes = fs::read(from.join(&file)).unwrap();
        // Log files are mostly padding: keep the copies as sparse as they are.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let copy = File::create(to.join(&file)).unwrap();
        copy.write_all_at(&bytes[..used], 0).unwrap();
        copy.set_len(bytes.len() as u64).unwrap();
    }
    for empty in ["data/keyspaces/1/tables", "data/keyspaces/2/tables", "data/keyspaces/3/tables"] {
        if from.join(empty).is_dir() {
            fs::create_dir_all(to.join(empty)).unwrap();
        }
    }
}
