//! What is lost on the way: parts, states, files. What is durable stays so, and what was only received is asked for again.

use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::{Accepted, Last, Offer, Refusal, Source as Held, Stage, Status};
use quaymaster_upload::ingest::{Creation, Request, Resumed, Took};
use quaymaster_upload::ledger::{Claim, Part, Step};
use quaymaster_upload::objects::{MultipartId, PartBody, Source};
use quaymaster_upload::ship::Sent;
use tempfile::TempDir;

use crate::node::{check_done, on_both, ship_and_complete};
use crate::rig::{Document, Place, Rig, send_all};
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        lost_parts_fail_an_upload_and_it_can_be_gone_on_with
        a_store_that_forgot_is_told_by_the_ledger
        an_event_that_is_lost_before_it_is_told_is_told
    }
    trials.push(trial("spool::a_lost_file_is_asked_for_again", a_lost_file_is_asked_for_again));
    trials.push(trial(
        "spool::what_the_ledger_has_is_not_asked_for_again",
        what_the_ledger_has_is_not_asked_for_again,
    ));
    trials.push(trial(
        "spool::what_was_taken_once_is_taken_again_however_small_it_is",
        what_was_taken_once_is_taken_again_however_small_it_is,
    ));
    trials
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

async fn an_event_that_is_lost_before_it_is_told_is_told(place: Place) {
    let rig = place.open().await;
    let document = Document::new("untold", 6, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    rig.ship_everything(&id, &document).await;
    // Its owner dies between the event's entry and its telling; then somebody empties the outbox.
    let (ledger, objects) = (rig.uploads.ledger(), rig.uploads.objects());
    let claim = ledger.begin_completion(&id, "dies", Duration::from_secs(60)).await.unwrap();
    let Claim::Ours(fence, upload) = claim else { panic!("{claim:?}") };
    let (multipart, parts) =
        (MultipartId::new(upload.multipart_id.unwrap()), ledger.parts(&id).await.unwrap());
    let _ = objects.complete(&upload.object_key, &multipart, &parts).await.unwrap();
    let head = objects.head(&upload.object_key).await.unwrap().unwrap();
    let _ = ledger.proved(&fence, &head.etag.unwrap(), head.size).await.unwrap();
    let recorded = ledger.recorded(&fence, rig.uploads.topic()).await.unwrap().ours().unwrap();
    assert_eq!(recorded.step, Step::Recorded);
    let event = ledger.event_of(&id).await.unwrap().unwrap();
    let _ = ledger.release(&fence, Duration::ZERO, "").await.unwrap();
    place.run("DELETE FROM quaymaster_outbox").await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    let told = ledger.event_of(&id).await.unwrap().unwrap();
    assert!(told.published_ms.is_some(), "{told:?}");
    assert_eq!((told.event_id, told.topic, told.payload), (event.event_id, event.topic, event.payload));
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
    let (size, digest) = (bytes.len() as u64, rig.uploads.objects().algorithm().of(&bytes));
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let part = PartBody { size, digest, source: Source::Pieces(vec![bytes]) };
    let etag = rig.uploads.objects().part(&upload.object_key, &multipart, 1, part).await.unwrap();
    let part = Part { number: 1, etag, size, digest };
    let _ = rig.uploads.ledger().record_part(&id, multipart.as_str(), &part).await.unwrap();
    std::fs::remove_dir_all(folder.path().join("spool").join(&id)).unwrap();
    assert_eq!(rig.uploads.ship_once(10).await.unwrap(), vec![Sent::Durable]);
    assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().resend, vec![]);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn what_was_taken_once_is_taken_again_however_small_it_is() {
    let folder = TempDir::new().unwrap();
    let rig = Place::in_folder(folder.path(), true).open().await;
    let document = Document::new("small", 13, 4096);
    let request = Request { size: Some(50_000_000), ..document.request() };
    let Creation::New(began) = rig.uploads.create(&request).await.unwrap() else { panic!("it is new") };
    // By a node that asked for less, before its spool was lost.
    let (bytes, stage) = (&document.chunks[0], Stage::fresh());
    let offer = Offer {
        number: 0,
        size: bytes.len() as u64,
        digest: &rig.uploads.objects().algorithm().of(bytes),
        last: Last::No,
        source: Held::Elsewhere(stage.as_str()),
        reservation: None,
    };
    let accepted = rig.uploads.store().accept(&began.upload_id, &offer).await.unwrap();
    assert!(matches!(accepted, Accepted::Taken { .. }), "{accepted:?}");
    let sent = rig.uploads.ship_once(10).await.unwrap();
    let standing = rig.uploads.standing(&began.upload_id).await.unwrap().unwrap();
    assert_eq!(standing.resend, vec![0..=0], "{sent:?}");
    let too_small = Took::Refused(Refusal::TooSmall { least: 5000, announced: Some(50_000_000) });
    assert_eq!(rig.send(&began.upload_id, &document, 1).await, too_small);
    let took = rig.send(&began.upload_id, &document, 0).await;
    assert!(Rig::received(&took), "{took:?}");
}
