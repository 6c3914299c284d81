//! What kinds of resources declare, checked and with its defaults filled in; a simple kind does so in its module of
//! `field`.

use std::fmt;
use std::time::Duration;

use crate::kind::{Algorithm, Kind, Order, Overflow, ReplayErrors};

/// So many per window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSpec {
    /// How it counts.
    pub algorithm: Algorithm,
    /// How many, before the safety buffer; 0 refuses everything.
    pub limit: u64,
    /// The window.
    pub window: Duration,
    /// Kept free below the limit.
    pub safety_buffer: u64,
    /// How long the key lives without a take.
    pub ttl: Duration,
}

impl LimitSpec {
    /// What callers may use: the limit less the safety buffer.
    pub fn effective(&self) -> u64 {
        self.limit.saturating_sub(self.safety_buffer)
    }
}

/// An operation that runs once per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencySpec {
    /// How long a finished answer is replayed.
    pub ttl: Duration,
    /// How long a claim that never finished blocks others.
    pub in_progress_ttl: Duration,
    /// The largest response kept, in bytes.
    pub max_response: u64,
    /// Which of an HTTP service's answers are final.
    pub replay_errors: ReplayErrors,
    /// No response is kept: the smallest record.
    pub compact: bool,
}

/// Resources entered together, all or none; names of this schema's resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardSpec {
    /// Limits, all of which are taken.
    pub limits: Vec<String>,
    /// The idempotency begun.
    pub idempotency: Option<String>,
    /// The lock acquired.
    pub lock: Option<String>,
}

/// How a failed job comes back: `base × 2^(n-1)` up to `max`, plus up to `jitter` of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrySpec {
    /// Attempts before the job is dead.
    pub max_attempts: u32,
    /// The first delay.
    pub base: Duration,
    /// The longest delay before jitter.
    pub max: Duration,
    /// The greatest share added at random.
    pub jitter: f64,
}

impl Default for RetrySpec {
    fn default() -> Self {
        use crate::field::queue::retry;
        Self {
            max_attempts: retry::MAX_ATTEMPTS.presence.0 as u32,
            base: retry::BASE.presence.0,
            max: retry::MAX.presence.0,
            jitter: retry::JITTER.presence.0,
        }
    }
}

/// A text that no log and no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Jobs sent to a URL instead of being fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSpec {
    /// Where to.
    pub url: String,
    /// Calls at once.
    pub concurrency: u32,
    /// How long one call may take.
    pub timeout: Duration,
    /// Where a 2xx body goes: a queue, batch or event.
    pub result_to: Option<(Kind, String)>,
    /// Signs the calls; comes from the environment only.
    pub secret: Option<Secret>,
}

/// Jobs handed to workers.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSpec {
    /// Which job comes first.
    pub order: Order,
    /// How many may wait; `None` is unbounded.
    pub max_size: Option<u64>,
    /// What a full queue does.
    pub overflow: Overflow,
    /// The fill ratio from which the queue says it is under pressure.
    pub pressure_at: f64,
    /// How long a claimed job stays away without an ack.
    pub lease: Duration,
    /// How failures come back.
    pub retry: RetrySpec,
    /// Payloads over so many bytes are stored compressed.
    pub compress_over: Option<u64>,
    /// Where jobs are sent, if they are.
    pub push: Option<PushSpec>,
}

/// Items collected until a window ends, then queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSpec {
    /// The placeholder items are grouped by.
    pub by: String,
    /// A batch closes this long after its first item …
    pub window: Duration,
    /// … or this long after its last.
    pub idle: Duration,
    /// … or with so many items.
    pub max_items: Option<u64>,
    /// The queue closed batches go to.
    pub to: String,
    /// How long the keys live if nobody closes the batch.
    pub ttl: Duration,
    /// The last segment of the key that lists the items.
    pub items: String,
    /// The field of the queued job that lists the items.
    pub items_as: String,
}

/// Messages to whoever listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSpec {
    /// The channel, prefix included.
    pub channel: String,
    /// The status that the server publishes there by itself, if it does.
    pub status: Option<StatusSpec>,
}

/// A status published now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSpec {
    /// How often, however many nodes there are.
    pub every: Duration,
    /// The queues whose depths it tells.
    pub queues: Vec<String>,
}

/// The state of a pipeline's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpec {
    /// The placeholder that is the run's id.
    pub id: String,
    /// How long state, tasks and failures are kept after the last change.
    pub state_ttl: Duration,
    /// How long the hour's list of failures is kept.
    pub hour_ttl: Duration,
    /// The limit whose calls the run counts.
    pub limit: Option<String>,
    /// A run without a sign of life for so long is stale.
    pub stale_after: Duration,
    /// What the state's hash calls the calls of the hour.
    pub calls_field: String,
    /// What the state's hash calls the list of what is processed.
    pub processed_field: String,
}

/// Request metrics of several instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsSpec {
    /// Endpoints told apart; the rest are counted together.
    pub max_endpoints: u64,
    /// Response times kept per endpoint.
    pub samples: u64,
    /// How often an instance reports.
    pub flush: Duration,
    /// Callers that are not counted.
    pub ignore_remote: Vec<String>,
    /// An instance that was silent for so long has no open connections any more.
    pub heartbeat: Duration,
    /// Instances told apart; the rest are counted together.
    pub max_instances: u64,
    /// Whether numbers, UUIDs and long hexadecimal words in a path become `:id`.
    pub fold_ids: bool,
}

/// Chunked uploads into object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadSpec {
    /// How long the state of an upload is kept.
    pub state_ttl: Duration,
    /// How long a chunk's bytes are kept.
    pub chunk_ttl: Duration,
    /// Parts sent at once.
    pub workers: u32,
    /// Bytes received and not yet durable, over all uploads.
    pub max_bytes_in_flight: u64,
    /// The smallest chunk but the last.
    pub chunk_min: u64,
    /// The largest chunk.
    pub chunk_max: u64,
    /// How long the state is kept after the end.
    pub keep_after_done: Duration,
    /// Where objects go: `s3://bucket/prefix`, `file:…`.
    pub objects: String,
    /// The SQL database: `sqlite:…`, `postgres://…`.
    pub database: String,
    /// Where completions are announced: `kafka://…`, `outbox:`.
    pub events: String,
    /// The store of chunk bytes; `None` is the main one.
    pub chunks: Option<String>,
    /// The object's key, with `{connector_id}` and `{node_id}`.
    pub object_key: String,
    /// The connector when the caller names none.
    pub connector: String,
    /// The topic of completions.
    pub topic: String,
}
