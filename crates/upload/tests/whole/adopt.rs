//! Uploads that another program begins by the documented commands: gone on with, or refused in the same words everywhere.

use std::sync::Arc;

use libtest_mimic::Trial;
use quaymaster::Code;
use quaymaster::upload::{Last, Status};
use quaymaster_upload::doctor::{At, Finding, Mode};
use quaymaster_upload::ingest::Incoming;
use quaymaster_upload::ledger::{Created, New, NewNode, Step};
use quaymaster_upload::objects::{About, Checksums, MultipartId, Objects, ObjectsOptions};
use quaymaster_upload::ship::Sent;
use quaymaster_upload::sweep::Cursor;
use quaymaster_upload::{Error, Sha256};
use redis::Connection;
use tempfile::TempDir;

use crate::node::{Node, ship_and_complete, until};
use crate::redis::Redis;
use crate::rig::{Place, Rig, body};
use crate::seaweed;
use crate::servers::{Cluster, ClusterConfig};
use crate::set::Servers;
use crate::trial;

const NODE: &str = "550e8400-e29b-41d4-a716-446655440000";
const KEY: &str = "elsewhere/my-connector/550e8400-e29b-41d4-a716-446655440000.pb";

/// How long that program lets its chunks live, in seconds.
const THEIR_TTL: &[u8] = b"600";

pub fn trials() -> Vec<Trial> {
    vec![
        trial("adopt::redis_seaweedfs_and_postgres", redis_seaweedfs_and_postgres),
        trial(
            "adopt::chunks_that_were_announced_to_nobody_are_found",
            chunks_that_were_announced_to_nobody_are_found,
        ),
        trial("adopt::chunks_in_a_redis_of_their_own_are_found", chunks_in_a_redis_of_their_own_are_found),
        trial("adopt::chunks_in_a_cluster_are_not_looked_for", chunks_in_a_cluster_are_not_looked_for),
        trial("adopt::bytes_stay_until_the_part_is_recorded", bytes_stay_until_the_part_is_recorded),
        trial(
            "adopt::what_cannot_be_gone_on_with_is_refused_alike",
            what_cannot_be_gone_on_with_is_refused_alike,
        ),
        trial(
            "adopt::who_dies_between_ledger_and_store_is_followed",
            who_dies_between_ledger_and_store_is_followed,
        ),
        trial(
            "adopt::a_chunk_that_is_none_fails_an_adopted_upload",
            a_chunk_that_is_none_fails_an_adopted_upload,
        ),
    ]
}

/// The program of the document, on a Redis of the test's own.
struct Program {
    connection: Connection,
    /// Of the chunks.
    chunks: Connection,
    id: String,
}

impl Program {
    fn new(redis: &Redis, id: &str) -> Self {
        Self::with_chunks_in(redis, redis, id)
    }

    /// One with a separate Redis for chunks.
    fn with_chunks_in(chunks: &Redis, redis: &Redis, id: &str) -> Self {
        let connect = |to: &Redis| redis::Client::open(to.url()).unwrap().get_connection().unwrap();
        Self { connection: connect(redis), chunks: connect(chunks), id: id.to_owned() }
    }

    fn run(&mut self, words: &[&[u8]]) {
        run(&mut self.connection, words);
    }

    fn key(&self, field: &str) -> String {
        format!("upload:{}:{field}", self.id)
    }

    fn set(&mut self, fields: &[(&str, &str)]) {
        let key = self.key("state");
        for (name, value) in fields {
            self.run(&[b"HSET", key.as_bytes(), name.as_bytes(), value.as_bytes()]);
        }
        self.run(&[b"EXPIRE", key.as_bytes(), b"86400"]);
    }

    /// The state of a new upload.
    fn begin(&mut self, multipart: &str, key: &str, size: u64) {
        self.set(&[
            ("node_id", NODE),
            ("s3_upload_id", multipart),
            ("s3_key", key),
            ("drive", "documents"),
            ("status", "UPLOADING"),
            ("expected_size", &size.to_string()),
            ("received_chunks", "0"),
            ("uploaded_chunks", "0"),
            ("total_chunks", "0"),
            ("is_last_received", "false"),
            ("created_at", "1700000000000"),
            ("updated_at", "1700000000000"),
            ("mime_type", "application/pdf"),
        ]);
        let metadata = self.key("metadata");
        self.run(&[b"HSET", metadata.as_bytes(), b"name", b"theirs.pdf"]);
    }

    /// Pattern 1 without its last line.
    fn put(&mut self, number: u32, bytes: &[u8], last: bool) {
        let (chunk, state) = (self.key(&format!("chunks:{number}")), self.key("state"));
        run(&mut self.chunks, &[b"SETEX", chunk.as_bytes(), THEIR_TTL, bytes]);
        self.run(&[b"HINCRBY", state.as_bytes(), b"received_chunks", b"1"]);
        if last {
            self.set(&[("is_last_received", "true"), ("total_chunks", &(number + 1).to_string())]);
        }
    }

    fn announce(&mut self, number: u32, last: bool) {
        let told = format!("{{\"upload_id\":\"{}\",\"chunk_number\":{number},\"is_last\":{last}}}", self.id);
        self.run(&[b"PUBLISH", b"upload:chunk:received", told.as_bytes()]);
    }

    fn has(&mut self, field: &str) -> bool {
        redis::cmd("EXISTS").arg(self.key(field)).query(&mut self.connection).unwrap()
    }

    /// How long a chunk lives yet, in seconds.
    fn life(&mut self, number: u32) -> i64 {
        let chunk = self.key(&format!("chunks:{number}"));
        redis::cmd("TTL").arg(chunk).query(&mut self.chunks).unwrap()
    }

    fn chunks_left(&mut self) -> u64 {
        redis::cmd("DBSIZE").query(&mut self.chunks).unwrap()
    }
}

fn run(connection: &mut Connection, words: &[&[u8]]) {
    let mut command = redis::cmd(std::str::from_utf8(words[0]).unwrap());
    for word in &words[1..] {
        command.arg(*word);
    }
    command.exec(connection).unwrap();
}

fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

async fn redis() -> Redis {
    tokio::task::spawn_blocking(Redis::start).await.unwrap()
}

/// Everything but the store in one folder, where chunks may be small.
fn place(redis: &Redis, folder: &TempDir) -> Place {
    Place { store: redis.url(), ..Place::in_folder(folder.path(), false) }
}

/// A multipart upload that is begun in the folder of objects.
async fn begun(rig: &Rig) -> MultipartId {
    rig.uploads.objects().begin(KEY, &About::default()).await.unwrap()
}

async fn check_ended(rig: &Rig, id: &str, key: &str, whole: &[u8]) {
    let (ledger, size) = (rig.uploads.ledger(), whole.len() as u64);
    let upload = ledger.find(id).await.unwrap().unwrap();
    assert_eq!((upload.final_size, upload.object_key.as_str()), (Some(size), key));
    assert_eq!(rig.digest(id).await, Some(Sha256::of(whole)));
    let node = ledger.node(NODE).await.unwrap().unwrap();
    assert_eq!((node.status.as_str(), node.size, node.s3_key.as_deref()), ("ACTIVE", Some(size), Some(key)));
    assert_eq!(node.facts.name.as_deref(), Some("theirs.pdf"));
    assert_eq!(ledger.events(0, 100).await.unwrap().len(), 1);
    assert_eq!(rig.pending().await, 0);
    let known = rig.uploads.examine_with(id, Mode::Look, &async || ()).await.unwrap().unwrap();
    assert_eq!(known.findings, vec![]);
}

async fn redis_seaweedfs_and_postgres() {
    const SIZE: usize = 5 << 20;
    let servers = Servers::start().await;
    let folder = TempDir::new().unwrap();
    let place = servers.place(folder.path());
    let rigs = [Arc::new(place.open().await), Arc::new(place.open().await)];
    let _nodes = [Node::start(&rigs[0]), Node::start(&rigs[1])];
    // As other programs begin one: nothing is said of checksums, and the key is not below our prefix.
    let theirs =
        ObjectsOptions { checksums: Checksums::Signature, ..seaweed::options(servers.seaweed.address()) };
    let bucket = Objects::open("s3://quay", &theirs).await.unwrap();
    let multipart = bucket.begin(KEY, &About::default()).await.unwrap();
    let chunks = [bytes(1, SIZE), bytes(2, SIZE), bytes(3, 12_345)];
    let whole = chunks.concat();
    let mut program = Program::new(&servers.redis, "abc123");
    program.begin(multipart.as_str(), KEY, whole.len() as u64);
    for (number, chunk) in (0..).zip(&chunks) {
        program.put(number, chunk, number == 2);
        program.announce(number, number == 2);
    }
    // Nobody asks for it: it is gone on with because that program announces it.
    while rigs[0].uploads.ledger().find("abc123").await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    until(&rigs[0], "abc123", Status::Completed).await;
    while rigs[0].uploads.ledger().find("abc123").await.unwrap().unwrap().step != Step::Done {
        tokio::task::yield_now().await;
    }
    check_ended(&rigs[0], "abc123", KEY, &whole).await;
    assert!(!program.has("chunks:0") && !program.has("chunks:2"));
    rigs[0].until_nothing_is_left("an adopted one").await;
}

async fn chunks_that_were_announced_to_nobody_are_found() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let rig = place(&redis, &folder).open().await;
    let multipart = begun(&rig).await;
    let chunks = [bytes(1, 2000), bytes(2, 2000), bytes(3, 7)];
    let mut program = Program::new(&redis, "abc123");
    program.begin(multipart.as_str(), KEY, 4007);
    program.put(1, &chunks[1], false);
    let mut cursor = Cursor::default();
    let mut found = 0;
    while found == 0 {
        found += rig.uploads.sweep(&mut cursor).await.unwrap().adopted;
    }
    assert_eq!(found, 1);
    let state = rig.uploads.standing("abc123").await.unwrap().unwrap().state;
    assert_eq!((state.status, state.receipt.received_chunks), (Status::Uploading, 1));
    assert!(state.deadline_ms > state.now_ms, "it has a deadline");
    assert_eq!(rig.uploads.ship_once(9).await.unwrap(), [Sent::Durable]);
    // It goes on: the last one is too small to be taken before it is known to be the last.
    program.put(0, &chunks[0], false);
    program.put(2, &chunks[2], false);
    let _ = rig.uploads.sweep(&mut cursor).await.unwrap();
    let state = rig.uploads.standing("abc123").await.unwrap().unwrap().state;
    assert_eq!((state.has(0), state.has(2)), (true, false));
    program.set(&[("is_last_received", "true"), ("total_chunks", "3")]);
    let _ = rig.uploads.sweep(&mut cursor).await.unwrap();
    ship_and_complete(&rig, "abc123").await;
    check_ended(&rig, "abc123", KEY, &chunks.concat()).await;
}

async fn chunks_in_a_redis_of_their_own_are_found() {
    let (redis, chunk_store, folder) = (redis().await, redis().await, TempDir::new().unwrap());
    let place = Place { apart: Some(chunk_store.url()), ..place(&redis, &folder) };
    let rig = place.open().await;
    let multipart = begun(&rig).await;
    let chunks = [bytes(1, 2000), bytes(2, 2000), bytes(3, 7)];
    let mut program = Program::with_chunks_in(&chunk_store, &redis, "abc123");
    program.begin(multipart.as_str(), KEY, 4007);
    program.put(0, &chunks[0], false);
    assert!(rig.uploads.adopt("abc123").await.unwrap());
    assert!(program.life(0) > 600, "what is taken lives as long as a chunk: {} s", program.life(0));
    assert_eq!(rig.uploads.ship_once(9).await.unwrap(), [Sent::Durable]);
    assert_eq!(program.chunks_left(), 0, "they go once the ledger has them");
    // One that is lost is asked for, and taken when it comes again.
    program.put(1, &chunks[1], false);
    let mut cursor = Cursor::default();
    let _ = rig.uploads.sweep(&mut cursor).await.unwrap();
    run(&mut program.chunks, &[b"FLUSHDB"]);
    assert_eq!(rig.uploads.ship_once(9).await.unwrap(), [Sent::Missing]);
    program.put(1, &chunks[1], false);
    program.put(2, &chunks[2], true);
    let _ = rig.uploads.sweep(&mut cursor).await.unwrap();
    ship_and_complete(&rig, "abc123").await;
    check_ended(&rig, "abc123", KEY, &chunks.concat()).await;
    assert_eq!(program.chunks_left(), 0);
}

async fn chunks_in_a_cluster_are_not_looked_for() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(ClusterConfig::default())).await.unwrap();
    let rig = Place { apart: Some(cluster.url()), ..place(&redis, &folder) }.open().await;
    let multipart = begun(&rig).await;
    let mut program = Program::new(&redis, "abc123");
    program.begin(multipart.as_str(), KEY, 2000);
    let refusal = rig.uploads.standing("abc123").await.unwrap_err();
    assert_eq!(refusal.code(), Some(Code::UploadForeign), "{refusal}");
    assert!(refusal.detail().contains("cluster"), "{refusal}");
    assert!(rig.uploads.ledger().find("abc123").await.unwrap().is_none());
}

async fn bytes_stay_until_the_part_is_recorded() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let rig = place(&redis, &folder).open().await;
    let multipart = begun(&rig).await;
    let mut program = Program::new(&redis, "abc123");
    program.begin(multipart.as_str(), KEY, 1500);
    program.put(0, &bytes(1, 1500), true);
    assert!(rig.uploads.adopt("abc123").await.unwrap());
    assert!(rig.uploads.store().foreign("abc123").await.unwrap().is_none());
    assert_eq!(rig.uploads.ledger().parts("abc123").await.unwrap(), []);
    assert!(program.has("chunks:0"), "it is taken where it lies");
    // The object store refuses, so nothing is recorded.
    let objects = folder.path().join("objects");
    let away = folder.path().join("away");
    std::fs::rename(&objects, &away).unwrap();
    std::fs::write(&objects, "no folder").unwrap();
    assert_eq!(rig.uploads.ship_once(9).await.unwrap().len(), 1);
    assert_eq!(rig.uploads.ledger().parts("abc123").await.unwrap(), []);
    assert!(program.has("chunks:0"), "nothing is lost");
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&away, &objects).unwrap();
    let _ = rig.uploads.resume("abc123").await.unwrap();
    ship_and_complete(&rig, "abc123").await;
    assert!(!program.has("chunks:0"));
    check_ended(&rig, "abc123", KEY, &bytes(1, 1500)).await;
}

async fn what_cannot_be_gone_on_with_is_refused_alike() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let rig = place(&redis, &folder).open().await;
    let multipart = begun(&rig).await;
    let (good, small) = (bytes(1, 2000), bytes(1, 5));
    type Spoil<'a> = &'a dyn Fn(&mut Program);
    let field = |program: &mut Program, name: &str, value: &str| program.set(&[(name, value)]);
    let gone = |program: &mut Program, name: &str| {
        let key = program.key("state");
        program.run(&[b"HDEL", key.as_bytes(), name.as_bytes()]);
    };
    let etag = |program: &mut Program| {
        let key = program.key("etags");
        program.run(&[b"ZADD", key.as_bytes(), b"0", b"\"etag-chunk-0\""]);
    };
    let spoilt: [(&str, &str, Spoil<'_>); 12] = [
        ("no-node", "node_id", &|program| gone(program, "node_id")),
        ("no-multipart", "s3_upload_id", &|program| gone(program, "s3_upload_id")),
        ("no-key", "s3_key", &|program| gone(program, "s3_key")),
        ("no-status", "status", &|program| gone(program, "status")),
        ("other-status", "RUNNING", &|program| field(program, "status", "RUNNING")),
        ("over", "COMPLETED", &|program| field(program, "status", "COMPLETED")),
        ("size", "expected_size", &|program| field(program, "expected_size", "many")),
        ("sizes", "4000", &|program| field(program, "expected_size", "4000")),
        ("total", "total_chunks", &|program| field(program, "total_chunks", "10001")),
        ("other-multipart", "no multipart upload", &|program| field(program, "s3_upload_id", "another")),
        ("shipped", "sent parts", &etag),
        ("small", "chunk 0", &|program| {
            program.put(0, &small, false);
            program.put(1, &good, true);
            program.set(&[("expected_size", "0")]);
        }),
    ];
    for (id, word, spoil) in &spoilt {
        let mut program = Program::new(&redis, id);
        program.begin(multipart.as_str(), KEY, 2000);
        program.put(0, &good, true);
        spoil(&mut program);
        let incoming = Incoming { number: 3, last: Last::No, size: Some(2000), sha256: None };
        let refusals: [Error; 4] = [
            rig.uploads.standing(id).await.map(drop).unwrap_err(),
            rig.uploads.receive(id, &incoming, body(&good)).await.map(drop).unwrap_err(),
            rig.uploads.abort(id).await.map(drop).unwrap_err(),
            rig.uploads.resume(id).await.map(drop).unwrap_err(),
        ];
        for refusal in &refusals {
            assert_eq!(refusal.code(), Some(Code::UploadForeign), "{id}: {refusal}");
            assert_eq!(refusal.detail(), refusals[0].detail(), "{id}");
            assert!(refusal.detail().contains(word), "{id}: {refusal}");
        }
        assert!(rig.uploads.ledger().find(id).await.unwrap().is_none(), "{id}");
        assert!(program.has("state") && program.has("chunks:0"), "{id}: nothing of it is touched");
    }
    // Nobody's: that is another answer.
    assert!(rig.uploads.standing("nobody").await.unwrap().is_none());
    // The doctor lists them, and says why; no repair touches them.
    let (mut listed, mut at) = (Vec::new(), Some(At::default()));
    while let Some(from) = at {
        let page = rig.uploads.examine_page_with(&from, 100, Mode::Repair, &async || ()).await.unwrap();
        listed.extend(page.reports);
        at = page.next;
    }
    let mut ids: Vec<&str> = listed.iter().map(|report| report.upload_id.as_str()).collect();
    ids.sort_unstable();
    let mut expected: Vec<&str> = spoilt.iter().map(|(id, ..)| *id).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    for report in &listed {
        let (_, word, _) = spoilt.iter().find(|(id, ..)| *id == report.upload_id).unwrap();
        assert!(matches!(&report.left[..], [Finding::Foreign(why)] if why.contains(word)), "{report:?}");
    }
    // One that is put right is gone on with by whoever asks next.
    let mut program = Program::new(&redis, "total");
    program.set(&[("total_chunks", "1")]);
    assert_eq!(rig.uploads.standing("total").await.unwrap().unwrap().state.status, Status::Uploading);
    // And what is gone on with is nobody else's: another upload for the same node has to wait.
    let mut program = Program::new(&redis, "sizes");
    program.set(&[("expected_size", "2000")]);
    let refusal = rig.uploads.standing("sizes").await.unwrap_err();
    assert!(refusal.detail().contains("its node"), "{refusal}");
    let _ = rig.uploads.abort("total").await.unwrap();
    assert_eq!(rig.uploads.ledger().find("total").await.unwrap().unwrap().step, Step::Aborted);
    assert_eq!(rig.pending().await, 0, "called off with its multipart upload");
}

async fn who_dies_between_ledger_and_store_is_followed() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let rig = place(&redis, &folder).open().await;
    let multipart = begun(&rig).await;
    let mut program = Program::new(&redis, "abc123");
    program.begin(multipart.as_str(), KEY, 1500);
    program.put(0, &bytes(1, 1500), true);
    let new = New {
        upload_id: "abc123".to_owned(),
        resource: "documents".to_owned(),
        object_key: KEY.to_owned(),
        token: String::new(),
        expected_size: Some(1500),
        idempotency_key: None,
        fingerprint: String::new(),
        time_limit: std::time::Duration::from_secs(3600),
        node: NewNode { node_id: NODE.to_owned(), name: Some("theirs.pdf".to_owned()), ..NewNode::default() },
    };
    let ledger = rig.uploads.ledger();
    assert!(matches!(ledger.adopt(&new, multipart.as_str()).await.unwrap(), Created::Created(_)));
    // Its own program goes on with it in the very moment: it keeps it, and nobody calls its multipart upload off.
    let etags = program.key("etags");
    program.run(&[b"ZADD", etags.as_bytes(), b"0", b"\"etag-chunk-0\""]);
    let refusal = rig.uploads.standing("abc123").await.unwrap_err();
    assert_eq!(refusal.code(), Some(Code::UploadForeign), "{refusal}");
    assert!(ledger.find("abc123").await.unwrap().is_none());
    assert_eq!(rig.pending().await, 1);
    // It does not: the next one finishes what was begun.
    program.run(&[b"DEL", etags.as_bytes()]);
    assert!(matches!(ledger.adopt(&new, multipart.as_str()).await.unwrap(), Created::Created(_)));
    let state = rig.uploads.standing("abc123").await.unwrap().unwrap().state;
    assert_eq!(state.receipt.received_chunks, 1);
    ship_and_complete(&rig, "abc123").await;
    check_ended(&rig, "abc123", KEY, &bytes(1, 1500)).await;
}

async fn a_chunk_that_is_none_fails_an_adopted_upload() {
    let (redis, folder) = (redis().await, TempDir::new().unwrap());
    let rig = place(&redis, &folder).open().await;
    let multipart = begun(&rig).await;
    let mut program = Program::new(&redis, "abc123");
    program.begin(multipart.as_str(), KEY, 0);
    program.put(0, &bytes(1, 2000), false);
    assert!(rig.uploads.adopt("abc123").await.unwrap());
    // Too small, and others follow.
    program.put(1, &bytes(2, 9), false);
    program.put(2, &bytes(3, 2000), false);
    let _ = rig.uploads.sweep(&mut Cursor::default()).await.unwrap();
    let state = rig.uploads.standing("abc123").await.unwrap().unwrap().state;
    assert_eq!(state.status, Status::Failed);
    assert!(state.error.as_deref().is_some_and(|why| why.contains("chunk 1")), "{:?}", state.error);
}
