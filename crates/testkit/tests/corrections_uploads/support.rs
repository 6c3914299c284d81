//! The bundled system on a server and in a folder of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{TryStreamExt as _, stream};
use quaymaster::Quaymaster;
use quaymaster::schema::{BUNDLED, Schema, Source, load};
use quaymaster::store::backoff::Backoff;
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::upload::Last;
use quaymaster_testkit::servers::RedisServer;
use quaymaster_upload::ingest::{Content, Creation, Incoming, Request, Took};
use quaymaster_upload::ledger::{LedgerOptions, Node, Step, Sync};
use quaymaster_upload::objects::{Completed, Fsync, MultipartId, Objects, ObjectsOptions};
use quaymaster_upload::{Options, Settings, Sha256, Uploads};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(5);

/// The bundled system, but that chunks may be as short as the examples here.
pub(crate) fn system(changes: &[(&str, &str)]) -> String {
    let (_, text) = BUNDLED.iter().find(|(name, _)| name.contains("uploads")).expect("the system is bundled");
    let mut text = (*text).to_owned();
    for (from, to) in [("chunk_min = \"5MiB\"", "chunk_min = 1")].iter().chain(changes) {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

pub(crate) fn schema(text: &str) -> Schema {
    let loaded = load(&[Source { name: "uploads.toml", text }], &|_| None);
    loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

fn objects_options() -> ObjectsOptions {
    // Processes die here, machines do not.
    ObjectsOptions { fsync: Fsync::Never, ..ObjectsOptions::default() }
}

pub(crate) async fn objects(folder: &Path) -> Objects {
    let url = format!("file:{}", folder.join("objects").display());
    Objects::open(&url, &objects_options()).await.expect("a folder")
}

pub(crate) async fn engine(server: &RedisServer) -> Arc<RedisStore> {
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    Arc::new(RedisStore::connect(options).await.expect("the server is there"))
}

/// A node; any number of them may have the same server and folder.
pub(crate) async fn ours_with(server: &RedisServer, folder: &Path, changes: &[(&str, &str)]) -> Uploads {
    let quaymaster = Quaymaster::new(Arc::new(schema(&system(changes))), engine(server).await);
    let backoff = Backoff { base: Duration::from_millis(10), max: Duration::from_millis(50), jitter: 0.0 };
    let settings = Settings {
        folder: folder.to_owned(),
        spool: None,
        objects: objects_options(),
        ledger: LedgerOptions { sync: Sync::Never, deadline: PATIENCE, ..LedgerOptions::default() },
        options: Options { backoff, ..Options::default() },
        ..Settings::default()
    };
    let upload = quaymaster.upload("documents").expect("declared").clone();
    Uploads::open(upload, settings).await.expect("everything opens")
}

pub(crate) async fn ours(server: &RedisServer, folder: &Path) -> Uploads {
    ours_with(server, folder, &[]).await
}

pub(crate) async fn create(uploads: &Uploads, size: Option<u64>) -> String {
    let request = Request { name: "document.pdf".to_owned(), size, ..Request::default() };
    match uploads.create(&request).await.expect("created") {
        Creation::New(began) => began.upload_id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn send(uploads: &Uploads, id: &str, number: u32, data: &str, last: Last) -> Took {
    let sha256 = Some(Sha256::of(data.as_bytes()));
    let incoming = Incoming { number, last, size: Some(data.len() as u64), sha256 };
    let piece: Result<_, std::io::Error> = Ok(bytes::Bytes::copy_from_slice(data.as_bytes()));
    uploads.chunk(id, &incoming, stream::iter([piece])).await.expect("an answer")
}

/// How many chunks are received; panics when this one was not.
pub(crate) fn received(took: &Took) -> u32 {
    match took {
        Took::Received { receipt, .. } => receipt.received_chunks,
        other => panic!("{other:?}"),
    }
}

/// A document of these chunks, all of them received.
pub(crate) async fn sent(uploads: &Uploads, chunks: &[&str]) -> String {
    let id = create(uploads, Some(chunks.concat().len() as u64)).await;
    for (number, data) in (0..).zip(chunks) {
        let last = if number as usize + 1 == chunks.len() { Last::Yes } else { Last::No };
        let took = send(uploads, &id, number, data, last).await;
        assert_eq!(received(&took), number + 1);
    }
    id
}

/// Ships and sweeps, on this node alone, until the upload stands where it should.
pub(crate) async fn work_until(uploads: &Uploads, id: &str, step: Step) {
    let working = async {
        while uploads.ledger().find(id).await.expect("an answer").expect("it is there").step != step {
            let _ = uploads.ship_once(10).await.expect("shipping is answered");
            let _ = uploads.run_due().await.expect("the sweep is answered");
            tokio::time::sleep(GLANCE).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, working).await;
    let history = uploads.ledger().history(id).await;
    assert!(came.is_ok(), "{id} did not come to {step:?}: {history:#?}");
}

pub(crate) async fn content(uploads: &Uploads, id: &str) -> String {
    let Content::Pieces { pieces, .. } = uploads.content(id, None).await.expect("an answer") else {
        panic!("{id} has no content")
    };
    let pieces: Vec<bytes::Bytes> = pieces.try_collect().await.expect("read");
    String::from_utf8(pieces.concat()).expect("text")
}

pub(crate) async fn node(uploads: &Uploads, id: &str) -> Node {
    let upload = uploads.ledger().find(id).await.expect("an answer").expect("it is there");
    uploads.ledger().node(&upload.node_id).await.expect("an answer").expect("the row is there")
}

/// The payloads of its events.
pub(crate) async fn events(uploads: &Uploads, id: &str) -> Vec<serde_json::Value> {
    let events = uploads.ledger().events(0, 100).await.expect("an answer");
    let ours = events.iter().filter(|event| event.upload_id == id);
    ours.map(|event| serde_json::from_str(&event.payload).expect("JSON")).collect()
}

/// What a program of the old scheme reads.
pub(crate) fn field(server: &RedisServer, id: &str, name: &str) -> Option<String> {
    server.command(&["HGET", &format!("upload:{id}:state"), name])
}

/// Somebody asks the object store to put the parts together, and dies before anything else knows.
pub(crate) async fn complete_and_die(uploads: &Uploads, id: &str) {
    let upload = uploads.ledger().find(id).await.expect("an answer").expect("it is there");
    let parts = uploads.ledger().parts(id).await.expect("an answer");
    let multipart = MultipartId::new(upload.multipart_id.expect("begun"));
    let completed = uploads.objects().complete(&upload.object_key, &multipart, &parts).await;
    assert!(matches!(completed, Ok(Completed::Done { .. })), "{completed:?}");
}

/// Another hand in the ledger's database.
pub(crate) fn sql(folder: &Path, statement: &str) {
    const RUN: &str = "import sqlite3, sys\n\
        c = sqlite3.connect(sys.argv[1], timeout=60)\n\
        c.execute(sys.argv[2])\n\
        c.commit()";
    let file = folder.join("uploads.db");
    let status = Command::new("python3").args(["-c", RUN]).arg(file).arg(statement).status();
    assert!(status.expect("python3 runs").success());
}
