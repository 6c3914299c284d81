//! Single bits of the files below, flipped: reported, or without effect.

use super::*;

/// What a folder holds.
fn state(dir: &Path) -> crate::Result<(u64, Vec<Change>)> {
    let journal = Journal::open(dir, Loss::Refuse)?;
    let mut changes = Vec::new();
    journal.load(0, |change| changes.push(change))?;
    Ok((journal.recovered(), changes))
}

fn flip_bit(path: &Path, at: usize, bit: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

/// A folder opened and closed for each count of two keys, with a table under them, a collection that went
/// and whose elements were reaped, and a key that expired and was forgotten.
fn counts() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut next = 0;
    let mut commit = |journal: &Journal, changes: Vec<Change>| {
        next += 1;
        journal.commit(next, next, changes, Sync::Disk).unwrap();
    };
    for (key, times) in [("k1", 5), ("k2", 3)] {
        for count in 1..=times {
            let journal = open(dir.path());
            match (key, count) {
                ("k1", 2) => journal.keys.rotate_memtable_and_wait().unwrap(),
                ("k2", 2) => {
                    journal.load(1_000, |_| {}).unwrap();
                    assert_eq!(journal.reap(7, 10).unwrap(), 1);
                }
                _ => {}
            }
            commit(&journal, vec![put(key, count.to_string())]);
            if key == "k2" && count == 1 {
                let brief = Change::PutString {
                    key: Bytes::from_static(b"brief"),
                    value: Bytes::new(),
                    expires_at_ms: Some(5),
                };
                commit(&journal, vec![list("l", 7), item(7, 0), brief]);
                let gone = Change::Remove { key: Bytes::from_static(b"l"), generation: Some(7) };
                commit(&journal, vec![gone]);
            }
        }
    }
    dir
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_reported_or_changes_nothing() {
    let whole = counts();
    let good = state(whole.path()).unwrap();
    assert_eq!((good.0, &good.1[..]), (10, &[put("k1", "5"), put("k2", "3")][..]));
    let (path, end) = log(whole.path());
    let name = path.strip_prefix(whole.path()).unwrap().to_owned();
    let bytes = fs::read(&path).unwrap();
    // A batch begins at the start and behind each trailer; the thirteen bytes there have no checksum.
    let mut starts = vec![0];
    let trailers = bytes[..end as usize].windows(4).enumerate().filter(|(_, window)| window == b"FJL\x03");
    starts.extend(trailers.map(|(at, _)| at + 4));
    let (mut reported, mut tried) = (0, 0);
    for at in 0..end as usize {
        let header = starts.iter().any(|start| (*start..start + 13).contains(&at));
        for bit in 0..8 {
            let chosen = (header && at % 6 == bit % 6) || (at % 23, at % 8) == (0, bit);
            if !(soak() || chosen) {
                continue;
            }
            tried += 1;
            let dir = tempfile::tempdir().unwrap();
            copy(whole.path(), dir.path());
            flip_bit(&dir.path().join(&name), at, bit);
            match state(dir.path()) {
                Err(error) => {
                    assert_eq!(error.code, Code::StoreCorrupt, "byte {at}, bit {bit}: {error}");
                    reported += 1;
                }
                Ok(found) => assert_eq!(found, good, "byte {at}, bit {bit} changed what is there"),
            }
        }
    }
    assert!(reported * 2 > tried, "{reported} of {tried}");
}

#[test]
fn a_count_that_another_seqno_would_hide_is_reported_and_can_be_accepted() {
    let dir = counts();
    let (path, end) = log(dir.path());
    let bytes = fs::read(&path).unwrap();
    // The last batch, set to a seqno below that of the count before it.
    let trailer = bytes[..end as usize - 4].windows(4).rposition(|window| window == b"FJL\x03").unwrap();
    let mut worse = bytes.clone();
    worse[trailer + 4 + 5..trailer + 4 + 13].copy_from_slice(&1_u64.to_le_bytes());
    fs::write(&path, worse).unwrap();
    for _ in 0..2 {
        let (code, detail) = refusal(dir.path());
        assert_eq!(code, Code::StoreCorrupt);
        assert!(detail.contains("not numbered as they were written"), "{detail}");
    }
    let accepted = Journal::open(dir.path(), Loss::Accept).unwrap();
    let content_then = content(&accepted);
    assert_eq!(content_then.len(), 2);
    let next = accepted.recovered() + 1;
    accepted.commit(next, next, vec![put("k3", "1")], Sync::Disk).unwrap();
    drop(accepted);
    let journal = open(dir.path());
    assert_eq!((journal.recovered(), &content(&journal)[..2]), (next, &content_then[..]));
}

#[test]
fn a_flipped_bit_in_a_manifest_is_reported_before_the_database_reads_it() {
    let dir = counts();
    let mut tried = 0;
    for keyspace in 0..=3 {
        let folder = dir.path().join(format!("data/keyspaces/{keyspace}"));
        let number = u64::from_le_bytes(*fs::read(folder.join("current")).unwrap().first_chunk().unwrap());
        for file in [folder.join("current"), folder.join(format!("v{number}"))] {
            let whole = fs::read(&file).unwrap();
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                fs::write(&file, bytes).unwrap();
                let (code, detail) = refusal(dir.path());
                assert_eq!(code, Code::StoreCorrupt, "{} byte {at}", file.display());
                assert!(detail.contains("damaged or missing"), "{detail}");
                tried += 1;
            }
            fs::write(&file, &whole[..whole.len() / 2]).unwrap();
            assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
            fs::write(&file, whole).unwrap();
        }
    }
    assert!(tried > 1_000, "{tried}");
    assert_eq!(state(dir.path()).unwrap().0, 10);
}

#[test]
fn an_empty_mark_is_a_first_start_that_failed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("acknowledged")).unwrap();
    assert_eq!(open(dir.path()).recovered(), 0);
    let dir = folder(3);
    File::create(dir.path().join("acknowledged")).unwrap();
    assert_eq!(refusal(dir.path()).0, Code::StoreCorrupt);
}
