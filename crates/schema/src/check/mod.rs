//! Checks that need all resources together.

mod eviction;
mod outline;
mod overlap;
mod runs;
mod slots;

pub use eviction::EvictionLoss;
pub(crate) use eviction::eviction;
pub(crate) use overlap::overlap;
pub(crate) use runs::runs;
pub(crate) use slots::slots;
