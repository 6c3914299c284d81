//! An error of a chunk or of a `DELETE` that does not say `may_have_run` had no effect, whatever failed behind it.

use std::fs;
use std::sync::Arc;

use quaymaster::Engine;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{StoreOptions, open};
use quaymaster_server::ChunkPlace;
use quaymaster_testkit::between::Between;
use quaymaster_testkit::conformance::{command, command_int};
use quaymaster_testkit::script_proxy::{ScriptProxy, Trick};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::ledger::{Ledger, LedgerOptions, Step};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use crate::client::{Answer, request};
use crate::fixture::{Fixture, settings};
use crate::uploads::{Scene, bytes, config_in};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
chunk_max = "64KiB"
max_bytes_in_flight = "1MiB"
"#;

async fn memory() -> Arc<dyn Engine> {
    Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap())
}

async fn start_on(engine: Arc<dyn Engine>) -> Scene {
    start_in(TempDir::new().unwrap(), engine).await
}

async fn start_in(folder: TempDir, engine: Arc<dyn Engine>) -> Scene {
    let uploads = config_in(folder.path(), ChunkPlace::Spool);
    let server = Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, engine, &uploads).await;
    Scene { server, folder }
}

/// Status, code, and whether it may have run.
fn told(answer: &Answer) -> (u16, String, bool) {
    let problem: Value = answer.json();
    let code = problem["code"].as_str().unwrap_or_default().to_owned();
    (answer.status, code, problem["may_have_run"] == json!(true))
}

fn as_told(status: u16, code: &str, ran: bool) -> (u16, String, bool) {
    (status, code.to_owned(), ran)
}

impl Scene {
    async fn ledger(&self) -> Ledger {
        let file = format!("sqlite:{}", self.folder.path().join("uploads.db").display());
        Ledger::open(&file, &LedgerOptions::default()).await.unwrap()
    }

    async fn remove(&self, id: &str) -> Answer {
        self.server.raw(&request("DELETE", &format!("/v1/upload/files/{id}"), &[], b"")).await
    }

    /// From now on nothing can be found, begun or removed among the parts of objects.
    fn break_objects(&self) {
        let parts = self.folder.path().join("objects/uploads");
        fs::remove_dir_all(&parts).unwrap();
        fs::write(&parts, "no folder").unwrap();
    }
}

#[tokio::test]
async fn a_delete_says_what_the_call_says_when_the_object_store_fails_after_the_ledger_was_written() {
    let scene = start_on(memory().await).await;
    let (by_call, by_path) = (scene.id("a").await, scene.id("b").await);
    scene.break_objects();
    let body = json!({ "upload_id": by_call }).to_string();
    let called = scene.server.post("/v1/upload/files/abort", &body).await;
    let deleted = scene.remove(&by_path).await;
    assert_eq!(told(&called), as_told(503, "upload.backend", true), "{}", called.text());
    assert_eq!(told(&deleted), as_told(503, "upload.backend", true), "{}", deleted.text());
    let ledger = scene.ledger().await;
    for id in [by_call, by_path] {
        let upload = ledger.find(&id).await.unwrap().unwrap();
        assert_eq!(upload.step, Step::Aborting, "it had an effect");
    }
    // What was refused before anything was written says nothing.
    let unknown = scene.remove("unknown").await;
    assert_eq!(told(&unknown), as_told(404, "upload.unknown", false), "{}", unknown.text());
}

#[tokio::test]
async fn a_chunk_whose_script_ended_half_way_says_so() {
    let redis = RedisServer::start(RedisConfig::default());
    let proxy = ScriptProxy::start(redis.address()).await;
    let folder = TempDir::new().unwrap();
    let engine = open(StoreOptions::from_url(&proxy.url(), folder.path()).unwrap()).await.unwrap();
    let scene = start_in(folder, engine).await;
    let id = scene.id("a").await;
    // Only the script that takes the chunk has its key.
    let halfway = b"-ERR user_script:1: halfway script: 1f, on @user_script:1.\r\n";
    proxy.play_on(Trick::Say(halfway), &format!("upload:{id}:chunks:0"));
    let half = scene.put(&id, "0", &[], &bytes(2000, 0)).await;
    assert_eq!(proxy.played(), 1);
    assert_eq!(told(&half), as_told(500, "script.failed", true), "{}", half.text());
    assert_eq!(scene.state(&id).await["received_chunks"], 1, "it had an effect");
    let again = scene.put(&id, "0", &[], &bytes(2000, 0)).await;
    assert_eq!(again.status, 200, "a chunk may always be sent again: {}", again.text());
}

#[tokio::test]
async fn a_last_chunk_that_the_ledger_does_not_hear_of_says_so() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("uploads.db");
    // The ledger has no uploads any more when the chunk is taken.
    let broken = async move {
        let mut ledger = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        let query = sqlx::query("ALTER TABLE quaymaster_uploads RENAME TO gone");
        query.execute(&mut ledger).await.unwrap();
        ledger.close().await.unwrap();
    };
    let engine = Between::new(memory().await, "upload.accept", Box::pin(broken));
    let scene = start_in(folder, engine.clone()).await;
    let id = scene.id("a").await;
    let last = scene.put(&id, "0?last=true", &[], &bytes(500, 0)).await;
    assert!(engine.happened());
    assert_eq!(told(&last), as_told(503, "upload.backend", true), "{}", last.text());
}

#[tokio::test]
async fn a_chunk_that_was_taken_and_cannot_be_kept_says_so() {
    let folder = TempDir::new().unwrap();
    let spool = folder.path().join("spool/files");
    let gone = async move {
        for upload in fs::read_dir(spool).unwrap() {
            let upload = upload.unwrap().path();
            fs::remove_dir_all(&upload).unwrap();
            fs::write(&upload, "no folder").unwrap();
        }
    };
    let engine = Between::new(memory().await, "upload.accept", Box::pin(gone));
    let scene = start_in(folder, engine.clone()).await;
    let id = scene.id("a").await;
    let taken = scene.put(&id, "0", &[], &bytes(2000, 0)).await;
    assert!(engine.happened());
    assert_eq!(told(&taken), as_told(503, "upload.backend", true), "{}", taken.text());
}

#[tokio::test]
async fn a_chunk_that_is_refused_had_no_effect_and_says_nothing() {
    let scene = start_on(memory().await).await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200);
    let other = scene.put(&id, "0", &[], &bytes(2000, 1)).await;
    assert_eq!(told(&other), as_told(409, "upload.conflict", false), "{}", other.text());
    let small = scene.put(&id, "1", &[], &bytes(10, 1)).await;
    assert_eq!(told(&small), as_told(422, "upload.refused", false), "{}", small.text());
    let announced = [("content-digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:")];
    let wrong = scene.put(&id, "1", &announced, &bytes(2000, 1)).await;
    assert_eq!(told(&wrong), as_told(422, "upload.digest", false), "{}", wrong.text());
    // A key of another program is met before anything is written.
    command_int(&*scene.server.engine, &["DEL", &format!("upload:{id}:state")]).await;
    let key = format!("upload:{id}:state");
    command(&*scene.server.engine, key.as_bytes(), &[b"SET", key.as_bytes(), b"x"]).await.unwrap();
    let foreign = scene.put(&id, "1", &[], &bytes(2000, 1)).await;
    assert_eq!(told(&foreign), as_told(409, "key.wrong_type", false), "{}", foreign.text());
}

#[tokio::test]
async fn a_key_of_another_program_that_is_met_after_the_ledger_was_written_says_so() {
    let scene = start_on(memory().await).await;
    let id = scene.id("a").await;
    let ledger = scene.ledger().await;
    let _ = ledger.fail(&id, None, "why").await.unwrap();
    let key = format!("upload:{id}:state");
    command_int(&*scene.server.engine, &["DEL", &key]).await;
    command(&*scene.server.engine, key.as_bytes(), &[b"SET", key.as_bytes(), b"x"]).await.unwrap();
    let body = json!({ "upload_id": id }).to_string();
    let resumed = scene.server.post("/v1/upload/files/resume", &body).await;
    assert_eq!(told(&resumed), as_told(409, "key.wrong_type", true), "{}", resumed.text());
    assert_eq!(ledger.find(&id).await.unwrap().unwrap().step, Step::Open, "it had an effect");
}
