//! `docs/corrections.md`, the cameras: each scheme as its document has it, in plain commands on a real Redis, seen
//! failing; and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

mod batches;
mod delivery;
mod entry;
mod support;
