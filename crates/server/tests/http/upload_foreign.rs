//! Uploads that another program begins on the server's Redis by the documented commands.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::Engine;
use quaymaster::store::{StoreOptions, open};
use quaymaster_server::ChunkPlace;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::objects::{About, Objects, ObjectsOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::request;
use crate::engines::{Act, Stage};
use crate::fixture::{Fixture, settings};
use crate::uploads::{Scene, config_in};

/// With the database of the bundled schema, which is a file that nobody has made yet.
const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
"#;
const ID: &str = "abc123";
const NODE: &str = "550e8400-e29b-41d4-a716-446655440000";
const KEY: &str = "connectors/my-connector/550e8400-e29b-41d4-a716-446655440000.pb";
const BYTES: &str = "what another program uploads";

/// What is told is heard sooner than a walk over the keys comes round again.
const SOON: Duration = Duration::from_secs(25);

async fn store(redis: &RedisServer) -> Arc<dyn Engine> {
    open(StoreOptions::from_url(&redis.url(), Path::new("unused")).unwrap()).await.unwrap()
}

async fn start(redis: &RedisServer, folder: TempDir) -> Scene {
    start_on(store(redis).await, folder).await
}

async fn start_on(store: Arc<dyn Engine>, folder: TempDir) -> Scene {
    let uploads = config_in(folder.path(), ChunkPlace::Store);
    let server = Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, store, &uploads).await;
    Scene { server, folder }
}

/// The state of a new upload, with a multipart upload in the folder of objects.
async fn begin(redis: &RedisServer, folder: &Path) {
    let url = format!("file:{}", folder.join("objects").display());
    let objects = Objects::open(&url, &ObjectsOptions::default()).await.unwrap();
    let multipart = objects.begin(KEY, &About::default()).await.unwrap();
    set(redis, &[("node_id", NODE), ("s3_upload_id", multipart.as_str()), ("s3_key", KEY)]);
    set(redis, &[("status", "UPLOADING"), ("expected_size", "0"), ("mime_type", "text/plain")]);
    redis.command::<()>(&["EXPIRE", &state(), "86400"]);
}

fn state() -> String {
    format!("upload:{ID}:state")
}

fn set(redis: &RedisServer, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        redis.command::<()>(&["HSET", &state(), name, value]);
    }
}

/// The only chunk, which nobody is told of.
fn put(redis: &RedisServer) {
    redis.command::<()>(&["SETEX", &format!("upload:{ID}:chunks:0"), "3600", BYTES]);
    redis.command::<()>(&["HINCRBY", &state(), "received_chunks", "1"]);
    set(redis, &[("is_last_received", "true"), ("total_chunks", "1")]);
}

/// Without a call, which would open the database.
async fn completed(redis: &RedisServer) {
    until(|| redis.command::<String>(&["HGET", &state(), "status"]) == "COMPLETED").await;
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn scans(redis: &RedisServer) -> bool {
    redis.info("commandstats", "cmdstat_scan").is_some()
}

async fn check_content(scene: &Scene) {
    let content = scene.server.get(&format!("/v1/upload/files/{ID}/content")).await;
    assert_eq!((content.status, content.text()), (200, BYTES.to_owned()));
}

#[tokio::test]
async fn what_is_announced_to_a_server_without_a_database_is_gone_on_with() {
    let redis = RedisServer::start(RedisConfig::default());
    let scene = start(&redis, TempDir::new().unwrap()).await;
    // It listens, and has looked at the keys that there are.
    let channel = "upload:chunk:received";
    until(|| redis.command::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1 > 0 && scans(&redis)).await;
    assert!(!scene.folder.path().join("uploads.db").exists());
    begin(&redis, scene.folder.path()).await;
    put(&redis);
    let told = json!({ "upload_id": ID, "chunk_number": 0, "is_last": true }).to_string();
    redis.command::<()>(&["PUBLISH", channel, &told]);
    completed(&redis).await;
    check_content(&scene).await;
}

#[tokio::test]
async fn what_lies_there_when_a_server_starts_without_a_database_is_gone_on_with() {
    let (redis, folder) = (RedisServer::start(RedisConfig::default()), TempDir::new().unwrap());
    begin(&redis, folder.path()).await;
    put(&redis);
    let scene = start(&redis, folder).await;
    completed(&redis).await;
    check_content(&scene).await;
}

#[tokio::test]
async fn a_server_beside_uploads_that_another_program_ended_leaves_no_files() {
    let redis = RedisServer::start(RedisConfig::default());
    set(&redis, &[("node_id", NODE), ("status", "COMPLETED")]);
    let mut scene = start(&redis, TempDir::new().unwrap()).await;
    until(|| scans(&redis)).await;
    scene.server.ask_to_stop();
    scene.server.stopped().await;
    assert_eq!(std::fs::read_dir(scene.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_be_gone_on_with_is_refused_alike_by_every_call() {
    let redis = RedisServer::start(RedisConfig::default());
    let scene = start(&redis, TempDir::new().unwrap()).await;
    begin(&redis, scene.folder.path()).await;
    put(&redis);
    // A worker of that program has shipped a part.
    redis.command::<()>(&["ZADD", &format!("upload:{ID}:etags"), "0", "\"etag-chunk-0\""]);
    let path = format!("/v1/upload/files/{ID}");
    let mut problems = Vec::new();
    for (method, path, body) in [
        ("GET", path.clone(), ""),
        ("PUT", format!("{path}/chunk/1?last=true"), "more"),
        ("DELETE", path.clone(), ""),
        ("GET", format!("{path}/content"), ""),
    ] {
        let refused = scene.server.raw(&request(method, &path, &[], body.as_bytes())).await;
        assert_eq!(refused.status, 409, "{method} {path}: {}", refused.text());
        let Value::Object(problem) = refused.json() else { panic!("{}", refused.text()) };
        problems.push((problem["code"].clone(), problem["detail"].clone()));
    }
    assert_eq!(problems[0].0, "upload.foreign");
    assert!(problems[0].1.as_str().unwrap().contains("sent parts"), "{problems:?}");
    assert!(problems.iter().all(|problem| *problem == problems[0]), "{problems:?}");
    assert_eq!(redis.command::<String>(&["HGET", &state(), "status"]), "UPLOADING", "nothing is touched");
}

#[tokio::test]
async fn on_a_cluster_an_upload_of_another_program_is_nobodys() {
    let (redis, folder) = (RedisServer::start(RedisConfig::default()), TempDir::new().unwrap());
    begin(&redis, folder.path()).await;
    put(&redis);
    let stage = Stage::new(store(&redis).await, Act::Cluster);
    stage.released.add_permits(1_000_000);
    let scene = start_on(stage, folder).await;
    let unknown = scene.server.get(&format!("/v1/upload/files/{ID}")).await;
    assert_eq!(
        (unknown.status, &unknown.json()["code"]),
        (404, &json!("upload.unknown")),
        "{}",
        unknown.text()
    );
    assert_eq!(redis.command::<String>(&["HGET", &state(), "status"]), "UPLOADING");
}
