//! Histories of queues over several processes, and what must hold in every one of them: every job is accounted for at
//! every step, none is lost, none is acked twice.
//!
//! | file | what it does |
//! |---|---|
//! | `log` | the lines of a worker, read |
//! | `ledger` | the lines of all, job by job: pushes, deliveries and what became of them |
//! | `observer` | what the store holds at one moment, every job in exactly one place |
//! | `check` | the plain model: what must hold between the two |

#![expect(clippy::expect_used, reason = "what cannot be read fails the test that asked for it")]

mod check;
mod ledger;
mod log;
mod observer;
#[cfg(test)]
mod tests;

pub use check::{Tally, check};
pub use log::{Event, Log};
pub use observer::{Dead, Observer, Snapshot};

/// Queues of every make. `work` and `after` share a slot, so that an ack of the one can push into the other.
pub const SCHEMA: &str = r#"
[schema]
name = "history"
owner = "tests"
[queue.work]
lease = "100ms"
retry = { max_attempts = 3, base = "20ms", max = "60ms", jitter = 0.25 }
colocate = "history"
[queue.after]
lease = "100ms"
retry = { max_attempts = 3, base = "20ms", max = "60ms", jitter = 0.25 }
colocate = "history"
[queue.small]
lease = "100ms"
max_size = 4
overflow = "reject"
retry = { max_attempts = 3, base = "20ms", max = "60ms", jitter = 0.25 }
[queue.spill]
lease = "100ms"
max_size = 4
overflow = "dlq"
retry = { max_attempts = 3, base = "20ms", max = "60ms", jitter = 0.25 }
[queue.ranked]
lease = "100ms"
order = "priority"
retry = { max_attempts = 3, base = "20ms", max = "60ms", jitter = 0.25 }
"#;
/// Their names.
pub const QUEUES: [&str; 5] = ["work", "after", "small", "spill", "ranked"];
/// How often a job is tried.
pub const ATTEMPTS: u32 = 3;
/// Calls that each process has under way at once.
pub const LANES: usize = 6;
/// Leases and delays are kept in milliseconds, and `TIME` may move on while a script runs.
const TOLERANCE_US: i64 = 10_000;

/// A job's payload, from which everybody knows it again.
pub fn payload(job: &str) -> String {
    format!("{{\"job\":\"{job}\"}}")
}

/// The job of a payload.
pub fn job_of(payload: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    value.get("job")?.as_str().map(str::to_owned)
}
