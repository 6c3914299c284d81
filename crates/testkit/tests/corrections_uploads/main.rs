//! `docs/corrections.md`, the uploads: each scheme as its document has it, in plain commands on a real Redis and with a
//! real object store, seen failing; and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

mod completion;
mod delivery;
mod documented;
mod ending;
mod support;
