//! A process that is stopped at every effect in turn, just before and just after it.
//!
//! On the embedded set an ordinary run stops at every point once, with chunks in the spool or in the store in turn, and
//! on the servers at a few; `QUAYMASTER_SOAK=1` at every one with both, and on the servers.

use std::os::unix::process::ExitStatusExt as _;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::Effect;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use super::story::{Story, document};
use super::{run, verify_completed};
use crate::rig::{Place, Rig};
use crate::set::{Servers, soak};
use crate::trial;

const SIGABRT: i32 = 6;

/// Points are shared out over so many sets of servers, which work side by side.
const SETS: usize = 4;

/// Points that an ordinary run stops at on the servers; always the same ones.
const SAMPLE: usize = 8;
const SEED: u64 = 6;

/// A place where a process can be stopped.
#[derive(Debug, Clone)]
struct Point {
    effect: Effect,
    side: &'static str,
}

impl Point {
    fn all() -> Vec<Self> {
        let sides = |effect: &Effect| ["before", "after"].map(|side| Self { effect: *effect, side });
        Effect::ALL.iter().flat_map(sides).collect()
    }

    /// As `QUAYMASTER_FAIL` has it.
    fn name(&self) -> String {
        format!("{}:{}", self.effect.name(), self.side)
    }
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (at, point) in Point::all().into_iter().enumerate() {
        for (way, spooled) in [("spool", true), ("store", false)] {
            // Before and after lie side by side: of two effects one goes through each.
            if soak() || (at / 2 % 2 == 0) == spooled {
                let name = format!("crash::{way}::{}", point.name().replace(['.', ':'], "_"));
                let point = point.clone();
                trials.push(trial(name, move || embedded(point, spooled)));
            }
        }
    }
    let mut points = Point::all();
    if !soak() {
        fastrand::Rng::with_seed(SEED).shuffle(&mut points);
        points.truncate(SAMPLE);
    }
    let sets = if soak() { SETS } else { 1 };
    for set in 0..sets {
        let ours: Vec<Point> = points.iter().skip(set).step_by(sets).cloned().collect();
        trials.push(trial(format!("crash::servers::stopped_at_effects_{set}"), move || on_servers(ours)));
    }
    trials
}

async fn embedded(point: Point, spooled: bool) {
    let folder = TempDir::new().unwrap();
    stopped_at(&point, Place::in_folder(folder.path(), spooled)).await;
}

/// The same on Redis, SeaweedFS and PostgreSQL, many points on one set of them.
async fn on_servers(points: Vec<Point>) {
    let servers = Servers::start().await;
    let folder = TempDir::new().unwrap();
    for point in points {
        let place = Place { document: point.name(), ..servers.place(folder.path()) };
        stopped_at(&point, place).await;
    }
}

async fn stopped_at(point: &Point, place: Place) {
    let (story, name) = (Story::of(point.effect), point.name());
    let keep = if story == Story::Forget { "1s" } else { "1h" };
    let place = Place { keep_after_done: keep.to_owned(), reservation_ms: 1500, ..place };
    let stopped = run(&place, story, Some(&name));
    assert_eq!(stopped.signal(), Some(SIGABRT), "{name} is not on the way: {stopped:?}");
    let ended = run(&place, story, None);
    assert!(ended.success(), "whoever came after a stop at {name} did not end it: {ended:?}");
    let rig = place.open().await;
    match story {
        Story::Forget => verify_forgotten(&rig, &place, &name).await,
        Story::CallOff => verify_called_off(&rig, &place, &name).await,
        _ => verify_completed(&rig, &document(&place), &name).await,
    }
    assert_eq!(rig.pending().await, 0, "{name}: a multipart upload is left over");
    rig.until_nothing_is_left(&name).await;
}

async fn verify_forgotten(rig: &Rig, place: &Place, what: &str) {
    let ledger = rig.uploads.ledger();
    let uploads = ledger.page("", 10_000).await.unwrap();
    let mut ours = uploads.iter().filter(|upload| upload.idempotency_key.as_deref() == Some(&place.document));
    assert!(ours.next().is_none(), "{what}: the ledger keeps it");
    let mut told = Vec::new();
    for event in ledger.events(0, 10_000).await.unwrap() {
        let node = ledger.node(&event.node_id).await.unwrap().unwrap();
        if node.facts.name == Some(format!("{}.pdf", place.document)) {
            told.push(event.upload_id);
        }
    }
    assert_eq!(told.len(), 1, "{what}: the event stays for its readers");
    let keys = rig.keys(&format!("upload:{}:*", told[0])).await;
    assert_eq!(keys, Vec::<String>::new(), "{what}: the store keeps it");
}

async fn verify_called_off(rig: &Rig, place: &Place, what: &str) {
    let ledger = rig.uploads.ledger();
    let mut uploads = ledger.page("", 10_000).await.unwrap();
    uploads.retain(|upload| upload.idempotency_key.as_deref() == Some(&place.document));
    let [upload] = &uploads[..] else { panic!("{what}: one request, one upload: {uploads:?}") };
    let state = rig.uploads.standing(&upload.upload_id).await.unwrap().unwrap().state;
    let shown = (upload.step, state.status, state.aborted);
    assert_eq!(shown, (Step::Aborted, Status::Failed, true), "{what}");
    let node = ledger.node(&upload.node_id).await.unwrap().unwrap();
    assert_eq!(node.status, "ABORTED", "{what}");
    assert!(ledger.event_of(&upload.upload_id).await.unwrap().is_none(), "{what}: nothing is told");
    assert_eq!(rig.digest(&upload.upload_id).await, None, "{what}");
    assert_eq!(rig.uploads.bytes().spooled(&upload.upload_id).await.unwrap(), 0, "{what}");
}
