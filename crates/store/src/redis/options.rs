//! What a connection to Redis needs to know, with the defaults of the documented deployments.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use quaymaster_schema::OWN_PREFIX;

use crate::backoff::Backoff;
use crate::redis::url;
use crate::{Code, Error, Result, Workload};

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What kind of deployment the URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One server.
    Standalone(Address),
    /// One server behind a Unix socket.
    Unix(PathBuf),
    /// The primary that these sentinels name.
    Sentinel {
        /// Any of them may be down.
        sentinels: Vec<Address>,
        /// The name the sentinels watch it under.
        service: String,
    },
    /// A cluster, known by some of its nodes.
    Cluster(Vec<Address>),
}

/// Text that no message and no `Debug` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who we are to the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; `None` is the default user.
    pub user: Option<String>,
    /// Its password; `None` sends no AUTH.
    pub password: Option<Secret>,
}

impl Credentials {
    /// Refuses a user without a password: without AUTH the server would take us for its default user.
    pub(super) fn check(&self) -> Result<()> {
        if self.user.is_none() || self.password.is_some() {
            return Ok(());
        }
        Err(Error::new("store.connect", Code::ConfigInvalid, "the store has a user and no password"))
    }
}

/// Files for TLS; all PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate chain, when the server asks for one.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
}

/// The connections of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// How many connections calls are spread over; each carries any number of calls at once.
    pub size: usize,
    /// How long one attempt waits for its reply.
    pub response_timeout: Duration,
    /// How long a connection may take until it has answered once.
    pub connect_timeout: Duration,
}

/// The connections of every workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// Get, set, delete: fast.
    pub cache: PoolOptions,
    /// Queue operations.
    pub queue: PoolOptions,
    /// Subscriptions; `size` is not used, one connection carries all channels.
    pub pubsub: PoolOptions,
    /// Limits: fast and frequent.
    pub ratelimit: PoolOptions,
    /// Everything else, the clock included; bulk bytes have connections of their own under these settings.
    pub default: PoolOptions,
    /// Which workloads have connections of their own.
    pub dedicated: Dedicated,
}

/// Which workloads have connections of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dedicated {
    /// Each.
    #[default]
    All,
    /// Those that could hold others up: blocking waits, subscriptions and bulk bytes. Calls of caches, queues and limits
    /// share the connections of the default pool.
    Waiting,
}

impl Pools {
    /// The workload on whose connections calls of this one go.
    pub(super) fn serving(&self, workload: Workload) -> Workload {
        match (self.dedicated, workload) {
            (Dedicated::Waiting, Workload::Cache | Workload::Queue | Workload::RateLimit) => {
                Workload::Default
            }
            (_, workload) => workload,
        }
    }

    /// The pool of one workload.
    pub fn of(&self, workload: Workload) -> &PoolOptions {
        match self.serving(workload) {
            Workload::Cache => &self.cache,
            Workload::Queue => &self.queue,
            Workload::PubSub => &self.pubsub,
            Workload::RateLimit => &self.ratelimit,
            Workload::Default | Workload::Bulk => &self.default,
        }
    }
}

impl Default for Pools {
    fn default() -> Self {
        let seconds = |response| PoolOptions {
            size: 1,
            response_timeout: Duration::from_secs(response),
            connect_timeout: Duration::from_secs(2),
        };
        Self {
            cache: seconds(2),
            queue: seconds(5),
            pubsub: seconds(5),
            // Two: the server works on one batch while the replies of the other are read.
            ratelimit: PoolOptions { size: 2, ..seconds(2) },
            default: seconds(5),
            dedicated: Dedicated::All,
        }
    }
}

/// When calls stop waiting for a store that keeps failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Consecutive failures that open it.
    pub failures: u32,
    /// The longest pause between two background probes while it is open.
    pub cool_down: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { failures: 5, cool_down: Duration::from_secs(1) }
    }
}

/// Everything [`crate::redis::RedisStore::connect`] needs.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Where.
    pub target: Target,
    /// Whether the connections are TLS (`rediss`).
    pub tls: bool,
    /// Its files.
    pub tls_files: TlsFiles,
    /// The logical database; 0 on a cluster.
    pub database: i64,
    /// Who we are to the data nodes.
    pub credentials: Credentials,
    /// Who we are to the sentinels.
    pub sentinel_credentials: Credentials,
    /// The connections of every workload.
    pub pools: Pools,
    /// The most connections for blocking waits; a wait beyond it polls instead of blocking.
    pub blocking_connections: usize,
    /// No call takes longer, reconnects and repetitions included.
    pub deadline: Duration,
    /// The waits between reconnects and between repetitions.
    pub backoff: Backoff,
    /// When to fail fast.
    pub breaker: BreakerOptions,
    /// How often the offset to the store's clock, and the topology, are looked at again.
    pub refresh: Duration,
    /// Messages kept for a subscriber that is slow; what goes beyond is counted as missed.
    pub subscriber_buffer: usize,
    /// The head of the keys that belong to no schema; what readiness is tried with lies under it.
    pub own_prefix: String,
    /// The first part of the connections' names, before the workload and the process id.
    pub client_name: String,
    /// The oldest server that is not refused, major and minor; a schema may do with an older one than the default.
    pub oldest: (u32, u32),
}

impl RedisOptions {
    /// The options a URL names, everything else by default.
    ///
    /// `redis://[user:password@]host[:port][/database]`, `redis+sentinel://host:port,…/service[/database]`,
    /// `redis+cluster://host:port,…`, each also as `rediss…`; `redis+unix:///path/of/socket`. Parameters:
    /// `ca_file`, `client_cert_file`, `client_key_file`, `sentinel_user`, `sentinel_password`, `deadline_ms`.
    pub fn from_url(url: &str) -> Result<Self> {
        url::parse(url)
    }

    /// Defaults for a target.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            tls: false,
            tls_files: TlsFiles::default(),
            database: 0,
            credentials: Credentials::default(),
            sentinel_credentials: Credentials::default(),
            pools: Pools::default(),
            blocking_connections: 190,
            deadline: Duration::from_secs(5),
            backoff: Backoff { base: Duration::from_millis(50), max: Duration::from_secs(5), jitter: 0.25 },
            breaker: BreakerOptions::default(),
            refresh: Duration::from_secs(5),
            subscriber_buffer: 1024,
            own_prefix: OWN_PREFIX.into(),
            client_name: "quaymaster".into(),
            oldest: (6, 2),
        }
    }
}
