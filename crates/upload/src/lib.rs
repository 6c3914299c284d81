//! Chunks in, objects out: where uploads keep their bytes, their facts and their events.
//!
//! | module | holds | truth of |
//! |---|---|---|
//! | [`objects`] | parts and objects, on local disk or S3 | bytes: an object is there when a look at it says so |
//! | [`ledger`] | uploads, parts, steps, `nodes` rows, outbox, in SQLite or PostgreSQL | everything durable |
//! | [`announce`] | events on their way out | nothing: rows of the outbox, told at least once |
//!
//! Every call here may be repeated: after a lost answer, a crash or on another node, the same call gets the same
//! answer or is told what is there now.

pub mod announce;
pub mod complete;
mod error;
pub mod ledger;
pub mod objects;
mod sha;

pub use error::{Error, Result, Trouble};
pub use sha::{Hasher, Sha256};
