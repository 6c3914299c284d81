//! Objects.
/// Parts an object may have.
pub const MAX_PARTS: u32 = 10_000;
