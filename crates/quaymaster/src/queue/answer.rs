//! What a queue answers.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::Overflow;

use super::Lease;

/// The answer of `push`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pushed {
    /// Jobs added: all of them, or none when it was a duplicate.
    pub accepted: u64,
    /// How many wait now.
    pub queue_length: u64,
    /// Items moved to the overflow list to make room.
    pub moved_to_dlq: u64,
    /// Items dropped to make room.
    pub dropped: u64,
    /// The id or the dedupe was seen before.
    pub duplicate: bool,
}

/// A job under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number; the same in every attempt.
    pub id: String,
    /// The JSON text as it was pushed; a JSON string of what another program pushed and is not JSON.
    pub payload: Bytes,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What proves that the job is ours.
    pub lease: Lease,
    /// How long it is.
    pub lease_expires_in: Duration,
}

/// The answer of `ack`.
#[must_use = "jobs whose lease was lost are done again by somebody else"]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked {
    /// Jobs that are done now.
    pub acked: u64,
    /// Leases that were not held any more; with `then`, nothing was acked and nothing followed if there is one.
    pub lost: u64,
    /// The next jobs, where they were asked for.
    pub jobs: Vec<Job>,
}

/// The answer of `nack`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nacked {
    /// It comes again.
    Retry {
        /// The attempt that failed.
        attempt: u32,
        /// When.
        retry_in: Duration,
    },
    /// It is a dead letter now.
    Dead {
        /// The attempt that failed.
        attempt: u32,
    },
    /// The lease was not held any more; nothing has changed.
    Lost,
}

/// The answer of `extend`.
#[must_use = "a job whose lease was lost is done by somebody else"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// The lease begins anew.
    Ours {
        /// How long it is.
        expires_in: Duration,
    },
    /// It was not held any more.
    Lost,
}

/// How full a queue is, and what it has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Items that wait.
    pub current_length: u64,
    /// How many may.
    pub max_size: Option<u64>,
    /// Their ratio; 0 without a bound.
    pub fill_ratio: f64,
    /// The ratio has reached the declared threshold.
    pub is_at_pressure_threshold: bool,
    /// No more fit.
    pub is_full: bool,
    /// What happens then.
    pub overflow_policy: Overflow,
    /// Claimed jobs.
    pub leased: u64,
    /// Delayed jobs and retries.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Items in the overflow list.
    pub overflowed: u64,
    /// About how long the oldest item has waited; `None` when nothing waits, or only what other programs pushed.
    pub oldest_age: Option<Duration>,
    /// Claims get nothing.
    pub paused: bool,
    /// What has happened since the queue's first push.
    pub totals: Totals,
}

/// Counters that only grow, kept in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Items pushed by Quaymaster.
    pub pushed: u64,
    /// Jobs done.
    pub acked: u64,
    /// Failures that came again.
    pub retried: u64,
    /// Leases that ended without a word.
    pub expired: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Dead letters and overflow items that became jobs again.
    pub redriven: u64,
    /// Items moved to the overflow list.
    pub overflowed: u64,
    /// Items dropped.
    pub dropped: u64,
}

/// A page of the items between two scores.
#[derive(Debug, Clone, PartialEq)]
pub struct RangePage {
    /// How many items are between the two.
    pub length: u64,
    /// Items and their scores, the lowest score first.
    pub items: Vec<(f64, Item)>,
}

/// An item as it lies in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A JSON text; a JSON string of text that is not JSON.
    Json(Bytes),
    /// What no worker can be given: not even text, or not to be decompressed.
    Raw {
        /// The bytes.
        bytes: Bytes,
        /// Why not.
        reason: String,
    },
}

impl Item {
    /// The bytes, whatever they are.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Json(bytes) | Self::Raw { bytes, .. } => bytes,
        }
    }
}

/// A page of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// How many there are in all.
    pub length: u64,
    /// The letters, the oldest first.
    pub items: Vec<Item>,
}

/// The answer of `redrive`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redriven {
    /// Letters that are jobs again.
    pub moved: u64,
    /// Letters left where they are: other programs', or items that no worker could be given.
    pub left: u64,
    /// It ended because the queue has no more room.
    pub full: bool,
}

/// The answer of `sweep`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs whose lease had ended and that wait again.
    pub returned: u64,
    /// Jobs whose attempts were used up and that are dead letters now.
    pub buried: u64,
}
