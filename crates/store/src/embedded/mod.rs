//! The embedded store: Lua in process, a data model in memory, a journal on disk.

mod change;
mod clock;
mod codec;
mod commit;
mod core;
mod folder;
mod journal;
mod keeper;
mod link;
mod memory;
mod model;
mod options;
mod owner;
mod pubsub;
mod server;
mod store;
mod subscription;
mod vm;
mod waiters;
mod wire;

pub use clock::Clock;
pub use folder::check_link;
#[cfg(feature = "seeded-bugs")]
#[doc(hidden)]
pub use model::Bug;
pub use options::{Durability, EmbeddedOptions};
pub use store::EmbeddedStore;
pub use vm::VmLimits;
