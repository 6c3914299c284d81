//! A store, instances of the backend as processes, and somebody who calls them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quaymaster_testkit::servers::{
    Binary, Cluster, ClusterConfig, Process, RedisConfig, RedisServer, any_port,
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const GLANCE: Duration = Duration::from_millis(20);

/// What the store may forget in a restart: nothing.
const DURABLE: [&str; 2] = ["appendonly yes", "appendfsync always"];

/// Small counts by default, large ones in a soak.
pub(crate) fn count(small: u64, soak: u64) -> u64 {
    if std::env::var_os("QUAYMASTER_SOAK").is_some() { soak } else { small }
}

/// Where the counts lie.
pub(crate) enum Store {
    Server(RedisServer),
    Cluster(Cluster),
    /// A folder that the processes share: the first one owns it, the others attach.
    Embedded,
}

impl Store {
    pub(crate) fn redis() -> Self {
        Self::of(Binary::Redis7)
    }

    pub(crate) fn valkey() -> Self {
        Self::of(Binary::Valkey9)
    }

    fn of(binary: Binary) -> Self {
        let config = DURABLE.iter().fold(RedisConfig::of(binary), |config, line| config.line(*line));
        Self::Server(RedisServer::start(config))
    }

    pub(crate) fn cluster() -> Self {
        let lines = DURABLE.map(str::to_owned).to_vec();
        Self::Cluster(Cluster::start(ClusterConfig { lines, ..ClusterConfig::default() }))
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        match self {
            Store::Server(server) => server,
            _ => panic!("this scene has no single server"),
        }
    }
}

/// Flushes often and misses an instance soon.
const BRISK: (&str, &str) = ("flush = \"1s\"", "flush = \"200ms\"\nheartbeat = \"2s\"");

/// One store, any number of processes.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    env: Vec<(String, String)>,
    started: AtomicUsize,
}

/// A running process.
pub(crate) struct Part {
    pub(crate) process: Process,
    /// What follows `http://` in its first line.
    pub(crate) address: String,
    log: PathBuf,
}

impl Scene {
    pub(crate) fn new(store: Store) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../schema.toml");
        assert_eq!(text.matches(BRISK.0).count(), 1, "the schema has {} otherwise", BRISK.0);
        std::fs::write(folder.path().join("schema.toml"), text.replace(BRISK.0, BRISK.1)).unwrap();
        let mut scene = Self { folder, store, env: Vec::new(), started: AtomicUsize::new(0) };
        scene.set("HA_SCHEMA", &scene.folder.path().join("schema.toml").display().to_string());
        scene.set("HA_STORE", &scene.store_url());
        scene.set("HA_PROXIES", "127.0.0.1");
        // Counting is what most tests are about; those about limits lower it.
        scene.set("RATE_LIMIT_MAX", "1000000");
        scene
    }

    /// A variable for every process started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    fn store_url(&self) -> String {
        match &self.store {
            Store::Server(server) => server.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Embedded => format!("embedded:{}", self.folder.path().join("store").display()),
        }
    }

    fn spawn(&self, program: &Path, name: &str, args: &[String]) -> (Process, PathBuf) {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let log = self.folder.path().join(format!("{number}-{name}.log"));
        (Process::spawn(program, args, &self.env, &log), log)
    }

    /// Starts a process and waits until it says where it listens.
    pub(crate) async fn start(&self, program: &Path, name: &str, args: &[&str]) -> Part {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (mut process, log) = self.spawn(program, name, &args);
        let until = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("ha-backend"));
            if let Some((_, rest)) = line.and_then(|line| line.split_once("http://")) {
                let address = rest.split([' ', '/']).next().unwrap_or_default().to_owned();
                return Part { process, address, log };
            }
            assert!(process.ended().is_none(), "{name} ended: {text}");
            assert!(Instant::now() < until, "{name} does not say that it runs: {text}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// One instance.
    pub(crate) async fn instance(&self, name: &str) -> Part {
        self.instance_with(name, &[]).await
    }

    pub(crate) async fn instance_with(&self, name: &str, more: &[&str]) -> Part {
        let listen = any_port().to_string();
        let mut args = vec!["run", "--listen", &listen, "--instance", name];
        args.extend(more);
        self.start(program(), name, &args).await
    }

    /// The server that reports.
    pub(crate) async fn server(&self) -> Part {
        self.start(program(), "serve", &["serve", "--listen", &any_port().to_string()]).await
    }

    /// A server that reports and this many instances, `0`, `1`, …
    pub(crate) async fn all(&self, instances: usize) -> (Part, Vec<Part>) {
        let server = self.server().await;
        let mut started = Vec::new();
        for number in 0..instances {
            started.push(self.instance(&number.to_string()).await);
        }
        (server, started)
    }

    /// Begins to call the instances; [`Load::ends`] waits for the end.
    pub(crate) fn load(&self, instances: &[&Part], requests: u64, more: &[&str]) -> Load {
        let counted = self.folder.path().join(format!("count-{}", self.started.load(Ordering::SeqCst)));
        let mut args = vec!["load".to_owned(), "--requests".to_owned(), requests.to_string()];
        args.extend(["--out".to_owned(), counted.display().to_string()]);
        for instance in instances {
            args.extend(["--to".to_owned(), format!("http://{}", instance.address)]);
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let (process, log) = self.spawn(program(), "load", &args);
        Load { process, log, counted }
    }
}

pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ha-backend"))
}

/// Somebody who calls.
pub(crate) struct Load {
    process: Process,
    log: PathBuf,
    counted: PathBuf,
}

/// The separate count.
#[derive(Debug, Clone)]
pub(crate) struct Counted(pub(crate) Value);

impl Load {
    /// The exit status, what it printed and what it counted.
    pub(crate) async fn ends(mut self) -> (i32, String, Counted) {
        // A soak's hundred thousand requests take a debug build a minute or more.
        let status = within(10 * PATIENCE, "the load ends", async || self.process.ended()).await;
        let text = std::fs::read_to_string(&self.log).unwrap();
        let counted =
            std::fs::read_to_string(&self.counted).unwrap_or_else(|error| panic!("{error}: {text}"));
        (status.code().unwrap_or(-1), text, Counted(serde_json::from_str(&counted).unwrap()))
    }

    /// What it counted, without a comparison of its own.
    pub(crate) async fn count(self) -> Counted {
        let (status, text, counted) = self.ends().await;
        assert_eq!(status, 0, "{text}");
        counted
    }
}

impl Counted {
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    pub(crate) fn instances(&self) -> BTreeMap<String, u64> {
        numbers(&self.0["instances"])
    }

    pub(crate) fn by_status(&self) -> BTreeMap<String, u64> {
        numbers(&self.0["by_status"])
    }

    /// Requests and errors by endpoint.
    pub(crate) fn endpoints(&self) -> BTreeMap<String, (u64, u64)> {
        let list = self.0["endpoints"].as_object().unwrap();
        let pair = |one: &Value| (one["count"].as_u64().unwrap(), one["errors"].as_u64().unwrap());
        list.iter().map(|(name, one)| (name.clone(), pair(one))).collect()
    }
}

/// The report, in the same words.
pub(crate) fn reported(report: &Value) -> Counted {
    let endpoints: serde_json::Map<String, Value> = report["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["endpoint"].as_str().unwrap().to_owned(), one.clone()))
        .collect();
    Counted(serde_json::json!({
        "requests": report["requests"]["total"],
        "accepted": report["requests"]["accepted"],
        "errors": report["errors"]["total"],
        "by_status": report["errors"]["by_status"],
        "instances": report["instances"],
        "endpoints": endpoints,
    }))
}

pub(crate) fn numbers(map: &Value) -> BTreeMap<String, u64> {
    let map = map.as_object().unwrap_or_else(|| panic!("no map: {map}"));
    map.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
}

impl Part {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        ask(&self.address, "GET", path, "", "").await.unwrap()
    }

    /// As somebody whom the proxy in front names.
    pub(crate) async fn get_as(&self, caller: &str, path: &str) -> Told {
        ask(&self.address, "GET", path, "", &format!("x-forwarded-for: {caller}\r\n")).await.unwrap()
    }

    pub(crate) async fn report(&self) -> Value {
        let told = self.get("/v1/stats/ha/report").await;
        assert_eq!(told.status, 200, "{told:?}");
        told.json()
    }

    /// The report once it is as `good` wants it; a store that is away for now is waited for.
    pub(crate) async fn report_when(&self, what: &str, mut good: impl FnMut(&Value) -> bool) -> Value {
        eventually(what, async || {
            let told = self.get("/v1/stats/ha/report").await;
            assert!(matches!(told.status, 200 | 503), "{told:?}");
            (told.status == 200).then(|| told.json()).filter(|report| good(report))
        })
        .await
    }

    /// SIGTERM; how it ended.
    pub(crate) async fn stop(mut self) -> i32 {
        self.process.signal(Signal::TERM);
        eventually("it ends", async || self.process.ended()).await.code().unwrap_or(-1)
    }
}

/// What somebody was told.
#[derive(Debug)]
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
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
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
pub(crate) async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look).await
}

async fn within<T>(patience: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "waited too long until {what}");
        tokio::time::sleep(GLANCE).await;
    }
}
