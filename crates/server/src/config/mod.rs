//! Settings that are not schema: `quaymaster.toml`, flags, environment.
//!
//! A flag wins over its environment variable, that over the file, that over the default.

mod needs;
mod password;
mod read;
mod uploads;
mod walk;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quaymaster::queue::Bounds;
use quaymaster::schema::{Diagnostic, Schema};
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::Durability;
use quaymaster::{DatabaseOptions, Error, Seal, Settings};

pub use needs::{Needs, Part};
pub use password::{STORE_PASSWORD, STORE_PASSWORD_FILE};
pub use read::RawConfig;
pub use walk::Env;

use crate::access::{AccessConfig, AccessTo, Keys};
use crate::depot::UploadConfig;
use crate::doctor::{self, Eviction, Finding, SealKey};
use crate::duty::CleanConfig;
use crate::http::listen::Address;
use crate::http::origin::Origins;
use crate::http::rights::{Role, Token};
use crate::http::tls::TlsFiles;
use crate::own::OwnConfig;
use crate::worker::WorkerConfig;

/// The file that is read when there is one and no other was named.
pub const FILE: &str = "quaymaster.toml";

/// Everything decided.
#[derive(Debug, Clone)]
pub struct Config {
    /// Schema files; none means the bundled systems.
    pub schemas: Vec<PathBuf>,
    /// The HTTP side.
    pub server: ServerConfig,
    /// The store.
    pub store: StoreOptions,
    /// Whether a flag, a variable or the settings name the store.
    pub store_is_named: bool,
    /// The same of the data folder.
    pub data_dir_is_named: bool,
    /// Whether the bundled schemas may be used on any store.
    pub demo: bool,
    /// Where limits with `on_outage = "database"` count.
    pub database: Option<DatabaseOptions>,
    /// Nodes among which limits with `on_outage = "local"` are divided.
    pub nodes: Option<NonZeroU32>,
    /// How long whoever nobody waits for stays away from a store that failed: `[store.retry]`.
    pub retry: Backoff,
    /// Keys for values marked `sensitive`.
    pub seal: Seal,
    /// Whether there must be one.
    pub seal_key: SealKey,
    /// Go on although the store may evict what the schema holds.
    pub accept_eviction: bool,
    /// When to warn.
    pub thresholds: Thresholds,
    /// How often `serve` cleans up; never unless told.
    pub clean: Option<CleanConfig>,
    /// How jobs are sent to HTTP services.
    pub worker: WorkerConfig,
    /// How large what queues carry may be.
    pub queues: Bounds,
    /// Where uploads lie, and how their parts are reached.
    pub uploads: UploadConfig,
}

/// The HTTP side.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen.
    pub listen: Address,
    /// The largest body.
    pub max_body_bytes: usize,
    /// The deepest JSON.
    pub max_json_depth: usize,
    /// Requests answered at once.
    pub max_requests: usize,
    /// Calls that wait (`wait_ms`) at once, beside those.
    pub max_waiting: usize,
    /// Connections open at once.
    pub max_connections: usize,
    /// How long a request's body may take to arrive; the store's deadline bounds the rest.
    pub request_timeout: Duration,
    /// A connection without requests for this long is closed.
    pub idle_timeout: Duration,
    /// How long requests in flight may take to finish after a stop.
    pub shutdown_grace: Duration,
    /// How long requests are still taken after a stop, each answered with `connection: close`.
    pub shutdown_drain: Duration,
    /// Readers of event streams at once; each has a connection too.
    pub max_subscribers: usize,
    /// How often a reader of a stream hears something. One that takes nothing for twice as long is cut.
    pub heartbeat: Duration,
    /// Who may call; nobody else, unless empty.
    pub tokens: Vec<Token>,
    /// What callers may do where there are no tokens.
    pub anonymous: Role,
    /// Certificate and key; without them HTTP is spoken as it is.
    pub tls: Option<TlsFiles>,
    /// Whether tokens and data may cross a network as they are.
    pub plain_http: PlainHttp,
    /// Origins whose web pages may call, beside the server's own.
    pub origins: Origins,
    /// Whether `serve` also sends the jobs of queues with `push`.
    pub workers: bool,
    /// What the server does to its own requests.
    pub own: OwnConfig,
    /// Where each call is noted; nowhere unless told.
    pub access: Option<AccessConfig>,
}

/// Whether tokens may be sent over a network as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// They may not.
    Refused,
    /// `--insecure-http`
    Accepted,
}

impl ServerConfig {
    /// Why it is not safe to listen with these settings, if it is not.
    pub(crate) fn exposed(&self) -> Option<String> {
        let listen = &self.listen;
        if self.tls.is_some() && listen.tcp().is_none() {
            return Some(format!(
                "server.tls: {listen} is a socket file, which needs no TLS; leave one of them out"
            ));
        }
        let open = !listen.is_local() && self.tls.is_none() && !self.tokens.is_empty();
        (open && self.plain_http == PlainHttp::Refused).then(|| {
            format!(
                "listen: {listen} is reachable by others, who can read tokens on their way; set certificate and key in \
                 [server.tls], listen on 127.0.0.1, or pass --insecure-http where something else encrypts"
            )
        })
    }
}

/// When to warn.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// Share of the store's memory in use.
    pub memory: f64,
    /// Share of cache reads that hit.
    pub hit_rate: f64,
    /// 95th percentile of the store's latency: calls of one primitive on one item.
    pub p95_single: Duration,
    /// The same of calls that do the work of several.
    pub p95_compound: Duration,
    /// Clients of the store.
    pub connections: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        let p95 = Duration::from_millis(2);
        Self { memory: 0.8, hit_rate: 0.95, p95_single: p95, p95_compound: p95, connections: 150 }
    }
}

/// What flags and their environment variables say.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The first part of the names of connections to a Redis.
    pub client_name: Option<String>,
    /// `--schema`
    pub schemas: Vec<PathBuf>,
    /// `--store`
    pub store: Option<String>,
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--durability`
    pub durability: Option<Durability>,
    /// `--max-memory`, as it was written
    pub max_memory: Option<String>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--accept-eviction`
    pub accept_eviction: bool,
    /// `--demo`
    pub demo: bool,
    /// `--insecure-listen`
    pub insecure_listen: bool,
    /// `--insecure-http`
    pub insecure_http: bool,
    /// `--workers`
    pub workers: bool,
    /// `--access-log`
    pub access_log: Option<String>,
    /// Keys for values marked `sensitive`; the environment gives them, and no flag: others see a command line.
    pub seal_keys: Option<String>,
    /// The store's password, [`STORE_PASSWORD`]; no flag, for the same reason.
    pub store_password: Option<String>,
    /// The file with the store's password, [`STORE_PASSWORD_FILE`].
    pub store_password_file: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is wrong; every problem of it.
    #[error("{}", list(.0))]
    File(Vec<Diagnostic>),
    /// A flag, or flag and file together, are wrong.
    #[error("{}", list(.0))]
    Settings(Vec<WrongSetting>),
}

impl ConfigError {
    /// The setting that is wrong, where one is named; the first of several.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            // Each says its place in the file.
            Self::File(_) => None,
            Self::Settings(wrong) => wrong.first().map(|wrong| wrong.field),
        }
    }
}

/// A setting that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct WrongSetting {
    /// Its name: `store.database`, or that of a variable.
    pub field: &'static str,
    /// What is wrong, with the name.
    pub detail: String,
}

impl WrongSetting {
    fn new(field: &'static str, why: impl fmt::Display) -> Self {
        Self { field, detail: format!("{field}: {why}") }
    }
}

fn list(problems: &[impl fmt::Display]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl Config {
    /// Joins file and flags; all problems at once.
    pub fn resolve(raw: RawConfig, overrides: Overrides) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let store_is_named = overrides.store.is_some() || raw.store.url.is_some();
        let data_dir_is_named = overrides.data_dir.is_some() || raw.store.data_dir.is_some();
        let store = store(&raw, &overrides, &mut problems);
        let database = raw.store.database.as_deref().map(DatabaseOptions::from_url).transpose();
        let told = |error: Error| WrongSetting {
            field: "store.database",
            detail: error.field_called("store.database").detail,
        };
        let database = database.map_err(|error| problems.push(told(error))).ok().flatten();
        // Nodes of several stores may share one database: each counts, and brings back, what is its store's.
        let database = database.zip(store.as_ref()).map(|(database, store)| match &raw.store.identity {
            Some(identity) => database.for_store(identity),
            None => database.for_store(&store.identity()),
        });
        let accept_eviction = overrides.accept_eviction || raw.store.accept_eviction.unwrap_or(false);
        let eviction = if accept_eviction { Eviction::Accepted } else { Eviction::Refused };
        let uploads = raw.uploads.clone();
        let uploads =
            uploads::resolve(uploads, store.as_ref(), data_dir(&raw, &overrides), eviction, &mut problems);
        let uploads = UploadConfig { retry: raw.store.retry, ..uploads };
        let seal = Seal::from_text(overrides.seal_keys.as_deref().unwrap_or_default());
        let seal =
            seal.map_err(|error| problems.push(WrongSetting::new(doctor::SEAL_KEY, error.detail))).ok();
        let listen = overrides.listen.or(raw.server.listen).unwrap_or_else(|| "127.0.0.1:7420".into());
        let listen = address(&listen).map_err(|wrong| problems.push(wrong)).ok();
        let access_to = overrides.access_log.as_deref().map(AccessTo::new).or(raw.server.access_log);
        if access_to.is_none() && raw.server.access_log_keys.is_some() {
            let why = "there is no access log; set access_log in [server]";
            problems.push(WrongSetting::new("server.access_log_keys", why));
        }
        let tokens = raw.server.tokens;
        if raw.server.anonymous.is_some() && !tokens.is_empty() {
            let why = "with tokens nobody calls without one; leave it or the tokens out";
            problems.push(WrongSetting::new("server.anonymous", why));
        }
        let plain_http = overrides.insecure_http || raw.server.insecure_http.unwrap_or(false);
        let knows_clients = raw.server.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if let Some(listen) = &listen
            && raw.needs.has(Part::Server)
            && tokens.is_empty()
            && !knows_clients
            && !listen.is_local()
            && !(overrides.insecure_listen || raw.server.insecure_listen.unwrap_or(false))
        {
            let why = format!(
                "{listen} is reachable by others and no token is configured; set tokens in [server], listen on \
                 127.0.0.1, or pass --insecure-listen"
            );
            problems.push(WrongSetting::new("listen", why));
        }
        let (Some(listen), Some(store), Some(seal), []) = (listen, store, seal, &problems[..]) else {
            return Err(ConfigError::Settings(problems));
        };
        let server = ServerConfig {
            listen,
            max_body_bytes: raw.server.max_body_bytes.unwrap_or(4 << 20) as usize,
            max_json_depth: raw.server.max_json_depth.unwrap_or(32) as usize,
            max_requests: raw.server.max_requests.unwrap_or(4096) as usize,
            max_waiting: raw.server.max_waiting.unwrap_or(4096) as usize,
            max_connections: raw.server.max_connections.unwrap_or(8192) as usize,
            request_timeout: raw.server.request_timeout.unwrap_or(Duration::from_secs(10)),
            idle_timeout: raw.server.idle_timeout.unwrap_or(Duration::from_secs(75)),
            shutdown_grace: raw.server.shutdown_grace.unwrap_or(Duration::from_secs(10)),
            shutdown_drain: raw.server.shutdown_drain.unwrap_or(Duration::from_secs(3)),
            max_subscribers: raw.server.max_subscribers.unwrap_or(6144) as usize,
            heartbeat: raw.server.heartbeat.unwrap_or(Duration::from_secs(15)),
            tokens,
            tls: raw.server.tls,
            plain_http: if plain_http { PlainHttp::Accepted } else { PlainHttp::Refused },
            anonymous: raw.server.anonymous.unwrap_or(Role::Admin),
            origins: raw.server.origins,
            workers: overrides.workers || raw.server.workers.unwrap_or(false),
            own: raw.server.own,
            access: access_to
                .map(|to| AccessConfig { to, keys: raw.server.access_log_keys.unwrap_or(Keys::Digest) }),
        };
        let schemas =
            if overrides.schemas.is_empty() { raw.schemas.unwrap_or_default() } else { overrides.schemas };
        let nodes = raw.store.nodes;
        let clean = raw.clean.map(|every| CleanConfig { every, own_prefix: store.own_prefix().to_owned() });
        let required = raw.store.require_seal_key.unwrap_or(false);
        Ok(Self {
            schemas,
            server,
            store,
            store_is_named,
            data_dir_is_named,
            demo: overrides.demo,
            database,
            nodes,
            seal,
            seal_key: if required { SealKey::Required } else { SealKey::Optional },
            accept_eviction,
            thresholds: raw.thresholds,
            clean,
            retry: raw.store.retry,
            worker: WorkerConfig { retry: raw.store.retry, ..raw.worker },
            queues: raw.queues,
            uploads,
        })
    }
}

impl Config {
    /// Refuses a schema whose secrets would be stored readable, where the settings forbid that.
    pub fn check_seal(&self, schema: &Schema) -> quaymaster::Result<()> {
        match self.unsealed(schema) {
            Some(finding) if self.seal_key == SealKey::Required => {
                let detail = format!("store.require_seal_key: {}; {}", finding.message, finding.fix);
                Err(quaymaster::Error::new("seal", quaymaster::Code::ConfigInvalid, detail))
            }
            _ => Ok(()),
        }
    }

    /// Refuses the bundled schemas on a store that others may share: nobody asked for their keys there.
    pub fn check_demo(&self) -> Result<(), ConfigError> {
        if self.demo || !self.schemas.is_empty() || !matches!(self.store, StoreOptions::Redis(_)) {
            return Ok(());
        }
        let why = format!(
            "none is named, and the bundled schemas are a demonstration whose keys do not belong on {}; pass --schema \
             FILE, or --demo to use them there",
            self.store
        );
        Err(ConfigError::Settings(vec![WrongSetting::new("schema", why)]))
    }

    /// What is held to be safe of a store that evicts.
    pub fn eviction(&self) -> Eviction {
        if self.accept_eviction { Eviction::Accepted } else { Eviction::Refused }
    }

    /// Refuses settings of the server that name what the schema has not: its own stats and limit, resources of tokens.
    pub fn check_own(&self, schema: &Schema) -> quaymaster::Result<()> {
        self.server.own.check(schema)?;
        match self.server.tokens.iter().find_map(|token| token.misfit(schema)) {
            Some(why) => Err(Error::new("serve", quaymaster::Code::ConfigInvalid, why)),
            None => Ok(()),
        }
    }

    /// What would be stored readable although the schema calls it `sensitive`.
    pub fn unsealed(&self, schema: &Schema) -> Option<Finding> {
        if self.seal.is_active() { None } else { doctor::unsealed(schema) }
    }

    /// What the primitives need beside schema and store.
    pub fn settings(&self) -> Settings {
        Settings {
            nodes: self.nodes,
            database: self.database.clone(),
            seal: match self.seal_key {
                SealKey::Required => self.seal.clone().required(),
                SealKey::Optional => self.seal.clone(),
            },
            queues: self.queues,
        }
    }
}

fn data_dir<'a>(raw: &'a RawConfig, overrides: &'a Overrides) -> &'a Path {
    let data_dir = overrides.data_dir.as_deref().or(raw.store.data_dir.as_deref());
    data_dir.unwrap_or(Path::new("./quaymaster-data"))
}

fn store(raw: &RawConfig, overrides: &Overrides, problems: &mut Vec<WrongSetting>) -> Option<StoreOptions> {
    let url = overrides.store.as_deref().or(raw.store.url.as_deref()).unwrap_or("embedded");
    let mut options = match StoreOptions::from_url(url, data_dir(raw, overrides)) {
        Ok(options) => options,
        Err(error) => {
            problems.push(WrongSetting::new("store", error.detail));
            return None;
        }
    };
    let durability = overrides.durability.or(raw.store.durability);
    let max_memory = match overrides.max_memory.as_deref() {
        Some(text) => match walk::size(text) {
            Some(bytes) => Some(bytes),
            None => {
                problems.push(WrongSetting::new("max_memory", walk::SIZE_OR_NONE));
                None
            }
        },
        None => raw.store.max_memory,
    };
    match &mut options {
        StoreOptions::Memory(embedded) | StoreOptions::Embedded(_, embedded) => {
            embedded.durability = durability.unwrap_or_default();
            embedded.accept_loss = raw.store.accept_loss.unwrap_or(false);
            embedded.deadline = raw.store.deadline.unwrap_or(embedded.deadline);
            embedded.max_memory_bytes = max_memory.unwrap_or(embedded.max_memory_bytes);
        }
        StoreOptions::Redis(redis) => {
            if durability.is_some() {
                let why = "a setting of the embedded store; Redis has its own `appendfsync`";
                problems.push(WrongSetting::new("durability", why));
            }
            if max_memory.is_some() {
                let why = "a setting of the embedded store; Redis has its own `maxmemory`";
                problems.push(WrongSetting::new("max_memory", why));
            }
            redis.deadline = raw.store.deadline.unwrap_or(redis.deadline);
            if let Some(name) = &overrides.client_name {
                redis.client_name.clone_from(name);
            }
            if let Some(prefix) = &raw.store.own_prefix {
                redis.own_prefix.clone_from(prefix);
            }
            if let Some(user) = &raw.store.user {
                redis.credentials.user = Some(user.clone());
            }
            match password::resolve(&raw.store, overrides, redis.credentials.password.is_some()) {
                Ok(Some(password)) => redis.credentials.password = Some(password),
                Ok(None) if redis.credentials.user.is_some() && redis.credentials.password.is_none() => {
                    let why = format!(
                        "it has a user and no password; set {STORE_PASSWORD} or {STORE_PASSWORD_FILE}, or \
                         password_file in [store]"
                    );
                    problems.push(WrongSetting::new("store", why));
                }
                Ok(None) => {}
                Err(wrong) => problems.push(wrong),
            }
            raw.store.pools.apply(&mut redis.pools);
            let files = &mut redis.tls_files;
            for (into, from) in [
                (&mut files.ca_file, &raw.store.tls.ca),
                (&mut files.client_cert_file, &raw.store.tls.client_cert),
                (&mut files.client_key_file, &raw.store.tls.client_key),
            ] {
                if from.is_some() {
                    into.clone_from(from);
                }
            }
        }
    }
    Some(options)
}

/// An address to listen on; a name is looked up, a bare port means this machine only, `unix:PATH` is a socket file.
fn address(text: &str) -> Result<Address, WrongSetting> {
    let wrong = || {
        let why = format!("{text:?} is not an address such as 127.0.0.1:7420, or unix:PATH");
        WrongSetting::new("listen", why)
    };
    if let Some(path) = text.strip_prefix("unix:") {
        // The file is removed when the server stops, wherever the process is by then.
        let path = std::path::absolute(path).map_err(|_| wrong())?;
        return Ok(Address::Unix(path));
    }
    if let Ok(address) = text.parse() {
        return Ok(Address::Tcp(address));
    }
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    text.to_socket_addrs().map_err(|_| wrong())?.next().map(Address::Tcp).ok_or_else(wrong)
}
