//! The file as it is written: everything optional, nothing unknown.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quaymaster::layer::Trust;
use quaymaster::queue::Bounds;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::Durability;
use quaymaster::store::redis::{Dedicated, PoolOptions, Pools};

use super::walk::{Env, Origin, Scalar, Table, Walk};
use super::{ConfigError, Needs, Thresholds, uploads};
use crate::access::{AccessTo, Keys};
use crate::http::origin::Origins;
use crate::http::rights::{Resources, Role, Token};
use crate::http::tls::TlsFiles;
use crate::own::{OwnConfig, OwnLimit};
use crate::worker::WorkerConfig;

/// `quaymaster.toml`.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    pub(super) needs: Needs,
    pub(super) schemas: Option<Vec<PathBuf>>,
    pub(super) server: RawServer,
    pub(super) store: RawStore,
    pub(super) thresholds: Thresholds,
    pub(super) clean: Option<Duration>,
    pub(super) worker: WorkerConfig,
    pub(super) queues: Bounds,
    pub(super) uploads: uploads::RawUploads,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RawServer {
    pub(super) listen: Option<String>,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) max_json_depth: Option<u64>,
    pub(super) max_requests: Option<u64>,
    pub(super) max_waiting: Option<u64>,
    pub(super) max_connections: Option<u64>,
    pub(super) request_timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) shutdown_grace: Option<Duration>,
    pub(super) shutdown_drain: Option<Duration>,
    pub(super) max_subscribers: Option<u64>,
    pub(super) heartbeat: Option<Duration>,
    pub(super) insecure_listen: Option<bool>,
    pub(super) tokens: Vec<Token>,
    pub(super) anonymous: Option<Role>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) insecure_http: Option<bool>,
    pub(super) origins: Origins,
    pub(super) workers: Option<bool>,
    pub(super) own: OwnConfig,
    pub(super) access_log: Option<AccessTo>,
    pub(super) access_log_keys: Option<Keys>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RawStore {
    pub(super) url: Option<String>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) durability: Option<Durability>,
    pub(super) deadline: Option<Duration>,
    pub(super) accept_eviction: Option<bool>,
    pub(super) accept_loss: Option<bool>,
    pub(super) max_memory: Option<u64>,
    pub(super) require_seal_key: Option<bool>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) database: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) own_prefix: Option<String>,
    pub(super) nodes: Option<NonZeroU32>,
    pub(super) tls: RawTls,
    pub(super) pools: RawPools,
    pub(super) retry: Backoff,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RawTls {
    pub(super) ca: Option<PathBuf>,
    pub(super) client_cert: Option<PathBuf>,
    pub(super) client_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default)]
struct RawPool {
    size: Option<u64>,
    timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawPools {
    /// In the order of [`RawPools::NAMES`].
    pools: [RawPool; 5],
    dedicated: Option<Dedicated>,
}

impl RawPools {
    const NAMES: [&'static str; 5] = ["cache", "queue", "pubsub", "ratelimit", "default"];

    pub(super) fn apply(&self, pools: &mut Pools) {
        let Pools { cache, queue, pubsub, ratelimit, default, dedicated } = pools;
        *dedicated = self.dedicated.unwrap_or(*dedicated);
        for (raw, pool) in self.pools.iter().zip([cache, queue, pubsub, ratelimit, default]) {
            let PoolOptions { size, response_timeout, connect_timeout } = pool;
            *size = raw.size.map_or(*size, |size| size as usize);
            *response_timeout = raw.timeout.unwrap_or(*response_timeout);
            *connect_timeout = raw.connect_timeout.unwrap_or(*connect_timeout);
        }
    }
}

impl RawConfig {
    /// Reads a file's text. Relative paths in it are meant from `folder`, the file's own.
    pub fn parse(source: &str, text: &str, folder: &Path, env: Env<'_>) -> Result<Self, ConfigError> {
        Self::parse_for(Needs::ALL, source, text, folder, env)
    }

    /// The same for a command that uses only some parts.
    pub fn parse_for(
        needs: Needs,
        source: &str,
        text: &str,
        folder: &Path,
        env: Env<'_>,
    ) -> Result<Self, ConfigError> {
        let walk = Walk::new(source, text, env, needs);
        let parsed = walk.parse();
        let known = ["schemas", "server", "store", "thresholds", "clean", "worker", "queues", "uploads"];
        let root = walk.root(parsed.get_ref(), &known);
        let raw = Self {
            needs,
            schemas: root.texts("schemas").map(|names| names.iter().map(|name| folder.join(name)).collect()),
            server: server(&root, folder),
            store: store(&root, folder),
            thresholds: thresholds(&root),
            clean: root.table("clean", &["every"]).and_then(|table| table.get("every", clean_every)),
            worker: worker(&root, folder),
            queues: queues(&root),
            uploads: uploads::read(&root, folder),
        };
        match walk.finish() {
            problems if problems.is_empty() => Ok(raw),
            problems => Err(ConfigError::File(problems)),
        }
    }
}

fn server(root: &Table<'_, '_>, folder: &Path) -> RawServer {
    let known = [
        "listen",
        "max_body_bytes",
        "max_json_depth",
        "max_requests",
        "max_waiting",
        "max_connections",
        "request_timeout",
        "idle_timeout",
        "shutdown_grace",
        "shutdown_drain",
        "max_subscribers",
        "heartbeat",
        "insecure_listen",
        "insecure_http",
        "tls",
        "tokens",
        "anonymous",
        "origins",
        "workers",
        "stats",
        "instance",
        "limit",
        "proxies",
        "access_log",
        "access_log_keys",
    ];
    let Some(table) = root.table("server", &known) else { return RawServer::default() };
    RawServer {
        listen: table.get("listen", |scalar| {
            let text = scalar.text()?;
            let path = text.strip_prefix("unix:").map(|path| format!("unix:{}", folder.join(path).display()));
            Ok(path.unwrap_or(text))
        }),
        max_body_bytes: table.get("max_body_bytes", Scalar::bytes),
        max_json_depth: table.get("max_json_depth", |scalar| {
            // Deeper than this the reader of JSON itself gives up.
            scalar
                .integer(1)
                .and_then(|depth| if depth <= 120 { Ok(depth) } else { Err("must be at most 120".into()) })
        }),
        max_requests: table.get("max_requests", |scalar| scalar.integer(1)),
        max_waiting: table.get("max_waiting", |scalar| scalar.integer(1)),
        max_connections: table.get("max_connections", |scalar| scalar.integer(1)),
        request_timeout: table.get("request_timeout", Scalar::duration),
        idle_timeout: table.get("idle_timeout", Scalar::duration),
        shutdown_grace: table.get("shutdown_grace", Scalar::duration),
        shutdown_drain: table.get("shutdown_drain", Scalar::duration),
        max_subscribers: table.get("max_subscribers", |scalar| scalar.integer(1)),
        heartbeat: table.get("heartbeat", Scalar::duration),
        insecure_listen: table.get("insecure_listen", Scalar::bool),
        insecure_http: table.get("insecure_http", Scalar::bool),
        tls: server_tls(&table, folder),
        tokens: tokens(&table),
        anonymous: table.get("anonymous", |scalar| Role::named(&scalar.text()?)),
        origins: origins(&table),
        workers: table.get("workers", Scalar::bool),
        own: own(&table),
        access_log: table.get("access_log", |scalar| {
            Ok(match AccessTo::new(&scalar.text()?) {
                AccessTo::File(path) => AccessTo::File(folder.join(path)),
                AccessTo::Stdout => AccessTo::Stdout,
            })
        }),
        access_log_keys: table
            .get("access_log_keys", |scalar| Ok(if scalar.bool()? { Keys::Plain } else { Keys::Digest })),
    }
}

/// What the server does to its own requests.
fn own(server: &Table<'_, '_>) -> OwnConfig {
    let limit = server.table("limit", &["name", "address"]).and_then(|table| {
        let name = table.get("name", Scalar::text);
        if name.is_none() {
            table.report("name", "which limit of the schema?", Some("name = \"api\""));
        }
        Some(OwnLimit { name: name?, address: table.get("address", Scalar::text) })
    });
    let trust = server.table("proxies", &["header", "trusted"]).and_then(|table| {
        let header = table.get("header", |scalar| match scalar.text()?.as_str() {
            header @ ("x-forwarded-for" | "forwarded") => Ok(header.to_owned()),
            _ => Err("must be \"x-forwarded-for\" or \"forwarded\"".into()),
        });
        let trusted = table.texts("trusted").unwrap_or_default();
        let told = match header.as_deref() {
            Some("forwarded") => Trust::forwarded(&trusted),
            _ => Trust::x_forwarded_for(&trusted),
        };
        told.map_err(|error| table.report("trusted", &error.detail, None)).ok()
    });
    OwnConfig {
        stats: server.get("stats", Scalar::text),
        instance: server.get("instance", Scalar::text),
        limit,
        trust: trust.unwrap_or_default(),
    }
}

/// Origins whose web pages may call.
fn origins(server: &Table<'_, '_>) -> Origins {
    let texts = server.texts("origins").unwrap_or_default();
    Origins::new(&texts).unwrap_or_else(|why| {
        server.report("origins", &why, None);
        Origins::default()
    })
}

fn tokens(server: &Table<'_, '_>) -> Vec<Token> {
    let (mut names, mut secrets): (Vec<String>, Vec<String>) = Default::default();
    let mut tokens = Vec::new();
    for table in server.tables("tokens", &["env", "role", "name", "resources"]) {
        let role = table.get("role", |scalar| Role::named(&scalar.text()?));
        let name = table.get("name", token_name);
        if let Some(name) = &name {
            if names.contains(name) {
                table.report("name", "another token has this name", None);
            }
            names.push(name.clone());
        }
        let resources = table.texts("resources").map(|texts| {
            Resources::new(&texts).unwrap_or_else(|why| {
                table.report("resources", &why, None);
                Resources::default()
            })
        });
        if let Some((variable, secret)) = table.variable("env") {
            if secret.len() < 16 {
                table.report("env", "the token in this variable is shorter than 16 bytes", None);
            }
            // Whoever brings it would be one of the two, and nobody could say which.
            if secrets.contains(&secret) {
                table.report("env", "another token has this text", None);
            }
            secrets.push(secret.clone());
            let token = Token::new(secret, role.unwrap_or(Role::Admin)).named(name.unwrap_or(variable));
            tokens.push(token.reaching(resources.unwrap_or_else(Resources::all)));
        }
    }
    tokens
}

fn server_tls(server: &Table<'_, '_>, folder: &Path) -> Option<TlsFiles> {
    let table = server.table("tls", &["certificate", "key", "client_ca"])?;
    let path = |field: &str| table.get(field, |scalar| scalar.text().map(|text| folder.join(text)));
    let needed = |field: &str| {
        if !table.has(field) {
            server.report("tls", &format!("{field} is missing; name a file in PEM"), None);
        }
        path(field)
    };
    let (certificate, key) = (needed("certificate"), needed("key"));
    Some(TlsFiles { certificate: certificate?, key: key?, client_ca: path("client_ca") })
}

/// Names of tokens are in logs and refusals.
fn token_name(scalar: &Scalar) -> Result<String, String> {
    let text = scalar.text()?;
    if text.chars().count() > 64 || text.chars().any(char::is_control) {
        return Err("must be 1 to 64 characters without control characters".into());
    }
    Ok(text)
}

fn store(root: &Table<'_, '_>, folder: &Path) -> RawStore {
    let known = [
        "url",
        "data_dir",
        "durability",
        "deadline",
        "accept_eviction",
        "accept_loss",
        "max_memory",
        "require_seal_key",
        "user",
        "password",
        "password_file",
        "database",
        "identity",
        "own_prefix",
        "nodes",
        "tls",
        "pools",
        "retry",
    ];
    let Some(table) = root.table("store", &known) else { return RawStore::default() };
    let path = |scalar: &Scalar| scalar.text().map(|text| folder.join(text));
    let tls = table.table("tls", &["ca_file", "client_cert_file", "client_key_file"]);
    let tls = tls.map(|tls| RawTls {
        ca: tls.get("ca_file", path),
        client_cert: tls.get("client_cert_file", path),
        client_key: tls.get("client_key_file", path),
    });
    RawStore {
        url: table.get("url", url),
        data_dir: table.get("data_dir", path),
        durability: table.get("durability", |scalar| match scalar.text()?.as_str() {
            "always" => Ok(Durability::Always),
            "everysec" => Ok(Durability::EverySec),
            _ => Err("must be \"always\" or \"everysec\"".into()),
        }),
        deadline: table.get("deadline", Scalar::duration),
        accept_eviction: table.get("accept_eviction", Scalar::bool),
        accept_loss: table.get("accept_loss", Scalar::bool),
        max_memory: table.get("max_memory", Scalar::bytes_or_none),
        require_seal_key: table.get("require_seal_key", Scalar::bool),
        user: table.get("user", Scalar::text),
        password: table.secret("password"),
        password_file: table.get("password_file", path),
        database: table.get("database", |scalar| url(scalar).map(|url| from_folder(url, folder))),
        identity: table.get("identity", Scalar::text),
        own_prefix: table.get("own_prefix", own_prefix),
        nodes: table.get("nodes", |scalar| {
            let nodes = scalar.integer(1)?;
            u32::try_from(nodes)
                .ok()
                .and_then(NonZeroU32::new)
                .ok_or_else(|| "must be at most 4294967295".into())
        }),
        tls: tls.unwrap_or_default(),
        pools: pools(&table),
        retry: retry(&table),
    }
}

/// The head of keys: neither empty, nor what a key or an ACL's pattern could not be spelled with.
fn own_prefix(scalar: &Scalar) -> Result<String, String> {
    let text = scalar.text()?;
    let usable =
        |c: char| c.is_ascii_graphic() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']' | '\\' | '"' | '\'');
    if text.is_empty() || text.len() > 64 || !text.chars().all(usable) {
        return Err("must be 1 to 64 visible ASCII characters without { } * ? [ ] \\ and quotes".into());
    }
    Ok(text)
}

/// A file of SQLite is meant from the settings' folder, like every path in them.
fn from_folder(url: String, folder: &Path) -> String {
    match url.strip_prefix("sqlite:") {
        Some(file) if !file.starts_with('/') && !file.is_empty() && !file.starts_with(":memory:") => {
            format!("sqlite:{}", folder.join(file).display())
        }
        _ => url,
    }
}

/// A URL may stand in the file only if there is no password in it.
fn url(scalar: &Scalar) -> Result<String, String> {
    let text = scalar.text()?;
    let login = text.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
    let secret = login.is_some_and(|(login, _)| login.contains(':')) || text.contains("password=");
    if secret && scalar.origin() == Origin::File {
        return Err("has a password in it: write the URL as { env = \"NAME\" }, or the password as \
                    password = { env = \"NAME\" } or password_file = \"FILE\""
            .into());
    }
    Ok(text)
}

fn pools(store: &Table<'_, '_>) -> RawPools {
    let mut pools = RawPools::default();
    let mut known = RawPools::NAMES.to_vec();
    known.push("dedicated");
    let Some(table) = store.table("pools", &known) else { return pools };
    pools.dedicated =
        table.get("dedicated", |scalar| Ok(if scalar.bool()? { Dedicated::All } else { Dedicated::Waiting }));
    for (pool, name) in pools.pools.iter_mut().zip(RawPools::NAMES) {
        if let Some(table) = table.table(name, &["size", "timeout", "connect_timeout"]) {
            pool.size = table.get("size", |scalar| scalar.integer(1));
            pool.timeout = table.get("timeout", Scalar::duration);
            pool.connect_timeout = table.get("connect_timeout", Scalar::duration);
        }
    }
    pools
}

/// How long workers and others that nobody waits for stay away from a store that failed.
fn retry(store: &Table<'_, '_>) -> Backoff {
    let default = Backoff::default();
    let Some(table) = store.table("retry", &["base", "max", "jitter"]) else { return default };
    let base = table.get("base", Scalar::duration);
    // One that is given alone moves the other bound along.
    let max = table.get("max", |scalar| match (scalar.duration()?, base) {
        (max, Some(base)) if max < base => Err(format!("must be at least base, which is {base:?}")),
        (max, _) => Ok(max),
    });
    let base = base.unwrap_or_else(|| max.map_or(default.base, |max| default.base.min(max)));
    Backoff {
        base,
        max: max.unwrap_or_else(|| default.max.max(base)),
        jitter: table.get("jitter", Scalar::share).unwrap_or(default.jitter),
    }
}

/// A walk over all keys costs something: at least a minute lies between two.
fn clean_every(scalar: &Scalar) -> Result<Duration, String> {
    let every = scalar.duration()?;
    if every >= Duration::from_secs(60) { Ok(every) } else { Err("must be at least \"1m\"".into()) }
}

fn thresholds(root: &Table<'_, '_>) -> Thresholds {
    let default = Thresholds::default();
    let known = ["memory", "hit_rate", "p95", "p95_single", "p95_compound", "connections"];
    let Some(table) = root.table("thresholds", &known) else {
        return default;
    };
    // One value for both, or one for each.
    let p95 = table.get("p95", Scalar::duration);
    let of_class = |name, default| table.get(name, Scalar::duration).or(p95).unwrap_or(default);
    Thresholds {
        memory: table.get("memory", Scalar::share).unwrap_or(default.memory),
        hit_rate: table.get("hit_rate", Scalar::share).unwrap_or(default.hit_rate),
        p95_single: of_class("p95_single", default.p95_single),
        p95_compound: of_class("p95_compound", default.p95_compound),
        connections: table.get("connections", |scalar| scalar.integer(1)).unwrap_or(default.connections),
    }
}

fn worker(root: &Table<'_, '_>, folder: &Path) -> WorkerConfig {
    let default = WorkerConfig::default();
    let Some(table) = root.table("worker", &["drain", "max_response_bytes", "ca_file"]) else {
        return default;
    };
    WorkerConfig {
        drain: table.get("drain", Scalar::duration).unwrap_or(default.drain),
        max_response_bytes: table
            .get("max_response_bytes", Scalar::bytes)
            .map_or(default.max_response_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        ca_file: table.get("ca_file", |scalar| scalar.text().map(|text| folder.join(text))),
        ..default
    }
}

fn queues(root: &Table<'_, '_>) -> Bounds {
    let default = Bounds::default();
    let Some(table) = root.table("queues", &["max_payload_bytes", "max_unpacked_bytes"]) else {
        return default;
    };
    let bytes = |field: &str, default: usize| {
        table.get(field, Scalar::bytes).map_or(default, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    };
    Bounds {
        payload_bytes: bytes("max_payload_bytes", default.payload_bytes),
        unpacked_bytes: bytes("max_unpacked_bytes", default.unpacked_bytes),
    }
}
