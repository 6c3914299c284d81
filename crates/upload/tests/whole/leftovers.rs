//! What a node that died had on its way in is given back as soon as its reservation is over, and nothing else is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use libtest_mimic::Trial;
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use crate::node::{check_done, on_both};
use crate::redis::Redis;
use crate::rig::{Document, Place, Rig, body, send_until_received};
use crate::trial;

const SIZE: usize = 2_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        what_a_dead_request_staged_goes_with_its_reservation
        whoever_stood_still_for_too_long_is_told_to_begin_anew
    }
    trials.push(trial("apart::what_a_dead_request_staged_goes_with_its_reservation", || async {
        let redis = Redis::start();
        let folder = TempDir::new().unwrap();
        let place = Place { apart: Some(redis.url()), ..Place::in_folder(folder.path(), false) };
        what_a_dead_request_staged_goes_with_its_reservation(place).await;
    }));
    trials
}

/// Everything that is staged of an upload, wherever that is.
async fn staged(rig: &Rig, place: &Place, id: &str) -> u64 {
    let apart = match &place.apart {
        Some(url) => {
            let other = Place { store: url.clone(), apart: None, ..place.clone() }.open().await;
            other.keys("upload:*:staging:*").await.len() as u64
        }
        None => 0,
    };
    let files = rig.uploads.bytes().spooled(id).await.unwrap();
    apart + files + rig.keys("upload:*:staging:*").await.len() as u64
}

/// A body of which two pieces come and then no more, and what tells so.
fn stuck(
    document: &Document,
) -> (
    impl futures_util::Stream<Item = Result<bytes::Bytes, std::io::Error>> + Send + use<>,
    tokio::sync::oneshot::Receiver<()>,
) {
    let (sender, waits) = tokio::sync::oneshot::channel::<()>();
    // Past two pieces of a MiB each.
    let some = body(&document.chunks[0]).take(32);
    let stuck = some.chain(futures_util::stream::once(async move {
        let _ = sender.send(());
        std::future::pending().await
    }));
    (Box::pin(stuck), waits)
}

async fn what_a_dead_request_staged_goes_with_its_reservation(place: Place) {
    let place = Place { reservation_ms: 700, ..place };
    let document = Document::new("dead", 2, SIZE);
    let rig = Arc::new(place.open().await);
    let id = rig.create(&document).await;
    let (bytes, waits) = stuck(&document);
    // A process that dies runs nothing more: a runtime that is thrown away with everything on it.
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (uploads, of, incoming) = (rig.uploads.clone(), id.clone(), document.incoming(0));
    dying.spawn(async move { uploads.chunk(&of, &incoming, bytes).await });
    waits.await.unwrap();
    // A chunk that is received stays, whoever is swept.
    send_until_received(&rig, &id, &document, 1).await;
    let before = staged(&rig, &place, &id).await;
    assert_eq!(rig.uploads.reclaim().await.unwrap(), 0, "nothing is taken from who is still there");
    assert_eq!(staged(&rig, &place, &id).await, before);
    dying.shutdown_background();
    let mut reclaimed = 0;
    while reclaimed == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        reclaimed = rig.uploads.reclaim().await.unwrap();
    }
    assert_eq!((reclaimed, staged(&rig, &place, &id).await), (1, before - 1));
    let in_flight = rig.uploads.store().in_flight().await.unwrap();
    assert_eq!((in_flight.bytes, in_flight.names), (document.chunks[1].len() as u64, 1));
    for number in [0, 2, 3] {
        send_until_received(&rig, &id, &document, number).await;
    }
    rig.work_until(&id, &document, |step| step == Some(Step::Done)).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(staged(&rig, &place, &id).await, 0);
    rig.until_nothing_is_left("it is done").await;
}

/// Its bytes are removed as nobody's; then it goes on as if nothing had been.
async fn whoever_stood_still_for_too_long_is_told_to_begin_anew(place: Place) {
    let place = Place { reservation_ms: 700, ..place };
    let document = Document::new("still", 3, SIZE);
    let rig = place.open().await;
    let id = rig.create(&document).await;
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (sender, waits) = tokio::sync::oneshot::channel::<()>();
    let (first, rest) = (body(&document.chunks[0]).take(32), body(&document.chunks[0]).skip(32));
    // Its only thread stands still, as a process does that is stopped: nothing is renewed.
    let still = futures_util::stream::once(async move {
        let _ = sender.send(());
        let _ = wait.recv();
        Ok(bytes::Bytes::new())
    });
    let node = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (uploads, of, incoming) = (rig.uploads.clone(), id.clone(), document.incoming(0));
    let sending = node.spawn(async move {
        uploads.chunk(&of, &incoming, Box::pin(first.chain(still).chain(rest))).await.unwrap()
    });
    waits.await.unwrap();
    while rig.uploads.reclaim().await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(staged(&rig, &place, &id).await, 0);
    go.send(()).unwrap();
    let took = sending.await.unwrap();
    node.shutdown_background();
    assert!(matches!(took, Took::Busy { .. }), "{took:?}");
    let state = rig.uploads.standing(&id).await.unwrap().unwrap().state;
    assert_eq!(state.receipt.received_chunks, 0, "nothing of it was taken");
    for number in [3, 0, 2, 1] {
        send_until_received(&rig, &id, &document, number).await;
    }
    rig.work_until(&id, &document, |step| step == Some(Step::Done)).await;
    check_done(&rig, &id, &document).await;
    rig.until_nothing_is_left("it is done").await;
}
