//! What callers ask of a queue.

use std::time::Duration;

use bytes::Bytes;

use super::Lease;

/// Items to push. [`Push::one`] and [`Push::many`] fill in the payloads; the rest is optional.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Push {
    /// JSON texts, one per job.
    pub payloads: Vec<Bytes>,
    /// The higher the sooner; only in a queue with `order = "priority"`, where it is 0 unless given.
    pub priority: Option<f64>,
    /// Nobody gets the jobs before it has passed. As many may be delayed as may wait; more are refused, whatever the
    /// queue's `overflow` says.
    pub delay: Option<Duration>,
    /// The same id again within 24 hours adds nothing.
    pub id: Option<String>,
    /// Adds nothing when the dedupe has seen its key; one step with the push.
    pub dedupe: Option<PushDedupe>,
    /// The same id again within ten minutes gets the same answer.
    pub request_id: Option<String>,
}

impl Push {
    /// One job.
    pub fn one(payload: impl Into<Bytes>) -> Self {
        Self::many(vec![payload.into()])
    }

    /// Several jobs, all or none.
    pub fn many(payloads: Vec<Bytes>) -> Self {
        Self { payloads, ..Self::default() }
    }
}

/// The dedupe that a push asks in the same step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushDedupe {
    /// Its name in the schema.
    pub name: String,
    /// Values of its key's placeholders.
    pub key: Vec<(String, String)>,
    /// What later ones are told; `1` unless given.
    pub value: Option<Bytes>,
}

/// How jobs are claimed. The default asks for one and does not wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// How many, 1 to [`super::MAX_COUNT`].
    pub count: usize,
    /// How long they are kept from others without an ack; the declared lease unless given.
    pub lease: Option<Duration>,
    /// How long to wait while there is none; at most [`super::WAIT_MAX`].
    pub wait: Duration,
    /// Who claims, for dead letters: 1 to 64 visible ASCII characters.
    pub worker: Option<String>,
    /// The same id again within ten minutes gets the same jobs, as far as it still holds them.
    pub request_id: Option<String>,
}

impl Default for Claim {
    fn default() -> Self {
        Self { count: 1, lease: None, wait: Duration::ZERO, worker: None, request_id: None }
    }
}

/// Jobs that are done, and what goes with it in the same step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ack {
    /// Their leases, at most [`super::MAX_COUNT`].
    pub leases: Vec<Lease>,
    /// What follows; all of it together with the acks, and only if every lease is held.
    pub then: Vec<Then>,
    /// The next jobs.
    pub claim: Option<ClaimNext>,
    /// The same id again within ten minutes gets the same answer.
    pub request_id: Option<String>,
}

impl Ack {
    /// An ack of these leases and nothing else.
    pub fn of(leases: Vec<Lease>) -> Self {
        Self { leases, ..Self::default() }
    }
}

/// The claim in the step of an ack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNext {
    /// How many, 1 to [`super::MAX_COUNT`].
    pub count: usize,
    /// The declared lease unless given.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker: Option<String>,
}

/// What follows from an ack, in its step. On a cluster it must lie in the queue's slot: declare `colocate`.
#[derive(Debug, Clone, PartialEq)]
pub enum Then {
    /// An item for a batch.
    BatchAdd {
        /// The batch's name in the schema.
        name: String,
        /// Values of its key's placeholders.
        key: Vec<(String, String)>,
        /// A JSON text.
        item: Bytes,
        /// An id already in the batch is not added again.
        id: Option<String>,
    },
    /// A message.
    Publish {
        /// The event's name in the schema.
        name: String,
        /// A JSON text, published as it is.
        data: Bytes,
    },
    /// A job for a queue. A full one that rejects refuses the whole ack, and the lease stays.
    Push {
        /// The queue's name in the schema.
        name: String,
        /// A JSON text.
        payload: Bytes,
        /// Only in a priority queue.
        priority: Option<f64>,
        /// Nobody gets the job before it has passed.
        delay: Option<Duration>,
    },
}

/// A job that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    /// Its lease.
    pub lease: Lease,
    /// What went wrong; kept with a dead letter, at most [`super::ERROR_MAX`] bytes of it.
    pub error: String,
    /// When it comes again; the declared backoff unless given.
    pub delay: Option<Duration>,
    /// It does not come again, whatever attempts are left.
    pub dead: bool,
    /// The same id again within ten minutes gets the same answer.
    pub request_id: Option<String>,
}

impl Nack {
    /// A failure that comes again as the schema declares.
    pub fn of(lease: Lease, error: impl Into<String>) -> Self {
        Self { lease, error: error.into(), delay: None, dead: false, request_id: None }
    }
}

/// Which letters become jobs again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redrive {
    /// How many at most; all that were there when it began unless given.
    pub count: Option<u64>,
    /// Items of the overflow list instead of dead letters.
    pub overflow: bool,
    /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
    pub request_id: Option<String>,
}

/// Which dead letters are removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// How many at most; all that were there when it began unless given.
    pub count: Option<u64>,
    /// Only those whose last failure is longer ago.
    pub older_than: Option<Duration>,
    /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
    pub request_id: Option<String>,
}

/// Items of a priority queue by their score, both ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scores {
    /// The lowest; any unless given.
    pub min: Option<f64>,
    /// The highest; any unless given.
    pub max: Option<f64>,
}

/// Which items of a priority queue are removed.
#[derive(Debug, Clone, PartialEq)]
pub struct Trim {
    /// The lowest score; any unless given.
    pub min: Option<f64>,
    /// The highest score.
    pub max: f64,
    /// How many at most, the lowest score first; all that were there when it began unless given.
    pub count: Option<u64>,
    /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
    pub request_id: Option<String>,
}

impl Trim {
    /// Everything with at most this score, as with timestamps what is older.
    pub fn up_to(max: f64) -> Self {
        Self { min: None, max, count: None, request_id: None }
    }
}
