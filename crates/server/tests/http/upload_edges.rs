//! Uploads where something is not as it should be: chunks that are too small for their upload, bytes that were lost on
//! their way in, objects that are damaged, completions that wait, two who end one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::upload::{Digest, Known, New, Noted, Part, Status};
use quaymaster::{Engine, Quaymaster};
use quaymaster_server::ChunkPlace;
use quaymaster_testkit::between::Between;
use quaymaster_testkit::conformance::command_int;
use quaymaster_testkit::described::check;
use quaymaster_upload::ledger::{Claim, Ledger, LedgerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Connection, request};
use crate::fixture::{Fixture, schema, settings};
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

async fn memory(clock: Clock) -> Arc<dyn Engine> {
    Arc::new(EmbeddedStore::memory(EmbeddedOptions { clock, ..EmbeddedOptions::default() }).await.unwrap())
}

async fn start_on(engine: Arc<dyn Engine>, chunks: ChunkPlace) -> Scene {
    let folder = TempDir::new().unwrap();
    let uploads = config_in(folder.path(), chunks);
    let server = Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, engine, &uploads).await;
    Scene { server, folder }
}

async fn start() -> Scene {
    start_on(memory(Clock::System).await, ChunkPlace::Spool).await
}

impl Scene {
    /// Sends a chunk that does not say how long it is.
    async fn put_chunked(&self, id: &str, chunk: &str, body: &[u8]) -> Answer {
        let mut sent = format!(
            "PUT /v1/upload/files/{id}/chunk/{chunk} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        )
        .into_bytes();
        sent.extend_from_slice(body);
        sent.extend_from_slice(b"\r\n0\r\n\r\n");
        self.server.raw(&sent).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.server.raw(&request("DELETE", &format!("/v1/upload/files/{id}"), &[], b"")).await
    }

    /// An upload of one chunk that is complete, and the folder of its object.
    async fn completed(&self) -> (String, String, PathBuf) {
        let id = self.id("a").await;
        assert_eq!(self.put(&id, "0?last=true", &[], &bytes(2000, 0)).await.status, 200);
        let key = self.until(&id, "COMPLETED").await["s3_key"].as_str().unwrap().to_owned();
        let folder = self.folder.path().join("objects/objects").join(&key);
        (id, key, folder)
    }

    /// Everything that is told of an upload's progress until it ends; `meanwhile` begins when the snapshot is there.
    async fn followed<F: Future<Output = ()>>(&self, id: &str, meanwhile: impl FnOnce() -> F) -> Vec<Value> {
        let mut reader = Connection::open(self.server.address).await;
        let path = format!("/v1/upload/files/{id}/progress");
        reader.send(&request("GET", &path, &[("connection", "close")], b"")).await;
        assert_eq!(reader.receive_head().await.unwrap().status, 200);
        meanwhile().await;
        let told =
            tokio::time::timeout(Duration::from_secs(30), reader.rest()).await.expect("it does not end");
        let told = String::from_utf8(told).unwrap();
        let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}

#[tokio::test]
async fn a_chunk_too_small_for_the_announced_size_is_refused_whether_or_not_it_says_its_own() {
    let scene = start().await;
    let made = scene.create(&json!({ "name": "a", "size": 20_480_001 })).await;
    assert_eq!(made["chunk_min_bytes"], 2049);
    let id = made["upload_id"].as_str().unwrap();
    let small = bytes(2048, 0);
    let before = scene.put(id, "0", &[("expect", "100-continue")], &small).await;
    let after = scene.put_chunked(id, "0", &small).await;
    for refused in [before, after] {
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (422, &json!("upload.refused")), "{}", refused.head);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("20480001") && detail.contains("2049"), "{detail}");
    }
    let state = scene.state(id).await;
    assert_eq!((&state["received_chunks"], &state["status"]), (&json!(0), &json!("PENDING")), "{state}");
    // As large as it was told to be, and the last one as small as it likes.
    assert_eq!(scene.put(id, "0", &[], &bytes(2049, 0)).await.status, 200);
    assert_eq!(scene.put_chunked(id, "1", &bytes(2049, 1)).await.status, 200);
    assert_eq!(scene.put(id, "9999?last=true", &[], &bytes(10, 2)).await.status, 200);
    let unsized_one = scene.id("b").await;
    assert_eq!(scene.put(&unsized_one, "0", &[], &small).await.status, 200, "nobody has announced anything");
}

#[tokio::test]
async fn a_damaged_object_is_told_as_that_and_not_to_be_asked_for_again() {
    let scene = start().await;
    let (id, key, object) = scene.completed().await;
    let mut files = std::fs::read_dir(&object).unwrap().map(|entry| entry.unwrap().path());
    let part = files.find(|path| !path.ends_with("manifest.json")).unwrap();
    let damage: [(&str, &dyn Fn()); 3] = [
        ("shorter", &|| std::fs::write(&part, b"").unwrap()),
        (part.to_str().unwrap(), &|| std::fs::remove_file(&part).unwrap()),
        ("manifest.json", &|| std::fs::write(object.join("manifest.json"), "{").unwrap()),
    ];
    for (what, act) in damage {
        act();
        let told = scene.server.get(&format!("/v1/upload/files/{id}/content")).await;
        let problem = told.json();
        assert_eq!((told.status, &problem["code"]), (410, &json!("upload.damaged")), "{what}: {problem}");
        assert_eq!((told.header("retry-after"), problem.get("retry_after_ms")), (None, None), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(&key) && detail.contains(what) && detail.contains("upload the file again"),
            "{detail}"
        );
    }
}

#[tokio::test]
async fn a_status_shows_what_the_upload_was_created_with() {
    let scene = start().await;
    let said = json!({
        "name": "a \"b\".pdf", "path": "docs/2024/", "parent_id": "b1946ac9-2d5b-4a2e-9d4f-0c1f2d3e4a5b",
        "connector_id": "c-1", "client_node_id": "mine", "custom_metadata": {"author": "J", "n": [1, null]},
    });
    let id = scene.create(&said).await["upload_id"].as_str().unwrap().to_owned();
    let document = scene.server.get("/openapi.json").await.json();
    let shows = async || {
        let state = scene.state(&id).await;
        for (field, value) in said.as_object().unwrap() {
            assert_eq!(&state[field], value, "{field}: {state}");
        }
        let template = "/v1/upload/{name}/{upload_id}";
        let described = &document["paths"][template]["get"]["responses"]["200"]["content"];
        check(&document, &described["application/json"]["schema"], &state, template);
        let by_call = scene.server.get(&format!("/v1/upload/files/status?upload_id={id}")).await.json();
        assert_eq!(by_call, state, "the same by the generic call");
    };
    shows().await;
    // A store that forgot it is told by the ledger.
    assert_eq!(command_int(&*scene.server.engine, &["DEL", &format!("upload:{id}:state")]).await, 1);
    shows().await;
    let plain = scene.id("plain").await;
    let state = scene.state(&plain).await;
    assert_eq!((&state["name"], &state["connector_id"]), (&json!("plain"), &json!("default")), "{state}");
    for field in ["path", "parent_id", "custom_metadata", "client_node_id"] {
        assert_eq!(state.get(field), None, "nobody said it: {state}");
    }
}

#[tokio::test]
async fn a_chunk_that_stood_still_until_its_room_was_given_up_is_told_so() {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    let clock = Arc::new(AtomicI64::new(now));
    let store = memory(Clock::Manual(clock.clone())).await;
    let others = Quaymaster::new(schema(SCHEMA), store.clone());
    let minute = Duration::from_secs(60);
    let stands_still = Box::pin(async move {
        clock.fetch_add(61_000_000, SeqCst);
        others.upload("files").unwrap().lapsed(10, minute).await.unwrap();
    });
    // When all has come, and before it is taken.
    let between = Between::new(store, "upload.renew", stands_still);
    let scene = start_on(between.clone(), ChunkPlace::Spool).await;
    let id = scene.id("a").await;
    let told = scene.put(&id, "0", &[], &bytes(2000, 0)).await;
    assert!(between.happened());
    said_to_begin_anew(&told, "stood still");
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200, "then it is taken");
}

#[tokio::test]
async fn a_chunk_whose_bytes_the_store_lost_is_told_so() {
    let store = memory(Clock::System).await;
    let loses = {
        let store = store.clone();
        Box::pin(async move {
            let staged = store.scan(b"upload:*:staging:*", 100, None).await.unwrap().keys;
            for key in &staged {
                command_int(&*store, &["DEL", std::str::from_utf8(key).unwrap()]).await;
            }
            assert_eq!(staged.len(), 1);
        })
    };
    let scene = start_on(Between::new(store, "upload.accept", loses), ChunkPlace::Store).await;
    let id = scene.id("a").await;
    said_to_begin_anew(&scene.put(&id, "0", &[], &bytes(2000, 0)).await, "the store lost");
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200, "then it is taken");
}

fn said_to_begin_anew(told: &Answer, why: &str) {
    let problem = told.json();
    assert_eq!((told.status, &problem["code"]), (429, &json!("upload.busy")), "{problem}");
    assert_eq!((told.header("retry-after"), &problem["retry_after_ms"]), (Some("1"), &json!(1000)));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(why) && !detail.contains("do not fit"), "{detail}");
}

#[tokio::test]
async fn why_a_completion_waits_is_shown_and_told() {
    let scene = start().await;
    let others = Quaymaster::new(schema(SCHEMA), scene.server.engine.clone());
    let upload = others.upload("files").unwrap();
    let part = Part { number: 0, size: 5, digest: Digest::Blake3([1; 32]), etag: "\"0\"".to_owned() };
    let known = Known {
        parts: std::slice::from_ref(&part),
        total_chunks: Some(1),
        status: Some(Status::Completing),
        ..Known::default()
    };
    let new = New { node_id: "n", key: "k", time_left: upload.time_limit(), ..New::default() };
    assert!(upload.restore("waits", &new, &known).await.unwrap().complete);
    let why = "no broker takes the event";
    let told = scene
        .followed("waits", async || {
            assert_eq!(upload.note("waits", why).await.unwrap(), Noted::Noted);
            let state = scene.state("waits").await;
            assert_eq!((&state["status"], &state["error_message"]), (&json!("COMPLETING"), &json!(why)));
            let _ = upload.completed("waits", "e", 5).await.unwrap();
        })
        .await;
    let noted = told.iter().find(|progress| progress["error_message"] == why);
    assert_eq!(noted.map(|progress| &progress["status"]), Some(&json!("COMPLETING")), "{told:?}");
    assert_eq!(told.last().unwrap()["status"], "COMPLETED", "{told:?}");
    assert_eq!(told.last().unwrap().get("error_message"), None, "{told:?}");
}

#[tokio::test]
async fn whoever_follows_an_upload_that_is_called_off_is_told_that_nothing_follows() {
    let scene = start().await;
    let id = scene.id("a").await;
    let told = scene
        .followed(&id, async || {
            assert_eq!(scene.delete(&id).await.status, 200);
        })
        .await;
    let (first, last) = (&told[0], told.last().unwrap());
    assert_eq!((&first["aborted"], first.get("error_message")), (&json!(false), None), "{told:?}");
    assert_eq!((&last["status"], &last["aborted"]), (&json!("FAILED"), &json!(true)), "{told:?}");
    assert_eq!(last["error_message"], "aborted by the client", "{told:?}");
    // Whoever comes again, as browsers do, hears the same at once.
    let again = scene.followed(&id, async || {}).await;
    assert_eq!(again, std::slice::from_ref(last));
}

#[tokio::test]
async fn whoever_follows_an_upload_that_the_store_forgot_is_told_what_the_ledger_knows() {
    let scene = start().await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200);
    let begun = Instant::now();
    while scene.state(&id).await["durable_chunks"] != 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it becomes durable");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let keys = scene.server.engine.scan(format!("upload:{id}:*").as_bytes(), 100, None).await.unwrap().keys;
    assert!(keys.len() > 1, "{keys:?}");
    for key in &keys {
        command_int(&*scene.server.engine, &["DEL", std::str::from_utf8(key).unwrap()]).await;
    }
    let told = scene
        .followed(&id, async || {
            assert_eq!(scene.put(&id, "1?last=true", &[], &bytes(500, 1)).await.status, 200);
        })
        .await;
    let (first, last) = (&told[0], told.last().unwrap());
    assert_eq!((&first["uploaded_chunks"], &first["status"]), (&json!(1), &json!("UPLOADING")), "{told:?}");
    assert_eq!((&last["uploaded_chunks"], &last["status"]), (&json!(2), &json!("COMPLETED")), "{told:?}");
}

#[tokio::test]
async fn whoever_calls_off_what_somebody_else_is_ending_is_told_when_to_come_again() {
    let scene = start().await;
    let id = scene.id("a").await;
    let file = format!("sqlite:{}", scene.folder.path().join("uploads.db").display());
    let ledger = Ledger::open(&file, &LedgerOptions::default()).await.unwrap();
    let claim = ledger.abort(&id, "somebody else", Duration::from_secs(60)).await.unwrap();
    let Claim::Ours(fence, _) = claim else { panic!("{claim:?}") };
    let held = scene.delete(&id).await;
    assert_eq!((held.status, &held.json()["code"]), (503, &json!("upload.ending")), "{}", held.text());
    assert_eq!((held.header("retry-after"), &held.json()["retry_after_ms"]), (Some("1"), &json!(1000)));
    let _ = ledger.release(&fence, Duration::from_secs(60), "").await.unwrap();
    let done = scene.delete(&id).await;
    assert_eq!((done.status, &done.json()["aborted"]), (200, &json!(true)), "{}", done.text());
}
