//! What is over: clean-up, deadlines, and counting what is left.

use quaymaster::Code;
use quaymaster::upload::{Forgotten, Last};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use crate::documented::{Documented, ID, key};
use crate::support::{
    complete_and_die, content, create, field, node, ours, received, send, sent, sql, work_until,
};

/// `KEYS` for the chunks of one upload; the microseconds it held the server, at the best of several times.
fn keys_of_one(server: &RedisServer) -> u64 {
    let once = || -> u64 {
        server.command::<()>(&["CONFIG", "RESETSTAT"]);
        let found: Vec<String> = server.command(&["KEYS", &key("chunks:*")]);
        assert_eq!(found.len(), 1);
        let told = server.info("commandstats", "cmdstat_keys").expect("it was called");
        let usec = told.split(',').find_map(|part| part.strip_prefix("usec=")?.parse().ok());
        usec.expect("a number")
    };
    (0..5).map(|_| once()).min().expect("five times")
}

#[tokio::test]
async fn keys_walks_everybodys_keys_and_takes_a_pattern_for_a_name() {
    let server = RedisServer::start(RedisConfig::default());
    let documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", true);
    let few = keys_of_one(&server);
    server.command::<()>(&["DEBUG", "POPULATE", "300000", "upload:others", "10"]);
    let many = keys_of_one(&server);
    assert!(many > 10 * few.max(1), "for one chunk, nobody is served for {few} µs, and now {many} µs");
    // Whoever may choose an id may clean up after everybody.
    let found: Vec<String> = server.command(&["KEYS", "upload:*:chunks:*"]);
    assert_eq!(found, [key("chunks:0")], "the clean-up of an upload called `*`");

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, None).await;
    for number in 0..20 {
        assert_eq!(received(&send(&uploads, &id, number, "chunk", Last::No).await), number + 1);
    }
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    assert_eq!(uploads.abort(&id).await.expect("an answer"), Ran::Ended(Step::Aborted));
    let left =
        || (0..20).filter(|n| server.command::<i64>(&["EXISTS", &format!("upload:{id}:chunks:{n}")]) == 1);
    assert_eq!(left().count(), 0, "by their numbers, which are known");
    assert_eq!(uploads.store().forget(&id).await.expect("an answer"), Forgotten::Forgotten);
    for walks in ["keys", "scan", "randomkey"] {
        assert_eq!(server.info("commandstats", &format!("cmdstat_{walks}")), None);
    }
    let mine: Vec<String> = server.command(&["KEYS", &format!("upload:{id}:*")]);
    assert_eq!(mine, [""; 0], "nothing of it is left");
    assert_eq!(server.command::<i64>(&["EXISTS", &key("chunks:0")]), 1, "what is another's is untouched");
    let error = uploads.store().status("*").await.expect_err("no id");
    assert_eq!(error.code, Code::RequestInvalid);
}

#[tokio::test]
async fn nobody_sets_expired_and_the_parts_stay_for_ever() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 10).await;
    documented.take(0, "first", false);
    let _ = documented.process(0).await;
    // The client never comes back. The last of the 24 hours ends:
    server.command::<i64>(&["PEXPIRE", &key("state"), "1"]);
    while server.command::<i64>(&["EXISTS", &key("state")]) == 1 {}
    assert_eq!(
        server.command::<Option<String>>(&["HGET", &key("state"), "status"]),
        None,
        "EXPIRED? Nothing."
    );
    assert_eq!(
        documented.pending().await,
        1,
        "and nobody has the id any more with which its parts were aborted"
    );
    assert_eq!(documented.row.status, "PENDING");
    assert_eq!(
        server.command::<i64>(&["EXISTS", &format!("upload:{ID}:etags")]),
        1,
        "no command gave it a TTL"
    );
    assert_eq!(server.command::<i64>(&["TTL", &key("etags")]), -1);
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, Some(10)).await;
    assert_eq!(received(&send(&uploads, &id, 0, "first", Last::No).await), 1);
    // Another one, whose object somebody completed and died: it looks just as forgotten.
    let whole = sent(&uploads, &["whole"]).await;
    assert_eq!(uploads.ship_once(1).await.expect("an answer").len(), 1);
    assert_eq!(uploads.ship_once(1).await.expect("an answer").len(), 1);
    assert_eq!(received(&send(&uploads, &id, 1, "wait!", Last::No).await), 2);
    complete_and_die(&uploads, &whole).await;
    for name in server.command::<Vec<String>>(&["KEYS", &format!("upload:{id}:*")]) {
        assert!(server.command::<i64>(&["TTL", &name]) > 0, "{name} would stay for ever");
    }
    drop(uploads);
    // A day passes by the clock of the ledger: its deadlines are moved into the past.
    sql(folder.path(), "UPDATE quaymaster_uploads SET deadline_ms = 1, due_ms = 1");
    let uploads = ours(&server, folder.path()).await;
    work_until(&uploads, &id, Step::Expired).await;
    work_until(&uploads, &whole, Step::Done).await;
    assert_eq!(content(&uploads, &whole).await, "whole", "a look comes before an abort");
    assert_eq!(node(&uploads, &whole).await.status, "ACTIVE");
    assert_eq!(
        uploads.objects().pending("", None).await.expect("a page").uploads.len(),
        0,
        "no parts are left"
    );
    assert_eq!(node(&uploads, &id).await.status, "EXPIRED");
    // What a program of the old scheme sees: the status, for an hour; and no chunks.
    assert_eq!(field(&server, &id, "status").as_deref(), Some("EXPIRED"));
    let ttl: i64 = server.command(&["TTL", &format!("upload:{id}:state")]);
    assert!((3000..=3600).contains(&ttl), "{ttl}");
    assert_eq!(server.command::<i64>(&["EXISTS", &format!("upload:{id}:chunks:1")]), 0);
    let took = send(&uploads, &id, 1, "wait!", Last::Yes).await;
    assert!(matches!(took, Took::Closed { .. }), "{took:?}");
}

#[tokio::test]
async fn dbsize_counts_everything_but_chunks() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", false);
    let _ = documented.process(0).await;
    server.command::<()>(&["SET", "somebody", "else's"]);
    assert_eq!(server.command::<i64>(&["DBSIZE"]), 3, "three chunks are queued, says the metric, of none");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let _ = sent(&uploads, &["who", "le"]).await;
    let queued = async || {
        let held = uploads.store().in_flight().await.expect("an answer");
        (held.names, held.bytes)
    };
    assert_eq!(queued().await, (2, 5), "chunks, and their bytes");
    assert!(server.command::<i64>(&["DBSIZE"]) > 3, "for the documented metric ours are still more");
    assert_eq!(uploads.ship_once(1).await.expect("an answer").len(), 1);
    assert_eq!(queued().await.0, 1);
    assert_eq!(uploads.ship_once(1).await.expect("an answer").len(), 1);
    assert_eq!(queued().await, (0, 0));
}
