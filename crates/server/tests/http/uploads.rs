//! Uploads over HTTP: chunks in, objects out, and what is refused on the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::{ChunkPlace, UploadConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, request};
use crate::fixture::{Fixture, settings};
use crate::openapi::check;

pub(crate) const TEMPLATES: &[&str] = &[
    "/v1/upload/{name}/create",
    "/v1/upload/{name}/status",
    "/v1/upload/{name}/abort",
    "/v1/upload/{name}/resume",
    "/v1/upload/{name}/events",
    "/v1/upload/{name}/{upload_id}",
    "/v1/upload/{name}/{upload_id}/chunk/{n}",
    "/v1/upload/{name}/{upload_id}/progress",
    "/v1/upload/{name}/{upload_id}/content",
];

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"
chunk_max = "64KiB"
max_bytes_in_flight = "96KiB"
"#;

/// A server with its folder.
struct Scene {
    server: Fixture,
    folder: TempDir,
}

async fn start() -> Scene {
    start_with("", ChunkPlace::Spool).await
}

async fn start_with(config: &str, chunks: ChunkPlace) -> Scene {
    let folder = TempDir::new().unwrap();
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let uploads = UploadConfig { folder: folder.path().into(), chunks };
    let server = Fixture::with_uploads(SCHEMA, settings(config, &|_| None).server, engine, &uploads).await;
    Scene { server, folder }
}

impl Scene {
    async fn create(&self, body: &Value) -> Value {
        let answer = self.server.post("/v1/upload/files/create", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn id(&self, name: &str) -> String {
        self.create(&json!({ "name": name })).await["upload_id"].as_str().unwrap().to_owned()
    }

    async fn put(&self, id: &str, chunk: &str, headers: &[(&str, &str)], bytes: &[u8]) -> Answer {
        let path = format!("/v1/upload/files/{id}/chunk/{chunk}");
        let mut sent = request("PUT", &path, headers, bytes);
        if bytes.is_empty() {
            sent = request("PUT", &path, &[headers, &[("content-length", "0")]].concat(), bytes);
        }
        self.server.raw(&sent).await
    }

    async fn state(&self, id: &str) -> Value {
        let answer = self.server.get(&format!("/v1/upload/files/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Waits until an upload is what it is wanted to be.
    async fn until(&self, id: &str, status: &str) -> Value {
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

fn bytes(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ salt).collect()
}

#[tokio::test]
async fn a_file_goes_in_as_chunks_and_comes_out_as_one_object() {
    let scene = start().await;
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
    assert_eq!(content.header("content-disposition"), Some("attachment"));
    assert_eq!(content.header("x-content-type-options"), Some("nosniff"));
    let some = scene.server.raw(&request("GET", &path, &[("range", "bytes=65530-65540")], b"")).await;
    assert_eq!((some.status, some.header("content-range")), (206, Some("bytes 65530-65540/131172")));
    assert!(some.body == whole[65_530..=65_540]);
    let outside = scene.server.raw(&request("GET", &path, &[("range", "bytes=131172-")], b"")).await;
    assert_eq!((outside.status, &outside.json()["code"]), (416, &json!("upload.range")));
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
