//! A server on a socket file.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::config::{Config, Overrides, RawConfig, Thresholds};
use quaymaster_server::{Listening, Server};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::request;
use crate::fixture::{SCHEMA, schema};

fn config(path: &Path) -> Config {
    let listen = Some(format!("unix:{}", path.display()));
    Config::resolve(RawConfig::default(), Overrides { listen, ..Overrides::default() }).unwrap()
}

async fn bind(path: &Path) -> quaymaster::Result<Listening> {
    Listening::bind(config(path).server).await
}

struct Running {
    stop: oneshot::Sender<()>,
    running: JoinHandle<quaymaster::Result<()>>,
}

impl Running {
    async fn start(path: &Path) -> Self {
        let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
        let quaymaster = Quaymaster::new(schema(SCHEMA), engine);
        let server = Server::new(bind(path).await.unwrap(), quaymaster, Thresholds::default());
        assert_eq!(server.address().url(), format!("unix:{}", path.display()));
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async move { drop(stopped.await) }));
        Self { stop, running }
    }

    async fn stop(self) {
        drop(self.stop);
        self.running.await.unwrap().unwrap();
    }
}

/// Status and body of one request on a connection of its own.
async fn ask(path: &Path, bytes: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, &[("content-type", "application/json")], body.as_bytes())
}

#[tokio::test]
async fn a_socket_file_is_its_owners_alone_and_goes_with_its_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("quaymaster.sock");
    let server = Running::start(&path).await;
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o7777, 0o600);
    let (status, body) = ask(&path, &post("/v1/limit/plain/take", "{}")).await;
    assert_eq!(status, 200, "{body}");
    // No browser reaches a socket file: any name is fine, and a page's origin is looked at all the same.
    let named = b"GET /v1/limit/plain/peek HTTP/1.1\r\nhost: quaymaster\r\nconnection: close\r\n\r\n";
    assert_eq!(ask(&path, named).await.0, 200);
    let foreign =
        b"GET /v1/limit/plain/peek HTTP/1.1\r\nhost: quaymaster\r\norigin: http://evil.example\r\n\r\n";
    assert_eq!(ask(&path, foreign).await.0, 403);
    server.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_live_servers_socket_is_not_taken_and_a_dead_ones_is_replaced() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("quaymaster.sock");
    let server = Running::start(&path).await;
    let refused = bind(&path).await.unwrap_err();
    assert!(refused.detail.contains("another server listens"), "{refused}");
    assert_eq!(ask(&path, &post("/v1/limit/plain/take", "{}")).await.0, 200, "the first one goes on");
    server.stop().await;
    // What a killed process leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Running::start(&path).await;
    assert_eq!(ask(&path, &post("/v1/limit/plain/take", "{}")).await.0, 200);
    server.stop().await;
    std::fs::write(&path, "notes").unwrap();
    let refused = bind(&path).await.unwrap_err();
    assert!(refused.detail.contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
}

#[tokio::test]
async fn a_server_removes_no_socket_but_its_own() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("quaymaster.sock");
    let server = Running::start(&path).await;
    std::fs::remove_file(&path).unwrap();
    let second = Running::start(&path).await;
    server.stop().await;
    assert_eq!(ask(&path, &post("/v1/limit/plain/take", "{}")).await.0, 200);
    second.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_waiting_claim_notices_that_its_caller_hung_up() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("quaymaster.sock");
    let server = Running::start(&path).await;
    let waiting = async |wanted: usize| {
        let line = format!("quaymaster_http_requests_waiting {wanted}\n");
        for _ in 0..5000 {
            if ask(&path, &request("GET", "/metrics", &[], b"")).await.1.contains(&line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("never: {line}");
    };
    let mut waiter = UnixStream::connect(&path).await.unwrap();
    waiter.write_all(&post("/v1/queue/jobs/claim", r#"{"wait_ms":3600000}"#)).await.unwrap();
    waiting(1).await;
    drop(waiter);
    waiting(0).await;
    assert_eq!(ask(&path, &post("/v1/queue/jobs/push", r#"{"payload":7}"#)).await.0, 200);
    let (_, claimed) = ask(&path, &post("/v1/queue/jobs/claim", "{}")).await;
    let claimed: serde_json::Value = serde_json::from_str(&claimed).unwrap();
    assert_eq!(claimed["jobs"][0]["attempt"], json!(1), "{claimed}");
    server.stop().await;
}
