//! How an embedded store behaves.

use std::time::Duration;

use super::clock::Clock;
use super::memory;
use super::vm::VmLimits;

/// When a call's changes must have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before its reply: what was acknowledged survives a power cut.
    #[default]
    Always,
    /// With the operating system before its reply, on the disk within a second. A killed process loses
    /// nothing it acknowledged, a power cut about the last second of it; never half of a script.
    EverySec,
}

impl Durability {
    /// The name in configuration and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Always => "always",
            Durability::EverySec => "everysec",
        }
    }
}

/// Settings of an embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// When changes reach the disk. The owner's setting counts for everybody attached to it.
    pub durability: Durability,
    /// Where time comes from.
    pub clock: Clock,
    /// No call takes longer.
    pub deadline: Duration,
    /// How long opening waits for another process that is starting or ending.
    pub open_wait: Duration,
    /// Bounds of one script.
    pub limits: VmLimits,
    /// Open a folder from which acknowledged commits are missing, with a warning, instead of refusing it.
    pub accept_loss: bool,
    /// Estimated bytes of data from which on nothing is accepted that could grow it; 0 for no bound. The owner's
    /// setting counts for everybody attached to it.
    pub max_memory_bytes: u64,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Always,
            clock: Clock::System,
            deadline: Duration::from_secs(5),
            open_wait: Duration::from_secs(30),
            limits: VmLimits::default(),
            accept_loss: false,
            max_memory_bytes: memory::half(),
        }
    }
}
