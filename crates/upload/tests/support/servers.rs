//! The servers and the proxy of testkit, by their files: these tests build without everything else it is made of.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::unused_self,
    reason = "public there, private here"
)]

#[path = "../../../testkit/src/servers/address.rs"]
pub mod address;
#[path = "../../../testkit/src/servers/cluster.rs"]
mod cluster;
#[path = "../../../testkit/src/servers/faketime.rs"]
mod faketime;
#[path = "../../../testkit/src/servers/postgres.rs"]
mod postgres;
#[path = "../../../testkit/src/servers/process.rs"]
pub mod process;
#[path = "../../../testkit/src/proxy.rs"]
pub mod proxy;
#[path = "../../../testkit/src/servers/redis.rs"]
mod redis;
#[path = "../../../testkit/src/servers/tools.rs"]
pub mod tools;

pub use address::{any_port, free_address, own_ip};
pub use cluster::{Cluster, ClusterConfig};
pub use postgres::PostgresServer;
pub use redis::{RedisConfig, RedisServer};
