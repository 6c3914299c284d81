//! The command as its users run it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../../testkit/src/servers/address.rs"]
#[allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "public there, private here")]
mod address;
mod calls;
mod cleaning;
mod commands;
mod content;
mod documents;
mod events;
mod kafka;
mod process;
mod putting;
mod queues;
mod runs;
mod serving;
mod settings;
mod sockets;
mod stats;
mod topic;
mod uploads;
