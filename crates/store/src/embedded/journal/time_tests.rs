use super::super::Loss;
use super::*;
use crate::embedded::change::Element;
use crate::embedded::clock::Clock;
use crate::embedded::commit::{Sink, Sync};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

const DAY_US: i64 = 86_400_000_000;
const NOW_US: i64 = 1_700_000_000_000_000;

fn clock(us: i64) -> (Arc<AtomicI64>, Arc<Ticker>) {
    let time = Arc::new(AtomicI64::new(us));
    (Arc::clone(&time), Arc::new(Ticker::new(Clock::Manual(time))))
}

fn put(key: &str, expires_at_ms: Option<i64>) -> Change {
    Change::PutString { key: key.as_bytes().to_vec().into(), value: "v".into(), expires_at_ms }
}

fn ends(journal: &Journal) -> Vec<(String, Option<i64>)> {
    let mut found = Vec::new();
    journal
        .load(0, |change| {
            if let Change::PutString { key, expires_at_ms, .. } = change {
                found.push((String::from_utf8(key.to_vec()).unwrap(), expires_at_ms));
            }
        })
        .unwrap();
    found
}

/// A folder with `keys` keys that were written a day ahead, each with `left_ms` of life, and one without an end.
fn from_the_future(dir: &std::path::Path, keys: usize, left_ms: i64) {
    let (_, ticker) = clock(NOW_US + DAY_US);
    let journal = Journal::open(dir, Loss::Refuse).unwrap().keeping(ticker);
    let end = (NOW_US + DAY_US) / 1000 + left_ms;
    let mut changes: Vec<Change> = (0..keys).map(|n| put(&format!("k{n:05}"), Some(end))).collect();
    changes.push(put("stays", None));
    journal.commit(1, 1, changes, Sync::Disk).unwrap();
}

#[test]
fn keys_from_the_future_keep_the_life_they_had_left() {
    let dir = tempfile::tempdir().unwrap();
    from_the_future(dir.path(), 2 * PIECE + 7, 5000);
    for (round, future) in [(0, 1), (1, 0)] {
        let (_, ticker) = clock(NOW_US + round);
        let journal = Journal::open(dir.path(), Loss::Refuse).unwrap().keeping(Arc::clone(&ticker));
        assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), future);
        let ends = ends(&journal);
        assert_eq!(ends.len(), 2 * PIECE + 8);
        for (key, end) in ends {
            let wanted = (key != "stays").then_some(NOW_US / 1000 + 5000);
            assert_eq!(end, wanted, "{key}, round {round}");
        }
    }
}

#[test]
fn moments_in_zsets_move_with_the_ends_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    let then_ms = (NOW_US + DAY_US) / 1000;
    let score = |ms: f64| Bytes::copy_from_slice(&ms.to_bits().to_be_bytes());
    let zset = |key: &'static str, generation: u64, scores: &[f64]| {
        let head =
            Change::PutCollection { key: key.into(), kind: Kind::Zset, generation, expires_at_ms: None };
        let element = |(at, ms): (usize, &f64)| Change::PutElement {
            generation,
            element: Element::Member(at.to_string().into()),
            value: score(*ms),
        };
        std::iter::once(head).chain(scores.iter().enumerate().map(element)).collect::<Vec<_>>()
    };
    let (then, now) = (then_ms as f64, (NOW_US / 1000) as f64);
    let scores = [then + 5000.0, then - 2000.0, now - 7.0, 3.5, 8e15 + then];
    {
        let (_, ticker) = clock(NOW_US + DAY_US);
        let journal = Journal::open(dir.path(), Loss::Refuse).unwrap().keeping(ticker);
        let changes = [zset("{q}:leases", 1, &scores), zset("priorities", 2, &scores)].concat();
        journal.commit(1, 1, changes, Sync::Disk).unwrap();
    }
    let (_, ticker) = clock(NOW_US);
    let journal = Journal::open(dir.path(), Loss::Refuse).unwrap();
    assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 1);
    let mut found = vec![Vec::new(); 3];
    journal
        .load(0, |change| {
            if let Change::PutElement { generation, value, .. } = change {
                let bits = u64::from_be_bytes(value.as_ref().try_into().unwrap());
                found[generation as usize].push(f64::from_bits(bits));
            }
        })
        .unwrap();
    assert_eq!(found[1], [now + 5000.0, now - 2000.0, now - 7.0, 3.5, 8e15 + then]);
    assert_eq!(found[2], scores, "whose scores are something else stays");
}

#[test]
fn a_move_that_was_cut_short_is_finished_and_moves_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    from_the_future(dir.path(), 10, 5000);
    {
        // As if killed in the middle: the first five are moved, the note says so.
        let journal = Journal::open(dir.path(), Loss::Refuse).unwrap();
        let moved = (0..5).map(|n| put(&format!("k{n:05}"), Some(NOW_US / 1000 + 5000))).collect();
        let (mut batch, mut done) = (journal.db.batch(), Vec::new());
        for (_, place, value) in Writes::fold(moved).into_places() {
            done = done.max(place.clone());
            batch.insert(&journal.keys, place, value.unwrap());
        }
        let note = Move { from_us: NOW_US + DAY_US, to_us: NOW_US, done };
        assert_eq!(Move::decode(&note.encode()), Some(note.clone()));
        batch.insert(&journal.meta, MOVE_KEY, note.encode());
        batch.commit().unwrap();
    }
    let (_, ticker) = clock(NOW_US + 20_000);
    let journal = Journal::open(dir.path(), Loss::Refuse).unwrap();
    assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0, "it was told by the opening that began it");
    for (key, end) in ends(&journal) {
        assert_eq!(end, (key != "stays").then_some(NOW_US / 1000 + 5000), "{key}");
    }
}

/// A journal on the machine's clock, and its ticker.
fn by_the_machine(dir: &std::path::Path) -> (Journal, Arc<Ticker>) {
    let ticker = Arc::new(Ticker::new(Clock::System));
    (Journal::open(dir, Loss::Refuse).unwrap().keeping(Arc::clone(&ticker)), ticker)
}

/// As if the time kept last were `by_us` later, and had been kept `ago_us` earlier; by an older version without its
/// stamp.
fn rewrite(journal: &Journal, by_us: i64, ago_us: i64, boot: u64, stamped: bool) -> i64 {
    let stamp = Stamp::decode(&journal.held(STAMP_KEY).unwrap().unwrap()).unwrap();
    assert_eq!(journal.held(TIME_KEY).unwrap().unwrap().as_ref(), stamp.now_us.to_be_bytes());
    let moved = Stamp {
        boot: stamp.boot ^ boot,
        elapsed_us: stamp.elapsed_us - ago_us,
        now_us: stamp.now_us + by_us,
    };
    journal.meta.insert(TIME_KEY, moved.now_us.to_be_bytes().as_slice()).unwrap();
    if stamped {
        journal.meta.insert(STAMP_KEY, moved.encode().as_slice()).unwrap();
    }
    moved.now_us
}

#[test]
fn a_clock_that_was_set_forward_ends_nothing_early_on_the_same_boot() {
    for (boot, stamped, goes_on) in [(0, true, true), (1, true, false), (0, false, false)] {
        for behind_us in [9_000_000, DAY_US] {
            let dir = tempfile::tempdir().unwrap();
            let (journal, ticker) = by_the_machine(dir.path());
            journal.commit(1, 1, vec![put("k", Some(7))], Sync::Disk).unwrap();
            let told_us = rewrite(&journal, -behind_us, 0, boot, stamped);
            drop((journal, ticker));
            // Opened once more than needed, by somebody who writes nothing.
            for _ in 0..2 {
                let (journal, ticker) = by_the_machine(dir.path());
                assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0);
                let passed_us = ticker.now_us() - told_us;
                assert_eq!((0..behind_us).contains(&passed_us), goes_on, "{behind_us}: {passed_us}");
                assert_eq!(ends(&journal), [("k".to_owned(), Some(7))]);
            }
        }
    }
}

#[test]
fn an_owner_has_written_its_time_before_anybody_calls_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, ticker) = by_the_machine(dir.path());
    let before_us = ticker.now_us();
    assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0);
    drop((journal, ticker));
    let (journal, ticker) = by_the_machine(dir.path());
    let stamp = Stamp::decode(&journal.held(STAMP_KEY).unwrap().unwrap()).unwrap();
    assert!((before_us..=ticker.now_us()).contains(&stamp.now_us), "{stamp:?}");
}

#[test]
fn a_folder_that_was_closed_for_long_approaches_the_machines_clock_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, ticker) = by_the_machine(dir.path());
    journal.commit(1, 1, vec![put("k", Some(7))], Sync::Disk).unwrap();
    let ago_us = 1_000_000_000;
    let told_us = rewrite(&journal, -DAY_US, ago_us, 0, true);
    drop((journal, ticker));
    let (journal, ticker) = by_the_machine(dir.path());
    assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0);
    let passed_us = ticker.now_us() - told_us;
    assert!((ago_us + ago_us / 20..DAY_US).contains(&passed_us), "{passed_us}");
}

#[test]
fn the_machines_date_is_taken_at_once_and_once_when_an_operator_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, ticker) = by_the_machine(dir.path());
    journal.commit(1, 1, vec![put("k", Some(7))], Sync::Disk).unwrap();
    let request = dir.path().join(TAKE_DATE);
    let opened = || {
        let (journal, ticker) = by_the_machine(dir.path());
        assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0);
        (journal, ticker)
    };
    let mut open = (journal, ticker);
    for asked in [true, false] {
        rewrite(&open.0, -DAY_US, 0, 0, true);
        drop(open);
        if asked {
            std::fs::write(&request, "").unwrap();
        }
        // The opening after it goes on from there.
        for _ in 0..2 {
            let (_journal, ticker) = opened();
            assert!(!request.exists(), "it is asked for once");
            assert_eq!(ticker.offset_us() == 0, asked, "{}", ticker.offset_us());
        }
        open = opened();
    }
}

#[test]
fn the_machines_date_is_taken_too_where_the_store_is_a_little_ahead() {
    const AHEAD_US: i64 = 9_000_000;
    for (boot, stamped) in [(0, true), (1, true), (0, false)] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, ticker) = by_the_machine(dir.path());
        let end_ms = (ticker.now_us() + DAY_US) / 1000;
        journal.commit(1, 1, vec![put("k", Some(end_ms))], Sync::Disk).unwrap();
        let told_us = rewrite(&journal, AHEAD_US, 0, boot, stamped);
        drop((journal, ticker));
        let request = dir.path().join(TAKE_DATE);
        std::fs::write(&request, "").unwrap();
        for opening in 0..2 {
            let (journal, ticker) = by_the_machine(dir.path());
            assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), u64::from(opening == 0));
            assert_eq!((request.exists(), ticker.offset_us()), (false, 0), "{boot} {stamped}");
            let (_, end) = ends(&journal).pop().unwrap();
            let (left_ms, due_ms) = (end.unwrap() - ticker.now_us() / 1000, end_ms - told_us / 1000);
            assert!((due_ms - 60_000..=due_ms + 1).contains(&left_ms), "{left_ms} of {due_ms} ms");
        }
    }
}

#[test]
fn a_request_that_somebody_else_removed_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let request = dir.path().join(TAKE_DATE);
    std::fs::write(&request, "").unwrap();
    for _ in 0..2 {
        remove(&request).unwrap();
        assert!(!request.exists());
    }
    assert!(remove(dir.path()).is_err(), "a folder is none");
}

#[test]
fn ends_that_are_moved_leave_a_stamp_and_lose_the_time_that_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, ticker) = by_the_machine(dir.path());
    let end_ms = (ticker.now_us() + DAY_US) / 1000 + 5_000_000;
    journal.commit(1, 1, vec![put("k", Some(end_ms))], Sync::Disk).unwrap();
    let told_us = rewrite(&journal, DAY_US, 1_000_000_000, 0, true);
    drop((journal, ticker));
    let (journal, ticker) = by_the_machine(dir.path());
    assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 1);
    let moved = Stamp::decode(&journal.held(STAMP_KEY).unwrap().unwrap()).unwrap();
    assert_eq!(journal.held(TIME_KEY).unwrap().unwrap().as_ref(), moved.now_us.to_be_bytes());
    let (_, end) = ends(&journal).pop().unwrap();
    let left_ms = end.unwrap() - moved.now_us / 1000;
    let due_ms = end_ms - told_us / 1000 - 1_000_000;
    assert!((due_ms - 60_000..=due_ms).contains(&left_ms), "{left_ms} of {due_ms} ms");
}

#[test]
fn data_that_is_a_little_ahead_or_behind_stays_as_it_is() {
    for ahead_us in [LITTLE_US, 0, -DAY_US] {
        let dir = tempfile::tempdir().unwrap();
        let (time, ticker) = clock(NOW_US + ahead_us);
        let journal = Journal::open(dir.path(), Loss::Refuse).unwrap().keeping(Arc::clone(&ticker));
        journal.commit(1, 1, vec![put("k", Some(7))], Sync::Disk).unwrap();
        time.store(NOW_US, SeqCst);
        assert_eq!(journal.align(&ticker, &[":leases"]).unwrap(), 0);
        assert_eq!(ends(&journal), [("k".to_owned(), Some(7))]);
    }
}
