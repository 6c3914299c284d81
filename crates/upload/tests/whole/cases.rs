//! Whole uploads while nothing stops.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::{Last, Refusal, Status};
use quaymaster_upload::Sha256;
use quaymaster_upload::doctor::{Finding, Mode};
use quaymaster_upload::ingest::{Incoming, Resumed, Took};
use quaymaster_upload::ledger::{Part, RecordPart, Step};
use quaymaster_upload::objects::{About, MultipartId, PartBody, Source};
use quaymaster_upload::ship::Sent;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::rig::{Document, Place, Rig, body, send_all};
use crate::trial;

const SIZE: usize = 1_300_000;

macro_rules! on_both {
    ($trials:ident: $($name:ident)*) => {
        $(for spooled in [true, false] {
            let way = if spooled { "spool" } else { "store" };
            $trials.push(trial(format!("{way}::{}", stringify!($name)), move || async move {
                let folder = TempDir::new().unwrap();
                let place = Place::in_folder(folder.path(), spooled);
                $name(place).await;
            }));
        })*
    };
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        many_uploads_at_once_end_with_their_bytes
        an_empty_file_is_an_object_too
        what_is_no_chunk_is_refused_and_leaves_nothing
        a_body_that_breaks_off_leaves_nothing
        more_bytes_than_may_be_in_flight_wait
        lost_parts_fail_an_upload_and_it_can_be_gone_on_with
        a_store_that_forgot_is_told_by_the_ledger
        an_upload_past_its_deadline_expires_unless_it_is_whole
        a_doctor_finds_what_does_not_fit_and_puts_it_right
    }
    trials.push(trial("spool::a_lost_file_is_asked_for_again", a_lost_file_is_asked_for_again));
    trials.push(trial(
        "spool::what_the_ledger_has_is_not_asked_for_again",
        what_the_ledger_has_is_not_asked_for_again,
    ));
    trials.push(trial(
        "servers::a_redis_that_restarts_loses_nothing_durable",
        a_redis_that_restarts_loses_nothing_durable,
    ));
    trials.push(trial("servers::chunks_in_a_redis_of_their_own", chunks_in_a_redis_of_their_own));
    trials.push(trial("servers::redis_seaweedfs_and_postgres", redis_seaweedfs_and_postgres));
    trials
}

/// Workers and sweep of a node, until dropped.
struct Node(CancellationToken);

impl Node {
    fn start(rig: &Arc<Rig>) -> Self {
        let stop = CancellationToken::new();
        let (shipping, tending) = (rig.uploads.clone(), rig.uploads.clone());
        let (one, two) = (stop.clone(), stop.clone());
        tokio::spawn(async move { shipping.ship(4, one).await });
        tokio::spawn(async move { tending.tend(two).await });
        Self(stop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Waits for a status by its progress, not by the clock; a test that waits in vain is ended by its runner's bound.
async fn until(rig: &Rig, id: &str, status: Status) {
    for _ in 0..6000 {
        let standing = rig.uploads.standing(id).await.unwrap().unwrap();
        if standing.state.status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} did not become {status}: {:?}", rig.uploads.standing(id).await);
}

pub async fn check_done(rig: &Rig, id: &str, document: &Document) {
    // The store shows the end just before the ledger has it.
    let mut upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
    for _ in 0..1000 {
        if upload.step == Step::Done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
    }
    assert_eq!((upload.step, upload.final_size), (Step::Done, Some(document.size())));
    assert_eq!(rig.digest(id).await, Some(document.sha256()));
    let events = rig.uploads.ledger().events(0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.upload_id == id).count(), 1);
    assert_eq!(rig.uploads.bytes().spooled(id).await.unwrap(), 0);
}

async fn ship_and_complete(rig: &Rig, id: &str) {
    for _ in 0..6000 {
        let _ = rig.uploads.ship_once(10).await.unwrap();
        let _ = rig.uploads.run_due().await.unwrap();
        if rig.uploads.ledger().find(id).await.unwrap().unwrap().step == Step::Done {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", rig.uploads.ledger().history(id).await);
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
    assert_eq!(rig.uploads.store().in_flight().await.unwrap().bytes, 0);
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

async fn lost_parts_fail_an_upload_and_it_can_be_gone_on_with(place: Place) {
    let rig = place.open().await;
    let document = Document::new("lost", 4, SIZE);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    let _ = rig.uploads.ship_once(1).await.unwrap();
    // Somebody aborts the multipart upload behind our back, with a part in it.
    let pending = rig.uploads.objects().pending("", None).await.unwrap().uploads.remove(0);
    let _ = rig.uploads.objects().abort(&pending.key, &pending.id).await.unwrap();
    assert!(Rig::received(&rig.send(&id, &document, 1).await));
    let _ = rig.uploads.ship_once(1).await.unwrap();
    let standing = rig.uploads.standing(&id).await.unwrap().unwrap();
    assert_eq!(standing.state.status, Status::Failed);
    assert!(
        standing.state.error.as_deref().unwrap().starts_with("parts_lost: "),
        "{:?}",
        standing.state.error
    );
    let took = rig.send(&id, &document, 2).await;
    assert!(matches!(took, Took::Closed { status: Status::Failed, .. }), "{took:?}");

    let Resumed::Open(standing) = rig.uploads.resume(&id).await.unwrap() else { panic!("it goes on") };
    assert_eq!(standing.resend, vec![0..=0], "what was durable is lost, what was received is not");
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(rig.pending().await, 0);
}

async fn a_store_that_forgot_is_told_by_the_ledger(place: Place) {
    let rig = place.open().await;
    let document = Document::new("forgotten", 5, SIZE);
    let id = rig.create(&document).await;
    for number in [3, 0] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 2);
    assert!(Rig::received(&rig.send(&id, &document, 1).await));
    drop(rig);
    // The same ledger and objects beside an empty store.
    let elsewhere = TempDir::new().unwrap();
    let place = Place { store: format!("embedded:{}", elsewhere.path().display()), ..place };
    let rig = place.open().await;
    let standing = rig.uploads.standing(&id).await.unwrap().unwrap();
    assert_eq!(standing.state.durable(), vec![0..=0, 3..=3], "what is durable stays so");
    assert_eq!(standing.resend, vec![1..=2], "what was received only is asked for again");
    for number in [1, 2] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn an_upload_past_its_deadline_expires_unless_it_is_whole(place: Place) {
    let rig = place.open().await;
    let (part, whole) = (Document::new("part", 6, SIZE), Document::new("whole", 7, SIZE));
    let (part_id, whole_id) = (rig.create(&part).await, rig.create(&whole).await);
    assert!(Rig::received(&rig.send(&part_id, &part, 0).await));
    send_all(&rig, &whole_id, &whole).await;
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 5);
    drop(rig);
    // A day later, by the clock of the ledger: its deadlines are moved into the past by another hand.
    let file = place.database.strip_prefix("sqlite:").unwrap();
    let moved = std::process::Command::new("python3")
        .args(["-c", "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('UPDATE quaymaster_uploads SET deadline_ms=1, due_ms=1'); c.commit()", file])
        .status()
        .unwrap();
    assert!(moved.success());
    let rig = place.open().await;
    for _ in 0..1000 {
        let _ = rig.uploads.run_due().await.unwrap();
        if rig.uploads.ledger().find(&whole_id).await.unwrap().unwrap().step == Step::Done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check_done(&rig, &whole_id, &whole).await;
    let upload = rig.uploads.ledger().find(&part_id).await.unwrap().unwrap();
    assert_eq!(upload.step, Step::Expired);
    let state = rig.uploads.standing(&part_id).await.unwrap().unwrap().state;
    assert_eq!(state.status, Status::Expired);
    assert_eq!(rig.pending().await, 0, "its multipart upload is aborted");
    let took = rig.send(&part_id, &part, 1).await;
    assert!(matches!(took, Took::Closed { status: Status::Expired, .. }), "{took:?}");
}

async fn a_doctor_finds_what_does_not_fit_and_puts_it_right(place: Place) {
    let rig = place.open().await;
    let document = Document::new("sick", 10, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    let sound = rig.uploads.examine(&id, Mode::Look).await.unwrap().unwrap();
    assert_eq!(sound.findings, vec![], "an upload on its way is sound");
    assert_eq!(rig.uploads.examine("nobody", Mode::Look).await.unwrap().map(|report| report.upload_id), None);

    // A part that the ledger has and the store does not know of; everything else is durable.
    assert_eq!(rig.uploads.ship_once(3).await.unwrap().len(), 3);
    let upload = rig.uploads.ledger().find(&id).await.unwrap().unwrap();
    let have: Vec<u32> =
        rig.uploads.ledger().parts(&id).await.unwrap().iter().map(|part| part.number).collect();
    let number = (1..=4).find(|number| !have.contains(number)).unwrap();
    let bytes = bytes::Bytes::from(document.chunks[number as usize - 1].clone());
    let (size, sha256) = (bytes.len() as u64, Sha256::of(&bytes));
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let part = PartBody { size, sha256, source: Source::Pieces(vec![bytes]) };
    let etag = rig.uploads.objects().part(&upload.object_key, &multipart, number, part).await.unwrap();
    let part = Part { number, etag, size, sha256 };
    let recorded = rig.uploads.ledger().record_part(&id, multipart.as_str(), &part).await.unwrap();
    assert!(matches!(recorded, RecordPart::Durable { all: true, .. }));
    let sick = rig.uploads.examine(&id, Mode::Look).await.unwrap().unwrap();
    assert_eq!(sick.findings, vec![Finding::PartsDiffer { store: 3, ledger: 4 }, Finding::Overdue]);
    let healed = rig.uploads.examine(&id, Mode::Repair).await.unwrap().unwrap();
    assert_eq!(healed.repaired.len(), 2, "{:?}", healed.repaired);
    check_done(&rig, &id, &document).await;
    let sound = rig.uploads.examine(&id, Mode::Look).await.unwrap().unwrap();
    assert_eq!(sound.findings, vec![]);
    let words: Vec<&str> = sound.history.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(words, ["created", "opened", "completing", "proved", "recorded", "announced", "done"]);

    // A multipart upload that nobody knows, a day and an hour old; and one that is in use.
    let stray = rig.uploads.objects().begin("connectors/default/stray.pb", &About::default()).await.unwrap();
    let used = rig.create(&Document::new("used", 11, SIZE)).await;
    let began = rig.uploads.objects().pending("", None).await.unwrap().uploads[0].initiated_ms.unwrap();
    let (young, _) = rig.uploads.orphans("", began + 3_600_000, None, Mode::Repair).await.unwrap();
    assert_eq!(young, vec![]);
    let (found, _) = rig.uploads.orphans("", began + 25 * 3_600_000, None, Mode::Repair).await.unwrap();
    assert_eq!(found.iter().map(|orphan| &orphan.pending.id).collect::<Vec<_>>(), [&stray]);
    assert_eq!(rig.pending().await, 1, "the one in use stays");
    assert_eq!(rig.uploads.ledger().find(&used).await.unwrap().unwrap().step, Step::Open);
}

async fn a_lost_file_is_asked_for_again() {
    let folder = TempDir::new().unwrap();
    let place = Place::in_folder(folder.path(), true);
    let rig = place.open().await;
    let document = Document::new("lost-file", 8, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    let files: Vec<_> = std::fs::read_dir(folder.path().join("spool").join(&id)).unwrap().collect();
    assert_eq!(files.len(), 4);
    for (at, file) in files.into_iter().enumerate() {
        let path = file.unwrap().path();
        // One is gone, one is cut short, one has other bytes.
        match at {
            0 => std::fs::remove_file(path).unwrap(),
            1 => std::fs::write(path, b"short").unwrap(),
            _ => {}
        }
    }
    for _ in 0..100 {
        let _ = rig.uploads.ship_once(10).await.unwrap();
    }
    let standing = rig.uploads.standing(&id).await.unwrap().unwrap();
    let lost: Vec<u32> = standing.resend.into_iter().flatten().collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    for number in lost {
        assert!(Rig::received(&rig.send(&id, &document, number as usize).await));
    }
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn what_the_ledger_has_is_not_asked_for_again() {
    let folder = TempDir::new().unwrap();
    let rig = Place::in_folder(folder.path(), true).open().await;
    let document = Document::new("recorded", 12, SIZE);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    // Whoever shipped it died when its bytes were removed and before the store knew.
    let upload = rig.uploads.ledger().find(&id).await.unwrap().unwrap();
    let bytes = bytes::Bytes::from(document.chunks[0].clone());
    let (size, sha256) = (bytes.len() as u64, Sha256::of(&bytes));
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let part = PartBody { size, sha256, source: Source::Pieces(vec![bytes]) };
    let etag = rig.uploads.objects().part(&upload.object_key, &multipart, 1, part).await.unwrap();
    let part = Part { number: 1, etag, size, sha256 };
    let _ = rig.uploads.ledger().record_part(&id, multipart.as_str(), &part).await.unwrap();
    std::fs::remove_dir_all(folder.path().join("spool").join(&id)).unwrap();
    assert_eq!(rig.uploads.ship_once(10).await.unwrap(), vec![Sent::Durable]);
    assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().resend, vec![]);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn redis_seaweedfs_and_postgres() {
    let redis = crate::redis::Redis::start();
    let postgres = crate::servers::PostgresServer::start();
    let seaweed = crate::seaweed::Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    let place = Place {
        store: redis.url(),
        database: postgres.url(),
        objects: "s3://quay/files".to_owned(),
        endpoint: Some(format!("http://{}", seaweed.address())),
        spool: None,
        chunk_min: "5MiB".to_owned(),
        ..Place::in_folder(folder.path(), false)
    };
    let rig = Arc::new(place.open().await);
    let _nodes = [Node::start(&rig), Node::start(&rig)];
    let mut sending = tokio::task::JoinSet::new();
    for n in 0..2u64 {
        let rig = Arc::clone(&rig);
        sending.spawn(async move {
            let document = Document::new(&format!("document-{n}"), n, 5 << 20);
            let id = rig.create(&document).await;
            send_all(&rig, &id, &document).await;
            until(&rig, &id, Status::Completed).await;
            check_done(&rig, &id, &document).await;
        });
    }
    while let Some(done) = sending.join_next().await {
        done.unwrap();
    }
    assert_eq!(rig.pending().await, 0);
    assert_eq!(rig.keys("upload:*:chunks:*").await, Vec::<String>::new());
    assert_eq!(rig.uploads.store().in_flight().await.unwrap().bytes, 0);
    let empty = Document { key: "empty".to_owned(), chunks: vec![Vec::new()] };
    let id = rig.create(&empty).await;
    assert!(Rig::received(&rig.send(&id, &empty, 0).await));
    until(&rig, &id, Status::Completed).await;
    check_done(&rig, &id, &empty).await;
    assert_eq!(rig.pending().await, 0);
}

async fn a_redis_that_restarts_loses_nothing_durable() {
    let mut redis = crate::redis::Redis::start();
    let folder = TempDir::new().unwrap();
    let place = Place { store: redis.url(), ..Place::in_folder(folder.path(), false) };
    let rig = place.open().await;
    let document = Document::new("restarted", 9, SIZE);
    let id = rig.create(&document).await;
    for number in [3, 0] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 2);
    assert!(Rig::received(&rig.send(&id, &document, 1).await));
    for lost in [false, true] {
        // From its log, and then from nothing at all.
        if lost {
            redis.restart_empty();
        } else {
            redis.restart();
        }
        let mut standing = None;
        for _ in 0..1000 {
            // Connections come back by themselves.
            if let Ok(found) = rig.uploads.standing(&id).await {
                standing = found;
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let standing = standing.unwrap();
        assert_eq!(standing.state.durable(), vec![0..=0, 3..=3], "what is durable stays so");
        if lost {
            assert_eq!(standing.resend, vec![1..=2], "what was received only is asked for again");
        }
    }
    for number in [1, 2] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn chunks_in_a_redis_of_their_own() {
    let mut chunks = crate::redis::Redis::start();
    let folder = TempDir::new().unwrap();
    let place = Place { apart: Some(chunks.url()), ..Place::in_folder(folder.path(), false) };
    let rig = place.open().await;
    let other = Place { store: chunks.url(), ..Place::in_folder(folder.path(), false) }.open().await;
    let document = Document::new("apart", 13, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    assert_eq!(rig.keys("upload:*:chunks:*").await.len() + rig.keys("upload:*:staging:*").await.len(), 0);
    assert_eq!(other.keys("upload:*").await.len(), 4, "every chunk once, however often it was sent");
    assert_eq!(rig.uploads.ship_once(2).await.unwrap(), vec![Sent::Durable; 2]);
    assert_eq!(other.keys("upload:*").await.len(), 2);
    // It forgets everything: what was not durable is asked for again.
    chunks.restart_empty();
    for _ in 0..1000 {
        let waits =
            rig.uploads.standing(&id).await.unwrap().unwrap().state.received().into_iter().flatten().count();
        if waits == 0 {
            break;
        }
        let _ = rig.uploads.ship_once(10).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lost = rig.uploads.standing(&id).await.unwrap().unwrap().resend;
    assert_eq!(lost.iter().cloned().flatten().count(), 2);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(other.keys("upload:*").await, Vec::<String>::new());
}
