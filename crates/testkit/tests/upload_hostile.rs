//! Uploads where something beside them is wrong: a store without memory, one that was killed, one that forgot.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use quaymaster::schema::{Source, load};
use quaymaster::upload::{
    Accepted, Admitted, Chunk, Claim, Created, Digest, Failed, Held, Known, Last, Moved, New, Next, Offer,
    Part, Reservation, Shipped, Source as From, Stage, Status, Upload,
};
use quaymaster::{Code, Engine, Quaymaster, Result};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::saboteur::Saboteur;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const SCHEMA: &str = "
[schema]
name = \"hostile\"
owner = \"tests\"
[upload.docs]
chunk_min = 1
chunk_max = 64
max_bytes_in_flight = 640
";

const LEASE: Duration = Duration::from_secs(60);

async fn connect(server: &RedisServer) -> Arc<dyn Engine> {
    Arc::new(RedisStore::connect(RedisOptions::from_url(&server.url()).unwrap()).await.unwrap())
}

fn bind_to(engine: Arc<dyn Engine>) -> Quaymaster {
    let schema = load(&[Source { name: "hostile.toml", text: SCHEMA }], &|_| None).schema.unwrap();
    Quaymaster::new(Arc::new(schema), engine)
}

async fn bind(server: &RedisServer) -> Quaymaster {
    bind_to(connect(server).await)
}

fn new(upload: &Upload) -> New<'static> {
    New { node_id: "node", key: "k", multipart_id: "m", time_left: upload.time_limit(), ..New::default() }
}

async fn send(upload: &Upload, number: u32, last: Last) -> Result<Accepted> {
    let (stage, name, digest) =
        (Stage::fresh(), Reservation::fresh("u", number), Digest::Sha256([number as u8; 32]));
    let _ = upload.admit(&name, 5, LEASE).await?;
    upload.write("u", &stage, 0, b"chunk", Some(5)).await?;
    let source = From::Staged(&stage);
    upload
        .accept("u", &Offer { number, size: 5, digest: &digest, last, source, reservation: Some(&name) })
        .await
}

async fn claim(upload: &Upload, count: usize, lease: Duration) -> Vec<Chunk> {
    upload.claim(Claim { count, lease, ..Claim::default() }).await.expect("claims are answered").chunks
}

#[tokio::test]
async fn a_store_without_memory_takes_no_chunks_and_lets_uploads_drain() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = bind(&server).await;
    let upload = quaymaster.upload("docs").unwrap();
    assert_eq!(upload.create("u", &new(upload)).await.unwrap(), Created::New);
    for number in 0..6 {
        let sent = send(upload, number, if number == 5 { Last::Yes } else { Last::No }).await.unwrap();
        assert!(matches!(sent, Accepted::Taken { .. }), "{sent:?}");
    }
    let held = claim(upload, 1, LEASE).await.remove(0);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);

    assert_eq!(send(upload, 6, Last::No).await.unwrap_err().code, Code::StoreOom);
    let chunks = claim(upload, 4, LEASE).await;
    assert_eq!(chunks.len(), 4, "chunks are handed out");
    assert_eq!(upload.extend(&[&held.lease], LEASE).await.expect("leases are renewed"), [Held::Ours]);
    let later =
        upload.failed(&held.lease, "503", Next::Retry(Duration::ZERO)).await.expect("failures are taken");
    assert_eq!(later, Failed::Retry { attempt: 1 });
    assert_eq!(upload.release(&chunks[0].lease).await.expect("chunks are given back"), Held::Ours);
    assert_eq!(upload.missing(&chunks[1].lease).await.expect("losses are told"), Held::Ours);
    for chunk in &chunks[2..] {
        let shipped = upload.shipped(&chunk.lease, "etag").await.expect("what is durable is noted");
        assert!(matches!(shipped, Shipped::Durable(_)), "{shipped:?}");
    }
    let tended = upload.tend("u").await.expect("the sweep goes on");
    assert_eq!(tended.waiting, 3);
    for chunk in claim(upload, 9, LEASE).await {
        let shipped = upload.shipped(&chunk.lease, "etag").await.expect("what is durable is noted");
        assert!(matches!(shipped, Shipped::Durable(_)), "{shipped:?}");
    }
    let state = upload.status("u").await.unwrap().unwrap();
    assert_eq!((state.receipt.durable_chunks, state.resend().len()), (5, 1));
    assert_eq!(upload.in_flight().await.unwrap().bytes, 0, "the account drains with them");
    let ended = upload.abort("u", "no memory").await.expect("an upload can end");
    assert_eq!(ended, Moved::Moved { from: Status::Uploading });
}

#[tokio::test]
async fn what_drains_a_store_without_memory_would_be_refused_if_it_did_not_insist() {
    for (operation, insists) in [
        ("upload.pick", "redis.call(\"ZREM\", ready, \"\")"),
        ("upload.claim", "redis.call(\"HDEL\", leases, \"\")"),
        ("upload.extend", "redis.call(\"HDEL\", KEYS[6], \"\")"),
        ("upload.failed", "redis.call(\"HDEL\", KEYS[6], \"\")"),
        ("upload.enlist", "redis.call(\"ZREM\", uploads, \"\")"),
    ] {
        let server = RedisServer::start(RedisConfig::default());
        let saboteur = Arc::new(Saboteur::new(connect(&server).await, operation, insists, ""));
        let quaymaster = bind_to(saboteur.clone());
        let upload = quaymaster.upload("docs").unwrap();
        assert_eq!(upload.create("u", &new(upload)).await.unwrap(), Created::New);
        for number in 0..2 {
            let sent = send(upload, number, Last::No).await.unwrap();
            assert!(matches!(sent, Accepted::Taken { .. }), "{sent:?}");
        }
        let lease = claim(upload, 1, LEASE).await.remove(0).lease;
        server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        let told = match operation {
            "upload.extend" => upload.extend(&[&lease], LEASE).await.map(drop),
            "upload.failed" => upload.failed(&lease, "", Next::GiveUp).await.map(drop),
            "upload.enlist" => upload.abort("u", "").await.map(drop),
            _ => upload.claim(Claim::default()).await.map(drop),
        };
        assert!(saboteur.changed() > 0, "{operation} does not say {insists} any more");
        // What could grow is refused as a script's first write, and allowed behind one that cannot.
        assert_eq!(told.err().map(|error| error.code), Some(Code::StoreOom), "{operation}");
    }
}

#[tokio::test]
async fn a_store_that_was_killed_has_what_it_acknowledged() {
    let config = RedisConfig::default().line("appendonly yes").line("appendfsync always");
    let mut server = RedisServer::start(config);
    let quaymaster = bind(&server).await;
    let upload = quaymaster.upload("docs").unwrap();
    assert_eq!(upload.create("u", &new(upload)).await.unwrap(), Created::New);
    for number in 0..3 {
        let sent = send(upload, number, if number == 2 { Last::Yes } else { Last::No }).await.unwrap();
        assert!(matches!(sent, Accepted::Taken { .. }), "{sent:?}");
    }
    let held = claim(upload, 1, LEASE).await.remove(0);
    server.kill9();
    server.restart();
    let state = upload.status("u").await.expect("the connection is made anew").unwrap();
    assert_eq!((state.receipt.received_chunks, state.receipt.total_chunks), (3, Some(3)));
    assert!(
        matches!(upload.shipped(&held.lease, "e").await.unwrap(), Shipped::Durable(_)),
        "the lease is, too"
    );
    for chunk in claim(upload, 9, LEASE).await {
        assert_eq!(&upload.read("u", chunk.lease.number(), 0, 64).await.unwrap()[..], b"chunk");
        assert!(matches!(upload.shipped(&chunk.lease, "e").await.unwrap(), Shipped::Durable(_)));
    }
    assert!(upload.status("u").await.unwrap().unwrap().receipt.complete);
}

#[tokio::test]
async fn a_store_that_forgot_everything_is_told_by_the_ledger_and_asks_for_the_rest() {
    let mut server = RedisServer::start(RedisConfig::default());
    let quaymaster = bind(&server).await;
    let upload = quaymaster.upload("docs").unwrap();
    let new = new(upload);
    assert_eq!(upload.create("u", &new).await.unwrap(), Created::New);
    for number in 0..3 {
        let sent = send(upload, number, if number == 2 { Last::Yes } else { Last::No }).await.unwrap();
        assert!(matches!(sent, Accepted::Taken { .. }), "{sent:?}");
    }
    let chunks = claim(upload, 2, LEASE).await;
    assert!(matches!(upload.shipped(&chunks[0].lease, "\"0\"").await.unwrap(), Shipped::Durable(_)));
    server.kill9();
    server.restart();
    // Nobody can do anything with it, and nobody is told that it is fine.
    assert_eq!(upload.status("u").await.unwrap(), None);
    assert_eq!(upload.shipped(&chunks[1].lease, "\"1\"").await.unwrap(), Shipped::Unknown);
    assert_eq!(upload.completing("u").await.unwrap(), Moved::Unknown);
    assert_eq!(send(upload, 1, Last::No).await.unwrap(), Accepted::Unknown);
    assert!(claim(upload, 9, LEASE).await.is_empty());
    let part = Part { number: 0, size: 5, digest: Digest::Sha256([0; 32]), etag: "\"0\"".to_owned() };
    let known = Known { parts: std::slice::from_ref(&part), ..Known::default() };
    let receipt = upload.restore("u", &new, &known).await.unwrap();
    assert_eq!((receipt.durable_chunks, receipt.received_chunks, receipt.total_chunks), (1, 1, None));
    assert!(matches!(send(upload, 0, Last::No).await.unwrap(), Accepted::Known { durable: true, .. }));
    for (number, last) in [(1, Last::No), (2, Last::Yes)] {
        assert!(matches!(send(upload, number, last).await.unwrap(), Accepted::Taken { .. }));
    }
    for chunk in claim(upload, 9, LEASE).await {
        assert!(matches!(upload.shipped(&chunk.lease, "e").await.unwrap(), Shipped::Durable(_)));
    }
    assert!(upload.status("u").await.unwrap().unwrap().receipt.complete);
    assert_eq!(upload.in_flight().await.unwrap().bytes, 0);
    let name = Reservation::fresh("u", 9);
    assert!(matches!(upload.admit(&name, 640, LEASE).await.unwrap(), Admitted::Admitted { in_flight: 640 }));
}
