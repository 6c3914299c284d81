//! Senders of chunks that take their time, and callers that send many: room is for bytes that come.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{StoreOptions, open};
use quaymaster::upload::InFlight;
use quaymaster::{Engine, Quaymaster};
use quaymaster_server::{ChunkPlace, UploadConfig};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::client::{Answer, Connection};
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

const CHUNK: usize = 64 << 10;

async fn memory() -> Arc<dyn Engine> {
    Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap())
}

async fn start(
    server: &str,
    engine: Arc<dyn Engine>,
    chunks: ChunkPlace,
    pace: Option<(u64, Duration)>,
) -> Scene {
    let folder = TempDir::new().unwrap();
    let mut uploads: UploadConfig = config_in(folder.path(), chunks);
    if let Some((bytes_per_second, over)) = pace {
        (uploads.min_bytes_per_second, uploads.slow_after) = (bytes_per_second, over);
    }
    let config = settings(server, &|name| Some(format!("{name}-is-long-enough"))).server;
    Scene { server: Fixture::with_uploads(SCHEMA, config, engine, &uploads).await, folder }
}

/// Waits until so many chunks have reserved so many bytes.
async fn until_in_flight(scene: &Scene, so: impl Fn(&InFlight) -> bool) {
    let store = Quaymaster::new(schema(SCHEMA), scene.server.engine.clone());
    let store = store.upload("files").unwrap();
    for _ in 0..10_000 {
        if so(&store.in_flight().await.unwrap()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {:?}", store.in_flight().await.unwrap());
}

/// Begins to send a chunk of `size` bytes: its head and the first `sent` of them.
async fn begin(
    mut connection: Connection,
    id: &str,
    number: usize,
    body: &[u8],
    sent: usize,
    more: &str,
) -> Connection {
    let head = format!(
        "PUT /v1/upload/files/{id}/chunk/{number} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: {}\r\n\r\n",
        body.len()
    );
    connection.send(head.as_bytes()).await;
    connection.send(&body[..sent]).await;
    connection
}

async fn many_slow_senders_leave_room(engine: Arc<dyn Engine>, chunks: ChunkPlace) {
    let scene = start("", engine, chunks, None).await;
    let (slow, quick) = (scene.id("slow").await, scene.id("quick").await);
    let body = bytes(CHUNK, 1);
    let mut senders = Vec::new();
    for number in 0..16 {
        let connection = Connection::open(scene.server.address).await;
        senders.push(begin(connection, &slow, number, &body, 1331, "").await);
    }
    until_in_flight(&scene, |now| now.names == 16).await;
    // All that they announced is all the room there is.
    for number in 0..4 {
        let answer = scene.put(&quick, &number.to_string(), &[], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // They have lost nothing by it.
    for sender in &mut senders {
        sender.send(&body[1331..]).await;
        let answer = sender.receive().await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    until_in_flight(&scene, |now| now.bytes == 0).await;
    assert_eq!(scene.state(&slow).await["received_chunks"], 16);
}

#[tokio::test]
async fn sixteen_slow_senders_keep_nobody_out() {
    many_slow_senders_leave_room(memory().await, ChunkPlace::Spool).await;
}

#[tokio::test]
async fn sixteen_slow_senders_keep_nobody_out_through_redis() {
    let redis = RedisServer::start(RedisConfig::default());
    let store = open(StoreOptions::from_url(&redis.url(), Path::new("unused")).unwrap()).await.unwrap();
    many_slow_senders_leave_room(store, ChunkPlace::Store).await;
}

fn cut(answer: &Answer) {
    let problem = answer.json();
    assert_eq!((answer.status, &problem["code"]), (408, &json!("request.timeout")), "{problem}");
    assert!(problem["retry_after_ms"].as_u64().is_some(), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("comes too slowly") && detail.contains("min_bytes_per_second"), "{detail}");
    assert!(detail.contains("send all of it again"), "{detail}");
}

#[tokio::test]
async fn a_sender_below_the_pace_is_cut_and_its_chunk_is_sent_again() {
    // Nobody sends a GiB a second for long; what is here at once has no pace.
    let pace = Some((1 << 30, Duration::from_millis(50)));
    let scene = start("", memory().await, ChunkPlace::Spool, pace).await;
    let id = scene.id("a").await;
    assert_eq!(scene.put(&id, "0", &[], &bytes(2000, 0)).await.status, 200);
    let body = bytes(4000, 1);
    let connection = Connection::open(scene.server.address).await;
    let mut stalls = begin(connection, &id, 1, &body, 2000, "").await;
    cut(&stalls.receive().await.unwrap());
    // One that goes on all the time, and too slowly.
    let connection = Connection::open(scene.server.address).await;
    let mut dribbles = begin(connection, &id, 1, &body, 1, "").await;
    let told = async {
        loop {
            tokio::select! {
                biased;
                answer = dribbles.receive_soon() => break answer,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            dribbles.send(&body[..1]).await;
        }
    };
    cut(&tokio::time::timeout(Duration::from_secs(60), told).await.expect("it is cut"));
    until_in_flight(&scene, |now| (now.bytes, now.names) == (0, 0)).await;
    let state = scene.state(&id).await;
    assert_eq!((&state["received_chunks"], &state["bytes_received"]), (&json!(1), &json!(2000)), "{state}");
    assert_eq!(scene.put(&id, "1?last=true", &[], &body).await.status, 200, "all of it again");
    scene.until(&id, "COMPLETED").await;
}

/// One of two callers.
struct Caller {
    address: SocketAddr,
    /// Where its connections come from.
    from: [u8; 4],
    header: &'static str,
}

impl Caller {
    async fn connect(&self) -> Connection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((self.from, 0).into()).unwrap();
        Connection::of(socket.connect(self.address).await.unwrap())
    }

    async fn begin(&self, id: &str, number: usize, body: &[u8], sent: usize) -> Connection {
        begin(self.connect().await, id, number, body, sent, self.header).await
    }

    async fn put(&self, id: &str, number: usize, body: &[u8]) -> u16 {
        self.begin(id, number, body, body.len()).await.receive().await.unwrap().status
    }
}

async fn shared(server: &str, headers: [&'static str; 2], from: [[u8; 4]; 2]) {
    let scene = start(server, memory().await, ChunkPlace::Spool, None).await;
    let [greedy, other] =
        [0, 1].map(|at| Caller { address: scene.server.address, from: from[at], header: headers[at] });
    let create = |name: &str| {
        let body = json!({ "name": name }).to_string();
        format!(
            "POST /v1/upload/files/create HTTP/1.1\r\nhost: localhost\r\n{}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            headers[0],
            body.len()
        )
    };
    let id = scene.server.raw(create("a").as_bytes()).await.json()["upload_id"].as_str().unwrap().to_owned();
    let body = bytes(CHUNK, 1);
    let mut senders = Vec::new();
    for number in 0..16 {
        senders.push(greedy.begin(&id, number, &body, CHUNK - 1).await);
    }
    until_in_flight(&scene, |now| now.bytes == 16 * CHUNK as u64).await;
    assert_eq!(other.put(&id, 20, &body).await, 429, "there is no room");
    senders[0].send(&body[CHUNK - 1..]).await;
    assert_eq!(senders[0].receive().await.unwrap().status, 200);
    until_in_flight(&scene, |now| now.bytes == 15 * CHUNK as u64).await;
    assert_eq!(greedy.put(&id, 16, &body).await, 429, "somebody else waits for the room");
    assert_eq!(other.put(&id, 20, &body).await, 200);
    until_in_flight(&scene, |now| now.bytes == 15 * CHUNK as u64).await;
    assert_eq!(greedy.put(&id, 16, &body).await, 200, "nobody else waits");
    for sender in &mut senders[1..] {
        sender.send(&body[CHUNK - 1..]).await;
        assert_eq!(sender.receive().await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn one_address_has_a_quarter_of_the_room_while_another_waits() {
    shared("", ["", ""], [[127, 0, 0, 2], [127, 0, 0, 3]]).await;
}

#[tokio::test]
async fn one_token_has_a_quarter_of_the_room_while_another_waits() {
    let server = "[server]\ntokens = [{ env = \"A\" }, { env = \"B\" }]";
    let headers =
        ["authorization: Bearer A-is-long-enough\r\n", "authorization: Bearer B-is-long-enough\r\n"];
    shared(server, headers, [[127, 0, 0, 1]; 2]).await;
}
