//! Gateways, a store, a database and callers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quaymaster_testkit::servers::{
    Binary, Cluster, ClusterConfig, Process, RedisConfig, RedisServer, any_port,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::sqlite::SqlitePool;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(5);

/// Where the guards lie.
pub(crate) enum Store {
    Server(RedisServer),
    Cluster(Cluster),
    /// A folder that the gateways share: the first one owns it, the others attach.
    Embedded,
}

impl Store {
    pub(crate) fn redis() -> Self {
        Self::Server(RedisServer::start(RedisConfig::default()))
    }

    pub(crate) fn valkey() -> Self {
        Self::Server(RedisServer::start(RedisConfig::of(Binary::Valkey9)))
    }

    pub(crate) fn cluster() -> Self {
        Self::Cluster(Cluster::start(ClusterConfig::default()))
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        match self {
            Store::Server(server) => server,
            _ => panic!("this scene has no single server"),
        }
    }
}

/// One store, one database, any number of gateways.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    schema: PathBuf,
    started: AtomicUsize,
}

/// The system's schema with claims and leases that end soon, so that a test can see what happens then.
const SHORT: [(&str, &str); 5] = [
    ("key = \"idem:create:{psp_transaction_id}\"", "in_progress_ttl = \"1500ms\""),
    ("key = \"idem:execute:{transaction_id}\"", "in_progress_ttl = \"1500ms\""),
    ("key = \"idem:update:{transaction_id}:{status}\"", "in_progress_ttl = \"1500ms\""),
    ("key = \"lock:update:{transaction_id}\"\nttl = \"30s\"", "ttl = \"1500ms\""),
    ("key = \"lock:process:{psp_transaction_id}\"\nttl = \"60s\"", "ttl = \"1500ms\""),
];

impl Scene {
    pub(crate) fn new(store: Store) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("hold")).unwrap();
        let mut text = include_str!("../../schema.toml").to_owned();
        for (at, line) in SHORT {
            assert!(text.contains(at), "the schema has no {at}");
            let key = at.lines().next().unwrap();
            text = text.replace(at, &format!("{key}\n{line}"));
        }
        let schema = folder.path().join("schema.toml");
        std::fs::write(&schema, text).unwrap();
        Self { folder, store, schema, started: AtomicUsize::new(0) }
    }

    pub(crate) fn edit_schema(&self, edit: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(&self.schema).unwrap();
        std::fs::write(&self.schema, edit(text)).unwrap();
    }

    fn store_url(&self) -> String {
        match &self.store {
            Store::Server(server) => server.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Embedded => format!("embedded:{}", self.folder.path().join("store").display()),
        }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("payments.db")
    }

    /// Starts a gateway and waits until it listens.
    pub(crate) async fn gateway(&self) -> Gateway {
        self.gateway_with(&[]).await
    }

    pub(crate) async fn gateway_with(&self, env: &[(&str, &str)]) -> Gateway {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let log = self.folder.path().join(format!("gateway-{number}.log"));
        let args = [
            "--listen".to_owned(),
            any_port().to_string(),
            "--store".to_owned(),
            self.store_url(),
            "--database".to_owned(),
            format!("sqlite:{}", self.database().display()),
            "--schema".to_owned(),
            self.schema.display().to_string(),
            "--hold".to_owned(),
            self.folder.path().join("hold").display().to_string(),
        ];
        let env: Vec<(String, String)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut process = Process::spawn(Path::new(env!("CARGO_BIN_EXE_psp-gateway")), &args, &env, &log);
        let until = Instant::now() + PATIENCE;
        let address = loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("psp-gateway listens on http://"));
            if let Some(address) = line.and_then(|line| line.split(' ').next()) {
                break address.to_owned();
            }
            assert!(process.ended().is_none(), "the gateway ended: {text}");
            assert!(Instant::now() < until, "the gateway does not listen: {text}");
            tokio::time::sleep(GLANCE).await;
        };
        Gateway { process, address, log }
    }

    pub(crate) async fn gateways(&self, count: usize) -> Vec<Gateway> {
        let mut gateways = Vec::new();
        for _ in 0..count {
            gateways.push(self.gateway().await);
        }
        gateways
    }

    /// The next gateway that comes to this point stops there.
    pub(crate) fn arm(&self, point: &str) {
        std::fs::write(self.folder.path().join("hold").join(point), "").unwrap();
    }

    /// Waits until a gateway has stopped at the point; its process id.
    pub(crate) async fn held(&self, point: &str) -> u32 {
        eventually(&format!("a gateway stops at {point}"), async || self.held_now(point)).await
    }

    fn held_now(&self, point: &str) -> Option<u32> {
        let mut entries = std::fs::read_dir(self.folder.path().join("hold")).unwrap();
        let prefix = format!("{point}.");
        entries.find_map(|entry| entry.unwrap().file_name().to_str()?.strip_prefix(&prefix)?.parse().ok())
    }

    /// Lets the gateway that stopped at the point go on.
    pub(crate) fn let_go(&self, point: &str) {
        let pid = self.held_now(point).unwrap();
        std::fs::remove_file(self.folder.path().join("hold").join(format!("{point}.{pid}"))).unwrap();
    }

    async fn count(&self, query: &'static str) -> i64 {
        let pool = SqlitePool::connect(&format!("sqlite:{}", self.database().display())).await.unwrap();
        let count = sqlx::query(query).fetch_one(&pool).await.unwrap().get(0);
        pool.close().await;
        count
    }

    pub(crate) async fn payments(&self) -> i64 {
        self.count("SELECT count(*) FROM payments").await
    }

    /// How often an operation took effect.
    pub(crate) async fn effects(&self, operation: &str) -> i64 {
        match operation {
            "create" => {
                self.count("SELECT count(*) FROM journal WHERE outcome = 'done' AND operation = 'create'")
                    .await
            }
            "execute" => {
                self.count("SELECT count(*) FROM journal WHERE outcome = 'done' AND operation = 'execute'")
                    .await
            }
            _ => {
                self.count("SELECT count(*) FROM journal WHERE outcome = 'done' AND operation = 'update'")
                    .await
            }
        }
    }

    /// How often a run found that an earlier one had done it.
    pub(crate) async fn found(&self) -> i64 {
        self.count("SELECT count(*) FROM journal WHERE outcome = 'found'").await
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) address: String,
    log: PathBuf,
}

impl Gateway {
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Told {
        ask(&self.address, "POST", path, &body.to_string(), "").await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        ask(&self.address, "GET", path, "", "").await.unwrap()
    }

    /// SIGTERM; how it ended.
    pub(crate) async fn stop(mut self) -> i32 {
        self.process.signal(Signal::TERM);
        eventually("the gateway ends", async || self.process.ended()).await.code().unwrap_or(-1)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line =
            self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The body of an answer that must have this status.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")?.parse().ok()
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
    headers: &str,
) -> std::io::Result<Told> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, text) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    Ok(Told { status, head: head.to_owned(), text: text.to_owned() })
}

/// Looks until there is something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "waited too long until {what}");
        tokio::time::sleep(GLANCE).await;
    }
}

/// A create request.
pub(crate) fn payment(id: &str) -> Value {
    json!({
        "psp_transaction_id": id, "psp_id": "PSP001", "merchant_provider": "DEMO_MERCHANT", "qr_tx_id": "QR123",
        "amount": 100_000,
    })
}

/// Makes a payment; its transaction id.
pub(crate) async fn created(gateway: &Gateway, id: &str) -> String {
    let body = gateway.post("/create", &payment(id)).await.expect(201);
    body["transaction_id"].as_str().unwrap().to_owned()
}

pub(crate) fn execution(transaction_id: &str) -> Value {
    json!({ "psp_id": "PSP001", "transaction_id": transaction_id })
}

pub(crate) fn status_update(transaction_id: &str, status: i64) -> Value {
    json!({ "psp_id": "PSP001", "transaction_id": transaction_id, "status": status })
}
