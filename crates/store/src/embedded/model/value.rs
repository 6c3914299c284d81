//! What a key can hold. Short strings lie in the slot itself; everything else is one pointer away, so that
//! a million counters cost little more than their names.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use crate::embedded::change::{Generation, Kind};

/// Bytes that belong to one element.
pub(crate) type Str = Box<[u8]>;

// Rough costs of an element beside its bytes: table or tree share, allocator overhead.
const HASH_ELEMENT: usize = 64;
const SET_ELEMENT: usize = 40;
const LIST_ELEMENT: usize = 40;
const ZSET_ELEMENT: usize = 96;

/// The value of one key.
#[derive(Debug, Clone, Default)]
pub(crate) enum Value {
    /// No key lives in this slot.
    #[default]
    Vacant,
    Short(Short),
    Long(Box<Bytes>),
    Hash(Box<Hash>),
    List(Box<List>),
    Set(Box<Set>),
    Zset(Box<Zset>),
}

/// A string of at most [`Short::MAX`] bytes, without a heap allocation. Holds every 64-bit decimal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short {
    len: u8,
    bytes: [u8; Short::MAX],
}

impl Short {
    pub(crate) const MAX: usize = 22;

    fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { len: text.len() as u8, bytes })
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Value {
    pub(crate) fn string(text: &[u8]) -> Self {
        Short::new(text).map_or_else(|| Value::Long(Box::new(Bytes::copy_from_slice(text))), Value::Short)
    }

    pub(crate) fn shared(text: Bytes) -> Self {
        Short::new(&text).map_or_else(|| Value::Long(Box::new(text)), Value::Short)
    }

    pub(crate) fn int(number: i64) -> Self {
        Self::string(itoa::Buffer::new().format(number).as_bytes())
    }

    pub(crate) fn empty(kind: Kind, generation: Generation) -> Self {
        match kind {
            Kind::String => Self::string(b""),
            Kind::Hash => Value::Hash(Box::new(Hash { generation, weight: 0, fields: HashMap::new() })),
            Kind::List => Value::List(Box::new(List { generation, weight: 0, items: VecDeque::new() })),
            Kind::Set => Value::Set(Box::new(Set { generation, weight: 0, members: HashSet::new() })),
            Kind::Zset => Value::Zset(Box::new(Zset {
                generation,
                weight: 0,
                scores: HashMap::new(),
                order: BTreeSet::new(),
            })),
        }
    }

    /// `None` for a vacant slot.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Some(match self {
            Value::Vacant => return None,
            Value::Short(_) | Value::Long(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
            Value::List(_) => Kind::List,
            Value::Set(_) => Kind::Set,
            Value::Zset(_) => Kind::Zset,
        })
    }

    /// The collection's incarnation; strings have none.
    pub(crate) fn generation(&self) -> Option<Generation> {
        match self {
            Value::Vacant | Value::Short(_) | Value::Long(_) => None,
            Value::Hash(hash) => Some(hash.generation),
            Value::List(list) => Some(list.generation),
            Value::Set(set) => Some(set.generation),
            Value::Zset(zset) => Some(zset.generation),
        }
    }

    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Short(short) => Some(short.as_slice()),
            Value::Long(long) => Some(long),
            _ => None,
        }
    }

    /// The string as shared bytes; long ones are not copied.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Value::Long(long) => Bytes::clone(long),
            other => Bytes::copy_from_slice(other.text().unwrap_or_default()),
        }
    }

    /// Estimated heap bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Value::Vacant | Value::Short(_) => 0,
            Value::Long(long) => long.len() + 64,
            Value::Hash(hash) => hash.weight + 96,
            Value::List(list) => list.weight + 80,
            Value::Set(set) => set.weight + 96,
            Value::Zset(zset) => zset.weight + 120,
        }
    }

    /// Whether this is a collection without elements, which Redis never keeps.
    pub(crate) fn is_empty_collection(&self) -> bool {
        match self {
            Value::Vacant | Value::Short(_) | Value::Long(_) => false,
            Value::Hash(hash) => hash.fields.is_empty(),
            Value::List(list) => list.items.is_empty(),
            Value::Set(set) => set.members.is_empty(),
            Value::Zset(zset) => zset.scores.is_empty(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Hash {
    pub(super) generation: Generation,
    weight: usize,
    pub(super) fields: HashMap<Str, Str>,
}

impl Hash {
    /// Writes or removes one field; the value it had before.
    pub(super) fn put(&mut self, field: &[u8], value: Option<Str>) -> Option<Str> {
        let added = value.as_ref().map(|value| value.len());
        let old = match value {
            Some(value) => match self.fields.get_mut(field) {
                Some(place) => Some(std::mem::replace(place, value)),
                None => self.fields.insert(field.into(), value),
            },
            None => self.fields.remove(field),
        };
        let element = |value: usize| field.len() + value + HASH_ELEMENT;
        self.weight += added.map_or(0, element);
        self.weight -= old.as_ref().map_or(0, |old| element(old.len()));
        old
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(super) generation: Generation,
    weight: usize,
    pub(super) members: HashSet<Str>,
}

impl Set {
    pub(super) fn insert(&mut self, member: &[u8]) -> bool {
        if self.members.contains(member) {
            return false;
        }
        self.weight += member.len() + SET_ELEMENT;
        self.members.insert(member.into())
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.members.remove(member);
        if removed {
            self.weight -= member.len() + SET_ELEMENT;
        }
        removed
    }
}

/// A list item and its seat: a number that rises along the list and never changes while the item lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(super) seat: i64,
    pub(super) data: Str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(super) generation: Generation,
    weight: usize,
    pub(super) items: VecDeque<Item>,
}

impl List {
    /// The seat of an item that comes next at `end`.
    pub(super) fn next_seat(&self, end: End) -> i64 {
        match end {
            End::Left => self.items.front().map_or(0, |item| item.seat - 1),
            End::Right => self.items.back().map_or(0, |item| item.seat + 1),
        }
    }

    pub(super) fn push(&mut self, end: End, item: Item) {
        self.weight += item.data.len() + LIST_ELEMENT;
        match end {
            End::Left => self.items.push_front(item),
            End::Right => self.items.push_back(item),
        }
    }

    pub(super) fn pop(&mut self, end: End) -> Option<Item> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.weight -= item.data.len() + LIST_ELEMENT;
        Some(item)
    }

    /// Replaces the data at `index`; what was there.
    pub(super) fn swap(&mut self, index: usize, data: Str) -> Option<Str> {
        let item = self.items.get_mut(index)?;
        self.weight += data.len();
        self.weight -= item.data.len();
        Some(std::mem::replace(&mut item.data, data))
    }

    /// Takes out every item whose index is in `doomed` (ascending). Only what lies between them and the nearer end is
    /// moved: a few taken from the head of a million items cost a few.
    pub(super) fn cut(&mut self, doomed: &[usize]) -> Vec<Item> {
        let (Some(first), Some(last)) = (doomed.first().copied(), doomed.last().copied()) else {
            return Vec::new();
        };
        let from_head = last < self.items.len() - first;
        let (offset, near) = if from_head {
            (0, self.items.drain(..=last).collect())
        } else {
            (first, self.items.split_off(first))
        };
        let mut cut = Vec::with_capacity(doomed.len());
        let mut kept = Vec::with_capacity(near.len() - doomed.len());
        let mut doomed = doomed.iter().copied().peekable();
        for (index, item) in (offset..).zip(near) {
            let place = if doomed.next_if_eq(&index).is_some() { &mut cut } else { &mut kept };
            place.push(item);
        }
        if from_head {
            kept.into_iter().rev().for_each(|item| self.items.push_front(item));
        } else {
            self.items.extend(kept);
        }
        self.weight -= cut.iter().map(|item| item.data.len() + LIST_ELEMENT).sum::<usize>();
        cut
    }

    /// Puts items (ascending by seat) back where their seats say, in one pass.
    pub(super) fn merge(&mut self, back: Vec<Item>) {
        self.weight += back.iter().map(|item| item.data.len() + LIST_ELEMENT).sum::<usize>();
        let mut back = back.into_iter().peekable();
        let mut merged = VecDeque::with_capacity(self.items.len() + back.len());
        for item in self.items.drain(..) {
            while let Some(earlier) = back.next_if(|earlier| earlier.seat < item.seat) {
                merged.push_back(earlier);
            }
            merged.push_back(item);
        }
        merged.extend(back);
        self.items = merged;
    }

    /// Where the item of this seat is, or where it would go.
    pub(super) fn index_of(&self, seat: i64) -> Result<usize, usize> {
        self.items.binary_search_by_key(&seat, |item| item.seat)
    }

    /// Writes the item of one seat, wherever it belongs; for loading, where order is the journal's.
    pub(super) fn put(&mut self, seat: i64, data: Str) {
        match self.index_of(seat) {
            Ok(index) => drop(self.swap(index, data)),
            Err(index) => {
                self.weight += data.len() + LIST_ELEMENT;
                self.items.insert(index, Item { seat, data });
            }
        }
    }

    pub(super) fn remove(&mut self, seat: i64) {
        if let Ok(index) = self.index_of(seat)
            && let Some(item) = self.items.remove(index)
        {
            self.weight -= item.data.len() + LIST_ELEMENT;
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Zset {
    pub(super) generation: Generation,
    weight: usize,
    pub(super) scores: HashMap<Arc<[u8]>, f64>,
    pub(super) order: BTreeSet<Place>,
}

impl Zset {
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Writes or removes one member; the score it had before. O(log n).
    pub(super) fn put(&mut self, member: &[u8], score: Option<f64>) -> Option<f64> {
        let old = self.scores.get_key_value(member).map(|(name, old)| (Arc::clone(name), *old));
        if let Some((_, old)) = &old {
            self.order.remove(&Spot { score: *old, member } as &dyn Placed);
        }
        match (&old, score) {
            (Some((name, _)), Some(score)) => {
                self.order.insert(Place { score, member: Arc::clone(name) });
                if let Some(place) = self.scores.get_mut(member) {
                    *place = score;
                }
            }
            (Some(_), None) => {
                self.scores.remove(member);
                self.weight -= member.len() + ZSET_ELEMENT;
            }
            (None, Some(score)) => {
                let name: Arc<[u8]> = member.into();
                self.order.insert(Place { score, member: Arc::clone(&name) });
                self.scores.insert(name, score);
                self.weight += member.len() + ZSET_ELEMENT;
            }
            (None, None) => {}
        }
        old.map(|(_, old)| old)
    }
}

/// A member in a zset's order: by score, then by bytes. Scores are never NaN.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(super) score: f64,
    pub(super) member: Arc<[u8]>,
}

/// A place looked for, without owning the member's bytes.
pub(crate) struct Spot<'a> {
    pub(super) score: f64,
    pub(super) member: &'a [u8],
}

/// What orders a [`Place`] and a [`Spot`] alike, so that lookups need no allocation.
pub(crate) trait Placed {
    fn spot(&self) -> (f64, &[u8]);
}

impl Placed for Place {
    fn spot(&self) -> (f64, &[u8]) {
        (self.score, &self.member)
    }
}

impl Placed for Spot<'_> {
    fn spot(&self) -> (f64, &[u8]) {
        (self.score, self.member)
    }
}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((score, member), (other_score, other_member)) = (self.spot(), other.spot());
        // As Redis compares: 0 and -0 are one score. `total_cmp` would part them.
        score.partial_cmp(&other_score).unwrap_or(Ordering::Equal).then_with(|| member.cmp(other_member))
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn Placed + '_ {}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        (self as &dyn Placed).cmp(other as &dyn Placed)
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

impl<'a> Borrow<dyn Placed + 'a> for Place {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        self
    }
}
