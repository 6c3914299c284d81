//! The same for what is no call: chunks and `DELETE` of uploads, over HTTP, on a server that does everything else meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;

use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_server::{Depot, Listening, Server, UploadConfig};
use quaymaster_testkit::servers::{RedisConfig, RedisServer, any_port};
use quaymaster_testkit::trickster::{Trick, Trickster};
use quaymaster_testkit::verbs;
use quaymaster_upload::ledger::{Ledger, LedgerOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::runner::connect;

const TRICKS: &[Trick] =
    &[Trick::Lose, Trick::Refuse, Trick::Full, Trick::Say("unheard"), Trick::Half, Trick::Fail];

/// Scripts that the two routes ask for, and the server behind them.
const OPERATIONS: &[&str] = &[
    "upload.status",
    "upload.look",
    "upload.admit",
    "upload.hold",
    "upload.accept",
    "upload.arrive",
    "upload.enlist",
    "upload.delist",
    "upload.drop",
    "upload.back",
    "upload.unstage",
    "upload.rest",
    "upload.move",
    "upload.note",
    "upload.restore",
];

struct Scene {
    address: SocketAddr,
    behind: Arc<Trickster>,
    quaymaster: Quaymaster,
    ledger: Ledger,
    _folder: TempDir,
}

impl Scene {
    async fn on(store: Arc<dyn Engine>) -> Self {
        let folder = TempDir::new().unwrap();
        let text = verbs::schema("routes:", &folder.path().display().to_string());
        let schema = load(&[Source { name: "verbs.toml", text: &text }], &|_| None).schema.unwrap();
        let schema = Arc::new(schema);
        let behind = Trickster::new(store.clone());
        let tricked = Quaymaster::new(schema.clone(), behind.clone());
        let config = UploadConfig { folder: folder.path().to_owned(), ..UploadConfig::default() };
        let depot = Depot::new(&tricked, &config);
        let overrides = Overrides { listen: Some(any_port().to_string()), ..Overrides::default() };
        let config = Config::resolve(RawConfig::default(), overrides).unwrap();
        let listening = Listening::bind(config.server).await.unwrap();
        let server = Server::new(listening, tricked, config.thresholds).with_uploads(depot);
        let address = server.address().tcp().unwrap();
        tokio::spawn(server.run(std::future::pending()));
        let file = format!("sqlite:{}/uploads.db", folder.path().display());
        let ledger = Ledger::open(&file, &LedgerOptions::default()).await.unwrap();
        Self { address, behind, quaymaster: Quaymaster::new(schema, store), ledger, _folder: folder }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let json = if method == "POST" { "content-type: application/json\r\n" } else { "" };
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let sent = format!(
            "{method} /v1/upload/files/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{json}content-length: \
             {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    async fn create(&self) -> String {
        let (status, made) = self.ask("POST", "create", r#"{"name": "a"}"#).await;
        assert_eq!(status, 200, "{made}");
        made["upload_id"].as_str().unwrap().to_owned()
    }

    /// What a client can tell of an upload, and the ledger's word for it.
    async fn look(&self, id: &str) -> String {
        let state = self.quaymaster.upload("files").unwrap().status(id).await.unwrap().unwrap();
        let row = self.ledger.find(id).await.unwrap().unwrap();
        let receipt = state.receipt;
        let shown = (state.status, state.aborted, receipt.received_chunks, receipt.total_chunks);
        format!("{shown:?} {:?} {:?}", row.step, row.total_chunks)
    }

    /// Plays every trick on every script of a request that changes something; what was wrong, and how many were played.
    async fn try_all(&self, method: &str, path: &str) -> (Vec<String>, u64) {
        let (mut wrong, mut played) = (Vec::new(), 0);
        for operation in OPERATIONS {
            for trick in TRICKS {
                let id = self.create().await;
                let before = self.look(&id).await;
                self.behind.played();
                self.behind.play_on(*trick, operation, 0);
                let (status, told) = self.ask(method, &path.replace("ID", &id), "abc").await;
                self.behind.heal();
                let after = self.look(&id).await;
                played += self.behind.played();
                if status != 200 && told["may_have_run"] != true && before != after {
                    wrong.push(format!(
                        "{method}, {trick:?} on {operation}: {told}, and {before} became {after}"
                    ));
                }
            }
        }
        (wrong, played)
    }
}

async fn try_routes(store: Arc<dyn Engine>) {
    let scene = Scene::on(store).await;
    let mut wrong = Vec::new();
    for (method, path, least) in [("PUT", "ID/chunk/0?last=true", 3), ("DELETE", "ID", 2)] {
        let (found, played) = scene.try_all(method, path).await;
        let scripts = played as usize / TRICKS.len();
        assert!(scripts >= least, "{method} met tricks on {scripts} scripts alone");
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_and_deletes_are_honest_on_redis() {
    let server = RedisServer::start(RedisConfig::default());
    try_routes(connect(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_and_deletes_are_honest_on_the_embedded_store() {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    try_routes(Arc::new(store)).await;
}
