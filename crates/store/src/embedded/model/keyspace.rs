//! Where the keys are: slots that never move, a table from name to slot, and buckets of what expires when.
//!
//! A slot keeps its number for as long as its key lives, so a scan is a walk over numbers and a key that
//! stays is never missed. The table is cut into shards: one grows at a time, and a million keys never
//! wait for one another's rehash.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::value::{Str, Value};

/// The number of a slot.
pub(crate) type SlotId = u32;

/// `expires_at` of a key that never does. A real expiry this far in the past is never stored.
pub(crate) const NEVER: i64 = i64::MIN;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;
const SHARD_BITS: u32 = 8;
/// Keys are gathered in expiry buckets of 2^10 ms.
const BUCKET_BITS: u32 = 10;

/// One key and what it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub(super) key: Str,
    pub(super) value: Value,
    pub(super) expires_at: i64,
    hash: u32,
    /// The earliest expiry bucket that names this slot, 0 for none. It outlives the key: what reuses the
    /// slot with the same or a later expiry is already registered.
    registered: u32,
}

impl Slot {
    pub(super) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_at != NEVER && now_ms > self.expires_at
    }

    /// As the journal spells it.
    pub(super) fn expiry(&self) -> Option<i64> {
        (self.expires_at != NEVER).then_some(self.expires_at)
    }

    /// Estimated bytes of key and value.
    pub(super) fn weight(&self) -> usize {
        const OVERHEAD: usize = size_of::<Slot>() + 16 + 16;
        self.key.len() + self.value.weight() + OVERHEAD
    }
}

#[derive(Debug, Clone, Copy)]
struct Named {
    hash: u32,
    slot: SlotId,
}

/// All keys.
#[derive(Debug, Clone)]
pub(crate) struct Keyspace {
    hasher: DefaultHashBuilder,
    shards: Box<[HashTable<Named>]>,
    chunks: Vec<Box<[Slot]>>,
    /// Slots handed out so far, vacant ones included.
    end: SlotId,
    /// Vacant slots, last freed first: undo relies on getting the very slot back.
    vacant: Vec<SlotId>,
    due: BTreeMap<u32, Vec<SlotId>>,
    len: usize,
}

fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Keyspace {
    pub(super) fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            shards: (0..1 << SHARD_BITS).map(|_| HashTable::new()).collect(),
            chunks: Vec::new(),
            end: 0,
            vacant: Vec::new(),
            due: BTreeMap::new(),
            len: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn end(&self) -> SlotId {
        self.end
    }

    pub(super) fn slot(&self, id: SlotId) -> &Slot {
        &self.chunks[(id >> CHUNK_BITS) as usize][id as usize & (CHUNK - 1)]
    }

    pub(super) fn slot_mut(&mut self, id: SlotId) -> &mut Slot {
        &mut self.chunks[(id >> CHUNK_BITS) as usize][id as usize & (CHUNK - 1)]
    }

    fn hash(&self, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }

    fn shard(hash: u32) -> usize {
        (hash >> (32 - SHARD_BITS)) as usize
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<SlotId> {
        let hash = self.hash(key);
        let named = self.shards[Self::shard(hash)]
            .find(spread(hash), |named| named.hash == hash && *self.slot(named.slot).key == *key)?;
        Some(named.slot)
    }

    /// Gives `key`, which must not be there, a slot.
    pub(super) fn insert(&mut self, key: Str, value: Value, expires_at: i64) -> SlotId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            let id = self.end;
            if id as usize == self.chunks.len() * CHUNK {
                self.chunks.push((0..CHUNK).map(|_| Slot::default()).collect());
            }
            self.end += 1;
            id
        });
        let hash = self.hash(&key);
        let slot = self.slot_mut(id);
        let registered = slot.registered;
        *slot = Slot { key, value, expires_at, hash, registered };
        self.name(id, hash);
        self.len += 1;
        self.register(id);
        id
    }

    /// Empties a slot.
    pub(super) fn remove(&mut self, id: SlotId) -> (Str, Value, i64) {
        let hash = self.slot(id).hash;
        self.unname(id, hash);
        let slot = self.slot_mut(id);
        let taken = (std::mem::take(&mut slot.key), std::mem::take(&mut slot.value), slot.expires_at);
        slot.expires_at = NEVER;
        self.vacant.push(id);
        self.len -= 1;
        taken
    }

    /// Gives the key in a slot another name, which must be free.
    pub(super) fn rename(&mut self, id: SlotId, key: Str) -> Str {
        let (old, new) = (self.slot(id).hash, self.hash(&key));
        self.unname(id, old);
        self.name(id, new);
        let slot = self.slot_mut(id);
        slot.hash = new;
        std::mem::replace(&mut slot.key, key)
    }

    fn name(&mut self, slot: SlotId, hash: u32) {
        self.shards[Self::shard(hash)]
            .insert_unique(spread(hash), Named { hash, slot }, |named| spread(named.hash));
    }

    fn unname(&mut self, slot: SlotId, hash: u32) {
        if let Ok(named) = self.shards[Self::shard(hash)].find_entry(spread(hash), |named| named.slot == slot)
        {
            named.remove();
        }
    }

    pub(super) fn set_expiry(&mut self, id: SlotId, expires_at: i64) -> i64 {
        let old = std::mem::replace(&mut self.slot_mut(id).expires_at, expires_at);
        self.register(id);
        old
    }

    /// Sees to it that a bucket not later than the slot's expiry names it. A key whose expiry keeps moving
    /// away is named once, and moved when that bucket comes due: no tree is touched on the hot path.
    fn register(&mut self, id: SlotId) {
        let slot = self.slot_mut(id);
        if slot.expires_at == NEVER {
            return;
        }
        let bucket = bucket(slot.expires_at);
        if slot.registered == 0 || slot.registered > bucket {
            slot.registered = bucket;
            self.due.entry(bucket).or_default().push(id);
        }
    }

    /// A slot whose key has expired, looking at no more than `budget` slots; expired means as in
    /// [`Slot::is_expired`], up to one bucket late.
    pub(super) fn next_expired(&mut self, now_ms: i64, budget: &mut usize) -> Option<SlotId> {
        let current = bucket(now_ms);
        while *budget > 0 {
            let mut first = self.due.first_entry()?;
            let due = *first.key();
            if due >= current {
                return None;
            }
            let Some(id) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            *budget -= 1;
            let slot = self.slot_mut(id);
            if slot.registered != due {
                continue;
            }
            slot.registered = 0;
            if slot.value.kind().is_none() {
                continue;
            }
            if slot.is_expired(now_ms) {
                return Some(id);
            }
            self.register(id);
        }
        None
    }
}

fn bucket(at_ms: i64) -> u32 {
    (at_ms >> BUCKET_BITS).clamp(1, i64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_counters_stay_small() {
        assert_eq!(size_of::<Value>(), 24);
        assert_eq!(size_of::<Slot>(), 56);
        assert_eq!(size_of::<Named>(), 8);
    }

    #[test]
    fn a_key_that_keeps_moving_its_expiry_is_registered_once() {
        let mut keys = Keyspace::new();
        let id = keys.insert(b"k".as_slice().into(), Value::int(1), 10_000);
        for later in 0..1000 {
            keys.set_expiry(id, 10_000 + later * 5000);
        }
        assert_eq!(keys.due.values().map(Vec::len).sum::<usize>(), 1);
        let mut budget = 100;
        assert_eq!(keys.next_expired(20_000, &mut budget), None, "it was moved, not expired");
        assert_eq!(keys.next_expired(6_000_000, &mut budget), Some(id));
    }

    #[test]
    fn churn_on_one_name_does_not_grow_the_buckets() {
        let mut keys = Keyspace::new();
        for round in 0..10_000 {
            let id = keys.insert(b"lock".as_slice().into(), Value::int(1), 30_000 + round);
            keys.remove(id);
        }
        assert_eq!(keys.due.values().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(keys.end(), 1);
    }

    #[test]
    fn a_shortened_expiry_comes_due_at_its_new_time() {
        let mut keys = Keyspace::new();
        let id = keys.insert(b"k".as_slice().into(), Value::int(1), 1_000_000);
        keys.set_expiry(id, 5000);
        let mut budget = 10;
        assert_eq!(keys.next_expired(8000, &mut budget), Some(id));
    }
}
