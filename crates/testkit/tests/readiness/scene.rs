//! A server over HTTP on a store, with its log.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quaymaster::schema::{Source, load};
use quaymaster::{Engine, Quaymaster};
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_server::{Depot, Listening, Server, UploadConfig};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::any_port;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tracing::subscriber::DefaultGuard;

const SCHEMA: &str = "
[schema]
name = \"ready\"
owner = \"tests\"
[limit.calls]
key = \"calls:{id}\"
algorithm = \"fixed_window\"
limit = 10
window = \"1h\"
";

/// What was logged, as text.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server that answers; its runtime must have one thread, whose log is kept.
pub(crate) struct Scene {
    pub(crate) address: SocketAddr,
    pub(crate) quaymaster: Quaymaster,
    log: Log,
    _running: JoinHandle<quaymaster::Result<()>>,
    _logging: DefaultGuard,
}

impl Scene {
    pub(crate) async fn on(url: &str) -> Self {
        Self::with(RedisOptions::from_url(url).unwrap()).await
    }

    pub(crate) async fn with(options: RedisOptions) -> Self {
        Self::of(|| async { Arc::new(RedisStore::connect(options).await.unwrap()) as Arc<dyn Engine> }).await
    }

    pub(crate) async fn of<F: Future<Output = Arc<dyn Engine>>>(engine: impl FnOnce() -> F) -> Self {
        Self::serving(SCHEMA, engine).await
    }

    pub(crate) async fn serving<F: Future<Output = Arc<dyn Engine>>>(
        schema: &str,
        engine: impl FnOnce() -> F,
    ) -> Self {
        let schemas = [Source { name: "ready.toml", text: schema }];
        Self::serving_all(&schemas, &|_| None, &UploadConfig::default(), engine).await
    }

    /// Several schemas, with their uploads.
    pub(crate) async fn serving_all<F: Future<Output = Arc<dyn Engine>>>(
        schemas: &[Source<'_>],
        env: &dyn Fn(&str) -> Option<String>,
        uploads: &UploadConfig,
        engine: impl FnOnce() -> F,
    ) -> Self {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let logging = tracing::subscriber::set_default(subscriber);
        let loaded = load(schemas, env);
        let quaymaster = Quaymaster::new(Arc::new(loaded.schema.unwrap()), engine().await);
        let overrides = Overrides { listen: Some(any_port().to_string()), ..Overrides::default() };
        let config = Config::resolve(RawConfig::default(), overrides).unwrap();
        let server =
            Server::new(Listening::bind(config.server).await.unwrap(), quaymaster.clone(), config.thresholds)
                .with_uploads(Depot::new(&quaymaster, uploads));
        let address = server.address().tcp().unwrap();
        let running = tokio::spawn(server.run(std::future::pending()));
        Self { address, quaymaster, log, _running: running, _logging: logging }
    }

    /// Status and body of a GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await.1).unwrap()
    }

    /// Waits until `/readyz` answers 503 with this code; the whole answer.
    pub(crate) async fn is_not_ready(&self, code: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("/readyz names {code}"), async || {
            let (status, body) = self.get("/readyz").await;
            last = serde_json::from_str(&body).unwrap();
            status == 503 && last["code"] == code
        })
        .await;
        assert!(!last["advice"].as_str().unwrap().is_empty() && last.get("may_have_run").is_none(), "{last}");
        last
    }

    pub(crate) async fn is_ready(&self) {
        until("/readyz is 200", async || self.get("/readyz").await.0 == 200).await;
    }

    /// Lines logged so far that have `part`.
    pub(crate) fn logged(&self, part: &str) -> Vec<String> {
        let bytes = self.log.0.lock().unwrap().clone();
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .filter(|line| line.contains(part))
            .map(str::to_owned)
            .collect()
    }
}

/// Tries until `ready` answers true; for what happens by itself.
pub(crate) async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
