//! The Redis engine against real servers and real faults.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here is the test")]

mod basics;
mod blocking;
mod clock;
mod cluster;
mod codes;
mod messages;
mod outages;
mod repeats;
mod sentinels;
mod support;
mod tls;
