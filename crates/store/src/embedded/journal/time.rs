//! The store's time, kept with the commits, and data from the future.
//!
//! A store that ran while the machine's clock was ahead leaves keys behind whose ends are far away once the clock is
//! right again. The time of the last commit tells: a key that had ten seconds left then has ten seconds left now, so
//! every end is moved by the difference. So are the scores of zsets whose names say that they are moments. All of it is
//! moved in pieces, with the place reached in `meta`: an opening that is cut short is finished by the next one, and
//! nothing is moved twice.
//!
//! Beside the time stands a [`Stamp`]: on the same boot it tells how much time has really passed since, and ends that
//! are moved lose it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};
use tracing::warn;

use super::place::{Space, Writes, generation_prefix, read_element, read_key};
use super::{Journal, open};
use crate::Result;
use crate::embedded::change::{Change, Generation, Kind};
use crate::embedded::clock::{Stamp, Ticker};

const TIME_KEY: &[u8] = b"time";
/// Beside the time, not in it: earlier versions take a longer time for damage.
const STAMP_KEY: &[u8] = b"stamp";
const MOVE_KEY: &[u8] = b"move";
/// The time is written again when it is this much later.
const KEEP_US: i64 = 10_000;
/// Up to this much ahead the store's time goes on where it was and comes back by itself.
const LITTLE_US: i64 = 10_000_000;
/// A score this much later than the time the data was written is none of our moments.
const FAR_MS: f64 = 10.0 * 365.0 * 86_400_000.0;
/// Keys and bytes moved at once.
const PIECE: usize = 1000;
const PIECE_BYTES: usize = 4 << 20;

/// Ends that are being moved: from which time to which, and the last place that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Move {
    from_us: i64,
    to_us: i64,
    done: Vec<u8>,
}

impl Move {
    fn encode(&self) -> Vec<u8> {
        [&self.from_us.to_be_bytes(), &self.to_us.to_be_bytes(), self.done.as_slice()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (from, rest) = bytes.split_first_chunk()?;
        let (to, done) = rest.split_first_chunk()?;
        Some(Self { from_us: i64::from_be_bytes(*from), to_us: i64::from_be_bytes(*to), done: done.to_vec() })
    }

    fn then_ms(&self) -> i64 {
        self.from_us.div_euclid(1000)
    }

    fn now_ms(&self) -> i64 {
        self.to_us.div_euclid(1000)
    }

    /// Where an end lies now. What had ended has ended.
    fn end(&self, at_ms: i64) -> i64 {
        at_ms.saturating_add(self.now_ms() - self.then_ms())
    }

    /// Where a moment lies now; none for a score that has passed anyway, or is no moment.
    fn moment(&self, bits: &[u8]) -> Option<f64> {
        let score = f64::from_bits(u64::from_be_bytes(bits.try_into().ok()?));
        let (then_ms, now_ms) = (self.then_ms() as f64, self.now_ms() as f64);
        // Some are in microseconds: a thousand times as large, so nobody takes one for the other.
        [1.0, 1000.0].into_iter().find_map(|unit| {
            let (then, now, far) = (then_ms * unit, now_ms * unit, FAR_MS * unit);
            (score > now && score < then + far).then_some(score - then + now)
        })
    }
}

impl Stamp {
    fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.boot.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.elapsed_us.to_be_bytes());
        bytes[16..].copy_from_slice(&self.now_us.to_be_bytes());
        bytes
    }

    /// None for what is not ours: it is a help and nothing depends on it.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let ([boot, elapsed_us, now_us], []) = bytes.as_chunks::<8>() else { return None };
        Some(Self {
            boot: u64::from_be_bytes(*boot),
            elapsed_us: i64::from_be_bytes(*elapsed_us),
            now_us: i64::from_be_bytes(*now_us),
        })
    }
}

impl Journal {
    /// Keeps the time of `ticker` with the commits from now on.
    pub(crate) fn keeping(mut self, ticker: Arc<Ticker>) -> Self {
        self.ticker = Some(ticker);
        self
    }

    pub(super) fn keep_time(&self, batch: &mut OwnedWriteBatch) {
        let Some(ticker) = &self.ticker else { return };
        let now_us = ticker.now_us();
        if (now_us - self.kept_us.load(Relaxed)).abs() < KEEP_US {
            return;
        }
        let stamp = ticker.stamp();
        let now_us = stamp.map_or(now_us, |stamp| stamp.now_us);
        batch.insert(&self.meta, TIME_KEY, now_us.to_be_bytes().as_slice());
        if let Some(stamp) = stamp {
            batch.insert(&self.meta, STAMP_KEY, stamp.encode().as_slice());
        }
        self.kept_us.store(now_us, Relaxed);
    }

    /// Brings data and clock together, before the data is loaded; 1 when the data was from the future. Keys that end
    /// with one of `moments` are zsets by milliseconds.
    pub(crate) fn align(&self, ticker: &Ticker, moments: &[&str]) -> Result<u64> {
        if let Some(bytes) = self.held(MOVE_KEY)? {
            let unread = || open::damaged(&self.dir, "a note of moved ends that cannot be read");
            self.move_ends(Move::decode(&bytes).ok_or_else(unread)?, moments)?;
        }
        let Some(bytes) = self.held(TIME_KEY)? else { return Ok(0) };
        let told = bytes.as_ref().try_into().map(i64::from_be_bytes);
        let told_us = told.map_err(|_| open::damaged(&self.dir, "a time that cannot be read"))?;
        // A version that keeps no stamp may have written since: then the two do not tell the same time.
        let stamp = self.held(STAMP_KEY)?.and_then(|bytes| Stamp::decode(&bytes));
        let stamp = stamp.filter(|stamp| stamp.now_us == told_us);
        let fresh = ticker.stamp();
        let now_us = fresh.map_or_else(|| ticker.now_us(), |fresh| fresh.now_us);
        let due_us = stamp.and_then(|stamp| ticker.since(&stamp));
        let ahead_us = due_us.unwrap_or(told_us).saturating_sub(now_us);
        if ahead_us <= LITTLE_US {
            ticker.resume(due_us.unwrap_or(told_us));
            return Ok(0);
        }
        let told_us = due_us.unwrap_or(told_us);
        warn!(
            dir = %self.dir.display(),
            ahead_ms = ahead_us / 1000,
            "the data is from the future: it was written while the machine's clock was ahead, or the clock is behind \
             now; every key keeps the life it had left"
        );
        self.move_ends(Move { from_us: told_us, to_us: now_us, done: Vec::new() }, moments)?;
        if let Some(fresh) = fresh {
            let kept = self.meta.insert(STAMP_KEY, fresh.encode().as_slice());
            kept.map_err(|error| open::failed(&self.dir, error))?;
        }
        Ok(1)
    }

    fn held(&self, key: &[u8]) -> Result<Option<fjall::UserValue>> {
        self.meta.get(key).map_err(|error| open::failed(&self.dir, error))
    }

    fn move_ends(&self, mut moving: Move, moments: &[&str]) -> Result<()> {
        let failed = |error| open::failed(&self.dir, error);
        loop {
            let (mut changes, mut bytes, mut looked) = (Vec::new(), 0, 0);
            let after = (Bound::Excluded(moving.done.clone()), Bound::Unbounded);
            for guard in self.keys.range(after) {
                let (place, text) = guard.into_inner().map_err(failed)?;
                let unread = || open::damaged(&self.dir, "a key that cannot be read");
                let mut change = read_key(&place, &text).ok_or_else(unread)?;
                if let Change::PutCollection { key, kind: Kind::Zset, generation, .. } = &change
                    && moments.iter().any(|ending| key.ends_with(ending.as_bytes()))
                {
                    bytes += self.moved(&moving, *generation, &mut changes)?;
                }
                if let Change::PutString { expires_at_ms: Some(at), .. }
                | Change::PutCollection { expires_at_ms: Some(at), .. } = &mut change
                {
                    *at = moving.end(*at);
                    bytes += place.len() + text.len();
                    changes.push(change);
                }
                moving.done = place.to_vec();
                looked += 1;
                if looked == PIECE || bytes >= PIECE_BYTES {
                    break;
                }
            }
            let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
            for (space, place, value) in Writes::fold(changes).into_places() {
                let keyspace = match space {
                    Space::Keys => &self.keys,
                    Space::Elements => &self.elements,
                };
                if let Some(value) = value {
                    batch.insert(keyspace, place, value);
                }
            }
            if looked == 0 {
                batch.remove(&self.meta, MOVE_KEY);
                batch.insert(&self.meta, TIME_KEY, moving.to_us.to_be_bytes().as_slice());
                batch = batch.durability(Some(PersistMode::SyncData));
                return batch.commit().map_err(failed);
            }
            batch.insert(&self.meta, MOVE_KEY, moving.encode());
            batch.commit().map_err(failed)?;
        }
    }

    /// The scores of one zset that are moved; how many bytes they take.
    fn moved(&self, moving: &Move, generation: Generation, changes: &mut Vec<Change>) -> Result<usize> {
        let mut bytes = 0;
        for guard in self.elements.prefix(generation_prefix(generation)) {
            let (place, text) = guard.into_inner().map_err(|error| open::failed(&self.dir, error))?;
            let Some(Change::PutElement { element, value, .. }) = read_element(&place, &text) else {
                return Err(open::damaged(&self.dir, "an element that cannot be read"));
            };
            if let Some(score) = moving.moment(&value) {
                let value = Bytes::copy_from_slice(&score.to_bits().to_be_bytes());
                changes.push(Change::PutElement { generation, element, value });
                bytes += place.len() + text.len();
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
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
        assert_eq!(
            journal.align(&ticker, &[":leases"]).unwrap(),
            0,
            "it was told by the opening that began it"
        );
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
}
