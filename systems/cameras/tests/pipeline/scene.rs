//! A store, a folder of images, and the parts of the pipeline as processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quaymaster_testkit::servers::{
    Binary, Cluster, ClusterConfig, Process, RedisConfig, RedisServer, any_port,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

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
}

/// The system's schema with windows, leases and retries that end soon.
const SHORT: [(&str, &str, usize); 5] = [
    ("default = \"90s\"", "default = \"1500ms\"", 1),
    ("default = \"30s\"", "default = \"500ms\"", 1),
    ("base = \"1s\"", "base = \"50ms\"", 2),
    ("timeout = \"20s\"", "timeout = \"1s\"", 2),
    ("compress_over = \"1KiB\"", "compress_over = \"1KiB\"\nlease = \"2s\"", 2),
];

/// One store, one folder of images, any number of processes.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    schema: PathBuf,
    env: Vec<(String, String)>,
    /// Root may read everything, so a process that may not must be somebody else.
    pub(crate) unprivileged: bool,
    started: AtomicUsize,
}

/// A running part of the pipeline.
pub(crate) struct Part {
    pub(crate) process: Process,
    /// What follows `http://` in its first line.
    pub(crate) address: String,
    log: PathBuf,
}

impl Scene {
    pub(crate) fn new(store: Store) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        let mut text = include_str!("../../schema.toml").to_owned();
        for (long, short, times) in SHORT {
            assert_eq!(text.matches(long).count(), times, "the schema has {long} otherwise");
            text = text.replace(long, short);
        }
        let schema = folder.path().join("schema.toml");
        std::fs::write(&schema, text).unwrap();
        Self { folder, store, schema, env: Vec::new(), unprivileged: false, started: AtomicUsize::new(0) }
    }

    /// A variable for every process started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn store_url(&self) -> String {
        match &self.store {
            Store::Server(server) => server.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Embedded => format!("embedded:{}", self.folder.path().join("store").display()),
        }
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    /// Starts a part and waits for its first line.
    pub(crate) async fn start(&self, command: &str, more: &[&str]) -> Part {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let log = self.folder.path().join(format!("{number}-{command}.log"));
        let mut args = vec![command.to_owned()];
        let stand_in = matches!(command, "detector" | "analyser");
        if !stand_in {
            args.extend(["--store".to_owned(), self.store_url()]);
            args.extend(["--schema".to_owned(), self.schema.display().to_string()]);
            args.extend(["--data-dir".to_owned(), self.folder.path().join("data").display().to_string()]);
        }
        if matches!(command, "watch" | "up") {
            args.extend(["--folder".to_owned(), self.images().display().to_string()]);
            args.extend(
                ["--settle=200ms", "--rescan=1s", "--log=info,camera_pipeline=debug"].map(str::to_owned),
            );
        }
        if !matches!(command, "watch" | "work") {
            args.push(format!("--listen={}", any_port()));
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let mut program = Path::new(env!("CARGO_BIN_EXE_camera-pipeline"));
        if self.unprivileged && rustix::process::geteuid().is_root() {
            args.splice(0..0, ["--reuid=65534", "--clear-groups", "--"].map(str::to_owned));
            args.insert(3, program.display().to_string());
            program = Path::new("setpriv");
        }
        let mut process = Process::spawn(program, &args, &self.env, &log);
        let until = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let first =
                text.lines().find(|line| line.starts_with("camera-pipeline") || line.starts_with("stand-in"));
            if let Some(line) = first {
                let address = line.split_once("http://").map_or("", |(_, rest)| rest);
                let address = address.split([' ', '/']).next().unwrap_or_default().to_owned();
                return Part { process, address, log };
            }
            assert!(process.ended().is_none(), "{command} ended: {text}");
            assert!(Instant::now() < until, "{command} does not say that it runs: {text}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Starts both stand-ins; workers started from now on call them.
    pub(crate) async fn services(&mut self, detector: &[&str]) -> (Part, Part) {
        let journal = |name: &str| format!("--journal={}", self.folder.path().join(name).display());
        let (detections, analyses) = (journal("detections"), journal("analyses"));
        let mut args = vec![detections.as_str()];
        args.extend(detector);
        let detector = self.start("detector", &args).await;
        let analyser = self.start("analyser", &["--delay=5ms", &analyses]).await;
        let (detect, analyse) = (detector.url("/detect"), analyser.url("/analyse"));
        self.set("DETECTOR_URL", &detect);
        self.set("ANALYSER_URL", &analyse);
        (detector, analyser)
    }

    /// Which detections each image had, by its path; and how often each image was detected.
    pub(crate) fn detections(&self) -> BTreeMap<String, Vec<Vec<u64>>> {
        let mut found: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
        for line in self.journal("detections") {
            let path = line["file_path"].as_str().unwrap().to_owned();
            found.entry(path).or_default().push(numbers(&line["detection_ids"]));
        }
        found
    }

    /// The event ids that analyses of a batch came to, as often as it was analysed.
    pub(crate) fn event_ids(&self) -> BTreeMap<String, Vec<u64>> {
        let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in self.journal("analyses") {
            let batch = line["batch_id"].as_str().unwrap().to_owned();
            found.entry(batch).or_default().push(line["event_id"].as_u64().unwrap());
        }
        found
    }

    /// Which detections each analysed batch had.
    pub(crate) fn analyses(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for line in self.journal("analyses") {
            let ids = numbers(&line["detection_ids"]);
            let set: BTreeSet<u64> = ids.iter().copied().collect();
            assert_eq!(set.len(), ids.len(), "a batch has a detection twice: {line}");
            let batch =
                found.entry(line["batch_id"].as_str().unwrap().to_owned()).or_insert_with(|| set.clone());
            assert_eq!(*batch, set, "a batch is not the same when it is analysed again: {line}");
        }
        found
    }

    fn journal(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

impl Part {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        ask(&self.address, "POST", path, &body.to_string()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        ask(&self.address, "GET", path, "").await
    }

    pub(crate) async fn pressure(&self, queue: &str) -> Value {
        self.get(&format!("/v1/queue/{queue}/pressure")).await
    }

    pub(crate) async fn dead(&self, queue: &str) -> Vec<Value> {
        self.get(&format!("/v1/queue/{queue}/dead")).await["items"].as_array().unwrap().clone()
    }

    /// SIGTERM; how it ended.
    pub(crate) async fn stop(mut self) -> i32 {
        self.process.signal(rustix::process::Signal::TERM);
        eventually("it ends", async || self.process.ended()).await.code().unwrap_or(-1)
    }
}

/// An answer that must be 200.
async fn ask(address: &str, method: &str, path: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{method} {path} {body}: {answer}");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
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

/// An image nobody has seen before.
pub(crate) fn image(number: usize) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n".as_slice(), format!("image {number}").as_bytes(), &vec![0; number % 5000]].concat()
}

/// The documented job of an image, without its timestamp.
pub(crate) fn job(camera: &str, path: &Path) -> Value {
    json!({ "camera_id": camera, "file_path": path })
}
