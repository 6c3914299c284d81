//! What the server logs: by what its callers call a request, why one failed, and what becomes of its certificate.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{StoreOptions, open};
use quaymaster_server::TlsFiles;
use quaymaster_server::config::ServerConfig;
use quaymaster_testkit::script_proxy::{ScriptProxy, Trick};
use quaymaster_testkit::servers::{Certificates, RedisConfig, RedisServer};
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;

use crate::client::request;
use crate::fixture::{Fixture, settings};
use crate::manners::traced;

const SCHEMA: &str = r#"
[schema]
name = "logs"
owner = "tests"

[limit.callers]
key = "callers:{address}"
algorithm = "sliding_log"
limit = 1
window = "10m"

[limit.calls]
key = "calls:{id}"
algorithm = "sliding_log"
limit = 9
window = "10m"
"#;

/// What was logged by the test's thread, as text. Its runtime must have no other.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn keep() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    /// Lines logged so far that have all of these parts.
    fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let fits = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(fits).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn the_line_of_a_defect_says_why_and_by_what_its_caller_calls_the_request() {
    let (log, _logging) = Log::keep();
    let redis = RedisServer::start(RedisConfig::default());
    let proxy = ScriptProxy::start(redis.address()).await;
    let store = open(StoreOptions::from_url(&proxy.url(), Path::new("unused")).unwrap()).await.unwrap();
    let server = Fixture::serving(SCHEMA, settings("", &|_| None).server, store).await;
    proxy
        .play_on(Trick::Say(b"-ERR user_script:1: all at sea script: 1f, on @user_script:1.\r\n"), "calls:7");
    let (trace, parent) = traced();
    let headers = [("traceparent", &*parent), ("x-request-id", "edge-1")];
    let take = request("POST", "/v1/limit/calls/take", &headers, br#"{"key":{"id":"7"}}"#);
    let answer = server.raw(&take).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (500, Some("script.failed")));
    let told = log.lines(&["defect"]);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in
        ["ERROR", "/v1/limit/{name}/take", "limit.take", "script.failed", "all at sea", trace, "edge-1"]
    {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
}

#[tokio::test]
async fn a_caller_over_the_limit_of_the_server_is_logged_by_the_names_of_its_request() {
    let (log, _logging) = Log::keep();
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let config = settings("[server.limit]\nname = \"callers\"\n", &|_| None).server;
    let server = Fixture::serving(SCHEMA, config, engine).await;
    let (trace, parent) = traced();
    for (status, id) in [(200, "edge-2"), (429, "edge-3")] {
        let headers = [("traceparent", &*parent), ("x-request-id", id)];
        let answer = server.raw(&request("GET", "/v1/limit/calls/peek?key.id=7", &headers, b"")).await;
        assert_eq!(answer.status, status);
        let told = log.lines(&[&format!("status={status}"), "/v1/limit/calls/peek", trace, id]);
        assert_eq!(told.len(), 1, "{id}: {told:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_warned_of_once_and_the_server_keeps_its_own() {
    let (log, _logging) = Log::keep();
    let (ours, other) = (Certificates::new(), Certificates::new());
    let folder = TempDir::new().unwrap();
    let files = ["server.pem", "server.key", "new.pem"].map(|name| folder.path().join(name));
    for (file, from) in files.iter().zip([&ours.server.cert, &ours.server.key, &other.server.cert]) {
        std::fs::copy(from, file).unwrap();
    }
    let [certificate, key, new] = files;
    let tls = TlsFiles { certificate: certificate.clone(), key, client_ca: None };
    let config = ServerConfig { tls: Some(tls), ..settings("", &|_| None).server };
    let server = Fixture::with(config).await;
    std::fs::rename(&new, &certificate).unwrap();
    let begun = Instant::now();
    let warned =
        || log.lines(&["WARN", "the server keeps the certificate it has", "server.pem", "server.key"]);
    while warned().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no warning");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(warned().len(), 1, "{:?}", warned());
    let connected = crate::tls::connect(server.address, &ours.ca, None).await;
    assert!(connected.is_ok(), "what it has is still used");
}
