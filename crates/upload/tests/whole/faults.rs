//! What goes wrong at the object store while whole uploads go through it: each ends with its bytes, or FAILED with a
//! reason and a way to go on; never COMPLETED with anything else.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::Trouble;
use quaymaster_upload::doctor::{At, Mode};
use quaymaster_upload::ingest::Resumed;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use crate::ends::{HOUR, clock, pass};
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
        trial("faults::what_cannot_be_looked_at_is_neither_completed_nor_ended", what_cannot_be_looked_at),
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
        Self::fair_at(None).await
    }

    /// With a ledger whose time is held.
    async fn fair_at(clock: Option<&Arc<AtomicI64>>) -> Self {
        let seaweed = Seaweed::start().await;
        let tamper = Tamper::start(seaweed.address()).await;
        let folder = TempDir::new().unwrap();
        let place = Place::behind(folder.path(), tamper.address());
        let rig = match clock {
            Some(clock) => place.open_at(clock).await,
            None => place.open().await,
        };
        Self { tamper, rig, _seaweed: seaweed, _folder: folder }
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

/// Credentials that have expired: nobody is answered, and nobody may look.
async fn what_cannot_be_looked_at() {
    let clock = clock();
    let weather = Weather::fair_at(Some(&clock)).await;
    let (tamper, uploads) = (&weather.tamper, &weather.rig.uploads);
    let refuse = |ask: Fault| {
        tamper.clear();
        tamper.next("HEAD", "", 100, Fault::Answer(403, ""));
        tamper.next("POST", COMPLETE, 100, ask);
    };
    let whole = async |document: &Document| {
        let id = weather.begin(document).await;
        weather.rig.ship_everything(&id, document).await;
        id
    };
    // Two are put together, and whoever asked is told otherwise; the others are not asked for before their deadline.
    let [resumed, left, late, waited] = ["resumed", "left", "late", "waited"].map(document);
    let (resumed_id, left_id) = (whole(&resumed).await, whole(&left).await);
    refuse(Fault::DoneBut(403, EXPIRED));
    let round = uploads.run_due().await.unwrap();
    assert_eq!((round.waiting, round.failed), (2, 0), "there is time: {round:?}");
    let state = uploads.standing(&resumed_id).await.unwrap().unwrap().state;
    assert_eq!(state.status, Status::Completing);
    assert!(state.error.unwrap().contains("403 Forbidden"), "whoever looks learns why it waits");
    let (late_id, waited_id) = (whole(&late).await, whole(&waited).await);
    refuse(Fault::Answer(403, EXPIRED));
    pass(&clock, 24 * HOUR);
    let round = uploads.run_due().await.unwrap();
    assert_eq!((round.ended, round.failed), (0, 4), "{round:?}");
    for (id, named) in [
        (&resumed_id, "403 Forbidden"),
        (&left_id, "403 Forbidden"),
        (&late_id, "ExpiredToken"),
        (&waited_id, "ExpiredToken"),
    ] {
        let state = uploads.standing(id).await.unwrap().unwrap().state;
        let reason = state.error.unwrap();
        assert_eq!(state.status, Status::Failed, "{reason}");
        assert!(reason.starts_with("late: ") && reason.contains(named), "{reason}");
        assert!(reason.contains("the object cannot be looked at: objects.head: "), "{reason}");
        assert_eq!(uploads.ledger().event_of(id).await.unwrap(), None, "nothing is told of it");
    }
    // It is so of all of them: that is said once, and not of each.
    let ended = uploads.examine_page_with(&At::default(), 10, Mode::Look, &async || ()).await.unwrap_err();
    assert_eq!(ended.trouble(), Trouble::Credentials, "{ended}");

    // The credentials are renewed: whoever resumes it finds what is there, or asks for it.
    tamper.clear();
    let before = tamper.heard().len();
    for id in [&resumed_id, &late_id] {
        assert!(matches!(uploads.resume(id).await.unwrap(), Resumed::Open(_)));
    }
    let round = uploads.run_due().await.unwrap();
    assert_eq!((round.ended, round.failed), (2, 0), "{round:?}");
    check_done(&weather.rig, &resumed_id, &resumed).await;
    check_done(&weather.rig, &late_id, &late).await;
    assert_eq!(uploads.standing(&resumed_id).await.unwrap().unwrap().state.error, None, "it is over");
    for (id, asked) in [(&resumed_id, false), (&late_id, true)] {
        let key = uploads.ledger().find(id).await.unwrap().unwrap().object_key;
        let mut heard = tamper.heard()[before..].to_vec();
        heard.retain(|request| request.contains(&key) && !request.starts_with("GET"));
        assert!(heard[0].starts_with("HEAD"), "it is looked for first: {heard:?}");
        assert_eq!(heard.iter().any(|request| request.starts_with("POST")), asked, "{heard:?}");
    }

    // Nobody resumes the others, and their store is away for longer: what it has is not cut, and they are completed
    // after all, the one whose object is there and the one that has its parts alone.
    refuse(Fault::Answer(403, EXPIRED));
    pass(&clock, HOUR);
    let before = tamper.heard().len();
    let round = uploads.run_due().await.unwrap();
    assert_eq!((round.ended, round.failed, round.waiting), (0, 2, 0), "{round:?}");
    let upload = uploads.ledger().find(&left_id).await.unwrap().unwrap();
    assert_eq!(upload.step, Step::Failed);
    assert!(upload.error.unwrap().contains("403 Forbidden"));
    let heard = tamper.heard()[before..].to_vec();
    assert!(heard.iter().all(|request| !request.starts_with("DELETE")), "{heard:?}");
    tamper.clear();
    pass(&clock, HOUR);
    let round = uploads.run_due().await.unwrap();
    assert_eq!((round.ended, round.failed), (2, 0), "{round:?}");
    check_done(&weather.rig, &left_id, &left).await;
    check_done(&weather.rig, &waited_id, &waited).await;
    assert_eq!(weather.rig.pending().await, 0);
}
