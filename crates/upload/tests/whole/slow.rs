//! An object store that takes its time, for longer than a lease: the chunk stays whose it is for as long as somebody works
//! on it, and not a moment longer.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ledger::{Clock, Step};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, check_done, until};
use crate::rig::{Document, LEASE, Place, Rig};
use crate::seaweed::Seaweed;
use crate::tamper::{Fault, Tamper};
use crate::trial;

const PART: &str = "partNumber=";

pub fn trials() -> Vec<Trial> {
    vec![
        trial("slow::a_part_that_takes_longer_than_a_lease_is_sent_once", sent_once),
        trial("slow::whoever_lost_its_lease_and_comes_late_does_no_harm", late_comers_do_no_harm),
        trial("slow::a_worker_that_may_not_wait_gives_its_chunks_back", given_back),
        trial("slow::strays_that_cannot_be_listed_hold_up_no_completion", unlisted_strays),
        trial("slow::a_completion_that_is_tried_again_and_again_has_a_short_history", short_history),
        trial("slow::whoever_completes_and_may_not_wait_gives_that_back", completion_given_back),
    ]
}

struct Slow {
    tamper: Tamper,
    place: Place,
    _seaweed: Seaweed,
    _folder: TempDir,
}

impl Slow {
    async fn start() -> Self {
        let seaweed = Seaweed::start().await;
        let tamper = Tamper::start(seaweed.address()).await;
        let folder = TempDir::new().unwrap();
        let place = Place::behind(folder.path(), tamper.address());
        Self { tamper, place, _seaweed: seaweed, _folder: folder }
    }

    /// Two nodes on the same stores.
    async fn nodes(&self) -> [Arc<Rig>; 2] {
        let first = self.place.open().await;
        let second = self.place.open_on(Arc::clone(&first.engine), Clock::Database).await;
        [Arc::new(first), Arc::new(second)]
    }

    fn parts_sent(&self) -> usize {
        self.tamper
            .heard()
            .iter()
            .filter(|request| request.starts_with("PUT") && request.contains(PART))
            .count()
    }
}

/// One chunk, and so one part.
fn document(name: &str) -> Document {
    Document { key: name.to_owned(), chunks: vec![Document::new(name, 1, 700_000).chunks[0].clone()] }
}

async fn sent_once() {
    let slow = Slow::start().await;
    let rigs = slow.nodes().await;
    slow.tamper.next("PUT", PART, 1, Fault::Late(4 * LEASE));
    let document = document("slow");
    let id = rigs[0].create(&document).await;
    assert!(Rig::received(&rigs[0].send(&id, &document, 0).await));
    let _nodes = [Node::start(&rigs[0]), Node::start(&rigs[1])];
    until(&rigs[0], &id, Status::Completed).await;
    check_done(&rigs[0], &id, &document).await;
    assert_eq!(slow.parts_sent(), 1, "nobody else had it while it was sent");
    assert_eq!(rigs[0].pending().await, 0);
}

async fn late_comers_do_no_harm() {
    let slow = Slow::start().await;
    let rigs = slow.nodes().await;
    // Nobody renews this one's lease: as if its process had stood still.
    slow.tamper.next("PUT", PART, 1, Fault::Late(3 * LEASE));
    let document = document("twice");
    let id = rigs[0].create(&document).await;
    assert!(Rig::received(&rigs[0].send(&id, &document, 0).await));
    let late = Arc::clone(&rigs[0]);
    let late = tokio::spawn(async move { late.uploads.ship_once(1).await.unwrap() });
    while slow.parts_sent() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _node = Node::start(&rigs[1]);
    until(&rigs[1], &id, Status::Completed).await;
    assert_eq!(slow.parts_sent(), 2, "the second one did not wait for the first");
    check_done(&rigs[1], &id, &document).await;
    // The first one ends then, with a part of an object that is long there.
    let sent = late.await.unwrap();
    assert_eq!(sent.len(), 1);
    check_done(&rigs[1], &id, &document).await;
    let state = rigs[1].uploads.standing(&id).await.unwrap().unwrap().state;
    assert_eq!((state.status, state.receipt.durable_chunks), (Status::Completed, 1), "{sent:?}");
    assert_eq!(rigs[1].pending().await, 0);
    rigs[1].until_nothing_is_left("both have ended").await;
}

async fn unlisted_strays() {
    let slow = Slow::start().await;
    let [rig, _] = slow.nodes().await;
    let document = document("unlisted");
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    rig.ship_everything(&id, &document).await;
    slow.tamper.next("GET", "uploads=", 1, Fault::Answer(403, "<Error><Code>AccessDenied</Code></Error>"));
    assert_eq!(rig.uploads.complete(&id).await.unwrap(), Ran::Ended(Step::Done));
    assert_eq!(slow.tamper.left(), 0, "it was asked");
    check_done(&rig, &id, &document).await;
}

/// An object store that is away for days: its completion is told once, and not with every attempt.
async fn short_history() {
    let slow = Slow::start().await;
    let [rig, _] = slow.nodes().await;
    let document = document("away");
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    rig.ship_everything(&id, &document).await;
    slow.tamper.next("POST", "?uploadId=", 6, Fault::Answer(503, ""));
    while slow.tamper.left() > 0 {
        let _ = rig.uploads.run_due().await.unwrap();
    }
    rig.work_until(&id, &document, |step| step == Some(Step::Done)).await;
    let history = rig.uploads.ledger().history(&id).await.unwrap();
    let told = |word: &str| history.iter().filter(|line| line.what == word).count();
    assert_eq!((told("released"), told("taken over")), (1, 0), "{history:?}");
}

async fn completion_given_back() {
    let slow = Slow::start().await;
    let [rig, other] = slow.nodes().await;
    // A lease that nobody would wait for.
    slow.tamper.next("POST", "?uploadId=", 1, Fault::Late(Duration::from_secs(3600)));
    let document = document("stopped completing");
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    rig.ship_everything(&id, &document).await;
    let working = Arc::clone(&rig);
    let working_id = id.clone();
    let completing = tokio::spawn(async move { working.uploads.complete(&working_id).await.unwrap() });
    while slow.tamper.left() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(other.uploads.complete(&id).await.unwrap(), Ran::Taken, "it is somebody's");
    assert_eq!(rig.uploads.give_completions_back().await, 1);
    assert_eq!(completing.await.unwrap(), Ran::LetGo("given back".to_owned()));
    // At once, and not when its lease is over.
    assert_eq!(other.uploads.complete(&id).await.unwrap(), Ran::Ended(Step::Done));
    check_done(&other, &id, &document).await;
    assert_eq!(rig.uploads.give_completions_back().await, 0, "nothing is owned any more");
    // Whoever has given back begins nothing more in the time that it has left.
    assert_eq!(rig.uploads.complete(&id).await.unwrap(), Ran::LetGo("given back".to_owned()));
}

async fn given_back() {
    let slow = Slow::start().await;
    let [rig, _] = slow.nodes().await;
    // A lease that nobody would wait for.
    slow.tamper.next("PUT", PART, 1, Fault::Late(Duration::from_secs(3600)));
    let document = document("stopped");
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    let stop = CancellationToken::new();
    let (working, told) = (Arc::clone(&rig), stop.clone());
    let shipping = tokio::spawn(async move { working.uploads.ship(2, told).await });
    while slow.parts_sent() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    assert_eq!(rig.uploads.ship_once(1).await.unwrap(), vec![], "it is somebody's");
    assert_eq!(rig.uploads.give_chunks_back().await, 1);
    // At once, and not when its lease is over; and the attempt does not count.
    let claim = quaymaster::upload::Claim { count: 1, lease: LEASE, wait: Duration::ZERO };
    let claimed = rig.uploads.store().claim(claim).await.unwrap().chunks;
    assert_eq!(claimed.iter().map(|chunk| chunk.attempt).collect::<Vec<_>>(), [1]);
    let _ = rig.uploads.store().release(&claimed[0].lease).await.unwrap();
    shipping.await.unwrap();
    rig.work_until(&id, &document, |step| step == Some(Step::Done)).await;
    check_done(&rig, &id, &document).await;
}
