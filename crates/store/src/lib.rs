//! Runs one script atomically: on Redis, Valkey, a cluster, or the embedded store.
//!
//! `store` never names a primitive. It knows scripts, keys, arguments and replies; what they mean is said
//! one crate above.

pub mod backoff;
pub mod embedded;
mod engine;
mod error;
pub mod health;
pub mod latency;
mod open;
mod piece;
pub mod redis;
mod reply;
mod script;

pub use engine::{
    Denied, Deployment, Engine, KeyFacts, Message, Readiness, Refused, ScanCursor, ScanPage, Topology,
};
pub use error::{Code, Error, Result, Retry};
pub use health::Health;
pub use latency::Class;
pub use open::{StoreOptions, open};
pub use piece::MAX_PIECE;
pub use reply::{Parts, Reply};
pub use script::{Effect, Invocation, Repeat, Script, Words, Workload};
