//! The server over real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod client;
mod engines;
mod fixture;
mod lifecycle;
mod locks;
mod openapi;
mod routes;
