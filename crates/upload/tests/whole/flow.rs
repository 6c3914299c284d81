//! Whole uploads while nothing stops: what goes in comes out, and what is no chunk leaves nothing.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::{Last, Refusal, Status};
use quaymaster_upload::Sha256;
use quaymaster_upload::ingest::{Incoming, Took};
use tempfile::TempDir;

use crate::node::{Node, check_done, on_both, ship_and_complete, until};
use crate::rig::{Document, Place, Rig, body, send_all};
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        many_uploads_at_once_end_with_their_bytes
        an_empty_file_is_an_object_too
        what_is_no_chunk_is_refused_and_leaves_nothing
        a_body_that_breaks_off_leaves_nothing
        more_bytes_than_may_be_in_flight_wait
    }
    trials
}

async fn many_uploads_at_once_end_with_their_bytes(place: Place) {
    let rig = Arc::new(place.open().await);
    // Two nodes' workers on the same stores.
    let _nodes = [Node::start(&rig), Node::start(&rig)];
    let mut sending = tokio::task::JoinSet::new();
    for n in 0..6u64 {
        let rig = Arc::clone(&rig);
        sending.spawn(async move {
            let document = Document::new(&format!("document-{n}"), n, SIZE);
            let id = rig.create(&document).await;
            assert_eq!(rig.create(&document).await, id, "the same request gets the same upload");
            send_all(&rig, &id, &document).await;
            until(&rig, &id, Status::Completed).await;
            check_done(&rig, &id, &document).await;
            // Chunks of an upload that is long complete get the same answer.
            let again = rig.send(&id, &document, 1).await;
            assert!(
                matches!(
                    again,
                    Took::Received { durable: true, .. } | Took::Closed { status: Status::Completed, .. }
                ),
                "{again:?}"
            );
        });
    }
    while let Some(done) = sending.join_next().await {
        done.unwrap();
    }
    assert_eq!(rig.uploads.ledger().events(0, 100).await.unwrap().len(), 6);
    assert_eq!(rig.pending().await, 0);
    assert_eq!(rig.keys("upload:*:chunks:*").await, Vec::<String>::new());
    assert_eq!(rig.keys("upload:*:staging:*").await, Vec::<String>::new());
    // Whoever sent the last part tells the account after the ledger: another node may have completed by then. What is
    // forgotten would stay for longer than this.
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while rig.uploads.store().in_flight().await.unwrap().bytes > 0 {
        assert!(tokio::time::Instant::now() < end, "bytes are left in the account");
        tokio::task::yield_now().await;
    }
}

async fn an_empty_file_is_an_object_too(place: Place) {
    let rig = place.open().await;
    let document = Document { key: "empty".to_owned(), chunks: vec![Vec::new()] };
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(rig.pending().await, 0);
}

async fn what_is_no_chunk_is_refused_and_leaves_nothing(place: Place) {
    let rig = place.open().await;
    let document = Document::new("refused", 1, SIZE);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 1).await));

    let (good, other) = (&document.chunks[0], &document.chunks[3]);
    let say = |number: u32, last: Last, bytes: &[u8]| Incoming {
        number,
        last,
        size: Some(bytes.len() as u64),
        sha256: None,
    };
    let send = async |incoming: &Incoming, bytes: &[u8]| {
        rig.uploads.chunk(&id, incoming, body(bytes)).await.unwrap()
    };

    let wrong = Incoming { sha256: Some(Sha256::of(b"else")), ..say(0, Last::No, good) };
    assert_eq!(send(&wrong, good).await, Took::Digest { sha256: Sha256::of(good) });
    let long = Incoming { size: Some(good.len() as u64 - 1), ..say(0, Last::No, good) };
    assert!(matches!(send(&long, good).await, Took::Length { .. }));
    let short = Incoming { size: Some(good.len() as u64 + 1), ..say(0, Last::No, good) };
    assert_eq!(send(&short, good).await, Took::Length { size: good.len() as u64 });
    assert_eq!(send(&say(1, Last::No, other), other).await, Took::Conflict);
    assert!(matches!(
        send(&say(0, Last::Yes, good), good).await,
        Took::Refused(Refusal::Passed { highest: 1 })
    ));
    assert!(matches!(send(&say(10_000, Last::No, good), good).await, Took::Refused(Refusal::TooMany { .. })));
    assert!(matches!(
        send(&say(2, Last::No, b"tiny"), b"tiny").await,
        Took::Refused(Refusal::TooSmall { .. })
    ));
    let huge = Incoming { size: Some(1 << 30), ..say(2, Last::No, good) };
    assert!(matches!(send(&huge, good).await, Took::Refused(Refusal::TooLarge { .. })));
    let unknown = rig.uploads.chunk("nobody", &say(0, Last::No, good), body(good)).await.unwrap();
    assert_eq!(unknown, Took::Unknown);

    assert_eq!(rig.keys("upload:*:staging:*").await, Vec::<String>::new());
    let one = document.chunks[1].len() as u64;
    assert_eq!(
        rig.uploads.store().in_flight().await.unwrap().bytes,
        one,
        "only what was received is in flight"
    );
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn a_body_that_breaks_off_leaves_nothing(place: Place) {
    use futures_util::StreamExt as _;
    let rig = place.open().await;
    let document = Document::new("broken", 2, SIZE);
    let id = rig.create(&document).await;
    let half = body(&document.chunks[0]).take(9);
    let broken = half.chain(futures_util::stream::iter([Err(std::io::Error::other("hung up"))]));
    let took = rig.uploads.chunk(&id, &document.incoming(0), broken).await.unwrap();
    assert_eq!(took, Took::Broken("hung up".to_owned()));
    // A request whose caller is dropped in the middle gives back by a task of its own.
    let (sender, waits) = tokio::sync::oneshot::channel::<()>();
    let stuck = body(&document.chunks[0]).take(18).chain(futures_util::stream::once(async move {
        let _ = sender.send(());
        std::future::pending().await
    }));
    let uploads = rig.uploads.clone();
    let (task_id, incoming) = (id.clone(), document.incoming(0));
    let task = tokio::spawn(async move { uploads.chunk(&task_id, &incoming, Box::pin(stuck)).await });
    waits.await.unwrap();
    task.abort();
    let _ = task.await;
    for round in 0.. {
        let in_flight = rig.uploads.store().in_flight().await.unwrap().bytes;
        let staged = rig.keys("upload:*:staging:*").await.len() as u64;
        let files = rig.uploads.bytes().spooled(&id).await.unwrap();
        if (in_flight, staged, files) == (0, 0, 0) {
            break;
        }
        assert!(round < 1000, "{in_flight} bytes in flight, {staged} keys and {files} files are left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn more_bytes_than_may_be_in_flight_wait(place: Place) {
    let rig = place.open().await;
    let size = 15 << 20;
    let document = Document::new("busy", 3, size);
    let ids = [rig.create(&document).await, rig.create(&Document::new("busy-too", 3, size)).await];
    let mut sent = 0;
    // Four of 15 MiB fit into 64.
    for number in [0, 1] {
        for id in &ids {
            assert!(Rig::received(&rig.send(id, &document, number).await));
            sent += 1;
        }
    }
    assert_eq!(sent, 4);
    let took = rig.send(&ids[0], &document, 2).await;
    let Took::Busy { retry_after } = took else { panic!("{took:?}") };
    assert!(retry_after > Duration::ZERO);
    assert!(rig.uploads.store().in_flight().await.unwrap().bytes <= 64 << 20);
    let _ = rig.uploads.ship_once(1).await.unwrap();
    assert!(Rig::received(&rig.send(&ids[0], &document, 2).await), "there is room again");
}
