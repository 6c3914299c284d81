//! What a sweep does with what it read a while ago.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::store::StoreOptions;
use quaymaster::upload::{Last, Status};
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;

use crate::ingest::{Creation, Incoming, Request, Resumed, Took};
use crate::ledger::{LedgerOptions, Reopen, Step, Sync};
use crate::objects::{Fsync, ObjectsOptions};
use crate::ship::Sent;
use crate::sweep::Round;
use crate::{Settings, Uploads};

async fn uploads(folder: &Path) -> Uploads {
    let toml = "[schema]\nname = \"uploads\"\nowner = \"tests\"\n[upload.documents]\n\
                key = \"upload:{upload_id}:state\"\nobjects = \"file:objects\"\ndatabase = \"sqlite:uploads.db\"\n";
    let loaded = load(&[Source { name: "uploads.toml", text: toml }], &|_| None);
    let schema = Arc::new(loaded.schema.unwrap());
    let url = format!("embedded:{}", folder.join("store").display());
    let engine = quaymaster::store::open(StoreOptions::from_url(&url, folder).unwrap()).await.unwrap();
    let store = Quaymaster::new(schema, engine).upload("documents").unwrap().clone();
    let settings = Settings {
        folder: folder.to_owned(),
        objects: ObjectsOptions { fsync: Fsync::Never, ..ObjectsOptions::default() },
        ledger: LedgerOptions { sync: Sync::Never, ..LedgerOptions::default() },
        ..Settings::default()
    };
    Uploads::open(store, settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_read_before_an_upload_was_resumed_undoes_nothing() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(folder.path()).await;
    let request = Request { name: "a.pdf".to_owned(), ..Request::default() };
    let Creation::New(began) = uploads.create(&request).await.unwrap() else { panic!("it is new") };
    let (id, ledger, store) = (began.upload_id.as_str(), uploads.ledger(), uploads.store());
    let open = ledger.find(id).await.unwrap().unwrap();

    // Its parts are lost, and its client goes on with it at once.
    assert!(ledger.fail(id, None, "parts_lost: gone").await.unwrap().ours().is_some());
    let failed = ledger.find(id).await.unwrap().unwrap();
    assert!(matches!(uploads.resume(id).await.unwrap(), Resumed::Open(_)));
    let resumed = ledger.find(id).await.unwrap().unwrap();
    assert_eq!(resumed.step, Step::Open);
    assert_ne!(resumed.multipart_id, open.multipart_id);

    for old in [open, failed] {
        assert!(!uploads.reconcile(&old).await.unwrap());
        let state = store.status(id).await.unwrap().unwrap();
        assert_eq!(state.status, Status::Pending);
        assert_eq!(Some(state.multipart_id), resumed.multipart_id);
    }
    // What is really behind the ledger is told.
    assert!(matches!(store.fail(id, "by mistake").await.unwrap(), quaymaster::upload::Moved::Moved { .. }));
    assert!(uploads.reconcile(&resumed).await.unwrap());
    assert_eq!(store.status(id).await.unwrap().unwrap().status, Status::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_that_died_before_its_multipart_upload_is_ended_by_the_sweep() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(folder.path()).await;
    let request = Request { name: "a.pdf".to_owned(), ..Request::default() };
    let Creation::New(began) = uploads.create(&request).await.unwrap() else { panic!("it is new") };
    let (id, ledger, store) = (began.upload_id.as_str(), uploads.ledger(), uploads.store());
    let limit = uploads.time_limit();
    assert!(ledger.fail(id, None, "parts_lost: gone").await.unwrap().ours().is_some());
    let _ = store.fail(id, "parts_lost: gone").await.unwrap();
    let left = ledger.reopen(id, Reopen::Afresh, limit).await.unwrap().ours().unwrap();
    assert_eq!((left.step, &left.multipart_id), (Step::Created, &None));

    assert!(uploads.reconcile(&left).await.unwrap());
    let (row, state) = (ledger.find(id).await.unwrap().unwrap(), store.status(id).await.unwrap().unwrap());
    assert_eq!((row.step, state.status), (Step::Open, Status::Pending));
    assert_eq!(row.multipart_id, Some(state.multipart_id));
    assert_eq!(uploads.objects().pending("", None).await.unwrap().uploads.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_further_away_in_the_store_is_brought_nearer_by_the_sweep() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(folder.path()).await;
    let request = Request { name: "a.pdf".to_owned(), ..Request::default() };
    let Creation::New(began) = uploads.create(&request).await.unwrap() else { panic!("it is new") };
    let (id, ledger, store) = (began.upload_id.as_str(), uploads.ledger(), uploads.store());
    let row = ledger.find(id).await.unwrap().unwrap();
    assert!(!uploads.reconcile(&row).await.unwrap(), "all is well");
    let begun_ms = store.status(id).await.unwrap().unwrap().deadline_ms;
    let far = Some(uploads.time_limit() * 2);
    let far = quaymaster::upload::Reopen { time_left: far, ..Default::default() };
    let _ = store.reopen(id, &far).await.unwrap();
    let far_ms = store.status(id).await.unwrap().unwrap().deadline_ms;
    assert!(far_ms > begun_ms);

    assert!(uploads.reconcile(&row).await.unwrap());
    let near = store.status(id).await.unwrap().unwrap();
    assert!(near.deadline_ms < far_ms && near.deadline_ms > near.now_ms, "{near:?}");
    let next = store.due(1, 0).await.unwrap().next.unwrap();
    assert!(next <= uploads.time_limit(), "the store's own sweep comes then: {next:?}");
    assert!(!uploads.reconcile(&row).await.unwrap(), "and stays");
    // Somebody has given it another one since it was looked at.
    store.shorten(id, far_ms, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(store.status(id).await.unwrap().unwrap().deadline_ms, near.deadline_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_chunks_that_the_store_alone_knows_is_learned_by_the_sweep() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(folder.path()).await;
    let request = Request { name: "a.pdf".to_owned(), ..Request::default() };
    let Creation::New(began) = uploads.create(&request).await.unwrap() else { panic!("it is new") };
    let (id, ledger) = (began.upload_id.as_str(), uploads.ledger());
    let incoming = Incoming { number: 0, last: Last::Yes, size: Some(3), sha256: None };
    let body = futures_util::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"abc"))]);
    assert!(matches!(uploads.chunk(id, &incoming, body).await.unwrap(), Took::Received { .. }));
    assert_eq!(uploads.ship_once(1).await.unwrap(), [Sent::Durable]);
    // As if both who brought it and who shipped it had died before they could tell.
    let file = folder.path().join("uploads.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let forget = sqlx::raw_sql("UPDATE quaymaster_uploads SET total_chunks = NULL, due_ms = deadline_ms");
    options.connect().await.unwrap().execute(forget).await.unwrap();
    assert_eq!(uploads.run_due().await.unwrap(), Round::default(), "nobody knows that it is whole");
    let row = ledger.find(id).await.unwrap().unwrap();
    assert_eq!((row.step, row.total_chunks), (Step::Open, None));

    assert!(uploads.reconcile(&row).await.unwrap());
    assert_eq!(ledger.find(id).await.unwrap().unwrap().total_chunks, Some(1));
    assert_eq!(uploads.run_due().await.unwrap(), Round { ended: 1, ..Round::default() });
    assert_eq!(ledger.find(id).await.unwrap().unwrap().step, Step::Done);
}
