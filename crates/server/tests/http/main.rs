//! The server over real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod caches;
mod client;
mod engines;
mod fixture;
mod guards;
mod idempotency;
mod lifecycle;
mod locks;
mod openapi;
mod routes;
