//! The journal: what the data model holds, on disk, in an embedded database (fjall).
//!
//! ```text
//! DIR/acknowledged   the last commit somebody was told about (mark.rs)
//! DIR/take-date      an operator wants the machine's date at once (time.rs)
//! DIR/data/          the database (manifest.rs, scan.rs): keyspaces `keys`, `elements`, `meta` (time.rs)
//! ```
//! One group of scripts is one atomic batch and writes what it changed, no more. The elements of a removed
//! collection stay behind under a generation nobody uses any more and are deleted in pieces later.
//!
//! Invariants: the numbers of the commits have no gap; `acknowledged` is never ahead of what is durable;
//! `DIR/data` is whole or not there at all (it is made under another name and renamed).

mod load;
mod manifest;
mod mark;
mod open;
mod place;
mod scan;
mod time;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use fjall::{Database, Keyspace, PersistMode};

pub(crate) use open::Loss;

use super::change::{Change, Generation};
use super::clock::Ticker;
use super::commit::{Cause, Sink, Sync};
use mark::Mark;
use place::{Space, Writes};
use scan::Span;

/// The layout of keyspaces and values, and how keys are named; a folder of a higher one is refused.
const FORMAT: u32 = 2;
/// The same layout, but side keys were named without their schema's prefix. Schemas are not known here: whoever binds one
/// to the store renames its keys (`quaymaster::respell`). The number keeps earlier versions out.
const FORMAT_UNPREFIXED: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";
const COMMIT_KEY: &[u8] = b"commit";

/// An open journal. Its folder is locked by the caller.
pub(crate) struct Journal {
    dir: PathBuf,
    db: Database,
    keys: Keyspace,
    elements: Keyspace,
    meta: Keyspace,
    mark: Mark,
    /// The last commit found when it was opened.
    recovered: u64,
    /// Whose time is kept with the commits, and the time kept last.
    ticker: Option<Arc<Ticker>>,
    kept_us: AtomicI64,
    /// Whether commits hang.
    #[cfg(feature = "seeded-bugs")]
    hangs: (parking_lot::Mutex<bool>, parking_lot::Condvar),
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("recovered", &self.recovered)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// The last commit that was there when the journal was opened.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Makes commits hang, or lets those that hang go on.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn hang(&self, hangs: bool) {
        *self.hangs.0.lock() = hangs;
        self.hangs.1.notify_all();
    }

    /// Deletes up to `max` elements of a collection that is gone; returns how many it deleted.
    pub(crate) fn reap(&self, generation: Generation, max: usize) -> Result<usize, Cause> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for guard in self.elements.prefix(place::generation_prefix(generation)).take(max) {
            batch.remove(&self.elements, guard.key()?);
        }
        let count = batch.len();
        batch.commit()?;
        Ok(count)
    }

    fn write(
        &self,
        first: u64,
        last: u64,
        changes: Vec<Change>,
        sync: Sync,
    ) -> Result<Vec<Generation>, Cause> {
        let mut writes = Writes::fold(changes);
        let dead = std::mem::take(&mut writes.dead);
        let mode = match sync {
            Sync::Disk => PersistMode::SyncData,
            Sync::System => PersistMode::Buffer,
        };
        let mut batch = self.db.batch().durability(Some(mode));
        for (space, place, value) in writes.into_places() {
            let keyspace = match space {
                Space::Keys => &self.keys,
                Space::Elements => &self.elements,
            };
            match value {
                Some(value) => batch.insert(keyspace, place, value),
                None => batch.remove(keyspace, place),
            }
        }
        // Commits come one after the other: whatever was committed before has a lower seqno.
        let span = Span { first, last, floor: self.db.seqno() };
        batch.insert(&self.meta, COMMIT_KEY, span.encode().as_slice());
        self.keep_time(&mut batch);
        batch.commit()?;
        Ok(dead)
    }
}

impl Sink for Journal {
    fn commit(
        &self,
        first: u64,
        last: u64,
        changes: Vec<Change>,
        sync: Sync,
    ) -> Result<Vec<Generation>, Cause> {
        #[cfg(feature = "seeded-bugs")]
        self.hangs.1.wait_while(&mut self.hangs.0.lock(), |hangs| *hangs);
        let dead = self.write(first, last, changes, sync)?;
        if sync == Sync::Disk {
            self.mark.set(last)?;
        }
        Ok(dead)
    }

    fn sync(&self, last: u64) -> Result<(), Cause> {
        self.db.persist(PersistMode::SyncData)?;
        self.mark.set(last)?;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod tests;
