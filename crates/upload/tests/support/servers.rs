//! The servers and the proxy of testkit, by their files: these tests build without everything else it is made of.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::unused_self,
    reason = "public there, private here"
)]

#[path = "../../../testkit/src/servers/postgres.rs"]
mod postgres;
#[path = "../../../testkit/src/servers/process.rs"]
pub mod process;
#[path = "../../../testkit/src/proxy.rs"]
pub mod proxy;
#[path = "../../../testkit/src/servers/tools.rs"]
pub mod tools;

pub use postgres::PostgresServer;

mod redis {
    pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < deadline, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
