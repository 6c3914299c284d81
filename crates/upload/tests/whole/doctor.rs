//! A doctor that holds store, objects, rows and events against each other, while uploads go on and past what it cannot
//! read.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster_upload::doctor::{At, Finding, Mode, Report};
use quaymaster_upload::ledger::{Claim, Part, RecordPart, Step};
use quaymaster_upload::objects::{About, MultipartId, PartBody, Source};
use quaymaster_upload::ship::Sent;
use tempfile::TempDir;

use crate::node::{check_done, on_both};
use crate::rig::{Document, Place, Rig, send_all};
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        a_doctor_finds_what_does_not_fit_and_puts_it_right
        a_doctor_of_many_uploads_looks_at_each_once
        a_doctor_sees_what_the_store_alone_knows_and_puts_events_back_that_are_gone
        what_moves_while_it_is_looked_at_is_well
        what_cannot_be_read_of_one_upload_keeps_no_other_from_being_looked_at
    }
    trials
}

/// Without a pause: nothing moves here by itself.
async fn examine(rig: &Rig, id: &str, mode: Mode) -> Report {
    rig.uploads.examine_with(id, mode, &async || ()).await.unwrap().unwrap()
}

/// A part of the document that the ledger has and the store does not know of.
async fn record_unseen(rig: &Rig, id: &str, document: &Document, number: u32) -> RecordPart {
    let upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
    let bytes = bytes::Bytes::from(document.chunks[number as usize - 1].clone());
    let (size, digest) = (bytes.len() as u64, rig.uploads.objects().algorithm().of(&bytes));
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let part = PartBody { size, digest, source: Source::Pieces(vec![bytes]) };
    let etag = rig.uploads.objects().part(&upload.object_key, &multipart, number, part).await.unwrap();
    let part = Part { number, etag, size, digest };
    rig.uploads.ledger().record_part(id, multipart.as_str(), &part).await.unwrap()
}

async fn a_doctor_finds_what_does_not_fit_and_puts_it_right(place: Place) {
    let rig = place.open().await;
    let document = Document::new("sick", 10, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    let sound = examine(&rig, &id, Mode::Look).await;
    assert_eq!(sound.findings, vec![], "an upload on its way is sound");
    assert_eq!(rig.uploads.examine("nobody", Mode::Look).await.unwrap().map(|report| report.upload_id), None);

    // A part that the store does not know of; everything else is durable.
    assert_eq!(rig.uploads.ship_once(3).await.unwrap().len(), 3);
    let have: Vec<u32> =
        rig.uploads.ledger().parts(&id).await.unwrap().iter().map(|part| part.number).collect();
    let number = (1..=4).find(|number| !have.contains(number)).unwrap();
    let recorded = record_unseen(&rig, &id, &document, number).await;
    assert!(matches!(recorded, RecordPart::Durable { all: true, .. }));
    let sick = examine(&rig, &id, Mode::Look).await;
    assert_eq!(sick.findings, vec![Finding::PartsDiffer { store: 3, ledger: 4 }, Finding::Overdue]);
    let healed = examine(&rig, &id, Mode::Repair).await;
    assert_eq!(healed.repaired.len(), 2, "{:?}", healed.repaired);
    check_done(&rig, &id, &document).await;
    let sound = examine(&rig, &id, Mode::Look).await;
    assert_eq!(sound.findings, vec![]);
    let words: Vec<&str> = sound.history.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(words, ["created", "opened", "completing", "proved", "recorded", "announced", "done"]);

    // A multipart upload that nobody knows, older than any upload may become; and one that is in use.
    let of_ours = |name: &str| format!("{}connectors/default/{name}.pb", rig.uploads.objects().prefix());
    let key = of_ours("00000000-0000-4000-8000-000000000000");
    let stray = rig.uploads.objects().begin(&key, &About::default()).await.unwrap();
    // Somebody else's, who has not finished it yet.
    let other = rig.uploads.objects().begin(&of_ours("other"), &About::default()).await.unwrap();
    let used = rig.create(&Document::new("used", 11, SIZE)).await;
    let began = rig.uploads.objects().pending("", None).await.unwrap().uploads[0].initiated_ms.unwrap();
    // A day is not enough where uploads live for a day: another database's may live longer.
    for hours in [1, 25, 47] {
        let now_ms = began + hours * 3_600_000;
        let (young, _) = rig.uploads.orphans(now_ms, None, Mode::Repair).await.unwrap();
        assert_eq!(young, vec![], "{hours} hours old");
    }
    let (found, _) = rig.uploads.orphans(began + 49 * 3_600_000, None, Mode::Repair).await.unwrap();
    assert_eq!(found.iter().map(|orphan| &orphan.pending.id).collect::<Vec<_>>(), [&stray]);
    assert_eq!(rig.pending().await, 2, "the one in use stays, and what is not ours");
    let _ = rig.uploads.objects().abort(&of_ours("other"), &other).await.unwrap();
    assert_eq!(rig.uploads.ledger().find(&used).await.unwrap().unwrap().step, Step::Open);

    // What no repair helps stays said.
    let failing = rig.create(&Document::new("failing", 12, SIZE)).await;
    let _ = rig.uploads.ledger().fail(&failing, None, "by hand").await.unwrap();
    let half = examine(&rig, &failing, Mode::Repair).await;
    assert_eq!((half.repaired.len(), half.left), (1, vec![Finding::Failed("by hand".to_owned())]));
}

/// All reports of a doctor who goes from page to page.
async fn rounds(rig: &Rig, count: u32, mode: Mode) -> (Vec<Report>, usize) {
    let (mut found, mut at, mut pages) = (Vec::new(), At::default(), 0);
    loop {
        let page = rig.uploads.examine_page_with(&at, count, mode, &async || ()).await.unwrap();
        found.extend(page.reports);
        pages += usize::from(matches!(at, At::Ledger { .. }));
        match page.next {
            Some(next) => {
                assert!(next > at || mode == Mode::Repair, "it goes on");
                at = next;
            }
            None => return (found, pages),
        }
    }
}

async fn a_doctor_of_many_uploads_looks_at_each_once(place: Place) {
    let rig = place.open().await;
    let mut ids = Vec::new();
    for n in 0..60u64 {
        let document = Document::new(&format!("many-{n}"), n, 2000);
        let id = rig.create(&document).await;
        if n % 3 == 0 {
            send_all(&rig, &id, &document).await;
        }
        ids.push(id);
    }
    while !rig.uploads.ship_once(100).await.unwrap().is_empty() {}
    // Half of those that are whole are completed; the others wait for somebody who does not come.
    let whole: Vec<String> = ids.iter().step_by(3).cloned().collect();
    for id in whole.iter().skip(10) {
        let _ = rig.uploads.complete(id).await.unwrap();
    }
    // The store forgets some of those that wait for chunks.
    let forgotten: Vec<String> = ids.iter().skip(1).step_by(3).take(5).cloned().collect();
    for id in &forgotten {
        let _ = rig.uploads.store().expire(id).await.unwrap();
        let _ = rig.uploads.store().forget(id).await.unwrap();
    }
    for count in [7, 60, 1000] {
        let (found, pages) = rounds(&rig, count, Mode::Look).await;
        assert_eq!(pages, if count == 7 { 9 } else { 1 + usize::from(count == 60) }, "pages of {count}");
        let mut seen: Vec<(String, Vec<Finding>)> =
            found.into_iter().map(|report| (report.upload_id, report.findings)).collect();
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        let sick = whole.iter().take(10).map(|id| (id.clone(), vec![Finding::Overdue]));
        let lost = forgotten.iter().map(|id| (id.clone(), vec![Finding::StateLost]));
        let mut expected: Vec<_> = sick.chain(lost).collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(seen, expected, "each that is sick, once, and no other");
    }
    let (healed, _) = rounds(&rig, 7, Mode::Repair).await;
    assert_eq!(healed.len(), 15);
    assert!(healed.iter().all(|report| report.repaired.len() == 1), "{healed:?}");
    let (left, _) = rounds(&rig, 7, Mode::Look).await;
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(rig.uploads.ledger().events(0, 100).await.unwrap().len(), 20, "all that are whole are told");
}

async fn a_doctor_sees_what_the_store_alone_knows_and_puts_events_back_that_are_gone(place: Place) {
    let rig = place.open().await;
    let document = Document::new("told", 1, 2000);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    while !rig.uploads.ship_once(100).await.unwrap().is_empty() {}
    let _ = rig.uploads.complete(&id).await.unwrap();
    check_done(&rig, &id, &document).await;
    assert_eq!(rounds(&rig, 2, Mode::Look).await.0.len(), 0);
    let event = rig.uploads.ledger().event_of(&id).await.unwrap().unwrap();
    place.run("DELETE FROM quaymaster_outbox").await;
    // Uploads of another database: one is over, the others go on.
    for (stranger, hours) in [("a", 0), ("b", 1), ("c", 0), ("d", 0)] {
        let time_left = std::time::Duration::from_secs(hours * 3600);
        let new = quaymaster::upload::New { node_id: "n", time_left, ..Default::default() };
        let _ = rig.uploads.store().create(stranger, &new).await.unwrap();
    }
    for mode in [Mode::Look, Mode::Repair] {
        let (mut found, _) = rounds(&rig, 2, mode).await;
        found.sort_by(|a, b| a.upload_id.cmp(&b.upload_id));
        let told: Vec<_> = found.iter().map(|report| (&*report.upload_id, &*report.findings)).collect();
        let stranger = [Finding::UnknownToLedger];
        let missing = [Finding::EventMissing];
        let mut expected: Vec<(&str, &[Finding])> = vec![(&id, &missing)];
        expected.extend(["a", "b", "c", "d"].map(|id| (id, &stranger[..])));
        expected.sort_by_key(|(id, _)| *id);
        assert_eq!(told, expected, "{mode:?}");
        let left: Vec<&str> =
            found.iter().filter(|report| !report.left.is_empty()).map(|report| &*report.upload_id).collect();
        let mut stay = if mode == Mode::Look { vec!["a", "b", "c", "d", &id] } else { vec!["b"] };
        stay.sort_unstable();
        assert_eq!(left, stay, "what goes on is not removed unless it is named");
    }
    let again = rig.uploads.ledger().event_of(&id).await.unwrap().unwrap();
    assert!(
        again.seq > event.seq && again.published_ms.is_some(),
        "readers come by, and nobody tells it: {again:?}"
    );
    assert_eq!((again.event_id, again.payload), (event.event_id, event.payload));
    let named = examine(&rig, "b", Mode::Repair).await;
    assert_eq!(named.left, vec![]);
    assert!(rig.uploads.store().status("b").await.unwrap().is_none());
}

async fn what_moves_while_it_is_looked_at_is_well(place: Place) {
    let rig = place.open().await;
    let document = Document::new("moves", 13, 2000);
    let id = rig.create(&document).await;
    for number in [0, 1] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    assert!(matches!(record_unseen(&rig, &id, &document, 3).await, RecordPart::Durable { .. }));
    // The difference is there both times, and each time another.
    let ships = async || assert_eq!(rig.uploads.ship_once(1).await.unwrap(), [Sent::Durable]);
    for mode in [Mode::Look, Mode::Repair] {
        let well = rig.uploads.examine_with(&id, mode, &ships).await.unwrap().unwrap();
        assert_eq!((well.findings, well.left, well.repaired), (vec![], vec![], vec![]), "{mode:?}");
    }
    let stays = Finding::PartsDiffer { store: 2, ledger: 3 };
    assert_eq!(examine(&rig, &id, Mode::Look).await.findings, vec![stays], "nobody ships any more");

    // One that waits for somebody who comes, one for nobody: a page of them is waited for once.
    let waiting = ["comes", "nobody"].map(|key| Document::new(key, 14, 2000));
    let mut ids = Vec::new();
    for document in &waiting {
        let id = rig.create(document).await;
        send_all(&rig, &id, document).await;
        rig.ship_everything(&id, document).await;
        ids.push(id);
    }
    let pauses = AtomicU32::new(0);
    let completes = async || {
        pauses.fetch_add(1, SeqCst);
        let _ = rig.uploads.complete(&ids[0]).await.unwrap();
    };
    let page = rig.uploads.examine_page_with(&At::default(), 10, Mode::Look, &completes).await.unwrap();
    let sick: Vec<&str> = page.reports.iter().map(|report| &*report.upload_id).collect();
    let mut expected = [&*ids[1], &*id];
    expected.sort_unstable();
    assert_eq!((sick.as_slice(), pauses.into_inner()), (&expected[..], 1));
    check_done(&rig, &ids[0], &waiting[0]).await;

    // Tried in vain between the looks, and due again: somebody comes.
    let lease = Duration::from_millis(1);
    let tries = async || {
        let ledger = rig.uploads.ledger();
        let claim = ledger.begin_completion(&ids[1], "tries", lease).await.unwrap();
        let Claim::Ours(fence, _) = claim else { panic!("{claim:?}") };
        let _ = ledger.release(&fence, Duration::ZERO, "in vain").await.unwrap();
    };
    let tried = rig.uploads.examine_with(&ids[1], Mode::Look, &tries).await.unwrap().unwrap();
    assert_eq!(tried.findings, vec![]);
}

async fn what_cannot_be_read_of_one_upload_keeps_no_other_from_being_looked_at(place: Place) {
    let rig = place.open().await;
    let (ledger, store) = (rig.uploads.ledger(), rig.uploads.store());
    let mut ids = Vec::new();
    for key in ["object", "parts", "node"] {
        let document = Document::new(key, 15, 2000);
        let id = rig.create(&document).await;
        send_all(&rig, &id, &document).await;
        rig.ship_everything(&id, &document).await;
        let _ = rig.uploads.complete(&id).await.unwrap();
        check_done(&rig, &id, &document).await;
        ids.push(id);
    }
    for key in ["state", "row", "lost"] {
        let id = rig.create(&Document::new(key, 16, 2000)).await;
        let _ = store.expire(&id).await.unwrap();
        let _ = store.forget(&id).await.unwrap();
        ids.push(id);
    }
    // Each is damaged in another place; the last one's state is only lost.
    let key = ledger.find(&ids[0]).await.unwrap().unwrap().object_key;
    let objects = Path::new(place.objects.strip_prefix("file:").unwrap()).join("objects");
    std::fs::write(objects.join(key).join("manifest.json"), "{").unwrap();
    let spoil = format!("UPDATE quaymaster_upload_parts SET digest = 'x' WHERE upload_id = '{}'", ids[1]);
    place.run(spoil.leak()).await;
    let node = ledger.find(&ids[2]).await.unwrap().unwrap().node_id;
    place.run(format!("UPDATE nodes SET name = x'ff' WHERE node_id = '{node}'").leak()).await;
    let state = format!("upload:{}:state", ids[3]);
    rig.engine.write_piece(state.as_bytes(), 0, b"x", Duration::from_secs(3600)).await.unwrap();
    let row = format!("UPDATE quaymaster_uploads SET step = 'x' WHERE upload_id = '{}'", ids[4]);
    place.run(row.leak()).await;

    for mode in [Mode::Look, Mode::Repair] {
        let (found, _) = rounds(&rig, 2, mode).await;
        assert_eq!(found.len(), ids.len(), "{found:?}");
        for (id, named) in
            ids.iter().zip(["manifest.json is damaged", "ledger.parts", "ledger.node", "wrong_type", "newer"])
        {
            let report = found.iter().find(|report| report.upload_id == *id).unwrap();
            let [Finding::Unreadable(reason)] = &report.findings[..] else { panic!("{report:?}") };
            assert!(reason.contains(named), "{reason}");
            assert_eq!(report.left, report.findings, "no repair helps");
        }
        let lost = found.iter().find(|report| report.upload_id == ids[5]).unwrap();
        assert_eq!(lost.findings, [Finding::StateLost]);
        assert_eq!(lost.left.is_empty(), mode == Mode::Repair, "{lost:?}");
    }
    // A store that is away is no finding of anybody's.
    rig.engine.close().await.unwrap();
    let away = rig.uploads.examine_page_with(&At::default(), 2, Mode::Look, &async || ()).await.unwrap_err();
    assert!(away.trouble().may_pass(), "{away:?}");
}
