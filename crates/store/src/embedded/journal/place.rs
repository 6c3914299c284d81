//! How a change is spelled on disk: which place it writes, and with which bytes.
//!
//! ```text
//! keys      name                        -> kind, expiry, string value | generation
//! elements  generation, element         -> hash value | list item | zset score | nothing
//! ```
//! A name is written out after a tag byte. The database below holds keys of at most 64 KiB, so a longer
//! name is written as its digest and stands in full at the head of the value.

use bytes::Bytes;
use hashbrown::HashMap;
use sha1_smol::Sha1;

use crate::embedded::change::{Change, Element, Generation, Kind};

/// Names up to this length are spelled out in the place itself.
const LONGEST_NAME: usize = 60_000;

const NAME: u8 = 0;
const LONG_NAME: u8 = 1;

const SEAT: u8 = 0;
const FIELD: u8 = 1;
const MEMBER: u8 = 2;
const LONG_FIELD: u8 = 3;
const LONG_MEMBER: u8 = 4;

const NO_EXPIRY: u8 = 0;
const EXPIRY: u8 = 1;

/// Which keyspace of the database a place lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Keys,
    Elements,
}

/// The writes of one group of scripts; the last word on a place wins, so each place comes once.
#[derive(Debug, Default)]
pub(super) struct Writes {
    places: HashMap<(Space, Vec<u8>), Option<Vec<u8>>>,
    /// Collections that ended in this group: their elements are garbage once it is committed.
    pub(super) dead: Vec<Generation>,
}

impl Writes {
    pub(super) fn fold(changes: Vec<Change>) -> Self {
        let mut writes = Self { places: HashMap::with_capacity(changes.len().min(1024)), dead: Vec::new() };
        for change in changes {
            writes.add(change);
        }
        writes
    }

    fn add(&mut self, change: Change) {
        let (space, place, value) = match change {
            Change::PutString { key, value, expires_at_ms } => {
                let mut text = head(&key, Kind::String, expires_at_ms, value.len());
                text.extend_from_slice(&value);
                (Space::Keys, key_place(&key), Some(text))
            }
            Change::PutCollection { key, kind, generation, expires_at_ms } => {
                let mut text = head(&key, kind, expires_at_ms, 8);
                text.extend_from_slice(&generation.to_be_bytes());
                (Space::Keys, key_place(&key), Some(text))
            }
            Change::Remove { key, generation } => {
                self.dead.extend(generation);
                (Space::Keys, key_place(&key), None)
            }
            Change::PutElement { generation, element, value } => {
                let mut text = long_name(element_name(&element));
                text.extend_from_slice(&value);
                (Space::Elements, element_place(generation, &element), Some(text))
            }
            Change::RemoveElement { generation, element } => {
                (Space::Elements, element_place(generation, &element), None)
            }
        };
        self.places.insert((space, place), value);
    }

    pub(super) fn into_places(self) -> impl Iterator<Item = (Space, Vec<u8>, Option<Vec<u8>>)> {
        self.places.into_iter().map(|((space, place), value)| (space, place, value))
    }
}

fn key_place(name: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + name.len().min(LONGEST_NAME));
    push_name(&mut place, name, NAME, LONG_NAME);
    place
}

/// All elements of a collection lie under this prefix.
pub(super) fn generation_prefix(generation: Generation) -> [u8; 8] {
    generation.to_be_bytes()
}

fn element_place(generation: Generation, element: &Element) -> Vec<u8> {
    let mut place = Vec::with_capacity(17 + element_name(element).len().min(LONGEST_NAME));
    place.extend_from_slice(&generation_prefix(generation));
    match element {
        Element::Seat(seat) => {
            place.push(SEAT);
            // The sign bit flipped: bytes sort as the numbers do.
            place.extend_from_slice(&((*seat as u64) ^ (1 << 63)).to_be_bytes());
        }
        Element::Field(name) => push_name(&mut place, name, FIELD, LONG_FIELD),
        Element::Member(name) => push_name(&mut place, name, MEMBER, LONG_MEMBER),
    }
    place
}

fn element_name(element: &Element) -> &[u8] {
    match element {
        Element::Seat(_) => &[],
        Element::Field(name) | Element::Member(name) => name,
    }
}

fn push_name(place: &mut Vec<u8>, name: &[u8], short: u8, long: u8) {
    if name.len() <= LONGEST_NAME {
        place.push(short);
        place.extend_from_slice(name);
    } else {
        place.push(long);
        place.extend_from_slice(&Sha1::from(name).digest().bytes());
        place.extend_from_slice(&(name.len() as u64).to_be_bytes());
    }
}

/// What stands before the value of a place whose name is too long to be spelled out.
fn long_name(name: &[u8]) -> Vec<u8> {
    if name.len() <= LONGEST_NAME {
        return Vec::new();
    }
    let mut text = Vec::with_capacity(4 + name.len());
    text.extend_from_slice(&(name.len() as u32).to_be_bytes());
    text.extend_from_slice(name);
    text
}

fn head(key: &[u8], kind: Kind, expires_at_ms: Option<i64>, more: usize) -> Vec<u8> {
    let mut text = long_name(key);
    text.reserve(10 + more);
    text.push(match kind {
        Kind::String => 0,
        Kind::Hash => 1,
        Kind::List => 2,
        Kind::Set => 3,
        Kind::Zset => 4,
    });
    match expires_at_ms {
        None => text.push(NO_EXPIRY),
        Some(at) => {
            text.push(EXPIRY);
            text.extend_from_slice(&at.to_be_bytes());
        }
    }
    text
}

/// Reads a place of `keys` back; `None` when the bytes are not of our making.
pub(super) fn read_key(place: &[u8], text: &[u8]) -> Option<Change> {
    let (tag, rest) = place.split_first()?;
    let (name, text) = match *tag {
        NAME => (rest, text),
        LONG_NAME => take_long_name(text)?,
        _ => return None,
    };
    let key = Bytes::copy_from_slice(name);
    let (kind, text) = text.split_first()?;
    let (expiry, text) = text.split_first()?;
    let (expires_at_ms, text) = match *expiry {
        NO_EXPIRY => (None, text),
        EXPIRY => {
            let (at, text) = text.split_first_chunk()?;
            (Some(i64::from_be_bytes(*at)), text)
        }
        _ => return None,
    };
    let kind = match *kind {
        0 => return Some(Change::PutString { key, value: Bytes::copy_from_slice(text), expires_at_ms }),
        1 => Kind::Hash,
        2 => Kind::List,
        3 => Kind::Set,
        4 => Kind::Zset,
        _ => return None,
    };
    let generation = Generation::from_be_bytes(text.try_into().ok()?);
    Some(Change::PutCollection { key, kind, generation, expires_at_ms })
}

/// Which collection a place of `elements` belongs to.
pub(super) fn read_generation(place: &[u8]) -> Option<Generation> {
    place.first_chunk().map(|bytes| Generation::from_be_bytes(*bytes))
}

/// Reads a place of `elements` back; `None` when the bytes are not of our making.
pub(super) fn read_element(place: &[u8], text: &[u8]) -> Option<Change> {
    let generation = read_generation(place)?;
    let (tag, name) = place.get(8..)?.split_first()?;
    let (element, text) = match *tag {
        SEAT => {
            let seat = (u64::from_be_bytes(name.try_into().ok()?) ^ (1 << 63)) as i64;
            (Element::Seat(seat), text)
        }
        FIELD => (Element::Field(Bytes::copy_from_slice(name)), text),
        MEMBER => (Element::Member(Bytes::copy_from_slice(name)), text),
        LONG_FIELD => {
            let (name, text) = take_long_name(text)?;
            (Element::Field(Bytes::copy_from_slice(name)), text)
        }
        LONG_MEMBER => {
            let (name, text) = take_long_name(text)?;
            (Element::Member(Bytes::copy_from_slice(name)), text)
        }
        _ => return None,
    };
    Some(Change::PutElement { generation, element, value: Bytes::copy_from_slice(text) })
}

fn take_long_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = text.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Bytes> {
        prop_oneof![
            9 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from),
            1 => (LONGEST_NAME - 2..LONGEST_NAME + 9_000).prop_map(|n| Bytes::from(vec![7; n])),
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let element = prop_oneof![
            name().prop_map(Element::Field),
            name().prop_map(Element::Member),
            any::<i64>().prop_map(Element::Seat),
        ];
        let kind = prop_oneof![Just(Kind::Hash), Just(Kind::List), Just(Kind::Set), Just(Kind::Zset)];
        prop_oneof![
            (name(), name(), any::<Option<i64>>())
                .prop_map(|(key, value, expires_at_ms)| Change::PutString { key, value, expires_at_ms }),
            (name(), kind, any::<u64>(), any::<Option<i64>>()).prop_map(
                |(key, kind, generation, expires_at_ms)| Change::PutCollection {
                    key,
                    kind,
                    generation,
                    expires_at_ms
                }
            ),
            (any::<u64>(), element, name()).prop_map(|(generation, element, value)| Change::PutElement {
                generation,
                element,
                value
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(change in change()) {
            let mut places = Writes::fold(vec![change.clone()]).into_places();
            let (space, place, text) = places.next().unwrap();
            prop_assert!(place.len() < usize::from(u16::MAX), "the database cuts longer keys without a word");
            let text = text.unwrap();
            let read = match space {
                Space::Keys => read_key(&place, &text),
                Space::Elements => read_element(&place, &text),
            };
            prop_assert_eq!(read, Some(change));
        }

        #[test]
        fn foreign_bytes_are_refused_or_read_but_never_a_panic(
            place in proptest::collection::vec(any::<u8>(), 0..40),
            text in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = read_key(&place, &text);
            let _ = read_element(&place, &text);
        }

        #[test]
        fn list_items_lie_in_the_order_of_their_seats(a in any::<i64>(), b in any::<i64>()) {
            let place = |seat| element_place(9, &Element::Seat(seat));
            prop_assert_eq!(a.cmp(&b), place(a).cmp(&place(b)));
        }
    }

    #[test]
    fn the_last_word_on_a_place_wins() {
        let key = Bytes::from_static(b"k");
        let put = |value: &'static [u8]| Change::PutString {
            key: key.clone(),
            value: Bytes::from_static(value),
            expires_at_ms: None,
        };
        let gone = Change::Remove { key: key.clone(), generation: Some(4) };
        let writes = Writes::fold(vec![put(b"1"), gone.clone(), put(b"2")]);
        assert_eq!(writes.dead, [4]);
        let places: Vec<_> = writes.into_places().collect();
        assert_eq!(places.len(), 1);
        assert_eq!(read_key(&places[0].1, places[0].2.as_ref().unwrap()), Some(put(b"2")));
        let last = Writes::fold(vec![put(b"1"), gone]).into_places().next().unwrap();
        assert_eq!(last.2, None);
    }
}
