//! `docs/corrections.md`, the backend of several instances: each scheme as its document has it, in plain commands on a
//! real Redis, seen failing; and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

mod counting;
mod gauges;
mod limits;
mod support;
mod times;
