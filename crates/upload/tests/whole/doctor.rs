//! A doctor that holds store, objects, rows and events against each other.

use libtest_mimic::Trial;
use quaymaster_upload::doctor::{At, Finding, Mode, Report};
use quaymaster_upload::ledger::{Part, RecordPart, Step};
use quaymaster_upload::objects::{About, MultipartId, PartBody, Source};
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
        a_doctor_sees_what_the_store_alone_knows_and_events_that_are_gone
    }
    trials
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
    let (size, digest) = (bytes.len() as u64, rig.uploads.objects().algorithm().of(&bytes));
    let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
    let part = PartBody { size, digest, source: Source::Pieces(vec![bytes]) };
    let etag = rig.uploads.objects().part(&upload.object_key, &multipart, number, part).await.unwrap();
    let part = Part { number, etag, size, digest };
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
    let key = "connectors/default/00000000-0000-4000-8000-000000000000.pb";
    let stray = rig.uploads.objects().begin(key, &About::default()).await.unwrap();
    // Somebody else's, who has not finished it yet.
    let other = rig.uploads.objects().begin("connectors/default/other.pb", &About::default()).await.unwrap();
    let used = rig.create(&Document::new("used", 11, SIZE)).await;
    let began = rig.uploads.objects().pending("", None).await.unwrap().uploads[0].initiated_ms.unwrap();
    let (young, _) = rig.uploads.orphans("", began + 3_600_000, None, Mode::Repair).await.unwrap();
    assert_eq!(young, vec![]);
    let (found, _) = rig.uploads.orphans("", began + 25 * 3_600_000, None, Mode::Repair).await.unwrap();
    assert_eq!(found.iter().map(|orphan| &orphan.pending.id).collect::<Vec<_>>(), [&stray]);
    assert_eq!(rig.pending().await, 2, "the one in use stays, and what is not ours");
    let _ = rig.uploads.objects().abort("connectors/default/other.pb", &other).await.unwrap();
    assert_eq!(rig.uploads.ledger().find(&used).await.unwrap().unwrap().step, Step::Open);

    // What no repair helps stays said.
    let failing = rig.create(&Document::new("failing", 12, SIZE)).await;
    let _ = rig.uploads.ledger().fail(&failing, None, "by hand").await.unwrap();
    let half = rig.uploads.examine(&failing, Mode::Repair).await.unwrap().unwrap();
    assert_eq!((half.repaired.len(), half.left), (1, vec![Finding::Failed("by hand".to_owned())]));
}

/// All reports of a doctor who goes from page to page.
async fn rounds(rig: &Rig, count: u32, mode: Mode) -> (Vec<Report>, usize) {
    let (mut found, mut at, mut pages) = (Vec::new(), At::default(), 0);
    loop {
        let page = rig.uploads.examine_page(&at, count, mode).await.unwrap();
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

async fn a_doctor_sees_what_the_store_alone_knows_and_events_that_are_gone(place: Place) {
    let rig = place.open().await;
    let document = Document::new("told", 1, 2000);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    while !rig.uploads.ship_once(100).await.unwrap().is_empty() {}
    let _ = rig.uploads.complete(&id).await.unwrap();
    check_done(&rig, &id, &document).await;
    assert_eq!(rounds(&rig, 2, Mode::Look).await.0.len(), 0);
    place.run("DELETE FROM quaymaster_outbox").await;
    // Uploads of another database: one is over, the others go on.
    let now_ms = rig.uploads.store().status(&id).await.unwrap().unwrap().now_ms;
    for (stranger, deadline_ms) in [("a", 1), ("b", now_ms + 3_600_000), ("c", 1), ("d", 1)] {
        let new = quaymaster::upload::New { node_id: "n", deadline_ms, ..Default::default() };
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
        let mut stay = if mode == Mode::Look { vec!["a", "b", "c", "d", &id] } else { vec!["b", &id] };
        stay.sort_unstable();
        assert_eq!(left, stay, "what goes on is not removed unless it is named");
    }
    let named = rig.uploads.examine("b", Mode::Repair).await.unwrap().unwrap();
    assert_eq!(named.left, vec![]);
    assert!(rig.uploads.store().status("b").await.unwrap().is_none());
}
