//! Uploads past their deadline, and what a sweep does from then until nothing is left of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use quaymaster_upload::objects::MultipartId;
use quaymaster_upload::sweep::{Cursor, Round};
use tempfile::TempDir;

use crate::node::{check_done, on_both, ship_and_complete};
use crate::rig::{Document, Place, Rig, send_all};
use crate::seaweed::Seaweed;
use crate::tamper::Tamper;
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        an_upload_past_its_deadline_expires_unless_it_is_whole
        a_sweep_mends_forgets_and_leaves_the_rest_alone
        an_upload_whose_row_was_removed_fails_and_goes_on_or_ends
    }
    trials.push(trial("spool::what_failed_leaves_no_bytes_that_do_not_count", || async {
        let folder = TempDir::new().unwrap();
        what_failed_leaves_no_bytes_that_do_not_count(Place::in_folder(folder.path(), true)).await;
    }));
    trials.push(trial("servers::nothing_is_aborted_before_a_look", nothing_is_aborted_before_a_look));
    trials
}

/// A moment of the ledger's own, that a test moves.
pub fn clock() -> Arc<AtomicI64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Arc::new(AtomicI64::new(now.as_millis() as i64))
}

pub fn pass(clock: &AtomicI64, time: Duration) {
    clock.fetch_add(time.as_millis() as i64, SeqCst);
}

pub const HOUR: Duration = Duration::from_secs(3600);

async fn an_upload_past_its_deadline_expires_unless_it_is_whole(place: Place) {
    let clock = clock();
    let rig = place.open_at(&clock).await;
    let (part, whole) = (Document::new("part", 6, SIZE), Document::new("whole", 7, SIZE));
    let (part_id, whole_id) = (rig.create(&part).await, rig.create(&whole).await);
    let none_id = rig.create(&Document::new("none", 8, SIZE)).await;
    assert!(Rig::received(&rig.send(&part_id, &part, 0).await));
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 1);
    assert!(Rig::received(&rig.send(&part_id, &part, 1).await));
    send_all(&rig, &whole_id, &whole).await;
    rig.ship_everything(&whole_id, &whole).await;
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { ended: 1, ..Round::default() });
    check_done(&rig, &whole_id, &whole).await;

    // Whole when its time is over: completed, however late.
    let late = Document::new("late", 9, SIZE);
    let late_id = rig.create(&late).await;
    send_all(&rig, &late_id, &late).await;
    rig.ship_everything(&late_id, &late).await;
    pass(&clock, 24 * HOUR);
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { ended: 3, forgotten: 1, ..Round::default() });
    check_done(&rig, &late_id, &late).await;
    for id in [&part_id, &none_id] {
        assert_eq!(rig.uploads.ledger().find(id).await.unwrap().unwrap().step, Step::Expired);
        assert_eq!(rig.uploads.standing(id).await.unwrap().unwrap().state.status, Status::Expired);
    }
    assert_eq!(rig.pending().await, 0, "their multipart uploads are aborted");
    rig.until_nothing_is_left("what was received and expired").await;
    let took = rig.send(&part_id, &part, 2).await;
    assert!(matches!(took, Took::Closed { status: Status::Expired, .. }), "{took:?}");

    // Kept for an hour, to be asked for; then nothing is left but the row and the event of what was completed.
    pass(&clock, HOUR.saturating_sub(Duration::from_millis(1)));
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round::default());
    assert!(rig.uploads.standing(&part_id).await.unwrap().is_some());
    pass(&clock, Duration::from_millis(1));
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { forgotten: 3, ..Round::default() });
    assert_eq!(rig.uploads.ledger().page("", 10).await.unwrap(), vec![]);
    for id in [&part_id, &none_id, &whole_id, &late_id] {
        assert!(rig.uploads.standing(id).await.unwrap().is_none());
        let mut keys = rig.keys(&format!("upload:{id}:*")).await;
        // What a claim got lives as long as its lease.
        keys.retain(|key| !key.contains(":claims:"));
        assert_eq!(keys, Vec::<String>::new());
    }
    assert_eq!(rig.uploads.ledger().events(0, 10).await.unwrap().len(), 2);
    // Kept for thirty days; the first was told a day before the second.
    let mut cursor = Cursor::default();
    for (time, removed) in [(Duration::ZERO, 0), (29 * 24 * HOUR, 1), (24 * HOUR, 1), (HOUR, 0)] {
        pass(&clock, time);
        assert_eq!(rig.uploads.prune(&mut cursor).await.unwrap(), removed, "{time:?} later");
    }
}

async fn a_sweep_mends_forgets_and_leaves_the_rest_alone(place: Place) {
    let clock = clock();
    let rig = place.open_at(&clock).await;
    // More than a page of them, on their way.
    let mut ids = Vec::new();
    for n in 0..130u64 {
        ids.push(rig.create(&Document::new(&format!("waiting-{n}"), n, 2000)).await);
    }
    let document = Document::new("waiting-0", 0, 2000);
    assert!(Rig::received(&rig.send(&ids[0], &document, 0).await));
    let mut cursor = Cursor::default();
    for _ in 0..3 {
        assert_eq!(rig.uploads.sweep(&mut cursor).await.unwrap(), Round::default(), "all is well");
    }
    // The store says of one that it failed, and of another nothing at all; one is the store's alone.
    let _ = rig.uploads.store().fail(&ids[5], "by nobody").await.unwrap();
    let _ = rig.uploads.store().expire(&ids[120]).await.unwrap();
    let _ = rig.uploads.store().forget(&ids[120]).await.unwrap();
    let stranger = quaymaster::upload::New { node_id: "n", ..Default::default() };
    let _ = rig.uploads.store().create("stranger", &stranger).await.unwrap();
    let mut all = Round::default();
    let mut cursor = Cursor::default();
    for _ in 0..3 {
        let round = rig.uploads.sweep(&mut cursor).await.unwrap();
        all.mended += round.mended;
        all.forgotten += round.forgotten;
        all.errors += round.errors;
    }
    assert_eq!(all, Round { mended: 2, forgotten: 1, ..Round::default() });
    assert!(rig.uploads.store().status("stranger").await.unwrap().is_none());
    for id in &ids {
        let state = rig.uploads.store().status(id).await.unwrap().unwrap();
        let status = if *id == ids[0] { Status::Uploading } else { Status::Pending };
        assert_eq!(state.status, status, "{id}");
    }
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 1, "its chunk waits as before");
}

async fn an_upload_whose_row_was_removed_fails_and_goes_on_or_ends(place: Place) {
    let clock = clock();
    let rig = place.open_at(&clock).await;
    let documents = [("goes-on", 1), ("called-off", 2), ("left", 3)];
    let documents = documents.map(|(key, seed)| Document::new(key, seed, 4000));
    let mut ids = Vec::new();
    for document in &documents {
        let id = rig.create(document).await;
        send_all(&rig, &id, document).await;
        rig.ship_everything(&id, document).await;
        ids.push(id);
    }
    place.run("CREATE TABLE aside AS SELECT * FROM nodes; DELETE FROM nodes").await;
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { failed: 3, ..Round::default() });
    for id in &ids {
        let standing = rig.uploads.standing(id).await.unwrap().unwrap();
        assert_eq!(standing.state.status, Status::Failed);
        let upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
        let error = upload.error.unwrap();
        assert!(error.starts_with("row_gone: ") && error.contains(&upload.node_id), "{error}");
        assert_eq!(rig.digest(id).await, None, "nothing is offered that is not completed");
    }
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round::default(), "nobody tries for ever");
    assert_eq!(rig.uploads.ledger().events(0, 10).await.unwrap(), vec![]);

    // Called off without its row: over, and the object, which is whole, stays where it is.
    assert_eq!(rig.uploads.abort(&ids[1]).await.unwrap(), Ran::Ended(Step::Aborted));
    // Resumed in vain, it fails again.
    let _ = rig.uploads.resume(&ids[0]).await.unwrap();
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { failed: 1, ..Round::default() });
    place.run("INSERT INTO nodes SELECT * FROM aside").await;
    let _ = rig.uploads.resume(&ids[0]).await.unwrap();
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { ended: 1, ..Round::default() });
    check_done(&rig, &ids[0], &documents[0]).await;

    place.run("DELETE FROM nodes").await;
    pass(&clock, 24 * HOUR);
    assert_eq!(rig.uploads.run_due().await.unwrap(), Round { ended: 1, forgotten: 2, ..Round::default() });
    let upload = rig.uploads.ledger().find(&ids[2]).await.unwrap().unwrap();
    assert_eq!(upload.step, Step::Expired);
    let head = rig.uploads.objects().head(&upload.object_key).await.unwrap().unwrap();
    assert_eq!((head.token, head.size), (Some(upload.token), documents[2].size()));
    assert_eq!(rig.uploads.ledger().events(0, 10).await.unwrap().len(), 1, "of the one that was completed");
    assert_eq!(rig.pending().await, 0);
    rig.until_nothing_is_left("without rows").await;
}

async fn what_failed_leaves_no_bytes_that_do_not_count(place: Place) {
    let document = Document::new("failed", 4, 3000);
    let sweep = async |rig: &Rig| {
        let round = rig.uploads.sweep(&mut Cursor::default()).await.unwrap();
        assert_eq!(round.errors, 0);
    };
    let id = {
        let rig = place.open().await;
        let id = rig.create(&document).await;
        for number in 0..4 {
            assert!(Rig::received(&rig.send(&id, &document, number).await));
        }
        assert_eq!(rig.uploads.ship_once(1).await.unwrap().len(), 1);
        let _ = rig.uploads.ledger().fail(&id, None, "by hand").await.unwrap();
        sweep(&rig).await;
        assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().state.status, Status::Failed);
        assert_eq!(rig.uploads.bytes().spooled(&id).await.unwrap(), 3, "kept for whoever resumes it soon");
        rig.engine.close().await.unwrap();
        id
    };
    let rig = Place { chunk_ttl: "1ms".to_owned(), ..place }.open().await;
    while rig.uploads.bytes().spooled(&id).await.unwrap() > 0 {
        sweep(&rig).await;
    }
    let _ = rig.uploads.resume(&id).await.unwrap();
    let standing = rig.uploads.standing(&id).await.unwrap().unwrap();
    let resend: Vec<u32> = standing.resend.into_iter().flatten().collect();
    assert_eq!(resend.len(), 3, "asked for again, and what is durable is not: {resend:?}");
    for number in resend {
        assert!(Rig::received(&rig.send(&id, &document, number as usize).await));
    }
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

/// The order of the requests as the object store hears them.
async fn nothing_is_aborted_before_a_look() {
    let seaweed = Seaweed::start().await;
    let tamper = Tamper::start(seaweed.address()).await;
    let folder = TempDir::new().unwrap();
    let place = Place::behind(folder.path(), tamper.address());
    let clock = clock();
    let rig = place.open_at(&clock).await;
    let (part, there) = (Document::new("part", 6, 5 << 20), Document::new("there", 7, 5 << 20));
    let (part_id, there_id) = (rig.create(&part).await, rig.create(&there).await);
    assert!(Rig::received(&rig.send(&part_id, &part, 0).await));
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 1);
    // Its owner had put it together and died before it could say so; then its time was over, or its client called.
    send_all(&rig, &there_id, &there).await;
    rig.ship_everything(&there_id, &there).await;
    let upload = rig.uploads.ledger().find(&there_id).await.unwrap().unwrap();
    let parts = rig.uploads.ledger().parts(&there_id).await.unwrap();
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let _ = rig.uploads.objects().complete(&upload.object_key, &multipart, &parts).await.unwrap();
    let before = tamper.heard().len();
    let _ = rig.uploads.abort(&there_id).await.unwrap();
    check_done(&rig, &there_id, &there).await;
    let heard = tamper.heard()[before..].to_vec();
    assert!(heard.iter().all(|request| !request.starts_with("DELETE")), "what is there stays: {heard:?}");

    pass(&clock, 24 * HOUR);
    let before = tamper.heard().len();
    let round = rig.uploads.run_due().await.unwrap();
    assert_eq!((round.ended, round.errors), (1, 0), "{round:?}");
    let key = rig.uploads.ledger().find(&part_id).await.unwrap().unwrap().object_key;
    let heard = tamper.heard()[before..].to_vec();
    let of =
        |method: &str| heard.iter().position(|request| request.starts_with(method) && request.contains(&key));
    let (look, cut) = (of("HEAD").unwrap(), of("DELETE").unwrap());
    assert!(look < cut, "{heard:?}");
    let after = heard.iter().rposition(|request| request.starts_with("HEAD")).unwrap();
    assert!(after > cut, "and once more, for somebody may have completed it just then: {heard:?}");
    assert_eq!(rig.pending().await, 0);
}
