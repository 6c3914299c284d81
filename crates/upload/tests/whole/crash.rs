//! A process that is stopped at every effect in turn, just before and just after it. Whoever comes next (the same
//! client with the same request, another node's workers) brings the upload to its end, with nothing left over.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::Resumed;
use quaymaster_upload::ledger::Step;
use quaymaster_upload::objects::MultipartId;
use quaymaster_upload::{Effect, Uploads};
use tempfile::TempDir;

use crate::rig::{Document, Place, send_all};
use crate::trial;

pub const ROLE: &str = "QUAYMASTER_TEST_ROLE";
const PLACE: &str = "QUAYMASTER_TEST_PLACE";
const FAIL: &str = "QUAYMASTER_FAIL";
const SIGABRT: i32 = 6;

/// Two pieces a chunk.
const SIZE: usize = 1_300_000;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    /// An upload from its creation to COMPLETED.
    Complete,
    /// One that its client calls off with a chunk received and one durable.
    CallOff,
    /// One that is completed, kept and forgotten.
    Forget,
    /// One whose parts somebody throws away behind our back: it has FAILED, and is gone on with.
    Fail,
}

impl Story {
    const ALL: [Self; 4] = [Self::Complete, Self::CallOff, Self::Forget, Self::Fail];

    fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::CallOff => "call_off",
            Self::Forget => "forget",
            Self::Fail => "fail",
        }
    }

    /// The story in which an effect happens.
    fn of(effect: Effect) -> Self {
        match effect.name().split_once('.').unwrap().0 {
            "end" => Self::CallOff,
            "forget" => Self::Forget,
            "ship" if effect == Effect::ShipFail => Self::Fail,
            _ => Self::Complete,
        }
    }
}

fn document(place: &Place) -> Document {
    let least = if place.endpoint.is_some() { 5 << 20 } else { SIZE };
    Document::new(&place.document, 7, least)
}

fn place(folder: &Path, spooled: bool, story: Story) -> Place {
    let keep_after_done = if story == Story::Forget { "1s" } else { "1h" };
    Place { keep_after_done: keep_after_done.to_owned(), ..Place::in_folder(folder, spooled) }
}

/// Every effect, before and after it, with chunks in the spool and in the store.
pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("crash::servers::every_effect_of_shipping_and_completion", on_servers),
        trial("crash::spool::killed_at_any_moment", || killed_at_any_moment(true)),
        trial("crash::store::killed_at_any_moment", || killed_at_any_moment(false)),
    ];
    for spooled in [true, false] {
        for effect in Effect::ALL {
            for side in ["before", "after"] {
                let story = Story::of(*effect);
                let point = format!("{}:{side}", effect.name());
                let way = if spooled { "spool" } else { "store" };
                let name = format!("crash::{way}::{}", point.replace(['.', ':'], "_"));
                trials.push(trial(name, move || stopped_at(point, spooled, story)));
            }
        }
    }
    trials
}

async fn stopped_at(point: String, spooled: bool, story: Story) {
    let folder = TempDir::new().unwrap();
    let place = place(folder.path(), spooled, story);
    let stopped = run(&place, story, Some(&point));
    assert_eq!(stopped.signal(), Some(SIGABRT), "{point} is not on the way: {stopped:?}");
    let ended = run(&place, story, None);
    assert!(ended.success(), "whoever came after a stop at {point} did not end it: {ended:?}");
    verify(&place, &point, story).await;
}

/// The same on Redis, SeaweedFS and PostgreSQL, all points on one set of them.
async fn on_servers() {
    let redis = crate::redis::Redis::start();
    let postgres = crate::servers::PostgresServer::start();
    let seaweed = crate::seaweed::Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    for effect in Effect::ALL {
        for side in ["before", "after"] {
            let point = format!("{}:{side}", effect.name());
            let ours = ["ship.", "complete.", "end.", "create."].iter().any(|room| point.starts_with(room));
            if !ours {
                continue;
            }
            let story = Story::of(*effect);
            let place = Place {
                store: redis.url(),
                database: postgres.url(),
                objects: "s3://quay/files".to_owned(),
                endpoint: Some(format!("http://{}", seaweed.address())),
                chunk_min: "5MiB".to_owned(),
                document: point.clone(),
                ..place(folder.path(), false, story)
            };
            let stopped = run(&place, story, Some(&point));
            assert_eq!(stopped.signal(), Some(SIGABRT), "{point} is not on the way: {stopped:?}");
            let ended = run(&place, story, None);
            assert!(ended.success(), "whoever came after a stop at {point} did not end it: {ended:?}");
            verify(&place, &point, story).await;
        }
    }
}

/// kill -9 wherever it is, again and again, until one is quick enough. `QUAYMASTER_ROUNDS` uploads.
async fn killed_at_any_moment(spooled: bool) {
    let rounds = std::env::var("QUAYMASTER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    for round in 0..rounds {
        let folder = TempDir::new().unwrap();
        let place = place(folder.path(), spooled, Story::Complete);
        let mut random = fastrand::Rng::with_seed(round);
        // Longer every time, so that it ends.
        for attempt in 1.. {
            let mut process = start(&place, Story::Complete, None);
            std::thread::sleep(Duration::from_millis(random.u64(0..100 * attempt)));
            if let Some(status) = process.try_wait().unwrap() {
                assert!(status.success(), "round {round}: {status:?}");
                break;
            }
            process.kill().unwrap();
            process.wait().unwrap();
        }
        // Where it was killed decides what may be left to expire; everything else is as ever.
        verify(&place, &format!("ingest.any moment of round {round}"), Story::Complete).await;
    }
}

fn start(place: &Place, story: Story, fail: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, story.name()).env(PLACE, serde_json::to_string(place).unwrap());
    match fail {
        Some(point) => command.env(FAIL, point),
        None => command.env_remove(FAIL),
    };
    command.spawn().unwrap()
}

/// One process; bounded, so that one that hangs is seen.
fn run(place: &Place, story: Story, fail: Option<&str>) -> ExitStatus {
    let mut process = start(place, story, fail);
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("{story:?} stopped at {fail:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process that may be stopped.
pub fn child(role: &str) {
    let story = Story::ALL.into_iter().find(|story| story.name() == role).unwrap();
    let place: Place = serde_json::from_str(&std::env::var(PLACE).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let rig = place.open().await;
        let document = document(&place);
        match story {
            Story::Complete => {
                let id = rig.create(&document).await;
                send_all(&rig, &id, &document).await;
                work_until(&rig.uploads, &id, |step| step == Some(Step::Done)).await;
            }
            Story::CallOff => {
                let id = rig.create(&document).await;
                if rig.uploads.ledger().find(&id).await.unwrap().unwrap().step == Step::Open {
                    let _ = rig.send(&id, &document, 0).await;
                    let _ = rig.uploads.ship_once(1).await.unwrap();
                    let _ = rig.send(&id, &document, 1).await;
                }
                loop {
                    match rig.uploads.abort(&id).await.unwrap() {
                        Ran::Ended(Step::Aborted) | Ran::Elsewhere(Step::Aborted) => break,
                        // Until the lease of whoever died has ended.
                        Ran::Taken => tokio::time::sleep(Duration::from_millis(20)).await,
                        other => panic!("{other:?}"),
                    }
                }
            }
            Story::Fail => {
                let id = rig.create(&document).await;
                let failed = |step| step == Some(Step::Failed);
                let upload = rig.uploads.ledger().find(&id).await.unwrap().unwrap();
                if upload.step == Step::Open {
                    let _ = rig.send(&id, &document, 0).await;
                    let lost = MultipartId::new(upload.multipart_id.unwrap());
                    let _ = rig.uploads.objects().abort(&upload.object_key, &lost).await.unwrap();
                    work_until(&rig.uploads, &id, failed).await;
                }
                let resumed = rig.uploads.resume(&id).await.unwrap();
                assert!(matches!(resumed, Resumed::Open(_)), "{resumed:?}");
                send_all(&rig, &id, &document).await;
                work_until(&rig.uploads, &id, |step| step == Some(Step::Done)).await;
            }
            Story::Forget => {
                let ledger = rig.uploads.ledger();
                let told = !ledger.events(0, 1).await.unwrap().is_empty();
                if told && ledger.page("", 1).await.unwrap().is_empty() {
                    // It is forgotten already; its client has no reason to come again.
                    return;
                }
                let id = rig.create(&document).await;
                if let Some(upload) = rig.uploads.ledger().find(&id).await.unwrap()
                    && upload.step != Step::Done
                {
                    send_all(&rig, &id, &document).await;
                }
                work_until(&rig.uploads, &id, |step| step.is_none()).await;
            }
        }
    });
}

/// Ships and completes until the ledger has the upload where it should be. Bounded by whoever waits for the process.
async fn work_until(uploads: &Uploads, id: &str, there: impl Fn(Option<Step>) -> bool) {
    loop {
        let _ = uploads.ship_once(10).await.unwrap();
        let _ = uploads.run_due().await.unwrap();
        let step = uploads.ledger().find(id).await.unwrap().map(|upload| upload.step);
        if there(step) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn verify(place: &Place, point: &str, story: Story) {
    let rig = place.open().await;
    let (document, ledger) = (document(place), rig.uploads.ledger());
    let mut uploads = ledger.page("", 1000).await.unwrap();
    uploads.retain(|upload| upload.idempotency_key.as_deref() == Some(&place.document));
    let mut events = ledger.events(0, 1000).await.unwrap();
    if let [upload] = &uploads[..] {
        events.retain(|event| event.upload_id == upload.upload_id);
    }
    assert_eq!(rig.pending().await, 0, "{point}: a multipart upload is left over");
    assert_eq!(rig.keys("upload:*:chunks:*").await, Vec::<String>::new(), "{point}: bytes are left over");
    let ingest = point.starts_with("ingest.");
    let staged = rig.keys("upload:*:staging:*").await;
    assert!(ingest || staged.is_empty(), "{point}: staged bytes are left over: {staged:?}");
    if !ingest {
        let in_flight = rig.uploads.store().in_flight().await.unwrap();
        assert_eq!(in_flight.bytes, 0, "{point}: bytes count that are not there");
    }
    if story == Story::Forget {
        assert!(uploads.is_empty(), "{point}: {uploads:?}");
        let keys = rig.keys("upload:*").await;
        let left: Vec<_> = keys.iter().filter(|key| key.matches(':').count() > 1).collect();
        assert!(left.is_empty(), "{point}: {left:?}");
        assert_eq!(events.len(), 1, "{point}: the event stays for its readers");
        return;
    }
    assert_eq!(uploads.len(), 1, "{point}: one request, one upload");
    let upload = uploads.remove(0);
    let id = &upload.upload_id;
    assert_eq!(rig.uploads.bytes().spooled(id).await.unwrap(), 0, "{point}: files are left in the spool");
    let state = rig.uploads.standing(id).await.unwrap().unwrap().state;
    let node = ledger.node(&upload.node_id).await.unwrap().unwrap();
    if story == Story::CallOff {
        assert_eq!(
            (upload.step, state.status, state.aborted),
            (Step::Aborted, Status::Failed, true),
            "{point}"
        );
        assert_eq!((node.status.as_str(), events.len()), ("ABORTED", 0), "{point}");
        return;
    }
    assert_eq!((upload.step, state.status), (Step::Done, Status::Completed), "{point}");
    assert_eq!(state.receipt.durable_chunks as usize, document.chunks.len(), "{point}: the store shows all");
    assert_eq!(upload.final_size, Some(document.size()), "{point}");
    assert_eq!((node.status.as_str(), node.size), ("ACTIVE", Some(document.size())), "{point}");
    assert_eq!(rig.digest(id).await, Some(document.sha256()), "{point}: other bytes");
    assert_eq!(events.len(), 1, "{point}: {events:?}");
    assert_eq!(events[0].upload_id, *id, "{point}");
}
