//! Uploads over HTTP: chunks in, objects out, and what is refused on the way.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{StoreOptions, open};
use quaymaster_server::{ChunkPlace, UploadConfig};
use quaymaster_testkit::described::check;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::ledger::{Ledger, LedgerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Connection, request};
use crate::fixture::{Fixture, settings};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
chunk_max = "64KiB"
max_bytes_in_flight = "96KiB"

[upload.large]
key = "large:{upload_id}:state"
chunk_max = "16MiB"
max_bytes_in_flight = "32MiB"

[upload.huge]
key = "huge:{upload_id}:state"
max_bytes_in_flight = "100MiB"
"#;

/// A server with its folder.
pub(crate) struct Scene {
    pub(crate) server: Fixture,
    pub(crate) folder: TempDir,
}

pub(crate) fn config_in(folder: &Path, chunks: ChunkPlace) -> UploadConfig {
    UploadConfig { folder: folder.into(), chunks, ..UploadConfig::default() }
}

async fn start() -> Scene {
    start_with("", ChunkPlace::Spool).await
}

async fn start_with(config: &str, chunks: ChunkPlace) -> Scene {
    let folder = TempDir::new().unwrap();
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let uploads = config_in(folder.path(), chunks);
    let server = Fixture::with_uploads(SCHEMA, settings(config, &|_| None).server, engine, &uploads).await;
    Scene { server, folder }
}

impl Scene {
    pub(crate) async fn create(&self, body: &Value) -> Value {
        let answer = self.server.post("/v1/upload/files/create", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub(crate) async fn id(&self, name: &str) -> String {
        self.create(&json!({ "name": name })).await["upload_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn put(&self, id: &str, chunk: &str, headers: &[(&str, &str)], bytes: &[u8]) -> Answer {
        let path = format!("/v1/upload/files/{id}/chunk/{chunk}");
        let mut sent = request("PUT", &path, headers, bytes);
        if bytes.is_empty() {
            sent = request("PUT", &path, &[headers, &[("content-length", "0")]].concat(), bytes);
        }
        self.server.raw(&sent).await
    }

    pub(crate) async fn state(&self, id: &str) -> Value {
        let answer = self.server.get(&format!("/v1/upload/files/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Waits until an upload is what it is wanted to be.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        let begun = Instant::now();
        loop {
            let state = self.state(id).await;
            if state["status"] == status {
                return state;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{status}: {state}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) fn bytes(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ salt).collect()
}

#[tokio::test]
async fn a_file_goes_in_as_chunks_and_comes_out_as_one_object() {
    for chunks in [ChunkPlace::Spool, ChunkPlace::Store] {
        in_and_out(start_with("", chunks).await).await;
    }
}

#[tokio::test]
async fn the_same_goes_through_redis() {
    let redis = RedisServer::start(RedisConfig::default());
    let store = open(StoreOptions::from_url(&redis.url(), Path::new("unused")).unwrap()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let uploads = config_in(folder.path(), ChunkPlace::Store);
    let server = Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, store, &uploads).await;
    in_and_out(Scene { server, folder }).await;
}

async fn in_and_out(scene: Scene) {
    let document = scene.server.get("/openapi.json").await.json();
    let described = |template: &str, method: &str, value: &Value| {
        let content = &document["paths"][template][method]["responses"]["200"]["content"];
        check(&document, &content["application/json"]["schema"], value, template);
    };
    let whole = [bytes(65_536, 1), bytes(65_536, 1), bytes(100, 2)].concat();
    let file = json!({
        "name": "a.bin", "size": whole.len(), "mime_type": "application/x-test", "drive": "d", "path": "p/q",
        "custom_metadata": {"a": [1]}, "client_node_id": "mine", "connector_id": "c-1",
    });
    let made = scene.create(&file).await;
    described("/v1/upload/{name}/create", "post", &made);
    assert_eq!((&made["chunk_min_bytes"], &made["chunk_max_bytes"]), (&json!(1024), &json!(65_536)));
    let id = made["upload_id"].as_str().unwrap();
    let sha = BASE64_STANDARD.encode(ring_sha(&whole[131_072..]));
    // Out of order, two of them with the same bytes, one twice.
    for (number, from, to) in
        [("2?last=true", 131_072, whole.len()), ("1", 65_536, 131_072), ("0", 0, 65_536)]
    {
        let digest = format!("sha-256=:{sha}:");
        let headers: &[(&str, &str)] =
            if number == "1" || number == "0" { &[] } else { &[("content-digest", &digest)] };
        let took = loop {
            let took = scene.put(id, number, headers, &whole[from..to]).await;
            if took.status != 429 {
                break took;
            }
            assert_eq!(took.json()["code"], "upload.busy");
        };
        assert_eq!(took.status, 200, "{}", took.text());
        described("/v1/upload/{name}/{upload_id}/chunk/{n}", "put", &took.json());
        assert_eq!(
            (&took.json()["upload_id"], &took.json()["node_id"]),
            (&made["upload_id"], &made["node_id"])
        );
        assert_eq!(took.json()["chunk_number"].to_string(), number[..1]);
        if to == whole.len() {
            assert_eq!(took.json()["status"], "UPLOADING", "two more are to come: {}", took.text());
        }
    }
    let state = scene.until(id, "COMPLETED").await;
    described("/v1/upload/{name}/{upload_id}", "get", &state);
    assert_eq!((&state["final_size"], &state["durable_chunks"]), (&json!(whole.len()), &json!(3)));
    assert_eq!(
        (&state["resend"], &state["s3_key"]),
        (&json!([]), &json!(format!("connectors/c-1/{}.pb", made["node_id"].as_str().unwrap())))
    );
    let by_call = scene.server.get(&format!("/v1/upload/files/status?upload_id={id}")).await.json();
    assert_eq!(by_call, state, "the same by the generic call");
    // A chunk that comes again gets its answer again.
    let again = scene.put(id, "0", &[], &whole[..65_536]).await;
    assert_eq!((again.status, &again.json()["durable"]), (200, &json!(true)), "{}", again.text());
    let path = format!("/v1/upload/files/{id}/content");
    let content = scene.server.get(&path).await;
    assert_eq!((content.status, content.header("content-type")), (200, Some("application/x-test")));
    assert!(content.body == whole, "other bytes came out");
    assert_eq!(content.header("content-disposition"), Some("attachment; filename=\"a.bin\""));
    assert_eq!(content.header("x-content-type-options"), Some("nosniff"));
    let some = scene.server.raw(&request("GET", &path, &[("range", "bytes=65530-65540")], b"")).await;
    assert_eq!((some.status, some.header("content-range")), (206, Some("bytes 65530-65540/131172")));
    assert!(some.body == whole[65_530..=65_540]);
    let outside = scene.server.raw(&request("GET", &path, &[("range", "bytes=131172-")], b"")).await;
    assert_eq!((outside.status, &outside.json()["code"]), (416, &json!("upload.range")));
    assert_eq!(outside.header("content-range"), Some("bytes */131172"));
    // A range is for the content its reader has begun with; one who has all of it gets nothing.
    let etag = content.header("etag").unwrap();
    for (meant, status) in [(etag, 206), ("\"other\"", 200), ("Sun, 15 Nov 2026 08:00:00 GMT", 200)] {
        let headers = [("range", "bytes=5-9"), ("if-range", meant)];
        let some = scene.server.raw(&request("GET", &path, &headers, b"")).await;
        assert_eq!(some.status, status, "{meant}");
    }
    for (names, status) in [(etag, 304), ("*", 304), (&*format!("\"x\", W/{etag}"), 304), ("\"x\"", 200)] {
        let same = scene.server.raw(&request("GET", &path, &[("if-none-match", names)], b"")).await;
        assert_eq!((same.status, same.header("etag")), (status, Some(etag)), "{names}");
        assert_eq!(same.body.is_empty(), status == 304, "{names}");
    }
    let events = scene.server.get("/v1/upload/files/events").await.json();
    described("/v1/upload/{name}/events", "get", &events);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    assert_eq!(events["events"][0]["payload"]["node_id"], made["node_id"]);
    assert_eq!(events["events"][0]["payload"]["size"], json!(whole.len()));
    let next = events["next"].as_u64().unwrap();
    let none = scene.server.get(&format!("/v1/upload/files/events?after={next}")).await.json();
    assert_eq!(none, json!({ "events": [], "next": next }));
    let resumed = scene.server.post("/v1/upload/files/resume", &json!({ "upload_id": id }).to_string()).await;
    assert_eq!((resumed.status, &resumed.json()["status"]), (200, &json!("COMPLETED")));
    described("/v1/upload/{name}/resume", "post", &resumed.json());
}

fn ring_sha(bytes: &[u8]) -> [u8; 32] {
    *quaymaster_upload::Sha256::of(bytes).as_bytes()
}

#[tokio::test]
async fn what_cannot_be_a_chunk_is_refused_with_what_is_wrong() {
    let scene = start().await;
    let id = scene.id("a").await;
    let took = scene.put(&id, "0", &[], &bytes(2000, 0)).await;
    assert_eq!(took.status, 200, "{}", took.text());
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200, "the same again");
    let wrong = format!("sha-256=:{}:", BASE64_STANDARD.encode([0; 32]));
    let sizes = (bytes(2000, 0), bytes(2000, 1), bytes(100, 0), bytes(65_537, 0));
    for (chunk, headers, body, status, code, field) in [
        ("0", &[][..], &sizes.1, 409, "upload.conflict", "body"),
        ("1", &[], &sizes.3, 413, "upload.too_large", "body"),
        ("1", &[("content-digest", &*wrong)], &sizes.0, 422, "upload.digest", "content-digest"),
        ("1", &[("content-digest", "sha-256=x")], &sizes.0, 400, "request.invalid", "content-digest"),
        ("1", &[("content-encoding", "gzip")], &sizes.0, 415, "upload.media_type", "content-encoding"),
        ("1", &[("content-type", "application/json")], &sizes.0, 415, "upload.media_type", "content-type"),
        (
            "1",
            &[("content-type", "text/plain; charset=utf-8")],
            &sizes.0,
            415,
            "upload.media_type",
            "content-type",
        ),
        ("1", &[], &sizes.2, 422, "upload.refused", ""),
        ("10000", &[], &sizes.0, 422, "upload.refused", ""),
        ("x", &[], &sizes.0, 400, "request.invalid", "n"),
        ("-1", &[], &sizes.0, 400, "request.invalid", "n"),
        ("+1", &[], &sizes.0, 400, "request.invalid", "n"),
        ("1?last=maybe", &[], &sizes.0, 400, "request.invalid", "last"),
        ("1?lst=true", &[], &sizes.0, 400, "request.field", "lst"),
    ] {
        let refused = scene.put(&id, chunk, headers, body).await;
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (status, &json!(code)), "{chunk}: {problem}");
        assert_eq!(problem["field"].as_str().unwrap_or_default(), field, "{chunk}: {problem}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        if status == 415 {
            assert!(!problem["detail"].as_str().unwrap().contains("must be application/json"), "{problem}");
        }
    }
    let state = scene.state(&id).await;
    assert_eq!((&state["received_chunks"], &state["status"]), (&json!(1), &json!("UPLOADING")), "{state}");
    // Nothing of what was refused is left in the account of bytes in flight. Bytes of another type are bytes, as are
    // those of none.
    for headers in [&[("content-type", "image/png")][..], &[]] {
        assert_eq!(scene.put(&id, "1?last=true", headers, &sizes.0).await.status, 200, "{headers:?}");
    }
    let after = scene.put(&id, "2", &[], &sizes.0).await;
    assert!(matches!(after.status, 409 | 422), "{}", after.text());
    scene.until(&id, "COMPLETED").await;
    let wanted = [
        "quaymaster_chunks_queued{upload=\"files\"} 0",
        "quaymaster_upload_bytes_in_flight{upload=\"files\"} 0",
        "quaymaster_upload_chunk_latency_seconds_count{upload=\"files\"} 4",
        "quaymaster_s3_upload_latency_seconds_count{upload=\"files\"} 2",
        "quaymaster_upload_completion_latency_seconds_count{upload=\"files\"} 1",
    ];
    // The upload is shown as COMPLETED just before it is done.
    let begun = Instant::now();
    loop {
        let metrics = scene.server.get("/metrics").await.text();
        let missing: Vec<&&str> = wanted.iter().filter(|line| !metrics.contains(**line)).collect();
        if missing.is_empty() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{missing:?}: {metrics}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_is_not_there_or_not_possible_says_so() {
    let scene = start().await;
    let id = scene.id("a").await;
    let unknown = "0".repeat(32);
    for (method, path, status, code) in [
        ("GET", format!("/v1/upload/files/{unknown}"), 404, "upload.unknown"),
        ("DELETE", format!("/v1/upload/files/{unknown}"), 404, "upload.unknown"),
        ("GET", format!("/v1/upload/files/{unknown}/content"), 404, "upload.unknown"),
        ("GET", format!("/v1/upload/files/{unknown}/progress"), 404, "upload.unknown"),
        ("GET", format!("/v1/upload/other/{id}"), 404, "resource.unknown"),
        ("GET", "/v1/upload/files/a%2F..%2Fb".into(), 400, "request.invalid"),
        ("GET", format!("/v1/upload/files/{id}?x=1"), 400, "request.field"),
        ("GET", format!("/v1/upload/files/{id}/nothing"), 404, "route.unknown"),
        ("GET", format!("/v1/upload/files/{id}/chunk"), 404, "route.unknown"),
        ("GET", format!("/v1/upload/files/{id}/chunk/0"), 405, "route.method"),
        ("PUT", format!("/v1/upload/files/{id}"), 405, "route.method"),
        ("PUT", format!("/v1/upload/files/{id}/content"), 405, "route.method"),
        ("GET", "/v1/upload/files/create".into(), 405, "route.method"),
        ("GET", format!("/v1/upload/files/{id}/content"), 409, "upload.closed"),
        ("GET", "/v1/upload/files/events?after=x".into(), 400, "request.invalid"),
        ("GET", "/v1/upload/files/events?count=1001".into(), 400, "request.invalid"),
        ("GET", "/v1/upload/files/status".into(), 400, "request.invalid"),
    ] {
        let answer = scene.server.raw(&request(method, &path, &[], b"")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{method} {path}");
    }
    for (body, field) in [
        (json!({}), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": 1 }), "name"),
        (json!({ "name": "a", "size": -1 }), "size"),
        (json!({ "name": "a", "size": 1_u64 << 50 }), "size"),
        (json!({ "name": "a", "connector_id": "../x" }), "connector_id"),
        (json!({ "name": "a", "custom_metadata": [] }), "custom_metadata"),
        (json!({ "name": "a", "idempotency_key": "" }), "idempotency_key"),
        (json!({ "name": "a", "request_id": "x".repeat(129) }), "request_id"),
        (json!({ "name": "a", "request_id": "" }), "request_id"),
        (json!({ "name": "a", "request_id": "a*", "idempotency_key": "k" }), "request_id"),
        (json!({ "name": "a", "idempotency_key": "x".repeat(256) }), "idempotency_key"),
        (json!({ "name": "a", "nme": "b" }), "nme"),
    ] {
        let answer = scene.server.post("/v1/upload/files/create", &body.to_string()).await;
        let problem = answer.json();
        let status = if body["size"].as_u64().is_some() { 422 } else { 400 };
        assert_eq!((answer.status, &problem["field"]), (status, &json!(field)), "{body}: {problem}");
    }
}

#[tokio::test]
async fn what_cannot_be_created_leaves_nothing_behind() {
    let scene = start().await;
    let (long, word) = ("x".repeat(65 << 10), "x".repeat(5000));
    for (body, status, what) in [
        (json!({ "name": long }), 413, "name"),
        (json!({ "name": "a", "drive": word }), 413, "drive"),
        (json!({ "name": "a\0b" }), 400, "name"),
        (json!({ "name": "a", "path": "\0" }), 400, "path"),
        (json!({ "name": "a", "idempotency_key": "\0" }), 400, "idempotency_key"),
        (json!({ "name": "a", "mime_type": "text/html\r\nx: y" }), 400, "mime_type"),
    ] {
        let refused = scene.server.post("/v1/upload/files/create", &body.to_string()).await;
        let problem = refused.json();
        assert_eq!(refused.status, status, "{what}: {problem}");
        assert!(problem["detail"].as_str().unwrap().starts_with(what), "{problem}");
    }
    let file = format!("sqlite:{}", scene.folder.path().join("uploads.db").display());
    let ledger = Ledger::open(&file, &LedgerOptions::default()).await.unwrap();
    let rows = ledger.page("", 10).await.unwrap();
    assert_eq!(rows.len(), 0, "{rows:?}");
    let odd = json!({ "name": "../../ü\u{202e}\n", "path": "../..", "custom_metadata": {"a": "\0"} });
    scene.create(&odd).await;
}

#[tokio::test]
async fn a_sender_of_a_large_chunk_hears_that_it_is_to_come_back() {
    let scene = start().await;
    let made = scene.server.post("/v1/upload/huge/create", r#"{"name":"a"}"#).await.json();
    let path = format!("/v1/upload/huge/{}/chunk", made["upload_id"].as_str().unwrap());
    let mut first = Connection::open(scene.server.address).await;
    let head = format!(
        "PUT {path}/0 HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 104857600\r\n\r\n"
    );
    first.send(head.as_bytes()).await;
    assert_eq!(first.receive_head().await.unwrap().status, 100);
    // Sent to its end without a look at the answer, as most clients do.
    let busy = scene.server.raw(&request("PUT", &format!("{path}/1"), &[], &vec![0; 100 << 20])).await;
    assert_eq!((busy.status, &busy.json()["code"]), (429, &json!("upload.busy")), "{}", busy.text());
}

#[tokio::test]
async fn the_same_key_gets_the_same_upload_and_another_request_is_told() {
    let scene = start().await;
    let first = scene.create(&json!({ "name": "a", "idempotency_key": "k" })).await;
    let again = scene.create(&json!({ "name": "a", "idempotency_key": "k" })).await;
    assert_eq!((&first["upload_id"], &again["outcome"]), (&again["upload_id"], &json!("existing")));
    let other = scene.create(&json!({ "name": "a", "request_id": "k" })).await;
    assert_ne!(first["upload_id"], other["upload_id"], "a request's id is another name than a key");
    let body = json!({ "name": "b", "idempotency_key": "k" }).to_string();
    let mismatch = scene.server.post("/v1/upload/files/create", &body).await;
    assert_eq!((mismatch.status, &mismatch.json()["code"]), (409, &json!("upload.mismatch")));
}

#[tokio::test]
async fn an_upload_that_is_called_off_takes_no_more_and_a_completed_one_cannot_be() {
    let scene = start().await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200);
    let gone = scene.server.raw(&request("DELETE", &format!("/v1/upload/files/{id}"), &[], b"")).await;
    assert_eq!((gone.status, &gone.json()["aborted"]), (200, &json!(true)), "{}", gone.text());
    let again = scene.server.post("/v1/upload/files/abort", &json!({ "upload_id": id }).to_string()).await;
    assert_eq!(again.status, 200, "twice is once: {}", again.text());
    let late = scene.put(&id, "1?last=true", &[], b"x").await;
    assert_eq!((late.status, &late.json()["code"]), (409, &json!("upload.closed")), "{}", late.text());
    let done = scene.id("b").await;
    assert_eq!(scene.put(&done, "0?last=true", &[], b"").await.status, 200, "an empty file");
    scene.until(&done, "COMPLETED").await;
    let kept = scene.server.raw(&request("DELETE", &format!("/v1/upload/files/{done}"), &[], b"")).await;
    assert_eq!((kept.status, &kept.json()["code"]), (409, &json!("upload.closed")));
    let content = scene.server.get(&format!("/v1/upload/files/{done}/content")).await;
    assert_eq!((content.status, content.body.len()), (200, 0));
}

#[tokio::test]
async fn a_client_that_cuts_as_it_is_told_never_has_too_many_chunks() {
    let scene = start().await;
    let told = async |size: Value| {
        let made = scene.create(&json!({ "name": "a", "size": size })).await;
        made["chunk_min_bytes"].as_u64().unwrap()
    };
    assert_eq!(told(Value::Null).await, 1024, "whoever does not say how large it is must count for himself");
    assert_eq!(told(json!(10_240_000)).await, 1024, "10,000 of the smallest");
    assert_eq!(told(json!(10_240_001)).await, 1025);
    assert_eq!(told(json!(655_360_000)).await, 65_536, "10,000 of the largest");
    let body = json!({ "name": "a", "size": 655_360_001 }).to_string();
    let refused = scene.server.post("/v1/upload/files/create", &body).await;
    assert_eq!((refused.status, &refused.json()["field"]), (422, &json!("size")), "{}", refused.text());
}

#[tokio::test]
async fn content_is_of_its_own_resource_and_of_nobody_elses() {
    let scene = start().await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0?last=true", &[], &bytes(2000, 0)).await.status, 200);
    scene.until(&id, "COMPLETED").await;
    // `large` shares its database.
    for headers in [&[][..], &[("if-none-match", "*")], &[("range", "bytes=5000-")]] {
        let path = |name: &str| format!("/v1/upload/{name}/{id}/content");
        let other = scene.server.raw(&request("GET", &path("large"), headers, b"")).await;
        assert_eq!((other.status, &other.json()["code"]), (404, &json!("upload.unknown")), "{headers:?}");
        let own = scene.server.raw(&request("GET", &path("files"), headers, b"")).await;
        assert!(matches!(own.status, 200 | 304 | 416), "{}", own.text());
    }
}

#[tokio::test]
async fn an_object_that_somebody_removed_is_told_as_gone() {
    let scene = start().await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0?last=true", &[], &bytes(2000, 0)).await.status, 200);
    let state = scene.until(&id, "COMPLETED").await;
    let key = state["s3_key"].as_str().unwrap();
    std::fs::remove_dir_all(scene.folder.path().join("objects")).unwrap();
    let gone = scene.server.get(&format!("/v1/upload/files/{id}/content")).await;
    assert_eq!((gone.status, &gone.json()["code"]), (410, &json!("upload.gone")), "{}", gone.text());
    assert!(gone.json()["detail"].as_str().unwrap().contains(key), "{}", gone.text());
}

#[tokio::test]
async fn content_comes_under_the_name_it_was_given_whatever_that_says() {
    let scene = start().await;
    let id = scene.id("../ü\"\r\nx-injected: 1.pdf").await;
    assert_eq!(scene.put(&id, "0?last=true", &[], b"x").await.status, 200);
    scene.until(&id, "COMPLETED").await;
    let content = scene.server.get(&format!("/v1/upload/files/{id}/content")).await;
    assert_eq!((content.status, content.header("x-injected")), (200, None), "{}", content.head);
    assert_eq!(
        content.header("content-disposition"),
        Some(
            "attachment; filename=\"____x-injected_ 1.pdf\"; filename*=UTF-8''%C3%BC%22__x-injected%3A%201.pdf"
        )
    );
}

/// A sender that was let in and sends nothing more.
async fn let_in(scene: &Scene, id: &str, chunk: &str, length: usize) -> Connection {
    let mut sender = Connection::open(scene.server.address).await;
    let head = format!(
        "PUT /v1/upload/files/{id}/chunk/{chunk} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
         content-length: {length}\r\n\r\n"
    );
    sender.send(head.as_bytes()).await;
    let told = sender.receive_head().await.unwrap();
    assert_eq!(told.status, 100, "{}", told.head);
    sender
}

#[tokio::test]
async fn a_body_is_not_asked_for_before_there_is_room_and_a_sender_that_vanishes_gives_its_room_back() {
    let scene = start().await;
    let id = scene.id("a").await;
    let mut sender = let_in(&scene, &id, "0", 60_000).await;
    sender.send(&bytes(30_000, 0)).await;
    let expecting = [("expect", "100-continue")];
    let busy = scene.put(&id, "1", &expecting, &bytes(60_000, 1)).await;
    assert_eq!((busy.status, &busy.json()["code"]), (429, &json!("upload.busy")), "no 100 before it");
    let wait: u64 = busy.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&wait), "{wait}");
    assert!(busy.json()["retry_after_ms"].as_u64().unwrap() >= 1000);
    drop(sender);
    let begun = Instant::now();
    loop {
        let took = scene.put(&id, "1", &[], &bytes(60_000, 1)).await;
        if took.status == 200 {
            break;
        }
        assert_eq!(took.status, 429, "{}", took.text());
        assert!(begun.elapsed() < Duration::from_secs(20), "the room never came back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(scene.state(&id).await["received_chunks"], 1, "half a chunk is none");
}

#[tokio::test]
async fn a_sender_whose_upload_is_called_off_meanwhile_is_told_so() {
    let scene = start().await;
    let id = scene.id("a").await;
    let mut sender = let_in(&scene, &id, "0", 2000).await;
    sender.send(&bytes(1000, 0)).await;
    let gone = scene.server.raw(&request("DELETE", &format!("/v1/upload/files/{id}"), &[], b"")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    sender.send(&bytes(1000, 0)).await;
    let told = sender.receive().await.unwrap();
    assert_eq!((told.status, &told.json()["code"]), (409, &json!("upload.closed")), "{}", told.text());
}

#[tokio::test]
async fn a_sender_that_stalls_is_told_and_one_that_comes_slowly_is_not() {
    let scene = start_with("[server]\nrequest_timeout = \"300ms\"\n", ChunkPlace::Spool).await;
    let id = scene.id("a").await;
    let mut stalled = let_in(&scene, &id, "0", 2000).await;
    let answer = stalled.receive().await.unwrap();
    assert_eq!((answer.status, &answer.json()["code"]), (408, &json!("request.timeout")));
    // A byte now and then is no way to keep the room of a chunk.
    let mut dribbling = let_in(&scene, &id, "0", 2000).await;
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        dribbling.send(b"x").await;
    }
    let answer = dribbling.receive().await.unwrap();
    assert_eq!((answer.status, &answer.json()["code"]), (408, &json!("request.timeout")));
    let mut slow = let_in(&scene, &id, "0", 2000).await;
    for piece in bytes(2000, 0).chunks(250) {
        tokio::time::sleep(Duration::from_millis(60)).await;
        slow.send(piece).await;
    }
    assert_eq!(slow.receive().await.unwrap().status, 200, "480 ms in all, never 300 without a byte");
}

#[tokio::test]
async fn progress_begins_with_a_snapshot_and_ends_with_the_upload() {
    let scene = start().await;
    let id =
        scene.create(&json!({ "name": "a", "size": 4000 })).await["upload_id"].as_str().unwrap().to_owned();
    let mut reader = Connection::open(scene.server.address).await;
    let path = format!("/v1/upload/files/{id}/progress");
    reader.send(&request("GET", &path, &[("connection", "close")], b"")).await;
    let head = reader.receive_head().await.unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200);
    assert_eq!(scene.put(&id, "1?last=true", &[], &bytes(2000, 0)).await.status, 200);
    let told = tokio::time::timeout(Duration::from_secs(30), reader.rest()).await.expect("it does not end");
    let told = String::from_utf8(told).unwrap();
    let events: Vec<&str> = told.lines().filter(|line| line.starts_with("event: ")).collect();
    assert_eq!(events.first(), Some(&"event: snapshot"), "{told}");
    assert!(events.len() > 1 && events[1..].iter().all(|event| *event == "event: progress"), "{told}");
    let numbers = told.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok());
    assert!(numbers.collect::<Vec<_>>().is_sorted(), "{told}");
    let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
    let data: Vec<Value> = data.map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(data[0]["uploaded_chunks"], 0);
    let last = data.last().unwrap();
    assert_eq!((&last["status"], &last["uploaded_chunks"]), (&json!("COMPLETED"), &json!(2)), "{told}");
    assert_eq!((&last["percent"], &last["bytes_uploaded"]), (&json!(100.0), &json!(4000)), "{told}");
}

#[tokio::test]
async fn what_is_durable_outlives_the_store() {
    let mut scene = start().await;
    let done = scene.id("a").await;
    assert_eq!(scene.put(&done, "0?last=true", &[], &bytes(3000, 7)).await.status, 200);
    scene.until(&done, "COMPLETED").await;
    let begun_one = scene.id("b").await;
    assert_eq!(scene.put(&begun_one, "0", &[], &bytes(2000, 1)).await.status, 200);
    let begun = Instant::now();
    while scene.state(&begun_one).await["durable_chunks"] != 1 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    scene.server.ask_to_stop();
    scene.server.stopped().await;
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let uploads = config_in(scene.folder.path(), ChunkPlace::Spool);
    let config = settings("", &|_| None).server;
    scene.server = Fixture::with_uploads(SCHEMA, config, engine, &uploads).await;
    let content = scene.server.get(&format!("/v1/upload/files/{done}/content")).await;
    assert!(content.status == 200 && content.body == bytes(3000, 7));
    let state = scene.state(&begun_one).await;
    assert_eq!((&state["durable_chunks"], &state["status"]), (&json!(1), &json!("UPLOADING")), "{state}");
    assert_eq!(scene.put(&begun_one, "1?last=true", &[], &bytes(10, 2)).await.status, 200);
    scene.until(&begun_one, "COMPLETED").await;
    let content = scene.server.get(&format!("/v1/upload/files/{begun_one}/content")).await;
    assert!(content.body == [bytes(2000, 1), bytes(10, 2)].concat());
}

#[tokio::test]
async fn a_server_that_nobody_uploads_to_leaves_no_files() {
    let mut scene = start().await;
    assert_eq!(scene.server.get("/metrics").await.status, 200);
    scene.server.ask_to_stop();
    scene.server.stopped().await;
    assert_eq!(std::fs::read_dir(scene.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_download_under_way_ends_after_a_stop() {
    let mut scene = start().await;
    let made = scene.server.post("/v1/upload/large/create", r#"{"name":"a"}"#).await.json();
    let path = format!("/v1/upload/large/{}", made["upload_id"].as_str().unwrap());
    let whole = bytes(16 << 20, 3);
    let took = scene.server.raw(&request("PUT", &format!("{path}/chunk/0?last=true"), &[], &whole)).await;
    assert_eq!(took.status, 200, "{}", took.text());
    let begun = Instant::now();
    while scene.server.get(&path).await.json()["status"] != "COMPLETED" {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut reader = Connection::open(scene.server.address).await;
    reader.send(&request("GET", &format!("{path}/content"), &[], b"")).await;
    let head = reader.receive_head().await.unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("16777216")));
    scene.server.ask_to_stop();
    // Longer than a connection gets on which no request is being answered.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(reader.rest().await == whole, "it was cut short");
    scene.server.stopped().await;
}
