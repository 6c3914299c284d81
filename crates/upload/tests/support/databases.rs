//! A database of its own for a test, and uploads in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use crate::servers::PostgresServer;
use quaymaster_upload::Sha256;
use quaymaster_upload::ledger::{
    Claim, Clock, Created, Fence, Ledger, LedgerOptions, Moved, New, NewNode, Part, RecordPart, Sync, Total,
    Upload,
};
use tempfile::TempDir;

pub const LEASE: Duration = Duration::from_secs(30);
pub const HOUR: Duration = Duration::from_secs(3600);

pub enum Server {
    Sqlite(TempDir),
    Postgres(PostgresServer),
}

/// An empty database and the clock its ledgers go by.
pub struct Database {
    pub server: Server,
    pub clock: Arc<AtomicI64>,
}

impl Database {
    pub fn sqlite() -> Self {
        Self::new(Server::Sqlite(tempfile::tempdir().unwrap()))
    }

    pub fn postgres() -> Self {
        Self::new(Server::Postgres(PostgresServer::start()))
    }

    fn new(server: Server) -> Self {
        Self { server, clock: Arc::new(AtomicI64::new(1_763_000_000_000)) }
    }

    pub fn url(&self) -> String {
        match &self.server {
            Server::Sqlite(folder) => format!("sqlite:{}", folder.path().join("ledger.db").display()),
            Server::Postgres(server) => server.url(),
        }
    }

    pub fn options(&self) -> LedgerOptions {
        LedgerOptions {
            sync: Sync::Never,
            clock: Clock::Held(Arc::clone(&self.clock)),
            deadline: Duration::from_secs(60),
            ..LedgerOptions::default()
        }
    }

    /// A ledger like one of another process: it shares nothing but the database.
    pub async fn ledger(&self) -> Ledger {
        Ledger::open(&self.url(), &self.options()).await.unwrap()
    }

    pub fn advance(&self, by: Duration) {
        self.clock.fetch_add(by.as_millis() as i64, SeqCst);
    }

    pub fn set_back(&self, by: Duration) {
        self.clock.fetch_sub(by.as_millis() as i64, SeqCst);
    }
}

pub fn new(id: &str) -> New {
    New {
        upload_id: id.to_owned(),
        resource: "documents".to_owned(),
        object_key: format!("connectors/default/node-{id}.pb"),
        token: format!("token-{id}"),
        expected_size: Some(30),
        idempotency_key: None,
        fingerprint: "request".to_owned(),
        time_limit: HOUR,
        node: NewNode {
            node_id: format!("node-{id}"),
            drive: Some("documents".to_owned()),
            name: Some("a.pdf".to_owned()),
            mime_type: Some("application/pdf".to_owned()),
            custom_metadata: Some("{\"author\":\"é\"}".to_owned()),
            ..NewNode::default()
        },
    }
}

pub fn part(number: u32, bytes: &str) -> Part {
    let sha256 = Sha256::of(bytes.as_bytes());
    Part {
        number,
        etag: format!("\"{}\"", &sha256.to_string()[..8]),
        size: bytes.len() as u64,
        digest: sha256.into(),
    }
}

/// An upload that takes parts, of multipart upload `multi-<id>`.
pub async fn opened(ledger: &Ledger, id: &str) -> Upload {
    let Created::Created(_) = ledger.create(&new(id)).await.unwrap() else { panic!("{id} is new") };
    ledger.opened(id, &format!("multi-{id}")).await.unwrap().ours().unwrap()
}

pub async fn record(ledger: &Ledger, id: &str, part: &Part) -> RecordPart {
    ledger.record_part(id, &format!("multi-{id}"), part).await.unwrap()
}

/// An upload with its two parts recorded.
pub async fn whole(ledger: &Ledger, id: &str) {
    opened(ledger, id).await;
    for number in 1..=2 {
        assert!(matches!(record(ledger, id, &part(number, "same bytes")).await, RecordPart::Durable { .. }));
    }
    assert_eq!(ledger.learn_total(id, 2).await.unwrap(), Total::Known { all: true });
}

pub async fn claimed(ledger: &Ledger, id: &str, owner: &str) -> Fence {
    match ledger.begin_completion(id, owner, LEASE).await.unwrap() {
        Claim::Ours(fence, _) => fence,
        other => panic!("{owner} should own {id}: {other:?}"),
    }
}

pub fn held(moved: Moved) -> Upload {
    match moved {
        Moved::Moved(upload) => *upload,
        other => panic!("should have moved: {other:?}"),
    }
}

pub fn lost(moved: Moved) -> Upload {
    match moved {
        Moved::Lost(upload) => *upload,
        other => panic!("should have been lost: {other:?}"),
    }
}

/// Everything from the claim to `done`.
pub async fn complete(ledger: &Ledger, fence: &Fence) {
    held(ledger.proved(fence, "\"whole\"", 20).await.unwrap());
    held(ledger.recorded(fence, "topic").await.unwrap());
    held(ledger.announced(fence).await.unwrap());
    held(ledger.finished(fence, HOUR).await.unwrap());
}
