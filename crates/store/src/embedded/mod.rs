//! The embedded store: Lua in process, a data model in memory, a journal on disk.

mod change;
mod clock;
mod core;
mod model;
mod pubsub;
mod vm;
mod waiters;

pub use clock::Clock;
pub use vm::VmLimits;
