//! What is shown of uploads: figures by the right clock, counts and failures with their reasons; and what settings say.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_server::ChunkPlace;
use quaymaster_testkit::described::check;
use quaymaster_upload::objects::{Checksums, Fsync};
use serde_json::json;
use tempfile::TempDir;

use crate::client::request;
use crate::fixture::{Fixture, settings};
use crate::uploads::{Scene, bytes, config_in};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
max_bytes_in_flight = "1MiB"
chunk_max = "64KiB"
"#;

async fn start(clock: Clock) -> Scene {
    let folder = TempDir::new().unwrap();
    let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
    let engine = Arc::new(EmbeddedStore::memory(options).await.unwrap());
    let uploads = config_in(folder.path(), ChunkPlace::Spool);
    let server = Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, engine, &uploads).await;
    Scene { server, folder }
}

async fn until<T>(what: &str, mut so: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(so) = so().await {
            return so;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn how_long_an_upload_took_counts_from_its_first_chunk() {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    let clock = Arc::new(AtomicI64::new(now));
    let scene = start(Clock::Manual(clock.clone())).await;
    let id = scene.id("a").await;
    clock.fetch_add(3_600_000_000, SeqCst);
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 1)).await.status, 200);
    clock.fetch_add(40_000_000, SeqCst);
    assert_eq!(scene.put(&id, "1", &[], &bytes(2000, 2)).await.status, 200);
    clock.fetch_add(80_000_000, SeqCst);
    assert_eq!(scene.put(&id, "2?last=true", &[], &bytes(2000, 3)).await.status, 200);
    scene.until(&id, "COMPLETED").await;
    let metrics = until("it is counted", async || {
        let metrics = scene.server.get("/metrics").await.text();
        let counted = "quaymaster_upload_completion_latency_seconds_count{upload=\"files\"} 1\n";
        metrics.contains(counted).then_some(metrics)
    })
    .await;
    let sum = "quaymaster_upload_completion_latency_seconds_sum{upload=\"files\"} ";
    let sum = metrics.lines().find_map(|line| line.strip_prefix(sum)).unwrap();
    assert_eq!(sum, "120.000000", "not from its creation, an hour before");
    for bound in ["le=\"60.000000\"} 0", "le=\"300.000000\"} 1"] {
        let line = format!("quaymaster_upload_completion_latency_seconds_bucket{{upload=\"files\",{bound}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    // The four of the document, each as what it is documented to be.
    for (family, kind) in [
        ("quaymaster_chunks_queued", "gauge"),
        ("quaymaster_upload_chunk_latency_seconds", "histogram"),
        ("quaymaster_s3_upload_latency_seconds", "histogram"),
        ("quaymaster_upload_completion_latency_seconds", "histogram"),
    ] {
        assert!(metrics.contains(&format!("# TYPE {family} {kind}\n")), "{family}: {metrics}");
    }
}

#[tokio::test]
async fn the_status_counts_uploads_and_tells_why_they_failed() {
    let scene = start(Clock::System).await;
    let status = || async { scene.server.get("/v1/status").await.json()["uploads"].clone() };
    assert_eq!(status().await, json!([]), "nobody has uploaded anything");
    scene.id("open").await;
    let done = scene.id("done").await;
    assert_eq!(scene.put(&done, "0?last=true", &[], b"x").await.status, 200);
    scene.until(&done, "COMPLETED").await;
    let off = scene.id("off").await;
    let gone = scene.server.raw(&request("DELETE", &format!("/v1/upload/files/{off}"), &[], b"")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    // An upload whose parts are lost before it is put together cannot end well.
    let failed = scene.id("failed").await;
    assert_eq!(scene.put(&failed, "0", &[], &bytes(2000, 1)).await.status, 200);
    until("its part is there", async || (scene.state(&failed).await["durable_chunks"] == 1).then_some(()))
        .await;
    remove_parts(scene.folder.path());
    assert_eq!(scene.put(&failed, "1?last=true", &[], &bytes(2000, 2)).await.status, 200);
    let why = scene.until(&failed, "FAILED").await["error_message"].clone();
    let told = until("all are counted", async || {
        let told = status().await;
        let all =
            json!({"open": 1, "completing": 0, "completed": 1, "failed": 1, "expired": 0, "aborted": 1});
        (told[0]["by_status"] == all).then_some(told)
    })
    .await;
    assert_eq!((&told[0]["name"], &told[0]["more"]), (&json!("files"), &json!(false)));
    assert_eq!(told[0]["max_bytes_in_flight"], 1 << 20);
    assert_eq!(
        (&told[0]["failures"][0]["upload_id"], &told[0]["failures"][0]["reason"]),
        (&json!(failed), &why)
    );
    assert!(why.as_str().is_some_and(|why| !why.is_empty()), "{told}");
    assert_eq!(told[0]["failures"].as_array().unwrap().len(), 1);
    let document = scene.server.get("/openapi.json").await.json();
    check(&document, &json!({"$ref": "#/components/schemas/UploadStatus"}), &told[0], "status");
}

/// Removes what object stores call a multipart upload, of everybody.
fn remove_parts(folder: &Path) {
    let mut folders = vec![folder.join("objects")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn settings_of_uploads_are_what_the_file_says() {
    let environment = |name: &str| match name {
        "SECRET" => Some("hunter2".to_owned()),
        "SESSION" => Some("of an hour".to_owned()),
        _ => None,
    };
    let text = r#"
[uploads]
folder = "/srv/uploads"
spool = "/srv/spool"
fsync = "never"
lease = "90s"
attempts = 3
[uploads.s3]
endpoint = "http://127.0.0.1:8333"
region = "eu-central-1"
path_style = false
access_key_id = "key"
secret_access_key = { env = "SECRET" }
session_token = { env = "SESSION" }
checksums = "signature"
timeout = "5s"
min_bytes_per_second = "1MiB"
retries = 0
[uploads.database]
connections = 3
deadline = "1s"
"#;
    let config = settings(text, &environment);
    let uploads = &config.uploads;
    assert_eq!(uploads.folder, Path::new("/srv/uploads"));
    assert_eq!(uploads.spool.as_deref(), Some(Path::new("/srv/spool")));
    assert_eq!((uploads.lease, uploads.attempts), (Duration::from_secs(90), 3));
    let objects = &uploads.objects;
    assert_eq!((objects.fsync, objects.checksums), (Fsync::Never, Checksums::Signature));
    assert_eq!(objects.endpoint.as_deref(), Some("http://127.0.0.1:8333"));
    assert_eq!((objects.region.as_deref(), objects.path_style), (Some("eu-central-1"), Some(false)));
    assert_eq!((objects.patience, objects.slowest, objects.retries), (Duration::from_secs(5), 1 << 20, 0));
    let credentials = objects.credentials.as_ref().unwrap();
    assert_eq!((&*credentials.key_id, &*credentials.secret), ("key", "hunter2"));
    assert_eq!(credentials.token.as_deref(), Some("of an hour"));
    assert_eq!((uploads.database.connections, uploads.database.deadline), (3, Duration::from_secs(1)));
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("of an hour"), "{shown}");
    let none = settings("", &environment).uploads;
    assert!(none.objects.credentials.is_none() && none.objects.endpoint.is_none(), "the environment's");
    assert_eq!(none.folder, Path::new("./quaymaster-data"));
}
