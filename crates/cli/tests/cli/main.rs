//! The command as its users run it.
#![expect(clippy::unwrap_used, reason = "tests")]

mod calls;
mod cleaning;
mod clock;
mod commands;
mod content;
mod documents;
mod events;
mod folders;
mod kafka;
mod passwords;
mod process;
mod putting;
mod queues;
mod respelling;
mod runs;
#[path = "../../../upload/tests/support/servers.rs"]
mod servers;
mod serving;
mod settings;
mod sockets;
mod stats;
mod topic;
mod uploads;

use servers::address;
