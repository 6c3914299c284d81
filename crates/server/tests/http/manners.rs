//! What HTTP asks of everybody who speaks it: conditions, caching, packing, names of requests.

use std::io::Read as _;
use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::ChunkPlace;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use crate::client::{Answer, Connection, request};
use crate::fixture::{Fixture, settings};
use crate::uploads::{Scene, bytes, config_in};

async fn ask(server: &Fixture, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut connection = Connection::open(server.address).await;
    connection.send(&request(method, path, headers, b"")).await;
    let answer = if method == "HEAD" { connection.receive_head().await } else { connection.receive().await };
    answer.expect("no answer")
}

/// A trace, and the `traceparent` of a request in it.
pub(crate) fn traced() -> (&'static str, String) {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    (trace, format!("00-{trace}-00f067aa0ba902b7-01"))
}

#[tokio::test]
async fn files_of_the_page_are_sent_once() {
    let server = Fixture::start().await;
    let mut etags = std::collections::HashSet::new();
    for path in ["/", "/dashboard.js", "/dashboard.css"] {
        let first = server.get(path).await;
        let etag = first.header("etag").expect(path).to_owned();
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        for named in [&*etag, "*", &format!("\"x\", W/{etag}")] {
            let again = ask(&server, "GET", path, &[("if-none-match", named)]).await;
            assert_eq!((again.status, again.body.len()), (304, 0), "{path} {named}");
            assert_eq!(again.header("etag"), Some(&*etag));
        }
        assert_eq!(ask(&server, "GET", path, &[("if-none-match", "\"x\"")]).await.status, 200);
        assert!(etags.insert(etag), "{path}");
    }
}

#[tokio::test]
async fn metrics_and_status_are_packed_for_who_takes_that() {
    let server = Fixture::start().await;
    for path in ["/metrics", "/v1/status"] {
        let plain = server.get(path).await;
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
        let packed = ask(&server, "GET", path, &[("accept-encoding", "br, gzip")]).await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert!(packed.body.len() * 2 < plain.body.len(), "{path}: {}", packed.body.len());
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
        // What stands behind the first bytes counts on.
        let head = |text: &str| text.chars().take(20).collect::<String>();
        assert_eq!(head(&text), head(&plain.text()), "{path}");
    }
    let call = ask(&server, "GET", "/healthz", &[("accept-encoding", "gzip")]).await;
    assert_eq!(call.header("content-encoding"), None, "nothing else is packed");
}

#[tokio::test]
async fn nobody_keeps_what_was_read() {
    let server = Fixture::start().await;
    let read = server.get("/v1/limit/plain/peek").await;
    assert_eq!((read.status, read.header("cache-control")), (200, Some("no-store")), "{}", read.text());
    for path in [
        "/v1/key/explain?key=queue:jobs",
        "/v1/status",
        "/metrics",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/v1/limit/none/peek",
        "/nowhere",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}: {}", answer.head);
    }
}

#[tokio::test]
async fn a_problem_has_the_names_of_its_request() {
    let server = Fixture::start().await;
    let (trace, parent) = traced();
    let headers = [("traceparent", &*parent), ("x-request-id", "edge-7")];
    let named = ask(&server, "GET", "/v1/limit/none/peek", &headers).await.json();
    assert_eq!((&named["trace_id"], &named["x_request_id"]), (&json!(trace), &json!("edge-7")));
    let bad = [("traceparent", "00-1-2-3"), ("x-request-id", "two words")];
    let nameless = ask(&server, "GET", "/v1/limit/none/peek", &bad).await.json();
    assert!(nameless.get("trace_id").is_none() && nameless.get("x_request_id").is_none(), "{nameless}");
}

#[tokio::test]
async fn the_process_is_told_under_the_names_that_all_use() {
    let server = Fixture::start().await;
    let text = server.get("/metrics").await.text();
    let value = |family: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(family)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{family}: {text}")).parse::<f64>().unwrap()
    };
    for family in [
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "process_virtual_memory_bytes",
        "process_resident_memory_bytes",
    ] {
        assert!(value(family) > 0.0 || family.starts_with("process_cpu"), "{family}");
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((0.0..86_400.0).contains(&(now - value("process_start_time_seconds"))));
}

const UPLOADS: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
max_bytes_in_flight = "1MiB"
chunk_max = "64KiB"
"#;

#[tokio::test]
async fn content_is_sent_under_the_conditions_of_its_caller() {
    let folder = TempDir::new().unwrap();
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let uploads = config_in(folder.path(), ChunkPlace::Spool);
    let server = Fixture::with_uploads(UPLOADS, settings("", &|_| None).server, engine, &uploads).await;
    let scene = Scene { server, folder };
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0?last=true", &[], &bytes(5000, 1)).await.status, 200);
    scene.until(&id, "COMPLETED").await;
    for path in [format!("/v1/upload/files/{id}"), format!("/v1/upload/files/status?upload_id={id}")] {
        let state = scene.server.get(&path).await;
        assert_eq!((state.status, state.header("cache-control")), (200, Some("no-store")), "{path}");
    }
    let path = format!("/v1/upload/files/{id}/content");
    let whole = scene.server.get(&path).await;
    let kept = Some("private, no-cache");
    assert_eq!(whole.header("cache-control"), kept, "{}", whole.head);
    let (etag, modified) = (whole.header("etag").unwrap(), whole.header("last-modified").expect("a date"));
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (headers, wanted) in [
        (&[("if-match", etag)][..], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-unmodified-since", modified)], 200),
        (&[("if-unmodified-since", past)], 412),
        (&[("if-modified-since", modified)], 304),
        (&[("if-modified-since", past)], 200),
        (&[("if-none-match", etag)], 304),
        (&[("if-none-match", "\"other\""), ("if-modified-since", modified)], 200),
        (&[("range", "bytes=0-9"), ("if-range", modified)], 206),
        (&[("range", "bytes=0-9"), ("if-range", past)], 200),
        (&[("range", "bytes=0-9"), ("if-match", "\"other\"")], 412),
    ] {
        let answer = ask(&scene.server, "GET", &path, headers).await;
        assert_eq!(answer.status, wanted, "{headers:?}");
        if wanted < 400 {
            assert_eq!(answer.header("cache-control"), kept, "{headers:?}");
        }
        if wanted == 412 {
            assert_eq!(answer.json()["code"], "upload.changed");
        }
    }
    // An upload goes on changing after its content is there: a broker may have been away when it was to be announced.
    let file = scene.folder.path().join("uploads.db");
    let mut ledger = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    let late = "UPDATE quaymaster_uploads SET updated_ms = updated_ms + 3600000";
    assert_eq!(sqlx::query(late).execute(&mut ledger).await.unwrap().rows_affected(), 1);
    ledger.close().await.unwrap();
    assert_eq!(scene.server.get(&path).await.header("last-modified"), Some(modified));
    for (headers, wanted) in [
        (&[("if-modified-since", modified)][..], 304),
        (&[("if-unmodified-since", modified)], 200),
        (&[("range", "bytes=0-9"), ("if-range", modified)], 206),
    ] {
        assert_eq!(ask(&scene.server, "GET", &path, headers).await.status, wanted, "{headers:?}");
    }
    // What lies outside is a problem like any other, with the names of its request.
    let (trace, parent) = traced();
    let headers = [("range", "bytes=9000-"), ("traceparent", &*parent), ("x-request-id", "edge-8")];
    let outside = ask(&scene.server, "GET", &path, &headers).await;
    let problem = outside.json();
    assert_eq!((outside.status, outside.header("content-range")), (416, Some("bytes */5000")));
    assert_eq!((&problem["code"], &problem["field"]), (&json!("upload.range"), &json!("range")));
    assert_eq!((&problem["trace_id"], &problem["x_request_id"]), (&json!(trace), &json!("edge-8")));
    // A range belongs to GET: HEAD tells of the whole, whatever is asked.
    for range in ["bytes=0-9", "bytes=9000-"] {
        let head = ask(&scene.server, "HEAD", &path, &[("range", range)]).await;
        assert_eq!((head.status, head.header("content-length")), (200, Some("5000")), "{range}");
        assert_eq!((head.header("content-range"), head.header("etag")), (None, Some(etag)), "{range}");
    }
}
