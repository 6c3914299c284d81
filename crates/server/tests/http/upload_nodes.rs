//! Documents: rows of `nodes` that callers name, and a table that another program made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::ChunkPlace;
use serde_json::json;
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;

use crate::client::request;
use crate::fixture::{Fixture, settings};
use crate::uploads::config_in;

const SCHEMA: &str = "[schema]\nname = \"test\"\nowner = \"tests\"\n\
    [upload.files]\nkey = \"upload:{upload_id}:state\"\nchunk_min = \"1KiB\"\n";
const NODE: &str = "550e8400-e29b-41d4-a716-446655440000";

async fn start(folder: &TempDir) -> Fixture {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let uploads = config_in(folder.path(), ChunkPlace::Spool);
    Fixture::with_uploads(SCHEMA, settings("", &|_| None).server, engine, &uploads).await
}

#[tokio::test]
async fn a_node_that_a_caller_names_has_one_upload() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder).await;
    let create = async |node_id: &str| {
        let body = json!({ "name": "a.pdf", "node_id": node_id }).to_string();
        server.post("/v1/upload/files/create", &body).await
    };
    let made = create(NODE).await;
    assert_eq!((made.status, &made.json()["node_id"]), (200, &json!(NODE)), "{}", made.text());
    let taken = create(NODE).await;
    let problem = taken.json();
    assert_eq!(
        (taken.status, &problem["code"], &problem["field"]),
        (409, &json!("upload.node"), &json!("node_id"))
    );
    for wrong in ["550E8400-E29B-41D4-A716-446655440000", "../../../../../../../etc/passwd/000000"] {
        let refused = create(wrong).await;
        let problem = refused.json();
        assert_eq!((refused.status, &problem["field"]), (400, &json!("node_id")), "{problem}");
    }
    // Called off, it leaves its node to the next one.
    let path = format!("/v1/upload/files/{}", made.json()["upload_id"].as_str().unwrap());
    let ended = server.raw(&request("DELETE", &path, &[], b"")).await;
    assert_eq!(ended.status, 200, "{}", ended.text());
    assert_eq!(create(NODE).await.json()["node_id"], NODE);
}

#[tokio::test]
async fn a_server_goes_on_beside_a_nodes_table_that_does_not_fit() {
    let folder = TempDir::new().unwrap();
    let run = async |sql: &'static str| {
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("uploads.db"));
        file.create_if_missing(true).connect().await.unwrap().execute(sqlx::raw_sql(sql)).await.unwrap();
    };
    run("CREATE TABLE nodes (node_id TEXT PRIMARY KEY, status TEXT, size BIGINT)").await;
    let server = start(&folder).await;
    let create = async || server.post("/v1/upload/files/create", r#"{"name":"a.pdf"}"#).await;
    let refused = create().await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["code"]), (503, &json!("upload.backend")), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("s3_etag") && detail.contains("nodes"), "{problem}");
    for path in ["/healthz", "/readyz", "/v1/status"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    // Somebody mends it, and nobody starts the server again.
    run("ALTER TABLE nodes ADD COLUMN s3_etag TEXT").await;
    let begun = Instant::now();
    while create().await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
