//! From the client to the part.

use std::time::Duration;

use quaymaster::Code;
use quaymaster::schema::Kind;
use quaymaster::upload::{Claim, Held, Last, Reservation, Shipped, Stage};
use quaymaster_server::doctor::{Eviction, examine, refusal};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use quaymaster_upload::ship::Sent;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::documented::{Check, Documented, chunk};
use crate::support::{
    PATIENCE, content, create, engine, field, ours, ours_with, received, schema, send, sent, sql, system,
    work_until,
};

/// The next message, with somebody who publishes after the subscription is there.
fn first_heard(server: &RedisServer, channel: &str, publish: impl FnOnce()) -> Value {
    let client = redis::Client::open(server.url()).expect("the fixture's URL");
    let mut connection = client.get_connection().expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut listening = connection.as_pubsub();
    listening.subscribe(channel).expect("subscribed");
    publish();
    let message: String = listening.get_message().and_then(|told| told.get_payload()).expect("a message");
    serde_json::from_str(&message).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_published_to_nobody_is_shipped_by_nobody() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 10).await;
    // The workers are being deployed anew.
    assert_eq!(documented.take(0, "first", false), Some(0), "acknowledged, and nobody heard of it");
    let heard = first_heard(&server, "upload:chunk:received", || {
        assert_eq!(documented.take(1, "final", true), Some(1));
    });
    assert_eq!(heard["chunk_number"], json!(1), "the worker that comes is told of the next one only");
    assert_eq!(documented.process(1).await, Some(Check::Waiting));
    assert!(documented.is_duplicate(0), "it lies there until its hour is over");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = sent(&uploads, &["first", "final"]).await;
    let listeners: Vec<String> = server.command(&["PUBSUB", "CHANNELS", "*"]);
    assert_eq!(listeners, [""; 0], "nobody listens");
    // A worker that begins now asks for what there is.
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "firstfinal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_as_documented_hears_the_documented_messages() {
    let server = RedisServer::start(RedisConfig::default());
    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, Some(10)).await;
    let runtime = tokio::runtime::Handle::current();
    let (node, to) = (uploads.clone(), id.clone());
    let heard = tokio::task::block_in_place(|| {
        first_heard(&server, "upload:chunk:received", || {
            let took = runtime.block_on(send(&node, &to, 0, "first", Last::No));
            assert_eq!(received(&took), 1);
        })
    });
    assert_eq!(
        (&heard["upload_id"], &heard["chunk_number"], &heard["is_last"]),
        (&json!(id), &json!(0), &json!(false))
    );
    assert!(heard["timestamp"].is_i64(), "{heard}");
    let heard = tokio::task::block_in_place(|| {
        first_heard(&server, &format!("upload:progress:{id}"), || {
            let sent = runtime.block_on(node.ship_once(1)).expect("an answer");
            assert_eq!(sent, [Sent::Durable]);
        })
    });
    assert_eq!((&heard["uploaded_chunks"], &heard["status"]), (&json!(1), &json!("UPLOADING")), "{heard}");
    assert_eq!((&heard["bytes_uploaded"], &heard["total_bytes"]), (&json!(5), &json!(10)), "{heard}");
}

#[tokio::test]
async fn a_worker_that_dies_after_its_getdel_takes_the_chunk_with_it() {
    let server = RedisServer::start(RedisConfig::default());
    let documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", true);
    assert_eq!(documented.claim(0).as_deref(), Some("whole"));
    // The worker dies here. The next one:
    assert_eq!(documented.claim(0), None, "another worker has it already, says the document");
    assert_eq!(documented.check(), Check::Waiting, "and it says so for ever");
    assert_eq!((documented.field("received_chunks").as_str(), documented.listed().len()), ("1", 0));
    assert_eq!(server.command::<i64>(&["EXISTS", &chunk(0)]), 0, "what was acknowledged is nowhere");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = sent(&uploads, &["whole"]).await;
    let store = uploads.store();
    let how = |lease| Claim { lease, wait: PATIENCE, ..Claim::default() };
    let dead = store.claim(how(Duration::from_millis(50))).await.expect("an answer").chunks.remove(0);
    // Its worker dies here, holding nothing that was not also in the store.
    let bytes = format!("upload:{id}:chunks:0");
    assert_eq!(server.command::<String>(&["GET", &bytes]), "whole");
    let next = store.claim(how(Duration::from_secs(60))).await.expect("an answer").chunks.remove(0);
    assert_eq!((dead.attempt, next.attempt), (1, 2));
    assert_eq!(store.shipped(&dead.lease, "\"late\"").await.expect("an answer"), Shipped::Lost);
    assert_eq!(store.release(&next.lease).await.expect("an answer"), Held::Ours);
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "whole");
    assert_eq!(server.command::<i64>(&["EXISTS", &bytes]), 0, "the bytes go when the ledger has the part");

    // A worker of the old scheme beside ours, which takes a chunk and dies: that one is asked for again.
    let id = sent(&uploads, &["whole"]).await;
    let taken: Option<String> = server.command(&["GETDEL", &format!("upload:{id}:chunks:0")]);
    assert_eq!(taken.as_deref(), Some("whole"));
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [Sent::Missing]);
    let standing = uploads.standing(&id).await.expect("an answer").expect("it is there");
    assert_eq!(standing.resend, [0..=0]);
    assert_eq!(received(&send(&uploads, &id, 0, "whole", Last::Yes).await), 1);
    work_until(&uploads, &id, Step::Done).await;
}

#[tokio::test]
async fn a_part_whose_etag_was_not_noted_is_lost_with_its_chunk() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", true);
    let data = documented.claim(0).expect("it waits");
    let _ = documented.send(0, &data).await;
    // The worker dies before its ZADD. The part is in the object store, and nobody can name it.
    assert_eq!((documented.listed().len(), documented.claim(0)), (0, None));
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = sent(&uploads, &["whole"]).await;
    // The part is sent and cannot be recorded: its bytes are still needed, and still there.
    let full = "CREATE TRIGGER full BEFORE INSERT ON quaymaster_upload_parts \
                BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    sql(folder.path(), full);
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [Sent::Again]);
    assert_eq!(server.command::<String>(&["GET", &format!("upload:{id}:chunks:0")]), "whole");
    assert_eq!(
        server.command::<i64>(&["ZCARD", &format!("upload:{id}:etags")]),
        0,
        "no view of what is not so"
    );
    assert_eq!(field(&server, &id, "uploaded_chunks").as_deref(), Some("0"));
    sql(folder.path(), "DROP TRIGGER full");
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "whole");
}

#[tokio::test]
async fn a_service_that_dies_between_its_commands_has_a_chunk_that_nobody_counts() {
    let server = RedisServer::start(RedisConfig::default());
    let documented = Documented::begin(&server, 5).await;
    documented.store(0, "whole");
    // The service dies here, and the client, which heard nothing, sends the chunk again to another one.
    assert_eq!(documented.take(0, "whole", true), None, "a duplicate, says the check: all is well");
    let told = ["received_chunks", "total_chunks", "is_last_received"].map(|name| documented.field(name));
    assert_eq!(told, ["0", "0", "false"], "counted by nobody, published by nobody");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, Some(5)).await;
    // A node that dies with the bytes in the store has staged them, and no more.
    let (stage, name, store) = (Stage::fresh(), Reservation::fresh(&id, 0), uploads.store());
    let _ = store.admit(&name, 5, Duration::from_secs(60)).await.expect("an answer");
    store.write(&id, &stage, 0, b"whole", Some(5)).await.expect("staged");
    assert_eq!(server.command::<i64>(&["EXISTS", &format!("upload:{id}:chunks:0")]), 0);
    assert_eq!(field(&server, &id, "received_chunks").as_deref(), Some("0"));
    // The chunk comes again, and once more since that answer was lost too: taken once, with all that belongs to it.
    for _ in 0..2 {
        assert_eq!(received(&send(&uploads, &id, 0, "whole", Last::Yes).await), 1);
        let told =
            ["received_chunks", "total_chunks", "is_last_received"].map(|name| field(&server, &id, name));
        assert_eq!(told.map(|value| value.expect("documented")), ["1", "1", "true"]);
    }
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "whole");
}

#[tokio::test]
async fn a_chunk_already_shipped_is_new_to_the_duplicate_check_and_counts_twice() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 10).await;
    documented.take(0, "first", false);
    assert_eq!(documented.process(0).await, Some(Check::Waiting));
    // The answer to the client was lost; it sends the chunk again, and its key is gone with the part.
    assert_eq!(documented.take(0, "first", false), Some(0), "taken as a new one");
    assert_eq!(documented.process(0).await, Some(Check::Waiting));
    documented.take(1, "final", true);
    let told = ["uploaded_chunks", "total_chunks", "received_chunks"].map(|name| documented.field(name));
    assert_eq!(told, ["2", "2", "3"], "all of two are uploaded, three of two received; the second is not");
    // An object store whose ETags are no digests, as under KMS, has another one for the same part.
    assert_eq!(
        documented.note(0, "\"of-the-second-time\""),
        Check::Ready,
        "complete, says every check there is"
    );
    assert!(documented.is_duplicate(1), "and the second chunk still waits");
    assert_eq!(documented.complete().await, Err("InvalidPart".to_owned()));
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, Some(10)).await;
    assert_eq!(received(&send(&uploads, &id, 0, "first", Last::No).await), 1);
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [Sent::Durable]);
    let again = send(&uploads, &id, 0, "first", Last::No).await;
    assert!(matches!(again, Took::Received { durable: true, .. }), "the same answer: {again:?}");
    assert_eq!(received(&again), 1);
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [], "nothing to ship twice");
    assert_eq!(received(&send(&uploads, &id, 1, "final", Last::Yes).await), 2);
    let told = ["uploaded_chunks", "total_chunks", "received_chunks"].map(|name| field(&server, &id, name));
    assert_eq!(told.map(|value| value.expect("documented")), ["1", "2", "2"]);
    work_until(&uploads, &id, Step::Done).await;
    // Long after its bytes are gone, and after the object is there.
    assert_eq!(received(&send(&uploads, &id, 0, "first", Last::No).await), 2);
    assert_eq!(content(&uploads, &id).await, "firstfinal");
}

#[tokio::test]
async fn other_bytes_under_a_number_are_called_a_success() {
    let server = RedisServer::start(RedisConfig::default());
    let documented = Documented::begin(&server, 5).await;
    documented.take(0, "first", true);
    assert_eq!(documented.take(0, "other", true), None, "told that it was taken");
    assert_eq!(documented.claim(0).as_deref(), Some("first"));
    // Once the first ones are shipped, the others replace them under the part's number.
    assert_eq!(documented.take(0, "other", true), Some(0));
    assert_eq!(documented.claim(0).as_deref(), Some("other"), "one number, two contents, no error");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = sent(&uploads, &["first"]).await;
    assert_eq!(send(&uploads, &id, 0, "other", Last::Yes).await, Took::Conflict);
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [Sent::Durable]);
    assert_eq!(send(&uploads, &id, 0, "other", Last::Yes).await, Took::Conflict, "shipped or not");
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "first");
    // A service of the old scheme beside ours writes over a chunk that waits: that is not what was acknowledged.
    let id = sent(&uploads, &["first"]).await;
    server.command::<()>(&["SETEX", &format!("upload:{id}:chunks:0"), "3600", "other"]);
    assert_eq!(uploads.ship_once(1).await.expect("an answer"), [Sent::Missing]);
    assert_eq!(received(&send(&uploads, &id, 0, "first", Last::Yes).await), 1);
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allkeys_lru_destroys_chunks_that_were_acknowledged() {
    let server = RedisServer::start(RedisConfig::default());
    let documented = Documented::begin(&server, 1000).await;
    let used: u64 =
        server.info("memory", "used_memory").and_then(|text| text.parse().ok()).expect("a number");
    server.command::<()>(&["CONFIG", "SET", "maxmemory", &(used + 400_000).to_string()]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let kilobyte = "x".repeat(1000);
    documented.take(0, &kilobyte, true);
    // Other uploads come while the object store is slow; everything is acknowledged.
    let mut filled = 0;
    while documented.is_duplicate(0) {
        filled += 1;
        assert!(filled < 20_000, "nothing was evicted");
        for n in 0..50 {
            let other = format!("upload:other{filled}:chunks:{n}");
            server.command::<()>(&["SETEX", &other, "3600", &kilobyte]);
        }
    }
    assert_eq!(documented.claim(0), None, "and to the worker it looks as if another one had it");
    // Ours does not start on such a store, and says what would be lost.
    let bundled = schema(&system(&[]));
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let losses = bundled.eviction_losses(policy);
        let ours = losses.iter().find(|loss| loss.kind == Kind::Upload && loss.name == "documents");
        assert_eq!(ours.map(|loss| loss.loss), Some("acknowledged chunks are lost"), "{policy}");
    }
    let findings = examine(&bundled, &*engine(&server).await, Eviction::Refused).await.expect("examined");
    assert_eq!(refusal(&findings).map(|error| error.code), Some(Code::StoreUnsafe), "{findings:?}");
    server.command::<()>(&["FLUSHALL"]);
    for (setting, value) in [("maxmemory-policy", "noeviction"), ("maxmemory", "0")] {
        server.command::<()>(&["CONFIG", "SET", setting, value]);
    }

    // Before memory is full, a client is told to come back.
    let small =
        [("chunk_max = \"100MiB\"", "chunk_max = \"1KiB\""), ("default = \"1GiB\"", "default = \"2KiB\"")];
    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours_with(&server, folder.path(), &small).await;
    let id = create(&uploads, Some(3000)).await;
    for number in 0..2 {
        assert_eq!(received(&send(&uploads, &id, number, &kilobyte, Last::No).await), number + 1);
    }
    let took = send(&uploads, &id, 2, &kilobyte, Last::Yes).await;
    assert!(matches!(took, Took::Busy { retry_after } if !retry_after.is_zero()), "{took:?}");
    // A chunk that is lost nevertheless is asked for again, alone.
    server.command::<i64>(&["DEL", &format!("upload:{id}:chunks:1")]);
    let mut sent = uploads.ship_once(2).await.expect("an answer");
    sent.sort_by_key(|sent| *sent != Sent::Durable);
    assert_eq!(sent, [Sent::Durable, Sent::Missing]);
    let standing = uploads.standing(&id).await.expect("an answer").expect("it is there");
    assert_eq!(standing.state.durable(), [0..=0]);
    assert_eq!(standing.state.resend(), [1..=1]);
    for (number, last) in [(1, Last::No), (2, Last::Yes)] {
        let _ = received(&send(&uploads, &id, number, &kilobyte, last).await);
    }
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, kilobyte.repeat(3));
    assert_eq!(field(&server, &id, "error_message").as_deref().unwrap_or_default(), "");
}
