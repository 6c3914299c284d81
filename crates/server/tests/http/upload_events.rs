//! Completions as a stream: each once, in order, also for a reader that was away.

use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::{ChunkPlace, UploadConfig};
use quaymaster_testkit::described::check;
use quaymaster_upload::ledger::{Ledger, LedgerOptions, Sync};
use quaymaster_upload::objects::{Fsync, ObjectsOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, request};
use crate::fixture::{Fixture, settings};
use crate::listening::Sse;
use crate::uploads::{Scene, config_in};

/// Both in one database, and so in one outbox, and under one topic.
const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[upload.files]
key = "upload:{upload_id}:state"
chunk_min = "1KiB"

[upload.others]
key = "others:{upload_id}:state"
"#;

/// Every token's text is its variable's name with this behind it.
const SUFFIX: &str = "-is-long-enough";

const STREAM: &[(&str, &str)] = &[("accept", "text/event-stream")];

async fn start(config: &str) -> Scene {
    start_with(SCHEMA, config).await
}

async fn start_with(schema: &str, config: &str) -> Scene {
    let folder = TempDir::new().unwrap();
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    // Nothing here is about a power cut.
    let uploads = UploadConfig {
        objects: ObjectsOptions { fsync: Fsync::Never, ..ObjectsOptions::default() },
        database: LedgerOptions { sync: Sync::Never, ..LedgerOptions::default() },
        ..config_in(folder.path(), ChunkPlace::Spool)
    };
    let config = settings(config, &|name| Some(format!("{name}{SUFFIX}"))).server;
    let server = Fixture::with_uploads(schema, config, engine, &uploads).await;
    Scene { server, folder }
}

impl Scene {
    /// Begins an upload of another name in the same database, which completes when it likes.
    async fn disturb(&self) {
        let other = self.server.post("/v1/upload/others/create", r#"{"name":"x"}"#).await.json();
        let path = format!("/v1/upload/others/{}", other["upload_id"].as_str().unwrap());
        let put = request("PUT", &format!("{path}/chunk/0?last=true"), &[], b"x");
        assert_eq!(self.server.raw(&put).await.status, 200);
    }

    async fn complete(&self, name: &str) -> String {
        let id = self.id(name).await;
        assert_eq!(self.put(&id, "0?last=true", &[], name.as_bytes()).await.status, 200);
        self.until(&id, "COMPLETED").await;
        id
    }

    async fn listen(&self, query: &str, headers: &[(&str, &str)]) -> Sse {
        let path = format!("/v1/upload/files/events{query}");
        Sse::open(self.server.address, &path, &[STREAM, headers].concat()).await
    }

    async fn page(&self, after: u64) -> Vec<Value> {
        let path = format!("/v1/upload/files/events?after={after}&count=1000");
        self.server.get(&path).await.json()["events"].as_array().unwrap().clone()
    }
}

/// The next event and the id it came under.
async fn heard(stream: &mut Sse) -> (u64, Value) {
    loop {
        let block = stream.block().await.expect("the stream goes on");
        let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        if let Some(data) = line("data: ") {
            return (line("id: ").unwrap().parse().unwrap(), serde_json::from_str(&data).unwrap());
        }
    }
}

#[tokio::test]
async fn a_reader_that_comes_again_gets_each_event_once() {
    let scene = start("").await;
    for name in ["a", "b"] {
        scene.disturb().await;
        scene.complete(name).await;
    }
    let mut stream = scene.listen("?after=0", &[]).await;
    let kept = scene.page(0).await;
    assert_eq!(kept.len(), 2, "those of the other name are not ours: {kept:?}");
    let document = scene.server.get("/openapi.json").await.json();
    for wanted in &kept {
        let (id, event) = heard(&mut stream).await;
        assert_eq!((json!(id), &event), (wanted["seq"].clone(), wanted), "as a page has it");
        check(&document, &json!({"$ref": "#/components/schemas/UploadEvent"}), &event, "event");
    }
    // What happens while somebody listens comes by itself; a second reader does not take it away.
    let mut second = scene.listen(&format!("?after={}", kept[1]["seq"]), &[]).await;
    scene.disturb().await;
    let id = scene.complete("c").await;
    let (last, event) = heard(&mut stream).await;
    assert_eq!(event["upload_id"], json!(id));
    assert_eq!(heard(&mut second).await, (last, event));
    drop((stream, second));
    let missed = [scene.complete("d").await, scene.complete("e").await];
    // As browsers do it: the same address again, and how far it came.
    let mut stream = scene.listen("?after=0", &[("last-event-id", &last.to_string())]).await;
    for id in &missed {
        assert_eq!(heard(&mut stream).await.1["upload_id"], json!(id));
    }
    let id = scene.complete("f").await;
    let (seq, event) = heard(&mut stream).await;
    assert_eq!(event["upload_id"], json!(id), "nothing twice, nothing in between");
    let all: Vec<Value> = scene.page(0).await;
    assert_eq!((all.len(), &all[5]["seq"]), (6, &json!(seq)));
}

/// A token for each of the two, and for nothing else.
fn tokens() -> String {
    let tokens = ["files", "others"]
        .map(|name| format!("{{ env = \"{name}\", name = \"{name}\", resources = [\"upload.{name}\"] }}"));
    format!("[server]\ntokens = [{}]\n", tokens.join(", "))
}

async fn ask(scene: &Scene, token: &str, method: &str, path: &str, body: &[u8]) -> Answer {
    let token = format!("Bearer {token}{SUFFIX}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    let headers = if method == "POST" { &headers[..] } else { &headers[..1] };
    scene.server.raw(&request(method, path, headers, body)).await
}

#[tokio::test]
async fn a_token_cannot_upload_over_a_document_of_another_resource() {
    // Nothing is remembered of an upload that has ended.
    let schema = SCHEMA.replace("[upload.others]", "[upload.others]\nkeep_after_done = \"1ms\"");
    let scene = start_with(&schema, &tokens()).await;
    let made =
        ask(&scene, "others", "POST", "/v1/upload/others/create", br#"{"name":"theirs"}"#).await.json();
    let path = format!("/v1/upload/others/{}", made["upload_id"].as_str().unwrap());
    let put = ask(&scene, "others", "PUT", &format!("{path}/chunk/0?last=true"), b"theirs").await;
    assert_eq!(put.status, 200, "{}", put.text());
    let begun = std::time::Instant::now();
    while ask(&scene, "others", "GET", &path, b"").await.status != 404 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let node_id = made["node_id"].as_str().unwrap();
    let database = format!("sqlite:{}", scene.folder.path().join("uploads.db").display());
    let ledger = Ledger::open(&database, &LedgerOptions::default()).await.unwrap();
    let node = ledger.node(node_id).await.unwrap().unwrap();
    assert_eq!((node.status.as_str(), node.facts.name.as_deref()), ("ACTIVE", Some("theirs")));

    let mine = json!({ "name": "mine", "path": "elsewhere", "node_id": node_id }).to_string();
    let refused = ask(&scene, "files", "POST", "/v1/upload/files/create", mine.as_bytes()).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("upload.node")), "{}", refused.text());
    assert_eq!(ledger.node(node_id).await.unwrap().unwrap(), node);
    // Its own resource may put another object there.
    let again = ask(&scene, "others", "POST", "/v1/upload/others/create", mine.as_bytes()).await;
    assert_eq!(again.json()["node_id"], node_id, "{}", again.text());
}

#[tokio::test]
async fn a_token_reads_the_events_of_its_own_uploads_alone() {
    let scene = start(&tokens()).await;
    let ask = async |token: &str, method: &str, path: &str, body: &[u8]| {
        ask(&scene, token, method, path, body).await
    };
    // One of each, in an order in which each comes before and after the other.
    let mut ids = Vec::new();
    for name in ["files", "others", "files", "others"] {
        let made = ask(name, "POST", &format!("/v1/upload/{name}/create"), br#"{"name":"x"}"#).await.json();
        let id = made["upload_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/upload/{name}/{id}");
        assert_eq!(ask(name, "PUT", &format!("{path}/chunk/0?last=true"), b"x").await.status, 200);
        let begun = std::time::Instant::now();
        while ask(name, "GET", &path, b"").await.json()["status"] != "COMPLETED" {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30));
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        ids.push(id);
    }
    for (name, other, own) in [("files", "others", [0, 2]), ("others", "files", [1, 3])] {
        let path = format!("/v1/upload/{name}/events?after=0");
        let page = ask(name, "GET", &path, b"").await.json();
        let told: Vec<&Value> =
            page["events"].as_array().unwrap().iter().map(|event| &event["upload_id"]).collect();
        assert_eq!(told, own.map(|at| &ids[at]), "{name}");
        assert_eq!(page["events"][0]["payload"]["resource"], name);
        assert_eq!(ask(other, "GET", &path, b"").await.json()["code"], "auth.resource");
        let token = format!("Bearer {name}{SUFFIX}");
        let mut stream =
            Sse::open(scene.server.address, &path, &[STREAM, &[("authorization", &token)]].concat()).await;
        for at in own {
            assert_eq!(heard(&mut stream).await.1["upload_id"], json!(ids[at]));
        }
    }
}

#[tokio::test]
async fn a_quiet_stream_has_a_heartbeat_and_ends_with_the_server() {
    let mut scene = start("[server]\nheartbeat = \"100ms\"\n").await;
    let mut stream = scene.listen("", &[]).await;
    for _ in 0..3 {
        assert_eq!(stream.block().await.as_deref(), Some(": heartbeat"));
    }
    scene.complete("a").await;
    assert_eq!(heard(&mut stream).await.1["seq"], scene.page(0).await[0]["seq"]);
    scene.server.ask_to_stop();
    while let Some(block) = stream.block().await {
        assert_eq!(block, ": heartbeat");
    }
    scene.server.stopped().await;
}

#[tokio::test]
async fn many_events_are_read_in_pages_and_readers_are_counted() {
    let scene = start("[server]\nmax_subscribers = 2\n").await;
    // More than are read at once.
    for _ in 0..9 {
        futures_util::future::join_all((0..10).map(|_| scene.complete("a"))).await;
    }
    let kept = scene.page(0).await;
    assert_eq!(kept.len(), 90);
    let mut stream = scene.listen("?after=0", &[]).await;
    for wanted in &kept {
        assert_eq!(&heard(&mut stream).await.1, wanted);
    }
    // Numbers are read as those of a page are.
    let mut second = scene.listen(&format!("?after={}.0", kept[0]["seq"]), &[]).await;
    assert_eq!(&heard(&mut second).await.1, &kept[1]);
    let full = scene.server.raw(&request("GET", "/v1/upload/files/events", STREAM, b"")).await;
    assert_eq!((full.status, &full.json()["code"]), (503, &json!("server.busy")));
    drop(second);
}

#[tokio::test]
async fn what_cannot_be_streamed_says_so_and_a_page_is_still_a_page() {
    let scene = start("").await;
    for (path, headers, status, field) in [
        ("/v1/upload/files/events?count=5", &[][..], 400, json!("count")),
        ("/v1/upload/files/events?after=x", &[], 400, json!("after")),
        ("/v1/upload/files/events?after=%2B5", &[], 400, json!("after")),
        ("/v1/upload/files/events", &[("last-event-id", "abc")][..], 400, json!("last-event-id")),
        ("/v1/upload/files/events", &[("last-event-id", "+5")][..], 400, json!("last-event-id")),
        ("/v1/upload/none/events", &[], 404, Value::Null),
    ] {
        let refused = scene.server.raw(&request("GET", path, &[STREAM, headers].concat(), b"")).await;
        assert_eq!((refused.status, &refused.json()["field"]), (status, &field), "{}", refused.text());
    }
    for accept in ["application/json", "*/*", "application/json, text/event-stream"] {
        let page = request("GET", "/v1/upload/files/events", &[("accept", accept)], b"");
        let page = scene.server.raw(&page).await;
        assert_eq!(page.json(), json!({ "events": [], "next": 0 }), "{accept}");
    }
}
