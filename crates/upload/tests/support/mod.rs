//! What the tests of this crate share: databases, object stores, and what goes wrong on the way to them.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be set up fails the test that asked for it")]
#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each test binary uses its own half")]

pub mod databases;
pub mod parts;
pub mod seaweed;
pub mod tamper;
