//! The Quaymaster schema: TOML in, checked resources, key tables, lints and documents out. No I/O.
//!
//! [`load`] reads any number of files together and reports all problems at once. What it returns is checked: every
//! [`Pattern`] renders a key in both spellings, and every key reads back to one pattern and one set of values.

pub mod code;

mod bundled;
mod check;
mod diagnostic;
mod docs;
mod explain;
mod field;
mod keys;
mod kind;
mod lint;
mod load;
mod pattern;
mod read;
mod respell;
mod schema;
mod spec;

pub use bundled::{BUNDLED, load_bundled};
pub use check::EvictionLoss;
pub use diagnostic::{Diagnostic, Severity};
pub use docs::{OWN_PREFIX, docs};
pub use field::declared::*;
pub use field::{Spec, json_schema, reference};
pub use keys::MOMENTS;
pub use kind::{
    Algorithm, BucketUnit, CacheType, Kind, Order, Outage, Overflow, RedisType, ReplayErrors, Spelling,
    UnknownWord,
};
pub use lint::{LINTS, Lint, lint_of};
pub use load::{Loaded, Source, load, load_set};
pub use pattern::{Bucket, KeyError, MAX_VALUE_CHARS, Parsed, Pattern, is_longer};
pub use schema::{ChannelRow, Colocate, Document, Explained, Field, KeyRow, Resource, Schema, Ttl};
pub use spec::{PushSpec, RetrySpec, Secret, StatusSpec};
