//! A store whose clock the test holds, an API, and nodes as processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{
    Binary, Cluster, ClusterConfig, Process, RedisConfig, RedisServer, any_port,
};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(20);

const PROGRAM: &str = env!("CARGO_BIN_EXE_docket-pipeline");

/// 2026-11-16 06:10:00 UTC.
pub(crate) const TEN_PAST_US: i64 = 1_794_809_400_000_000;
pub(crate) const HOUR_US: i64 = 3_600_000_000;
pub(crate) const RUN: &str = "manual_2026-11-16T06:10:00+00:00";

/// Small counts by default, large ones in a soak.
pub(crate) fn count(small: usize, soak: usize) -> usize {
    if std::env::var_os("QUAYMASTER_SOAK").is_some() { soak } else { small }
}

/// Where the pipeline's state lies.
pub(crate) enum Store {
    Server(RedisServer),
    Cluster(Cluster),
    /// A folder that the processes share: the first one owns it, the others attach.
    Embedded,
}

/// One store and its clock; any number of processes.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) clock: HeldClock,
    /// The API's own.
    pub(crate) api_clock: HeldClock,
    schema: PathBuf,
    env: Vec<(String, String)>,
    started: AtomicUsize,
}

/// The system's schema with leases and retries that end soon.
const SHORT: [(&str, &str); 2] = [
    ("base = \"1s\", max = \"60s\"", "base = \"20ms\", max = \"100ms\""),
    ("overflow = \"reject\"", "overflow = \"reject\"\nlease = \"2s\""),
];

fn lasting(config: RedisConfig) -> RedisConfig {
    config.line("appendonly yes").line("appendfsync always")
}

impl Scene {
    fn new(make: impl FnOnce(Vec<(String, String)>) -> Store) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = HeldClock::running(TEN_PAST_US);
        let store = make(clock.environment());
        let mut text = include_str!("../../schema.toml").to_owned();
        for (long, short) in SHORT {
            assert_eq!(text.matches(long).count(), 1, "the schema has {long} otherwise");
            text = text.replace(long, short);
        }
        let schema = folder.path().join("schema.toml");
        std::fs::write(&schema, text).unwrap();
        let api_clock = HeldClock::running(TEN_PAST_US);
        Self { folder, store, clock, api_clock, schema, env: Vec::new(), started: AtomicUsize::new(0) }
    }

    pub(crate) fn redis() -> Self {
        Self::new(|env| {
            Store::Server(RedisServer::start(lasting(RedisConfig { env, ..RedisConfig::default() })))
        })
    }

    pub(crate) fn valkey() -> Self {
        Self::new(|env| {
            Store::Server(RedisServer::start(lasting(RedisConfig {
                env,
                ..RedisConfig::of(Binary::Valkey9)
            })))
        })
    }

    pub(crate) fn cluster() -> Self {
        let lines = ["appendonly yes", "appendfsync always"].map(str::to_owned).to_vec();
        Self::new(|env| {
            Store::Cluster(Cluster::start(ClusterConfig { lines, env, ..ClusterConfig::default() }))
        })
    }

    pub(crate) fn embedded() -> Self {
        Self::new(|_| Store::Embedded)
    }

    /// A variable for every process started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store_url(&self) -> String {
        match &self.store {
            Store::Server(server) => server.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Embedded => format!("embedded:{}", self.path("store").display()),
        }
    }

    /// How the store can be killed and come back, if it is a process of its own; how many keep waiting meanwhile.
    pub(crate) fn restart_store(&mut self) -> bool {
        match &mut self.store {
            Store::Server(server) => server.restart(),
            Store::Cluster(cluster) => cluster.restart(),
            Store::Embedded => return false,
        }
        true
    }

    fn place(&self) -> Vec<String> {
        vec![
            "--store".to_owned(),
            self.store_url(),
            "--schema".to_owned(),
            self.schema.display().to_string(),
            "--data-dir".to_owned(),
            self.path("data").display().to_string(),
        ]
    }

    fn environment(&self) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        // An embedded store has the clock of the process that owns it.
        if matches!(self.store, Store::Embedded) {
            env.extend(self.clock.environment());
        }
        env
    }

    /// A file of docket ids.
    pub(crate) fn dockets(&self, ids: impl Iterator<Item = usize>) -> PathBuf {
        let file = self.path("ids");
        let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
        std::fs::write(&file, ids.join("\n")).unwrap();
        file
    }

    fn spawn(&self, name: &str, args: &[String], env: &[(String, String)]) -> Part {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let log = self.path(&format!("{number}-{name}.log"));
        Part { process: Process::spawn(Path::new(PROGRAM), args, env, &log), log }
    }

    /// Starts an API that journals into `journal`; its URL.
    pub(crate) async fn api(&self, journal: &str, more: &[&str]) -> (Part, String) {
        let mut args = vec!["api".to_owned(), format!("--listen={}", any_port())];
        args.push(format!("--journal={}", self.path(journal).display()));
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let mut part = self.spawn("api", &args, &self.api_clock.environment());
        let url = part.line("stand-in API").await;
        let url = url.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
        (part, url)
    }

    /// Starts a node and waits for its first line.
    pub(crate) async fn node(&self, name: &str, url: &str, more: &[&str]) -> Part {
        let mut args = vec!["work".to_owned(), format!("--node={name}"), format!("--api={url}")];
        args.extend(self.place());
        args.extend(["--recheck=100ms", "--drain=10s"].map(str::to_owned));
        args.push(format!("--out={}", self.path("out").display()));
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let mut part = self.spawn(name, &args, &self.environment());
        part.line("docket-pipeline works").await;
        part
    }

    /// Runs a command to its end.
    pub(crate) async fn command(&self, name: &str, more: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(PROGRAM);
        command.arg(name).args(self.place()).args(more).envs(self.environment()).kill_on_drop(true);
        tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
    }

    /// `status --json --failures` of the run.
    pub(crate) async fn status(&self) -> Value {
        let output = self.command("status", &["--json", "--failures", "--run", RUN]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The calls in a journal, by docket: the statuses they got, in their order.
    pub(crate) fn calls(&self, journal: &str) -> Calls {
        let text = std::fs::read_to_string(self.path(journal)).unwrap_or_default();
        let mut calls = Calls::default();
        // A line without its end is being written.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value = serde_json::from_str(line).unwrap();
            let id = line["id"].as_str().unwrap().to_owned();
            calls.by_docket.entry(id).or_default().push(line["status"].as_u64().unwrap());
            calls.total += 1;
        }
        calls
    }

    /// The dockets that were kept, sorted; each file is whole.
    pub(crate) fn kept(&self) -> Vec<usize> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.path("out")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if let Some(id) = name.strip_suffix(".json") {
                let docket: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                assert_eq!(docket["id"], id);
                ids.push(id.parse().unwrap());
            }
        }
        ids.sort_unstable();
        ids
    }
}

/// What an API was asked.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) by_docket: BTreeMap<String, Vec<u64>>,
    pub(crate) total: usize,
}

impl Calls {
    /// Calls that were answered with a docket somebody had been given before.
    pub(crate) fn again(&self) -> usize {
        let well = |statuses: &Vec<u64>| statuses.iter().filter(|status| **status == 200).count();
        self.by_docket.values().map(|statuses| well(statuses).saturating_sub(1)).sum()
    }

    pub(crate) fn with(&self, status: u64) -> usize {
        self.by_docket.values().flatten().filter(|known| **known == status).count()
    }
}

/// A running process.
pub(crate) struct Part {
    pub(crate) process: Process,
    log: PathBuf,
}

impl Part {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The first line that begins so.
    async fn line(&mut self, begins: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = self.log();
            if let Some(line) = text.lines().find(|line| line.starts_with(begins)) {
                return line.to_owned();
            }
            assert!(self.process.ended().is_none(), "it ended: {text}");
            assert!(Instant::now() < until, "it does not say {begins:?}: {text}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// How it ends by itself.
    pub(crate) async fn end(&mut self) -> i32 {
        let log = self.log.clone();
        eventually(&format!("{} ends", log.display()), async || self.process.ended())
            .await
            .code()
            .unwrap_or(-1)
    }

    /// SIGTERM; how it ended.
    pub(crate) async fn stop(&mut self) -> i32 {
        self.process.signal(rustix::process::Signal::TERM);
        self.end().await
    }
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
