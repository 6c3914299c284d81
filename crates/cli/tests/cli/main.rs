//! The command as its users run it.
#![expect(clippy::unwrap_used, reason = "tests")]

mod access_log;
mod calls;
#[path = "../../../testkit/src/servers/certificates.rs"]
#[expect(dead_code, unreachable_pub, clippy::expect_used, reason = "public there, private here")]
mod certificates;
mod cleaning;
mod clock;
mod commands;
mod content;
mod documents;
mod events;
mod folders;
mod init;
mod kafka;
mod newcomer;
mod passwords;
mod process;
mod putting;
mod queues;
mod respelling;
mod rights;
mod runs;
#[path = "../../../upload/tests/support/servers.rs"]
mod servers;
mod serving;
mod settings;
mod sockets;
mod stats;
mod strangers;
mod thresholds;
mod tls;
mod tokens;
mod topic;
mod uploads;

use servers::address;
