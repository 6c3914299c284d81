//! The contract every store fulfils.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::health::Health;
use crate::{Code, Error, Invocation, Reply, Result, Words, piece};

/// How keys are spelled on this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One keyspace: keys exactly as the schema spells them.
    Single,
    /// Redis Cluster: keys of one script share a hash tag.
    Cluster,
}

/// A message on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What was published, byte for byte.
    Data(Bytes),
    /// The reader fell behind, or the connection was re-made: this many are known to be missing (0: unknown).
    Missed(u64),
}

/// What is known of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFacts {
    /// `string`, `hash`, `list`, `set`, `zset`.
    pub kind: String,
    /// Milliseconds left; `None` when it never expires.
    pub ttl_ms: Option<u64>,
    /// Bytes in memory, as the store estimates them.
    pub bytes: Option<u64>,
}

/// A page of a key scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Keys found; a key may come twice, none that stayed is missed.
    pub keys: Vec<Bytes>,
    /// Where to go on; `None` at the end.
    pub next: Option<ScanCursor>,
}

/// An opaque place in a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanCursor(pub Vec<u8>);

/// Facts about the deployment that decide whether it is safe (`quaymaster doctor`, start-up checks).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deployment {
    /// `redis`, `valkey`, `embedded`.
    pub product: String,
    /// Its version.
    pub version: String,
    /// `standalone`, `sentinel`, `cluster`, `owner`, `attached`, `memory`.
    pub mode: String,
    /// `maxmemory-policy`; `None` when the store cannot evict or will not tell.
    pub eviction_policy: Option<String>,
    /// `maxmemory`, or `max_memory` of an embedded store, in bytes; 0 for none.
    pub max_memory_bytes: Option<u64>,
    /// Memory used by data, in bytes.
    pub used_memory_bytes: Option<u64>,
    /// `always`, `everysec`, `rdb`, `none`.
    pub persistence: Option<String>,
    /// Connected clients.
    pub connected_clients: Option<u64>,
    /// `client-output-buffer-limit pubsub`: what a subscriber may be behind at most, and what for so many seconds; 0 is
    /// no bound. `None` when there is none, or the store will not tell.
    pub pubsub_buffer: Option<[u64; 3]>,
    /// `timeout`: after how many seconds the store closes a quiet connection; 0 for never.
    pub idle_timeout_s: Option<u64>,
    /// How often the machine's clock was set while the store was open; `None` for Redis.
    pub clock_steps: Option<u64>,
    /// How often the folder was opened with data from the future, written while the clock was ahead; `None` for Redis.
    pub future_data: Option<u64>,
}

impl Deployment {
    /// The version of the Redis or Valkey server; `None` for an embedded store.
    pub fn redis_version(&self) -> Option<&str> {
        (self.product != "embedded").then_some(self.version.as_str())
    }
}

/// What a store that accepts writes said beside that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// `maxmemory-policy`; `None` when the store cannot evict or will not tell.
    pub eviction_policy: Option<String>,
}

/// Why the store's user may not run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The command itself.
    Command,
    /// One of its keys.
    Key,
    /// Its channel.
    Channel,
}

/// Commands that the store's user may not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// The user.
    pub user: String,
    /// By their place among those that were asked about.
    pub commands: Vec<(usize, Denied)>,
}

/// A store: runs a script atomically, tells its time, carries messages.
///
/// Implementations: [`crate::redis::RedisStore`], [`crate::embedded::EmbeddedStore`] (owner or attached).
/// Every future resolves within the store's deadline.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Runs one script: all of it or (embedded) nothing.
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>>;

    /// The store's clock, in microseconds since the epoch; one round trip.
    fn time_us(&self) -> BoxFuture<'_, Result<i64>>;

    /// The store's clock as last measured, without a round trip: the node's clock plus the kept offset.
    fn now_us(&self) -> i64;

    /// How keys must be spelled.
    fn topology(&self) -> Topology;

    /// No call takes longer. Whoever makes several for one caller keeps to it.
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Messages published on `channel` from now on; reconnects by itself and says so with [`Message::Missed`].
    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>>;

    /// Waits until the list at `key` has an item, without removing it; false when `limit` passed first.
    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>>;

    /// What is at `key`; `None` when nothing is.
    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>>;

    /// Writes `piece`, at most [`MAX_PIECE`](crate::MAX_PIECE) bytes, at `offset` of the string at `key`, which lives for
    /// `ttl` from now; answers its length. The same piece again changes nothing; what was left out is zeros.
    fn write_piece<'a>(
        &'a self,
        key: &'a [u8],
        offset: u64,
        piece: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { piece::written(&self.run(piece::write(key, offset, piece, ttl)?).await?) })
    }

    /// Reads at most `length` bytes at `offset` of the string at `key`; none when there are none.
    fn read_piece<'a>(&'a self, key: &'a [u8], offset: u64, length: usize) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move { piece::heard(self.run(piece::read(key, offset, length)?).await?) })
    }

    /// A page of keys that match the glob `pattern`, of about `count`.
    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>>;

    /// Counters and state, without a round trip.
    fn health(&self) -> Health;

    /// Whether the store accepts writes now, told within about `patience`; the error says why not. Redis is tried with
    /// a small key under `own_prefix`; the embedded store knows without writing anything.
    fn ready(&self, patience: Duration) -> BoxFuture<'_, Result<Readiness>> {
        Box::pin(async move {
            let told = tokio::time::timeout(patience, self.time_us()).await;
            told.unwrap_or_else(|_| {
                let detail = format!("the store said nothing for {} ms", patience.as_millis());
                Err(Error::new("store.ready", Code::StoreTimedOut, detail))
            })?;
            if !self.health().connected {
                let detail = "the store's last word was a failure";
                return Err(Error::new("store.ready", Code::StoreRefused, detail));
            }
            Ok(Readiness::default())
        })
    }

    /// Which of these commands the store's user may not run; none of them is run. `None` when the store has no users,
    /// or does not tell this one.
    fn refused<'a>(&'a self, commands: &'a [Words]) -> BoxFuture<'a, Result<Option<Refused>>> {
        let _ = commands;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Asks the store what it is and how it is set up.
    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>>;

    /// Names of connections that other processes of ours have to the store; `None` when it does not say.
    fn other_processes(&self) -> BoxFuture<'_, Result<Option<Vec<String>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Stops background work and, on the embedded store, makes everything durable.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
