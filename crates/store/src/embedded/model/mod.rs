//! The data model: keys, values and expiry in memory, and what a script did to them. No Lua, no I/O.
//!
//! A script runs between [`Model::begin`] and [`Model::commit`] or [`Model::rollback`]. Every mutation goes
//! through the few functions of `undo`, which note its inverse; the commands note the [`Change`]s that
//! make it durable. Time stands still while a script runs.
//!
//! A key whose time has passed is absent for every command, but only a write or [`Model::expire_some`]
//! removes it: a script that only reads changes nothing and has nothing to make durable.

pub(crate) mod commands;
mod fault;
mod glob;
mod keyspace;
mod number;
mod out;
mod restore;
mod undo;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use self::keyspace::{Keyspace, NEVER, SlotId};
use self::restore::Restoring;
use self::undo::Undo;
use self::value::{Hash, List, Set, Value, Zset};
use super::change::{Change, Element, Generation, Kind};
use super::pubsub::Hub;
use crate::{KeyFacts, ScanCursor, ScanPage};

pub(crate) use fault::{Fault, FaultClass, Outcome};
pub(crate) use number::write_float;
pub(crate) use out::{Out, Part};

/// A defect put into the store on purpose, to prove that a test sees one.
#[cfg(any(test, feature = "seeded-bugs"))]
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// LREM with a negative count removes from the head.
    LremFromHead,
    /// PEXPIRE on a key that has an expiry leaves it as it was.
    PexpireKeepsOldTtl,
    /// ZRANGE BYSCORE treats an exclusive lower bound as inclusive.
    ExclusiveBoundIncluded,
    /// PERSIST panics.
    PersistPanics,
    /// The disk takes no commit until the defect is taken out.
    CommitsHang,
}

/// What a script did, handed out when it has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// What must be durable, in order.
    pub(crate) changes: Vec<Change>,
    /// Channel and message.
    pub(crate) published: Vec<(Bytes, Bytes)>,
    /// List keys that got an item.
    pub(crate) pushed: Vec<Bytes>,
}

/// Whether a script may use commands that can grow the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The data was within its bound when the script began.
    Free,
    /// It was not. A first write that can grow the data is refused; after one that cannot, all are accepted, as on
    /// Redis: what frees memory may note where it put things.
    Full,
}

/// The keyspace and the script that is running on it.
#[derive(Debug)]
pub(crate) struct Model {
    keys: Keyspace,
    hub: Arc<Hub>,
    now_us: i64,
    now_ms: i64,
    undo: Vec<Undo>,
    effects: Effects,
    next_generation: Generation,
    generation_at_begin: Generation,
    used_bytes: usize,
    max_bytes: usize,
    room: Room,
    restoring: Option<Restoring>,
    #[cfg(any(test, feature = "seeded-bugs"))]
    bug: Option<Bug>,
}

impl Model {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with_hub(Arc::default())
    }

    /// A model whose PUBLISH counts the subscribers of `hub`.
    pub(crate) fn with_hub(hub: Arc<Hub>) -> Self {
        Self {
            keys: Keyspace::new(),
            hub,
            now_us: 0,
            now_ms: 0,
            undo: Vec::new(),
            effects: Effects::default(),
            next_generation: 1,
            generation_at_begin: 1,
            used_bytes: 0,
            max_bytes: usize::MAX,
            room: Room::Free,
            restoring: None,
            #[cfg(any(test, feature = "seeded-bugs"))]
            bug: None,
        }
    }

    #[cfg(any(test, feature = "seeded-bugs"))]
    pub(crate) fn seed_bug(&mut self, bug: Option<Bug>) {
        self.bug = bug;
    }

    /// Starts a script: time stands still at `now_us` until it ends.
    pub(crate) fn begin(&mut self, now_us: i64) {
        self.restoring = None;
        self.now_us = now_us;
        self.now_ms = now_us.div_euclid(1000);
        self.generation_at_begin = self.next_generation;
        self.room = if self.is_full() { Room::Full } else { Room::Free };
    }

    /// From the next script on, nothing grows while there are more bytes.
    pub(crate) fn bound(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Whether there are more bytes than that now.
    pub(crate) fn is_full(&self) -> bool {
        self.used_bytes > self.max_bytes
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Ends the script and hands out what it did.
    pub(crate) fn commit(&mut self) -> Effects {
        self.undo.clear();
        std::mem::take(&mut self.effects)
    }

    /// Ends the script as if it had never begun.
    pub(crate) fn rollback(&mut self) {
        while let Some(step) = self.undo.pop() {
            self.unwind(step);
        }
        self.next_generation = self.generation_at_begin;
        self.effects = Effects::default();
    }

    /// Removes keys whose time has passed, looking at no more than `max` of them; up to a second late.
    pub(crate) fn expire_some(&mut self, now_ms: i64, max: usize) -> Effects {
        self.now_ms = now_ms;
        let mut budget = max;
        while let Some(slot) = self.keys.next_expired(now_ms, &mut budget) {
            self.drop_key(slot);
        }
        self.commit()
    }

    /// Keys, those included whose time has passed but which nobody has removed yet.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Estimated bytes of all keys and values.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The generation the next new collection gets.
    #[cfg(test)]
    pub(crate) fn next_generation(&self) -> Generation {
        self.next_generation
    }

    /// What is at `key` at `now_ms`.
    pub(crate) fn facts(&self, key: &[u8], now_ms: i64) -> Option<KeyFacts> {
        let slot = self.keys.slot(self.keys.find(key)?);
        if slot.is_expired(now_ms) {
            return None;
        }
        Some(KeyFacts {
            kind: kind_name(slot.value.kind()?).to_owned(),
            ttl_ms: slot.expiry().map(|at| at.saturating_sub(now_ms).max(0) as u64),
            bytes: Some(slot.weight() as u64),
        })
    }

    /// Whether a list with an item is at `key` at `now_ms`.
    pub(crate) fn has_item(&self, key: &[u8], now_ms: i64) -> bool {
        self.keys.find(key).is_some_and(|id| {
            let slot = self.keys.slot(id);
            matches!(slot.value, Value::List(_)) && !slot.is_expired(now_ms)
        })
    }

    /// A page of keys that match `pattern`. Looks at `count` slots (at least one), so a page may be empty
    /// before the end. A cursor that is not ours starts from the beginning.
    pub(crate) fn scan(
        &self,
        pattern: &[u8],
        count: usize,
        cursor: Option<&ScanCursor>,
        now_ms: i64,
    ) -> ScanPage {
        let start = cursor
            .and_then(|cursor| <[u8; 4]>::try_from(cursor.0.as_slice()).ok())
            .map_or(0, SlotId::from_be_bytes);
        let end = self.keys.end();
        let stop = start.saturating_add(SlotId::try_from(count.max(1)).unwrap_or(SlotId::MAX)).min(end);
        let keys = (start..stop)
            .map(|id| self.keys.slot(id))
            .filter(|slot| slot.value.kind().is_some() && !slot.is_expired(now_ms))
            .filter(|slot| glob::matches(pattern, &slot.key))
            .map(|slot| Bytes::copy_from_slice(&slot.key))
            .collect();
        ScanPage { keys, next: (stop < end).then(|| ScanCursor(stop.to_be_bytes().to_vec())) }
    }

    // What commands look up.

    /// The live key's slot, to be read.
    fn find(&self, key: &[u8]) -> Option<SlotId> {
        self.keys.find(key).filter(|id| !self.keys.slot(*id).is_expired(self.now_ms))
    }

    /// The live key's slot, to be written: a key whose time has passed is removed on the way.
    fn find_for_write(&mut self, key: &[u8]) -> Option<SlotId> {
        let id = self.keys.find(key)?;
        if self.keys.slot(id).is_expired(self.now_ms) {
            self.drop_key(id);
            return None;
        }
        Some(id)
    }

    fn value(&self, key: &[u8]) -> Option<&Value> {
        self.find(key).map(|id| &self.keys.slot(id).value)
    }

    fn text(&self, key: &[u8]) -> Outcome<Option<&[u8]>> {
        self.value(key).map(|value| value.text().ok_or(Fault::WRONG_TYPE)).transpose()
    }

    fn hash(&self, key: &[u8]) -> Outcome<Option<&Hash>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    fn list(&self, key: &[u8]) -> Outcome<Option<&List>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::List(list)) => Ok(Some(list)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    fn set(&self, key: &[u8]) -> Outcome<Option<&Set>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Set(set)) => Ok(Some(set)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    fn zset(&self, key: &[u8]) -> Outcome<Option<&Zset>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Zset(zset)) => Ok(Some(zset)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    /// The slot of the live collection at `key` to be written, or `None`; refuses another type.
    fn collection(&mut self, key: &[u8], kind: Kind) -> Outcome<Option<SlotId>> {
        let Some(id) = self.find_for_write(key) else { return Ok(None) };
        if self.keys.slot(id).value.kind() == Some(kind) { Ok(Some(id)) } else { Err(Fault::WRONG_TYPE) }
    }

    // What commands change, with the changes that make it durable.

    /// The collection at `key`, made when `found` is none. The caller adds an element at once.
    fn collection_or_new(&mut self, key: &[u8], kind: Kind, found: Option<SlotId>) -> SlotId {
        found.unwrap_or_else(|| {
            let generation = self.next_generation;
            self.next_generation += 1;
            let id = self.create(key, Value::empty(kind, generation), NEVER);
            self.note_collection(id);
            id
        })
    }

    fn generation(&self, id: SlotId) -> Generation {
        self.keys.slot(id).value.generation().unwrap_or(0)
    }

    /// Writes the string at `key`; `found` is its slot when it is there.
    fn put_string(&mut self, key: &[u8], found: Option<SlotId>, value: Value, expires_at: i64) {
        match found {
            Some(id) => {
                if let Some(generation) = self.keys.slot(id).value.generation() {
                    let key = Bytes::copy_from_slice(key);
                    self.effects.changes.push(Change::Remove { key, generation: Some(generation) });
                }
                self.replace(id, value, expires_at);
                self.note_string(id);
            }
            None => {
                let id = self.create(key, value, expires_at);
                self.note_string(id);
            }
        }
    }

    fn change_expiry(&mut self, id: SlotId, expires_at: i64) {
        self.set_expiry(id, expires_at);
        if self.keys.slot(id).value.text().is_some() {
            self.note_string(id);
        } else {
            self.note_collection(id);
        }
    }

    fn drop_key(&mut self, id: SlotId) {
        let slot = self.keys.slot(id);
        let (key, generation) = (Bytes::copy_from_slice(&slot.key), slot.value.generation());
        self.effects.changes.push(Change::Remove { key, generation });
        self.remove(id);
    }

    /// Drops a collection that has lost its last element. The removals of single elements noted since
    /// `mark` say nothing more then, and are forgotten.
    fn drop_if_empty(&mut self, id: SlotId, mark: usize) {
        if self.keys.slot(id).value.is_empty_collection() {
            self.effects.changes.truncate(mark);
            self.drop_key(id);
        }
    }

    /// A place in the changes to come back to, see [`Model::drop_if_empty`].
    fn mark(&self) -> usize {
        self.effects.changes.len()
    }

    fn note_string(&mut self, id: SlotId) {
        let slot = self.keys.slot(id);
        self.effects.changes.push(Change::PutString {
            key: Bytes::copy_from_slice(&slot.key),
            value: slot.value.to_bytes(),
            expires_at_ms: slot.expiry(),
        });
    }

    fn note_collection(&mut self, id: SlotId) {
        let slot = self.keys.slot(id);
        if let (Some(kind), Some(generation)) = (slot.value.kind(), slot.value.generation()) {
            self.effects.changes.push(Change::PutCollection {
                key: Bytes::copy_from_slice(&slot.key),
                kind,
                generation,
                expires_at_ms: slot.expiry(),
            });
        }
    }

    fn note_element(&mut self, generation: Generation, element: Element, value: Option<Bytes>) {
        self.effects.changes.push(match value {
            Some(value) => Change::PutElement { generation, element, value },
            None => Change::RemoveElement { generation, element },
        });
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::Zset => "zset",
    }
}
