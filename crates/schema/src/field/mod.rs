//! Every field of a schema file, declared once: name, type, default, meaning, version.
//!
//! The reader takes types, bounds, accepted words and defaults from these tables. `docs/schema.md` and the JSON Schema
//! for editors are made from them. A kind has a module with a constant for each of its fields.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod common;
pub(crate) mod dedupe;
pub(crate) mod document;
pub(crate) mod event;
pub(crate) mod guard;
pub(crate) mod idempotency;
mod json;
pub(crate) mod key;
pub(crate) mod limit;
pub(crate) mod lock;
pub(crate) mod queue;
mod reference;
pub(crate) mod run;
pub(crate) mod stats;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod upload;

use std::time::Duration;

pub use json::json_schema;
pub use reference::reference;
pub(crate) use types::{
    Boolean, Bytes, Choice, Count, Expiry, Form, Holds, Meanings, Names, Nested, Period, Ratio, SecretText,
    Strings, Text, Type,
};

use crate::kind::Kind;
use crate::read::common::{Body, Reading};
use crate::{read, spec};

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// Ten years: more is a mistake, and every store can add it to its clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(3660 * 86_400);

/// One field of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<T, P> {
    pub(crate) name: &'static str,
    pub(crate) holds: T,
    pub(crate) presence: P,
    pub(crate) meaning: &'static str,
    pub(crate) since: &'static str,
}

/// The field must be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Required;

/// Without the field, what it declares does not exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Optional;

/// The value of a field that is not given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Or<D>(pub(crate) D);

/// The value of a field that is not given follows from other fields; the text says how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Derived(pub(crate) &'static str);

const fn field<T: Copy, P: Copy>(
    name: &'static str,
    holds: T,
    presence: P,
    meaning: &'static str,
) -> Field<T, P> {
    Field { name, holds, presence, meaning, since: "" }
}

impl<T: Copy, P: Copy> Field<T, P> {
    const fn since(mut self, version: &'static str) -> Self {
        self.since = version;
        self
    }
}

/// What holds for a field that is not given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Otherwise {
    Missing,
    Nothing,
    Value(serde_json::Value),
    Derived(&'static str),
}

/// Whether a field of type `T` must be given, and its value when it is not.
pub(crate) trait Presence<T: Type>: Copy + Sync + 'static {
    fn otherwise(self, holds: T) -> Otherwise;
}

impl<T: Type> Presence<T> for Required {
    fn otherwise(self, _: T) -> Otherwise {
        Otherwise::Missing
    }
}

impl<T: Type> Presence<T> for Optional {
    fn otherwise(self, _: T) -> Otherwise {
        Otherwise::Nothing
    }
}

impl<T: Type> Presence<T> for Or<T::Default> {
    fn otherwise(self, holds: T) -> Otherwise {
        Otherwise::Value(holds.written(self.0))
    }
}

impl<T: Type> Presence<T> for Derived {
    fn otherwise(self, _: T) -> Otherwise {
        Otherwise::Derived(self.0)
    }
}

/// A field without its Rust types, for documents and editors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) holds: Holds,
    pub(crate) otherwise: Otherwise,
    pub(crate) meaning: &'static str,
    pub(crate) since: &'static str,
}

/// A field of any type.
pub(crate) trait AnyField: Sync {
    fn name(&self) -> &'static str;
    fn row(&self) -> Row;
}

impl<T: Type, P: Presence<T>> AnyField for Field<T, P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row(&self) -> Row {
        Row {
            name: self.name,
            holds: self.holds.holds(),
            otherwise: self.presence.otherwise(self.holds),
            meaning: self.meaning,
            since: self.since,
        }
    }
}

/// Declares the fields of one table, and the list of all of them.
macro_rules! fields {
    ($(since $since:literal: $($(#[$doc:meta])* $name:ident: $type:ty = $field:expr;)+)+) => {
        $($(
            $(#[$doc])*
            pub(crate) const $name: $type = {
                let field: $type = $field;
                field.since($since)
            };
        )+)+

        /// Every field, in the order of the documents.
        pub(crate) static FIELDS: &[&dyn $crate::field::AnyField] = &[$($(&$name),+),+];
    };
}
use fields;

/// A table of a schema file.
pub(crate) struct Table {
    /// What stands in its brackets, such as `limit` or `queue.NAME.push`.
    pub(crate) path: &'static str,
    /// A resource's table has the fields of every resource besides.
    pub(crate) kind: Option<Kind>,
    pub(crate) fields: &'static [&'static dyn AnyField],
    pub(crate) meaning: &'static str,
    /// The page that explains it, under `docs/`.
    pub(crate) page: Option<&'static str>,
    /// A file that is valid as it stands.
    pub(crate) example: &'static str,
}

impl Table {
    /// Its fields, those of every resource last.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static dyn AnyField> {
        let outage = self.kind.map(|kind| common::on_outage(kind) as &dyn AnyField);
        let shared = if self.kind.is_some() { common::FIELDS } else { &[] };
        self.fields.iter().copied().chain(outage).chain(shared.iter().copied())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields().map(AnyField::name)
    }
}

/// What is made of the kinds: each declares this, has a module with its table, and is read by this function.
macro_rules! kinds {
    ($($kind:ident($($spec:ident)::+), $module:ident, $($read:ident)::+;)*) => {
        /// The table of a resource of this kind.
        pub(crate) fn table_of(kind: Kind) -> &'static Table {
            match kind {
                $(Kind::$kind => &$module::TABLE,)*
            }
        }

        /// Reads what a resource of its kind declares.
        pub(crate) fn read_body(reading: &mut Reading<'_, '_>) -> Option<Body> {
            match reading.kind {
                $(Kind::$kind => $($read)::+(reading),)*
            }
        }

        /// What a resource declares beyond what every kind has.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant is the specification its type documents")]
        pub enum Spec {
            $($kind($($spec)::+),)*
        }

        impl Spec {
            /// What is declared, in a few words.
            pub(crate) fn in_words(&self) -> String {
                match self {
                    $(Self::$kind(spec) => spec.in_words(),)*
                }
            }
        }

        /// The specification of every kind.
        pub(crate) mod declared {
            $(pub use super::$($spec)::+;)*
        }
    };
}

// A simple kind has everything in its module; others are read in `read` and specified in `spec`.
kinds! {
    Limit(spec::LimitSpec), limit, read::limit::read;
    Idempotency(spec::IdempotencySpec), idempotency, read::kinds::idempotency;
    Lock(lock::LockSpec), lock, lock::read;
    Cache(cache::CacheSpec), cache, cache::read;
    Dedupe(dedupe::DedupeSpec), dedupe, dedupe::read;
    Guard(spec::GuardSpec), guard, read::kinds::guard;
    Queue(spec::QueueSpec), queue, read::queue::read;
    Batch(spec::BatchSpec), batch, read::batch::read;
    Event(spec::EventSpec), event, read::event::read;
    Run(spec::RunSpec), run, read::run::read;
    Stats(spec::StatsSpec), stats, read::kinds::stats;
    Upload(spec::UploadSpec), upload, read::upload::read;
    Key(key::KeySpec), key, key::read;
}
