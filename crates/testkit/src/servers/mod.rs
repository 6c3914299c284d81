//! Real servers on the test's own loopback address, one temporary folder each, gone when dropped.
//!
//! Every fixture starts in well under a second, is ready when `start` returns, and prints the end of its
//! log when the test that holds it panics. A program that is not installed fails the test; nothing is skipped.

#![expect(clippy::expect_used, reason = "a fixture that cannot be set up fails the test that asked for it")]

mod address;
mod certificates;
mod cluster;
mod faketime;
mod postgres;
mod process;
mod redis;
mod sentinel;
mod tools;

pub use address::{Claim, any_port, at_own_address, free_address, own_ip, set_up};
pub use certificates::{Certificates, Identity};
pub use cluster::{Cluster, ClusterConfig};
pub use faketime::FakeTime;
pub use postgres::PostgresServer;
pub use process::Process;
pub use redis::{RedisConfig, RedisServer};
pub use sentinel::{Sentinel, SentinelConfig};
pub use tools::Binary;
pub(crate) use tools::installed;
