//! From the parts to the object, the row and the event.

use quaymaster::upload::{Last, Refusal};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use serde_json::json;
use tempfile::TempDir;

use crate::documented::{Check, Documented, Row};
use crate::support::{
    complete_and_die, content, create, events, field, node, ours, received, send, sent, work_until,
};

#[tokio::test]
async fn hsetnx_on_a_status_that_exists_never_fires_and_nothing_completes() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", true);
    assert_eq!(documented.process(0).await, Some(Check::Ready));
    for _ in 0..3 {
        assert!(!documented.is_mine(), "every worker is told that another one completes it");
    }
    assert_eq!((documented.field("status").as_str(), documented.size().await), ("PENDING", None));
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let (one, two) = (ours(&server, folder.path()).await, ours(&server, folder.path()).await);
    let id = sent(&one, &["who", "le"]).await;
    assert_eq!(field(&server, &id, "status").as_deref(), Some("UPLOADING"));
    let shipped = one.ship_once(2).await.expect("an answer");
    assert_eq!(shipped.len(), 2);
    // Two nodes find it at once.
    let (first, second) = tokio::join!(one.complete(&id), two.complete(&id));
    let _ = (first.expect("an answer"), second.expect("an answer"));
    work_until(&two, &id, Step::Done).await;
    assert_eq!(events(&one, &id).await.len(), 1, "one of them completed it");
    let words: Vec<String> =
        one.ledger().history(&id).await.expect("an answer").into_iter().map(|line| line.what).collect();
    assert_eq!(words.iter().filter(|what| *what == "completing").count(), 1, "{words:?}");
    assert_eq!(content(&one, &id).await, "whole");
    // What a program of the old scheme sees.
    assert_eq!(field(&server, &id, "status").as_deref(), Some("COMPLETED"));
    assert_eq!(server.command::<i64>(&["HSETNX", &format!("upload:{id}:state"), "status", "COMPLETING"]), 0);
}

#[tokio::test]
async fn identical_chunks_are_one_member_and_their_parts_are_lost() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 15).await;
    for (number, data) in [(0, "zeros"), (1, "other"), (2, "zeros")] {
        documented.take(number, data, number == 2);
    }
    for number in [0, 1] {
        assert_eq!(documented.process(number).await, Some(Check::Waiting));
    }
    assert_eq!(
        documented.process(2).await,
        Some(Check::Mismatch),
        "all are uploaded, and it goes no further"
    );
    let listed = documented.listed();
    assert_eq!(listed.len(), 2, "two of three parts are known");
    let first = documented.send(0, "zeros").await;
    assert_eq!(listed[1], first, "the first chunk's part stands at the third's place, and is numbered 2");
    assert_eq!(documented.complete().await, Err("InvalidPart".to_owned()));
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = sent(&uploads, &["zeros", "other", "zeros"]).await;
    assert_eq!(uploads.ship_once(3).await.expect("an answer").len(), 3);
    let parts = uploads.ledger().parts(&id).await.expect("an answer");
    assert_eq!(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(parts[0].etag, parts[2].etag, "the object store has one ETag for both");
    // What a program of the old scheme sees: one member a part, its ETag; the number before it only where another part
    // has the same one.
    let etags = format!("upload:{id}:etags");
    let listed: Vec<(String, f64)> = server.command(&["ZRANGE", &etags, "0", "-1", "WITHSCORES"]);
    let members = [parts[0].etag.clone(), parts[1].etag.clone(), format!("3:{}", parts[2].etag)];
    let wanted: Vec<(String, f64)> = members.into_iter().zip([0.0, 1.0, 2.0]).collect();
    assert_eq!(listed, wanted);
    // It is a view: the object is made of what the ledger has.
    server.command::<i64>(&["DEL", &etags]);
    work_until(&uploads, &id, Step::Done).await;
    assert_eq!(content(&uploads, &id).await, "zerosotherzeros");
}

#[tokio::test]
async fn a_size_that_was_announced_is_recorded_whatever_came() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 1_073_741_824).await;
    documented.take(0, "cut off", true);
    assert_eq!(documented.process(0).await, Some(Check::Ready));
    // As if the gate had let it through.
    let etag = documented.complete().await.expect("the object store has no objection");
    documented.show_completed(&etag);
    documented.update_row();
    documented.publish_event();
    assert_eq!(documented.row, Row { status: "ACTIVE", size: 1_073_741_824 });
    assert_eq!(documented.events[0]["size"], json!("1073741824"));
    assert_eq!(documented.size().await, Some(7), "a gigabyte of seven bytes");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let uploads = ours(&server, folder.path()).await;
    let id = create(&uploads, Some(10)).await;
    let short = send(&uploads, &id, 0, "cut off", Last::Yes).await;
    assert_eq!(short, Took::Refused(Refusal::Under { bytes: 7 }));
    let long = send(&uploads, &id, 0, "more than ten", Last::Yes).await;
    assert_eq!(long, Took::Refused(Refusal::Over { bytes: 13 }));
    assert_eq!(received(&send(&uploads, &id, 0, "exactly10!", Last::Yes).await), 1, "neither has spoilt it");
    work_until(&uploads, &id, Step::Done).await;
    // Without an announcement there is nothing to compare; what is recorded is what is there.
    let unsaid = create(&uploads, None).await;
    assert_eq!(received(&send(&uploads, &unsaid, 0, "cut off", Last::Yes).await), 1);
    work_until(&uploads, &unsaid, Step::Done).await;
    for (id, size) in [(&id, 10), (&unsaid, 7)] {
        let node = node(&uploads, id).await;
        assert_eq!((node.status.as_str(), node.size), ("ACTIVE", Some(size)));
        assert_eq!(events(&uploads, id).await[0]["size"], json!(size));
        assert_eq!(field(&server, id, "final_size"), Some(size.to_string()));
        let head = uploads.objects().head(&node.s3_key.expect("recorded")).await.expect("a look");
        assert_eq!(head.map(|head| head.size), Some(size));
    }
}

#[tokio::test]
async fn a_worker_that_dies_after_it_completed_leaves_an_object_without_row_and_event() {
    let server = RedisServer::start(RedisConfig::default());
    let mut documented = Documented::begin(&server, 5).await;
    documented.take(0, "whole", true);
    assert_eq!(documented.process(0).await, Some(Check::Ready));
    let etag = documented.complete().await.expect("completed");
    documented.show_completed(&etag);
    // The worker dies here.
    assert_eq!((documented.row.status, documented.events.len()), ("PENDING", 0));
    assert_eq!(documented.field("status"), "COMPLETED", "so says the state, and nobody comes again");
    assert!(!documented.is_mine());
    // Had it died a step earlier, whoever comes again could not tell what it did.
    assert_eq!(documented.complete().await, Err("NoSuchUpload".to_owned()), "done, or aborted?");
    server.command::<()>(&["FLUSHALL"]);

    let folder = TempDir::new().expect("a temporary folder");
    let dead = ours(&server, folder.path()).await;
    let id = sent(&dead, &["who", "le"]).await;
    assert_eq!(dead.ship_once(2).await.expect("an answer").len(), 2);
    complete_and_die(&dead, &id).await;
    drop(dead);
    let next = ours(&server, folder.path()).await;
    assert_eq!(node(&next, &id).await.status, "PENDING");
    assert_eq!(
        field(&server, &id, "status").as_deref(),
        Some("UPLOADING"),
        "nothing is said before it is so"
    );
    work_until(&next, &id, Step::Done).await;
    let row = node(&next, &id).await;
    assert_eq!((row.status.as_str(), row.size), ("ACTIVE", Some(5)));
    let told = events(&next, &id).await;
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["node_id"], &told[0]["size"]), (&json!(row.facts.node_id), &json!(5)));
    assert!(told[0]["event_id"].is_string(), "a repetition is known by it: {}", told[0]);
    assert_eq!(field(&server, &id, "status").as_deref(), Some("COMPLETED"));
    assert_eq!(content(&next, &id).await, "whole");
}
