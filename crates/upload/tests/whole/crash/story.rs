//! What happens to an upload until a process is stopped, and what whoever comes next does about it. Every story may
//! begin anew wherever the one before was stopped.

use std::sync::Arc;
use std::time::Duration;

use quaymaster_upload::Effect;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::Resumed;
use quaymaster_upload::ledger::{Clock, Step, Upload};
use quaymaster_upload::objects::MultipartId;

use crate::rig::{Document, Place, Rig, send_until_received};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// An upload from its creation to COMPLETED.
    Complete,
    /// One that its client calls off with a chunk received and one durable.
    CallOff,
    /// One that its client calls off when the object is there already, and that is completed.
    Rescue,
    /// One that is completed, kept and forgotten.
    Forget,
    /// One whose parts somebody throws away while they are sent: it has FAILED, and is gone on with.
    FailShipping,
    /// The same when all of them are there.
    FailCompletion,
    /// One whose object store is away for a while, for parts and for the object.
    Away,
    /// One of whose chunks the bytes are lost.
    LoseBytes,
}

impl Story {
    pub const ALL: [Self; 8] = [
        Self::Complete,
        Self::CallOff,
        Self::Rescue,
        Self::Forget,
        Self::FailShipping,
        Self::FailCompletion,
        Self::Away,
        Self::LoseBytes,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::CallOff => "call_off",
            Self::Rescue => "rescue",
            Self::Forget => "forget",
            Self::FailShipping => "fail_shipping",
            Self::FailCompletion => "fail_completion",
            Self::Away => "away",
            Self::LoseBytes => "lose_bytes",
        }
    }

    /// The story in which an effect happens.
    pub fn of(effect: Effect) -> Self {
        match effect {
            Effect::EndRescue => Self::Rescue,
            Effect::EndClaim | Effect::EndCut | Effect::EndShow | Effect::EndEnded => Self::CallOff,
            Effect::ForgetStore | Effect::ForgetRow => Self::Forget,
            Effect::ShipFail | Effect::ShipFailShown | Effect::ResumeReopen | Effect::ResumeShown => {
                Self::FailShipping
            }
            Effect::CompleteFail | Effect::CompleteFailShown => Self::FailCompletion,
            Effect::ShipAgain | Effect::CompleteLetGo => Self::Away,
            Effect::ShipMissing => Self::LoseBytes,
            _ => Self::Complete,
        }
    }

    /// Lives it to its end.
    pub async fn live(self, place: &Place) {
        let rig = place.open().await;
        let document = document(place);
        if self == Self::Forget && is_forgotten(&rig, &document).await {
            return;
        }
        let id = rig.create(&document).await;
        let upload = rig.uploads.ledger().find(&id).await.unwrap();
        let is_open = upload.as_ref().is_some_and(|upload| upload.step == Step::Open);
        match self {
            Self::Complete => {}
            Self::CallOff => {
                if is_open {
                    let _ = rig.send(&id, &document, 0).await;
                    let _ = rig.uploads.ship_once(1).await.unwrap();
                    let _ = rig.send(&id, &document, 1).await;
                }
                return call_off(&rig, &id, Step::Aborted).await;
            }
            Self::Rescue => {
                if is_open {
                    deliver(&rig, &id, &document).await;
                    rig.ship_everything(&id, &document).await;
                    put_together(&rig, &upload.unwrap()).await;
                }
                return call_off(&rig, &id, Step::Done).await;
            }
            Self::Forget => {
                if is_open {
                    deliver(&rig, &id, &document).await;
                }
                return rig.work_until(&id, &document, |step| step.is_none()).await;
            }
            Self::FailShipping | Self::FailCompletion => {
                self.fail(&rig, &id, &document).await;
                let resumed = rig.uploads.resume(&id).await.unwrap();
                assert!(matches!(resumed, Resumed::Open(_)), "{resumed:?}");
            }
            Self::Away => away(place, &rig, &id, &document).await,
            Self::LoseBytes => {
                if is_open {
                    send_until_received(&rig, &id, &document, 0).await;
                    lose(place, &rig, &id).await;
                    let _ = rig.uploads.ship_once(1).await.unwrap();
                }
            }
        }
        if rig.uploads.ledger().find(&id).await.unwrap().unwrap().step == Step::Open {
            deliver(&rig, &id, &document).await;
        }
        rig.work_until(&id, &document, |step| step == Some(Step::Done)).await;
    }

    /// Until the upload has FAILED because its parts are gone, unless it had before.
    async fn fail(self, rig: &Rig, id: &str, document: &Document) {
        let history = rig.uploads.ledger().history(id).await.unwrap();
        if history.iter().any(|line| line.what == "reopened") {
            return;
        }
        let upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
        if upload.step == Step::Open {
            if self == Self::FailCompletion {
                deliver(rig, id, document).await;
                rig.ship_everything(id, document).await;
            } else {
                send_until_received(rig, id, document, 0).await;
            }
            let lost = MultipartId::new(upload.multipart_id.unwrap());
            let _ = rig.uploads.objects().abort(&upload.object_key, &lost).await.unwrap();
        }
        rig.work_until(id, document, |step| step == Some(Step::Failed)).await;
    }
}

/// What the upload is of.
pub fn document(place: &Place) -> Document {
    // Two pieces a chunk, or as much as S3 wants.
    let size = if place.endpoint.is_some() { 5 << 20 } else { 1_300_000 };
    Document::new(&place.document, 7, size)
}

/// Sends everything, out of order and some of it twice.
async fn deliver(rig: &Rig, id: &str, document: &Document) {
    for number in [3, 0, 2, 1, 2] {
        let sent = rig.uploads.standing(id).await.unwrap().unwrap();
        if sent.state.is_ended() {
            return;
        }
        send_until_received(rig, id, document, number).await;
    }
}

async fn is_forgotten(rig: &Rig, document: &Document) -> bool {
    let ledger = rig.uploads.ledger();
    let mut known = ledger.page("", 10_000).await.unwrap();
    known.retain(|upload| upload.idempotency_key.as_deref() == Some(&document.key));
    // Its client has no reason to come again once the event is told.
    let events = ledger.events(0, 10_000).await.unwrap();
    let mut told = false;
    for event in events {
        let node = ledger.node(&event.node_id).await.unwrap();
        told |= node.is_some_and(|node| node.facts.name == Some(format!("{}.pdf", document.key)));
    }
    told && known.is_empty()
}

async fn call_off(rig: &Rig, id: &str, end: Step) {
    loop {
        match rig.uploads.abort(id).await.unwrap() {
            Ran::Ended(step) | Ran::Elsewhere(step) if step == end => return,
            // Its completion began before the one who called it off was stopped.
            Ran::Elsewhere(_) if end == Step::Done => drop(rig.uploads.run_due().await.unwrap()),
            // Until the lease of whoever died has ended.
            Ran::Taken => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As whoever owned its completion would, who died then.
async fn put_together(rig: &Rig, upload: &Upload) {
    let objects = rig.uploads.objects();
    if objects.head(&upload.object_key).await.unwrap().is_none() {
        let parts = rig.uploads.ledger().parts(&upload.upload_id).await.unwrap();
        let multipart = MultipartId::new(upload.multipart_id.clone().unwrap());
        let _ = objects.complete(&upload.object_key, &multipart, &parts).await.unwrap();
    }
    assert!(objects.head(&upload.object_key).await.unwrap().is_some());
}

/// Nobody listens where the object store was: a chunk is tried in vain, then the object.
async fn away(place: &Place, rig: &Rig, id: &str, document: &Document) {
    let nowhere = Place {
        objects: "s3://quay/files".to_owned(),
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        ..place.clone()
    };
    let astray = nowhere.open_on(Arc::clone(&rig.engine), Clock::Database).await;
    if rig.uploads.ledger().find(id).await.unwrap().unwrap().step != Step::Open {
        return;
    }
    deliver(rig, id, document).await;
    let _ = astray.uploads.ship_once(1).await.unwrap();
    rig.ship_everything(id, document).await;
    let _ = astray.uploads.run_due().await.unwrap();
}

/// The bytes of the first chunk are gone, as by an eviction or a disk that was replaced.
async fn lose(place: &Place, rig: &Rig, id: &str) {
    if let Some(spool) = &place.spool {
        let _ = std::fs::remove_dir_all(spool.join(id));
        return;
    }
    let key = format!("upload:{id}:chunks:0").into_bytes();
    let brief = Duration::from_millis(1);
    rig.engine.write_piece(&key, 0, &[0], brief).await.unwrap();
    while rig.engine.key_facts(&key).await.unwrap().is_some() {
        tokio::time::sleep(brief).await;
    }
}
