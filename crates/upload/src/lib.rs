//! Chunks in, objects out: where uploads keep their bytes, their facts and their events, and what moves them.
//!
//! | module | holds | truth of |
//! |---|---|---|
//! | [`objects`] | parts and objects, on local disk or S3 | bytes: an object is there when a look at it says so |
//! | [`ledger`] | uploads, parts, steps, `nodes` rows, outbox, in SQLite or PostgreSQL | everything durable |
//! | [`announce`] | events on their way out | nothing: rows of the outbox, told at least once |
//! | [`bytes`] | chunks that are received and not yet durable | nothing: a chunk is received when the store says so |
//! | [`ingest`] | creates uploads, takes chunks, tells how far they are | |
//! | [`ship`] | makes parts of chunks | |
//! | [`complete`] | brings an upload to its end | |
//! | [`doctor`] | holds all of them against each other, explains, repairs | |
//! | [`sweep`] | finds what waits, what is over, and what a crash left behind | |
//!
//! [`Uploads`] is all of them together with the store's side, `quaymaster::upload`.
//!
//! Every call here may be repeated: after a lost answer, a crash or on another node, the same call gets the same
//! answer or is told what is there now.

pub mod adopt;
pub mod announce;
pub mod bytes;
pub mod complete;
mod digest;
pub mod doctor;
mod effect;
mod error;
mod figures;
pub mod ingest;
pub mod ledger;
mod names;
pub mod objects;
mod own;
mod sha;
pub mod ship;
pub mod sweep;
mod synced;
mod threads;
mod uploads;

pub use digest::{Algorithm, Digest, Digester};
pub use effect::Effect;
pub use error::{Error, Result, Trouble};
pub use figures::{BOUNDS_US, Figures, Histogram};
pub use sha::{Hasher, Sha256};
pub use uploads::{Options, Settings, Uploads};
