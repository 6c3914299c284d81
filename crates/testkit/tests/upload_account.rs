//! Bytes leave the account of those in flight with their chunk, also when whoever ships it is stopped right before.
//!
//! A worker asks for its lease again and again while it ships. With the store's word for how a chunk ended the lease is
//! over, and a worker that asks just then hears that it is lost, and drops what it was doing.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream;
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::upload::Last;
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::between::Between;
use quaymaster_upload::announce::Announcer;
use quaymaster_upload::bytes::ChunkBytes;
use quaymaster_upload::ingest::{Creation, Incoming, Request, Took};
use quaymaster_upload::ledger::{Ledger, LedgerOptions};
use quaymaster_upload::objects::{Fsync, Objects, ObjectsOptions};
use quaymaster_upload::{Options, Uploads};
use tempfile::TempDir;
use tokio::sync::Notify;

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
objects = "file:unused"
database = "sqlite:unused"
"#;

async fn uploads(engine: Arc<dyn Engine>, folder: &Path) -> Uploads {
    let schema = load(&[Source { name: "test.toml", text: SCHEMA }], &|_| None).schema.unwrap();
    let store = Quaymaster::new(Arc::new(schema), engine).upload("files").unwrap().clone();
    let bytes = ChunkBytes::spool(&folder.join("spool"), Fsync::Never).await.unwrap();
    let objects = ObjectsOptions { fsync: Fsync::Never, ..ObjectsOptions::default() };
    let objects =
        Objects::open(&format!("file:{}", folder.join("objects").display()), &objects).await.unwrap();
    let database = format!("sqlite:{}", folder.join("uploads.db").display());
    let ledger = Ledger::open(&database, &LedgerOptions::default()).await.unwrap();
    Uploads::new(store, bytes, objects, ledger, Announcer::open("outbox:").unwrap(), Options::default())
}

/// One chunk, of which `before` does something, is shipped by somebody who is stopped when it is over for the store and
/// not yet for the account.
async fn stopped_before_the_account_knows(before: impl FnOnce(&Path)) {
    let folder = TempDir::new().unwrap();
    let (over, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let stopped = {
        let (over, go_on) = (over.clone(), go_on.clone());
        Box::pin(async move {
            over.notify_one();
            go_on.notified().await;
        })
    };
    let store = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let between = Between::new(store, "upload.back", stopped);
    let uploads = uploads(between.clone(), folder.path()).await;
    let request = Request { name: "a".to_owned(), ..Request::default() };
    let Creation::New(began) = uploads.create(&request).await.unwrap() else { panic!("it is new") };
    let incoming = Incoming { number: 0, last: Last::No, size: Some(2000), sha256: None };
    let body = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(vec![7; 2000]))]);
    let took = uploads.chunk(&began.upload_id, &incoming, body).await.unwrap();
    assert!(matches!(took, Took::Received { .. }), "{took:?}");
    before(&folder.path().join("spool").join(&began.upload_id));
    assert_eq!(uploads.store().in_flight().await.unwrap().bytes, 2000);
    tokio::select! {
        sent = uploads.ship_once(1) => panic!("{sent:?}: nobody stopped it"),
        () = over.notified() => {}
    }
    assert!(between.happened());
    go_on.notify_one();
    let begun = Instant::now();
    while uploads.store().in_flight().await.unwrap().bytes > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the bytes stay in the account");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_bytes_of_a_chunk_that_is_durable_leave_the_account() {
    stopped_before_the_account_knows(|_| ()).await;
}

#[tokio::test]
async fn the_bytes_of_a_chunk_that_is_lost_leave_the_account() {
    stopped_before_the_account_knows(|spool| std::fs::remove_dir_all(spool).expect("its spool")).await;
}
