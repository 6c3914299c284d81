//! A server on a free port over a store whose clock stands still.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use quaymaster::schema::{Schema, Source, load};
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_server::config::{Config, Overrides, RawConfig, ServerConfig, Thresholds};
use quaymaster_server::{Depot, Listening, Server, UploadConfig};
use quaymaster_testkit::servers::any_port;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Answer, Connection, request};

/// 2026-11-15 12:00:20 UTC: twenty seconds into a minute.
pub(crate) const NOW_US: i64 = 1_794_744_020_000_000;

pub(crate) const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[limit.psp]
key = "rl:{psp_id}:{minute}"
algorithm = "fixed_window"
limit = 3
window = "60s"
description = "three a minute"

[limit.pair]
key = "pair:{a}:{b}"
algorithm = "sliding_log"
limit = 5
window = "10s"

[limit.plain]
key = "plain"
algorithm = "token_bucket"
limit = 10
window = "10s"

[idempotency.pay]
key = "pay:{id}"
ttl = "1h"

[cache.page]
key = "page:{id}"
ttl = "1h"

[cache.status]
key = "status:{id}"
type = "hash"
ttl = "60s"

[cache.doc]
key = "doc:{id}"
type = "json"
ttl = "1h"
[cache.token]
key = "token:{id}"
ttl = "1h"
sensitive = true

[dedupe.image]
key = "image:{id}"
ttl = "5m"

[lock.door]
key = "door:{id}"
ttl = "30s"

[guard.pay]
limits = ["psp"]
idempotency = "pay"
lock = "door"

[queue.jobs]
max_size = 1000
compress_over = "1KiB"
retry = { max_attempts = 2, base = "1s", max = "1s", jitter = 0 }

[queue.tiny]
max_size = 2

[batch.camera]
by = "camera_id"
window = "90s"
to = "jobs"

[event.news]

[event.pulse]
status = { every = "5s", queues = ["jobs"] }

[run.pipeline]
key = "pipeline:{run_id}"
state_ttl = "25h"
hour_ttl = "2h"

[stats.web]
key = "web"

[queue.ranked]
order = "priority"
max_size = 1000
"#;

pub(crate) fn schema(text: &str) -> Arc<Schema> {
    let loaded = load(&[Source { name: "test.toml", text }], &|_| None);
    Arc::new(loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)))
}

pub(crate) fn settings(toml: &str, env: &dyn Fn(&str) -> Option<String>) -> Config {
    let raw = RawConfig::parse("test.toml", toml, std::path::Path::new(""), env).unwrap();
    let overrides = Overrides { listen: Some(any_port().to_string()), ..Overrides::default() };
    Config::resolve(raw, overrides).unwrap()
}

pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<dyn Engine>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<quaymaster::Result<()>>,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(settings("", &|_| None).server).await
    }

    pub(crate) async fn with(config: ServerConfig) -> Self {
        let clock = Clock::Manual(Arc::new(AtomicI64::new(NOW_US)));
        let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
        Self::on(config, Arc::new(EmbeddedStore::memory(options).await.unwrap())).await
    }

    pub(crate) async fn on(config: ServerConfig, engine: Arc<dyn Engine>) -> Self {
        Self::serving(SCHEMA, config, engine).await
    }

    pub(crate) async fn serving(text: &str, config: ServerConfig, engine: Arc<dyn Engine>) -> Self {
        let quaymaster = Quaymaster::new(schema(text), engine.clone());
        let server = Server::new(Listening::bind(config).await.unwrap(), quaymaster, Thresholds::default());
        Self::run(server, engine)
    }

    /// A server that warns by `thresholds`.
    pub(crate) async fn warning(thresholds: Thresholds) -> Self {
        let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
        let quaymaster = Quaymaster::new(schema(SCHEMA), engine.clone());
        let config = settings("", &|_| None).server;
        Self::run(Server::new(Listening::bind(config).await.unwrap(), quaymaster, thresholds), engine)
    }

    /// A server that takes uploads, with their objects, database and chunks in `uploads`' folder.
    pub(crate) async fn with_uploads(
        text: &str,
        config: ServerConfig,
        engine: Arc<dyn Engine>,
        uploads: &UploadConfig,
    ) -> Self {
        let quaymaster = Quaymaster::new(schema(text), engine.clone());
        let depot = Depot::new(&quaymaster, uploads);
        depot.check().await.unwrap();
        let server = Server::new(Listening::bind(config).await.unwrap(), quaymaster, Thresholds::default());
        Self::run(server.with_uploads(depot), engine)
    }

    fn run(server: Server, engine: Arc<dyn Engine>) -> Self {
        let address = server.address().tcp().expect("a TCP address");
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self { address, engine, stop: Some(stop), running }
    }

    /// Sends bytes on a connection of their own.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut connection = Connection::open(self.address).await;
        connection.send(bytes).await;
        connection.receive().await.expect("no answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.raw(&request("GET", path, &[], b"")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.raw(&request("POST", path, &[("content-type", "application/json")], body.as_bytes())).await
    }

    /// Asks the server to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until it has.
    pub(crate) async fn stopped(self) {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.running).await;
        ended.expect("the server does not stop").unwrap().unwrap();
    }
}
