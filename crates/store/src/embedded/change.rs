//! What one script changed, element by element: the currency between data model, undo and journal.

use bytes::Bytes;

/// The identity of one incarnation of a collection. A key that is deleted and made again gets another
/// one, so that what the journal still holds of the old incarnation can never come back.
pub(crate) type Generation = u64;

/// The type of a collection or string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A byte string.
    String,
    /// Field to value.
    Hash,
    /// A sequence.
    List,
    /// Distinct members.
    Set,
    /// Members by score.
    Zset,
}

/// One element of a collection, named so that it can be written and removed alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    /// A hash field.
    Field(Bytes),
    /// A set or zset member.
    Member(Bytes),
    /// A list position: a number that keeps its order for as long as the item lives.
    Seat(i64),
}

/// One durable change, in the order it was made. The last word on a place wins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The key holds this string now (and has this expiry: milliseconds since the epoch).
    PutString {
        /// Which key.
        key: Bytes,
        /// The whole value.
        value: Bytes,
        /// When it ends, if ever.
        expires_at_ms: Option<i64>,
    },
    /// The key is a collection of this kind and generation with this expiry (new, renamed, or expiry changed).
    PutCollection {
        /// Which key.
        key: Bytes,
        /// Its type; never `String`.
        kind: Kind,
        /// Its incarnation.
        generation: Generation,
        /// When it ends, if ever.
        expires_at_ms: Option<i64>,
    },
    /// The key is gone. `generation` names the collection whose elements are now garbage.
    Remove {
        /// Which key.
        key: Bytes,
        /// The collection that was there, if it was one and nothing took it over (RENAME does).
        generation: Option<Generation>,
    },
    /// An element of a collection was written: hash value, list item, zset score (as bits), empty for sets.
    PutElement {
        /// The collection's incarnation.
        generation: Generation,
        /// Which element.
        element: Element,
        /// Its value; a zset score as the eight big-endian bytes of its IEEE bits.
        value: Bytes,
    },
    /// An element was removed.
    RemoveElement {
        /// The collection's incarnation.
        generation: Generation,
        /// Which element.
        element: Element,
    },
}
