//! The store's time, kept with the commits, and data from the future.
//!
//! A store that ran while the machine's clock was ahead leaves keys behind whose ends are far away once the clock is
//! right again. The time of the last commit tells: a key that had ten seconds left then has ten seconds left now, so
//! every end is moved by the difference. So are the scores of zsets whose names say that they are moments. All of it is
//! moved in pieces, with the place reached in `meta`: an opening that is cut short is finished by the next one, and
//! nothing is moved twice.
//!
//! Beside the time stands a [`Stamp`]: on the same boot it tells how much time has really passed since. Ends that are
//! moved lose it. Where the machine's clock was set forward, the store's time goes on from the stamp, or leases would end
//! while their holders work. An operator who wants the machine's date all the same makes the file [`TAKE_DATE`].

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::{fs, io};

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};
use tracing::warn;

use super::place::{Space, Writes, generation_prefix, read_element, read_key};
use super::{Journal, open};
use crate::Result;
use crate::embedded::change::{Change, Generation, Kind};
use crate::embedded::clock::{STEP_US, Stamp, Ticker};

const TIME_KEY: &[u8] = b"time";
/// Beside the time, not in it: earlier versions take a longer time for damage.
const STAMP_KEY: &[u8] = b"stamp";
const MOVE_KEY: &[u8] = b"move";
/// A file that lets the next owner take the machine's date at once; removed when that is done.
const TAKE_DATE: &str = "take-date";
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

/// Removes a file, unless somebody else has.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
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
    /// with one of `moments` are zsets by milliseconds. Leaves the time on the disk: a disk that takes no writes has no
    /// owner.
    pub(crate) fn align(&self, ticker: &Ticker, moments: &[&str]) -> Result<u64> {
        let failed = |error| open::failed(&self.dir, error);
        let request = self.dir.join(TAKE_DATE);
        let takes_date = fs::symlink_metadata(&request).is_ok_and(|file| file.is_file());
        let future = self.set_time(ticker, moments, takes_date)?;
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        self.keep_time(&mut batch);
        batch.commit().map_err(failed)?;
        if takes_date {
            // Not before: an opening that is cut short takes the date again.
            remove(&request).map_err(open::io_error(&self.dir))?;
        }
        Ok(u64::from(future))
    }

    /// Sets the time of `ticker` by what was told last; true when that was the future.
    fn set_time(&self, ticker: &Ticker, moments: &[&str], takes_date: bool) -> Result<bool> {
        if let Some(bytes) = self.held(MOVE_KEY)? {
            let unread = || open::damaged(&self.dir, "a note of moved ends that cannot be read");
            self.move_ends(Move::decode(&bytes).ok_or_else(unread)?, moments)?;
        }
        let Some(bytes) = self.held(TIME_KEY)? else { return Ok(false) };
        let told = bytes.as_ref().try_into().map(i64::from_be_bytes);
        let told_us = told.map_err(|_| open::damaged(&self.dir, "a time that cannot be read"))?;
        // A version that keeps no stamp may have written since: then the two do not tell the same time.
        let stamp = self.held(STAMP_KEY)?.and_then(|bytes| Stamp::decode(&bytes));
        let stamp = stamp.filter(|stamp| stamp.now_us == told_us);
        let now_us = ticker.now_us();
        let due = stamp.and_then(|stamp| Some((stamp, ticker.since(&stamp)?)));
        let due_us = due.map_or(told_us, |(_, due_us)| due_us);
        let ahead_us = due_us.saturating_sub(now_us);
        if ahead_us > if takes_date { 0 } else { LITTLE_US } {
            warn!(
                dir = %self.dir.display(),
                ahead_ms = ahead_us / 1000,
                "the data is from the future: it was written while the machine's clock was ahead, or the clock is behind \
                 now; every key keeps the life it had left"
            );
            // Good once the time is `to_us`, whoever ends the move.
            let fresh = ticker.stamp();
            if let Some(fresh) = fresh {
                let kept = self.meta.insert(STAMP_KEY, fresh.encode().as_slice());
                kept.map_err(|error| open::failed(&self.dir, error))?;
            }
            let to_us = fresh.map_or(now_us, |fresh| fresh.now_us);
            self.move_ends(Move { from_us: due_us, to_us, done: Vec::new() }, moments)?;
            return Ok(true);
        }
        match due {
            Some(_) if takes_date && ahead_us < 0 => warn!(
                dir = %self.dir.display(),
                by_ms = -ahead_us / 1000,
                "the store takes the machine's date at once, as the file {TAKE_DATE} asks; leases, claims and windows \
                 that end before it are over"
            ),
            Some((stamp, _)) => self.go_on(ticker, &stamp),
            None => ticker.resume(told_us),
        }
        Ok(false)
    }

    fn go_on(&self, ticker: &Ticker, stamp: &Stamp) {
        ticker.go_on(stamp);
        let offset_us = ticker.offset_us();
        if offset_us.abs() >= STEP_US {
            warn!(
                dir = %self.dir.display(),
                by_ms = offset_us.abs() / 1000,
                "the machine's clock was set {} since the data was first opened on this boot; the store's time goes on by \
                 elapsed time and approaches it by 5 %; to take the machine's date at once, make the file {TAKE_DATE} in \
                 the folder and open it again",
                if offset_us < 0 { "forward" } else { "back" }
            );
        }
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
#[path = "time_tests.rs"]
mod tests;
