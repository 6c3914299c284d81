//! Loading: changes from the journal become the model again. Nothing is recorded and nothing undone.
//!
//! Changes may come in the order they were made, or as the journal holds them now: keys first, then
//! elements. An element of a generation that no key has is garbage of a removed collection and is dropped;
//! its generation is still never handed out again.

use hashbrown::HashMap;

use super::keyspace::{NEVER, SlotId};
use super::{Model, Value};
use crate::embedded::change::{Change, Element, Generation};

/// Which slot holds which incarnation, and collections between a `Remove` and the `PutCollection` that
/// takes them over under another key.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    slots: HashMap<Generation, SlotId>,
    adrift: HashMap<Generation, Value>,
}

impl Model {
    /// Applies one change. Ends with the next [`Model::begin`].
    pub(crate) fn restore(&mut self, change: Change) {
        let mut state = self.restoring.take().unwrap_or_else(|| self.incarnations());
        self.apply(&mut state, change);
        self.undo.clear();
        self.restoring = Some(state);
    }

    fn incarnations(&self) -> Restoring {
        let slots = (0..self.keys.end())
            .filter_map(|id| self.keys.slot(id).value.generation().map(|generation| (generation, id)))
            .collect();
        Restoring { slots, adrift: HashMap::new() }
    }

    fn apply(&mut self, state: &mut Restoring, change: Change) {
        match change {
            Change::PutString { key, value, expires_at_ms } => {
                let (value, expires_at) = (Value::shared(value), expires_at_ms.unwrap_or(NEVER));
                match self.keys.find(&key) {
                    Some(id) => {
                        self.forget(state, id);
                        self.replace(id, value, expires_at);
                    }
                    None => drop(self.create(&key, value, expires_at)),
                }
            }
            Change::PutCollection { key, kind, generation, expires_at_ms } => {
                self.next_generation = self.next_generation.max(generation + 1);
                let expires_at = expires_at_ms.unwrap_or(NEVER);
                let found = self.keys.find(&key);
                let holder = state.slots.get(&generation).copied();
                if let (Some(found), true) = (found, found == holder) {
                    self.set_expiry(found, expires_at);
                    return;
                }
                if let Some(found) = found {
                    self.forget(state, found);
                    self.remove(found);
                }
                let id = match holder {
                    Some(holder) => {
                        self.rename(holder, &key);
                        self.set_expiry(holder, expires_at);
                        holder
                    }
                    None => {
                        let value = state.adrift.remove(&generation);
                        self.create(&key, value.unwrap_or_else(|| Value::empty(kind, generation)), expires_at)
                    }
                };
                state.slots.insert(generation, id);
            }
            Change::Remove { key, generation } => {
                let Some(id) = self.keys.find(&key) else { return };
                let held = self.keys.slot(id).value.generation();
                self.forget(state, id);
                if let (Some(held), None) = (held, generation) {
                    let value = std::mem::take(&mut self.keys.slot_mut(id).value);
                    self.used_bytes -= value.weight();
                    state.adrift.insert(held, value);
                }
                self.remove(id);
            }
            Change::PutElement { generation, element, value } => {
                self.next_generation = self.next_generation.max(generation + 1);
                let Some(id) = state.slots.get(&generation).copied() else { return };
                match element {
                    Element::Field(field) => {
                        drop(self.on_hash(id, |hash| hash.put(&field, Some((*value).into()))));
                    }
                    Element::Seat(seat) => drop(self.on_list(id, |list| list.put(seat, (*value).into()))),
                    Element::Member(member) => {
                        self.on_set(id, |set| set.insert(&member));
                        if let Ok(bits) = <[u8; 8]>::try_from(&*value) {
                            let score = f64::from_bits(u64::from_be_bytes(bits));
                            self.on_zset(id, |zset| zset.put(&member, Some(score)));
                        }
                    }
                }
            }
            Change::RemoveElement { generation, element } => {
                let Some(id) = state.slots.get(&generation).copied() else { return };
                match element {
                    Element::Field(field) => drop(self.on_hash(id, |hash| hash.put(&field, None))),
                    Element::Seat(seat) => drop(self.on_list(id, |list| list.remove(seat))),
                    Element::Member(member) => {
                        self.on_set(id, |set| set.remove(&member));
                        self.on_zset(id, |zset| zset.put(&member, None));
                    }
                }
            }
        }
    }

    fn forget(&self, state: &mut Restoring, id: SlotId) {
        if let Some(generation) = self.keys.slot(id).value.generation() {
            state.slots.remove(&generation);
        }
    }
}
