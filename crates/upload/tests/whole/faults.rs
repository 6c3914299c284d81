//! What goes wrong at the object store while whole uploads go through it: each ends with its bytes, or FAILED with a
//! reason and a way to go on; never COMPLETED with anything else.

use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::ingest::Resumed;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use crate::node::check_done;
use crate::rig::{Document, Place, Rig};
use crate::seaweed::Seaweed;
use crate::tamper::{Fault, Tamper};
use crate::trial;

const PART: &str = "partNumber=";
const COMPLETE: &str = "uploadId=";
const INTERNAL: &str =
    "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>Again.</Message></Error>";
const NO_SUCH_UPLOAD: &str = "<Error><Code>NoSuchUpload</Code><Message>It does not exist.</Message></Error>";
const EXPIRED: &str = "<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>";
const INVALID_PART: &str = "<Error><Code>InvalidPart</Code><Message>A part is another one.</Message></Error>";
const WRONG_REGION: &str = "<Error><Code>IllegalLocationConstraintException</Code><Message>The region is another one.</Message></Error>";

pub fn trials() -> Vec<Trial> {
    vec![
        trial("faults::what_passes_is_outlived", what_passes_is_outlived),
        trial("faults::what_does_not_pass_fails_and_can_be_gone_on_with", what_does_not_pass_fails),
        trial(
            "faults::a_store_that_wants_parts_of_one_size_is_guessed",
            a_store_that_wants_parts_of_one_size,
        ),
    ]
}

/// A server behind a proxy that tampers.
struct Weather {
    tamper: Tamper,
    rig: Rig,
    _seaweed: Seaweed,
    _folder: TempDir,
}

impl Weather {
    async fn fair() -> Self {
        let seaweed = Seaweed::start().await;
        let tamper = Tamper::start(seaweed.address()).await;
        let folder = TempDir::new().unwrap();
        let place = Place::behind(folder.path(), tamper.address());
        Self { tamper, rig: place.open().await, _seaweed: seaweed, _folder: folder }
    }

    async fn begin(&self, document: &Document) -> String {
        let id = self.rig.create(document).await;
        for number in 0..document.chunks.len() {
            assert!(Rig::received(&self.rig.send(&id, document, number).await));
        }
        id
    }

    /// Works until it is done or has failed.
    async fn settle(&self, id: &str) -> Step {
        for _ in 0..6000 {
            let _ = self.rig.uploads.ship_once(10).await.unwrap();
            let _ = self.rig.uploads.run_due().await.unwrap();
            let step = self.rig.uploads.ledger().find(id).await.unwrap().unwrap().step;
            if matches!(step, Step::Done | Step::Failed) {
                return step;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.rig.uploads.ledger().history(id).await);
    }
}

fn document(name: &str) -> Document {
    let whole = Document::new(name, 1, 5 << 20);
    Document { chunks: vec![whole.chunks[0].clone(), whole.chunks[3].clone()], ..whole }
}

async fn what_passes_is_outlived() {
    let weather = Weather::fair().await;
    let faults: [(&'static str, &'static str, usize, Fault); 13] = [
        ("PUT", PART, 2, Fault::Answer(500, INTERNAL)),
        ("PUT", PART, 1, Fault::Answer(503, "")),
        ("PUT", PART, 1, Fault::DoneBut(500, INTERNAL)),
        ("PUT", PART, 1, Fault::CutBodyAfter(100_000)),
        ("PUT", PART, 1, Fault::LoseAnswerAfter(0)),
        ("PUT", PART, 1, Fault::FlipByte),
        ("POST", COMPLETE, 1, Fault::Answer(200, INTERNAL)),
        ("POST", COMPLETE, 1, Fault::DoneBut(200, INTERNAL)),
        ("POST", COMPLETE, 1, Fault::DoneBut(404, NO_SUCH_UPLOAD)),
        ("POST", COMPLETE, 1, Fault::DoneBut(500, INTERNAL)),
        ("POST", COMPLETE, 1, Fault::LoseAnswerAfter(0)),
        ("POST", COMPLETE, 2, Fault::Answer(403, EXPIRED)),
        ("HEAD", "", 3, Fault::Answer(503, "")),
    ];
    for (at, (method, part, times, fault)) in faults.into_iter().enumerate() {
        let document = document(&format!("passes-{at}"));
        let id = weather.begin(&document).await;
        let name = format!("{times} × {fault:?} at {method} {part}");
        weather.tamper.next(method, part, times, fault);
        assert_eq!(
            weather.settle(&id).await,
            Step::Done,
            "{name}: {:?}",
            weather.rig.uploads.ledger().history(&id).await
        );
        assert_eq!(weather.tamper.left(), 0, "{name} was not met");
        check_done(&weather.rig, &id, &document).await;
    }
    assert_eq!(weather.rig.pending().await, 0);
}

async fn what_does_not_pass_fails() {
    let weather = Weather::fair().await;
    // As often as it is tried; then what was wrong is over.
    let faults: [(&'static str, &'static str, usize, Fault, &str); 3] = [
        ("PUT", PART, 8, Fault::Answer(403, EXPIRED), "ExpiredToken"),
        ("PUT", PART, 1, Fault::Answer(404, NO_SUCH_UPLOAD), "parts_lost: "),
        ("POST", COMPLETE, 1, Fault::Answer(400, INVALID_PART), "refused: "),
    ];
    for (at, (method, part, times, fault, reason)) in faults.into_iter().enumerate() {
        let document = document(&format!("fails-{at}"));
        let id = weather.begin(&document).await;
        weather.tamper.next(method, part, times, fault);
        assert_eq!(weather.settle(&id).await, Step::Failed, "{reason}");
        let standing = weather.rig.uploads.standing(&id).await.unwrap().unwrap();
        assert_eq!(standing.state.status, Status::Failed, "{reason}");
        assert!(standing.state.error.as_deref().unwrap().contains(reason), "{:?}", standing.state.error);
        assert_eq!(weather.rig.digest(&id).await, None, "nothing is shown of it");
        weather.tamper.clear();
        let Resumed::Open(standing) = weather.rig.uploads.resume(&id).await.unwrap() else {
            panic!("{reason}")
        };
        for number in standing.resend.into_iter().flatten() {
            assert!(Rig::received(&weather.rig.send(&id, &document, number as usize).await), "{reason}");
        }
        assert_eq!(weather.settle(&id).await, Step::Done, "{reason}");
        check_done(&weather.rig, &id, &document).await;
    }
    assert_eq!(weather.rig.pending().await, 0);
}

async fn a_store_that_wants_parts_of_one_size() {
    let weather = Weather::fair().await;
    let whole = Document::new("even", 2, 5 << 20);
    let mut longer = whole.chunks[1].clone();
    longer.push(7);
    let uneven =
        Document { key: "uneven".to_owned(), chunks: vec![whole.chunks[0].clone(), longer, vec![7]] };
    let longer_last = Document { key: "longer".to_owned(), chunks: uneven.chunks[..2].to_vec() };
    let elsewhere = Document { key: "elsewhere".to_owned(), ..uneven.clone() };
    for (document, answer, guessed) in [
        (&uneven, INVALID_PART, true),
        (&longer_last, INVALID_PART, true),
        (&whole, INVALID_PART, false),
        (&elsewhere, WRONG_REGION, false),
    ] {
        let id = weather.begin(document).await;
        weather.tamper.next("POST", COMPLETE, 1, Fault::Answer(400, answer));
        assert_eq!(weather.settle(&id).await, Step::Failed);
        let error = weather.rig.uploads.standing(&id).await.unwrap().unwrap().state.error.unwrap();
        assert!(error.starts_with("refused: ") && error.contains("is another one."), "{error}");
        assert_eq!(error.contains("part 1 has 5242880 bytes and part 2 5242881"), guessed, "{error}");
    }
    // Not all of them do.
    let again = Document { key: "again".to_owned(), ..uneven };
    let id = weather.begin(&again).await;
    assert_eq!(weather.settle(&id).await, Step::Done);
    check_done(&weather.rig, &id, &again).await;
}
