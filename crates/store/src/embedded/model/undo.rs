//! Every way to mutate the model, and its inverse. Rolling back runs the inverses, last first.

use bytes::{Bytes, BytesMut};

use super::keyspace::SlotId;
use super::value::{End, Item, Str, Value};
use super::{Hash, List, Model, Set, Zset};

/// How to take one mutation back.
#[derive(Debug)]
pub(super) enum Undo {
    /// The key was made.
    Created(SlotId),
    /// The key was removed.
    Removed(SlotId, Box<(Str, Value, i64)>),
    /// The key got another name.
    Renamed(SlotId, Str),
    /// The whole value and the expiry were replaced.
    Replaced(SlotId, Value, i64),
    /// Bytes were appended to a string of this length.
    Appended(SlotId, usize),
    /// A string of this length was written over from a place on, where these bytes were.
    Overwritten(SlotId, usize, usize, Str),
    /// The expiry was replaced.
    Expiry(SlotId, i64),
    /// A hash field was written or removed.
    Field(SlotId, Str, Option<Str>),
    /// A set member was added (true) or removed (false).
    Member(SlotId, Str, bool),
    /// A zset member was written or removed.
    Score(SlotId, Str, Option<f64>),
    /// An item was pushed.
    Pushed(SlotId, End),
    /// An item was popped.
    Popped(SlotId, End, Item),
    /// An item's data was replaced.
    Swapped(SlotId, usize, Str),
    /// Items were taken out of the middle.
    Cut(SlotId, Vec<Item>),
}

impl Model {
    pub(super) fn unwind(&mut self, step: Undo) {
        match step {
            Undo::Created(id) => {
                self.used_bytes -= self.keys.slot(id).weight();
                self.keys.remove(id);
            }
            Undo::Removed(id, key) => {
                let (key, value, expires_at) = *key;
                let back = self.keys.insert(key, value, expires_at);
                debug_assert_eq!(back, id, "vacant slots come back in reverse order");
                self.used_bytes += self.keys.slot(back).weight();
            }
            Undo::Renamed(id, key) => {
                self.used_bytes += key.len();
                self.used_bytes -= self.keys.rename(id, key).len();
            }
            Undo::Replaced(id, value, expires_at) => {
                self.weighed(id, |value_now| *value_now = value);
                self.keys.set_expiry(id, expires_at);
            }
            Undo::Appended(id, len) => self.weighed(id, |value| {
                let Value::Long(long) = value else { return };
                long.truncate(len);
            }),
            Undo::Overwritten(id, len, at, old) => self.weighed(id, |value| {
                let Value::Long(long) = value else { return };
                let mut bytes = into_mut(long);
                bytes.truncate(len);
                bytes[at..at + old.len()].copy_from_slice(&old);
                **long = bytes.freeze();
            }),
            Undo::Expiry(id, expires_at) => drop(self.keys.set_expiry(id, expires_at)),
            Undo::Field(id, field, old) => {
                self.on_hash(id, |hash| hash.put(&field, old));
            }
            Undo::Member(id, member, added) => {
                self.on_set(id, |set| if added { set.remove(&member) } else { set.insert(&member) });
            }
            Undo::Score(id, member, old) => {
                self.on_zset(id, |zset| zset.put(&member, old));
            }
            Undo::Pushed(id, end) => {
                self.on_list(id, |list| list.pop(end));
            }
            Undo::Popped(id, end, item) => {
                self.on_list(id, |list| list.push(end, item));
            }
            Undo::Swapped(id, index, data) => {
                self.on_list(id, |list| list.swap(index, data));
            }
            Undo::Cut(id, items) => {
                self.on_list(id, |list| list.merge(items));
            }
        }
    }

    pub(super) fn create(&mut self, key: &[u8], value: Value, expires_at: i64) -> SlotId {
        let id = self.keys.insert(key.into(), value, expires_at);
        self.used_bytes += self.keys.slot(id).weight();
        self.undo.push(Undo::Created(id));
        id
    }

    pub(super) fn remove(&mut self, id: SlotId) {
        self.used_bytes -= self.keys.slot(id).weight();
        let taken = self.keys.remove(id);
        self.undo.push(Undo::Removed(id, Box::new(taken)));
    }

    pub(super) fn rename(&mut self, id: SlotId, key: &[u8]) {
        let old = self.keys.rename(id, key.into());
        self.used_bytes += key.len();
        self.used_bytes -= old.len();
        self.undo.push(Undo::Renamed(id, old));
    }

    pub(super) fn replace(&mut self, id: SlotId, value: Value, expires_at: i64) {
        let old = self.weighed(id, |place| std::mem::replace(place, value));
        let old_expiry = self.keys.set_expiry(id, expires_at);
        self.undo.push(Undo::Replaced(id, old, old_expiry));
    }

    /// Appends to the string in a slot, in place when nobody else holds its bytes; its new length.
    pub(super) fn append(&mut self, id: SlotId, tail: &[u8]) -> usize {
        let (len, undo) = self.weighed(id, |place| {
            if let Value::Long(long) = place {
                let before = long.len();
                let mut bytes = into_mut(long);
                bytes.extend_from_slice(tail);
                **long = bytes.freeze();
                return (long.len(), Err(before));
            }
            let mut whole = place.text().unwrap_or_default().to_vec();
            whole.extend_from_slice(tail);
            (whole.len(), Ok(std::mem::replace(place, Value::string(&whole))))
        });
        let expires_at = self.keys.slot(id).expires_at;
        self.undo.push(match undo {
            Ok(old) => Undo::Replaced(id, old, expires_at),
            Err(before) => Undo::Appended(id, before),
        });
        len
    }

    /// Writes over the string in a slot from `at` on, in place when nobody else holds its bytes; zeros fill what was
    /// not there. Its new length.
    pub(super) fn overwrite(&mut self, id: SlotId, at: usize, piece: &[u8]) -> usize {
        let end = at + piece.len();
        let (len, undo) = self.weighed(id, |place| {
            if let Value::Long(long) = place {
                let before = long.len();
                let old = long.get(at..end.min(before)).unwrap_or_default().into();
                let mut bytes = into_mut(long);
                if end > before {
                    bytes.resize(end, 0);
                }
                bytes[at..end].copy_from_slice(piece);
                **long = bytes.freeze();
                return (long.len(), Err((before, old)));
            }
            let mut whole = place.text().unwrap_or_default().to_vec();
            if end > whole.len() {
                whole.resize(end, 0);
            }
            whole[at..end].copy_from_slice(piece);
            (whole.len(), Ok(std::mem::replace(place, Value::string(&whole))))
        });
        let expires_at = self.keys.slot(id).expires_at;
        self.undo.push(match undo {
            Ok(old) => Undo::Replaced(id, old, expires_at),
            // What was written past the end covered nothing.
            Err((before, old)) => Undo::Overwritten(id, before, at.min(before), old),
        });
        len
    }

    pub(super) fn set_expiry(&mut self, id: SlotId, expires_at: i64) {
        let old = self.keys.set_expiry(id, expires_at);
        self.undo.push(Undo::Expiry(id, old));
    }

    /// Writes or removes a field; whether it was there before.
    pub(super) fn put_field(&mut self, id: SlotId, field: &[u8], value: Option<&[u8]>) -> bool {
        let old = self.on_hash(id, |hash| hash.put(field, value.map(Into::into))).flatten();
        let existed = old.is_some();
        if existed || value.is_some() {
            self.undo.push(Undo::Field(id, field.into(), old));
        }
        existed
    }

    /// Whether the member was new.
    pub(super) fn add_member(&mut self, id: SlotId, member: &[u8]) -> bool {
        let added = self.on_set(id, |set| set.insert(member)).unwrap_or(false);
        if added {
            self.undo.push(Undo::Member(id, member.into(), true));
        }
        added
    }

    /// Whether the member was there.
    pub(super) fn remove_member(&mut self, id: SlotId, member: &[u8]) -> bool {
        let removed = self.on_set(id, |set| set.remove(member)).unwrap_or(false);
        if removed {
            self.undo.push(Undo::Member(id, member.into(), false));
        }
        removed
    }

    /// Writes or removes a member's score; the one it had before.
    pub(super) fn put_score(&mut self, id: SlotId, member: &[u8], score: Option<f64>) -> Option<f64> {
        let old = self.on_zset(id, |zset| zset.put(member, score)).flatten();
        if old.is_some() || score.is_some() {
            self.undo.push(Undo::Score(id, member.into(), old));
        }
        old
    }

    /// Pushes one item; its seat.
    pub(super) fn push_item(&mut self, id: SlotId, end: End, data: Str) -> i64 {
        self.undo.push(Undo::Pushed(id, end));
        self.on_list(id, |list| {
            let seat = list.next_seat(end);
            list.push(end, Item { seat, data });
            seat
        })
        .unwrap_or(0)
    }

    /// Pops one item, which lies in the undo log until the script ends.
    pub(super) fn pop_item(&mut self, id: SlotId, end: End) -> Option<&Item> {
        let item = self.on_list(id, |list| list.pop(end)).flatten()?;
        self.undo.push(Undo::Popped(id, end, item));
        match self.undo.last() {
            Some(Undo::Popped(_, _, item)) => Some(item),
            _ => None,
        }
    }

    pub(super) fn swap_item(&mut self, id: SlotId, index: usize, data: &[u8]) {
        if let Some(Some(old)) = self.on_list(id, |list| list.swap(index, data.into())) {
            self.undo.push(Undo::Swapped(id, index, old));
        }
    }

    /// Takes out the items at these indexes (ascending); their seats.
    pub(super) fn cut_items(&mut self, id: SlotId, doomed: &[usize]) -> Vec<i64> {
        let cut = self.on_list(id, |list| list.cut(doomed)).unwrap_or_default();
        let seats = cut.iter().map(|item| item.seat).collect();
        self.undo.push(Undo::Cut(id, cut));
        seats
    }

    /// Runs `mutate` on a value and keeps the estimate of used memory right.
    fn weighed<T>(&mut self, id: SlotId, mutate: impl FnOnce(&mut Value) -> T) -> T {
        let value = &mut self.keys.slot_mut(id).value;
        let before = value.weight();
        let result = mutate(value);
        self.used_bytes = self.used_bytes + value.weight() - before;
        result
    }

    pub(super) fn on_hash<T>(&mut self, id: SlotId, mutate: impl FnOnce(&mut Hash) -> T) -> Option<T> {
        self.weighed(id, |value| if let Value::Hash(hash) = value { Some(mutate(hash)) } else { None })
    }

    pub(super) fn on_set<T>(&mut self, id: SlotId, mutate: impl FnOnce(&mut Set) -> T) -> Option<T> {
        self.weighed(id, |value| if let Value::Set(set) = value { Some(mutate(set)) } else { None })
    }

    pub(super) fn on_list<T>(&mut self, id: SlotId, mutate: impl FnOnce(&mut List) -> T) -> Option<T> {
        self.weighed(id, |value| if let Value::List(list) = value { Some(mutate(list)) } else { None })
    }

    pub(super) fn on_zset<T>(&mut self, id: SlotId, mutate: impl FnOnce(&mut Zset) -> T) -> Option<T> {
        self.weighed(id, |value| if let Value::Zset(zset) = value { Some(mutate(zset)) } else { None })
    }
}

/// Takes a string's bytes to be changed, copied when somebody else holds them.
fn into_mut(long: &mut Bytes) -> BytesMut {
    std::mem::take(long).try_into_mut().unwrap_or_else(|shared| BytesMut::from(shared.as_ref()))
}
