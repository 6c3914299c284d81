//! Processes that are stopped in the middle: at every effect in turn, just before and just after it, and by kill -9 at
//! any moment. Whoever comes next (the same client with the same request, another node's workers) brings the upload to
//! its end, with nothing left over.

mod child;
mod points;
mod random;
mod story;

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::ledger::Step;

use crate::rig::{Document, Place, Rig};
pub use child::child;
use story::Story;

pub const ROLE: &str = "QUAYMASTER_TEST_ROLE";
const PLACE: &str = "QUAYMASTER_TEST_PLACE";
const FAIL: &str = "QUAYMASTER_FAIL";

/// Longer than any process takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn trials() -> Vec<Trial> {
    points::trials().into_iter().chain(random::trials()).collect()
}

fn start(place: &Place, role: &str, fail: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role).env(PLACE, serde_json::to_string(place).unwrap());
    match fail {
        Some(point) => command.env(FAIL, point),
        None => command.env_remove(FAIL),
    };
    command.spawn().unwrap()
}

/// One process; bounded, so that one that hangs is seen.
fn run(place: &Place, story: Story, fail: Option<&str>) -> ExitStatus {
    let mut process = start(place, story.name(), fail);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            kill(&mut process);
            panic!("{story:?} stopped at {fail:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(process: &mut Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// An upload that has come to its end: its object with its bytes, one row, one event, the store says so too, and no
/// multipart upload of its object is open.
async fn verify_completed(rig: &Rig, document: &Document, what: &str) {
    let ledger = rig.uploads.ledger();
    let mut uploads = ledger.page("", 10_000).await.unwrap();
    uploads.retain(|upload| upload.idempotency_key.as_deref() == Some(&document.key));
    assert_eq!(uploads.len(), 1, "{what}: one request, one upload");
    let upload = uploads.remove(0);
    let id = &upload.upload_id;
    let state = rig.uploads.standing(id).await.unwrap().unwrap().state;
    let node = ledger.node(&upload.node_id).await.unwrap().unwrap();
    assert_eq!((upload.step, state.status), (Step::Done, Status::Completed), "{what}");
    assert_eq!(state.receipt.durable_chunks as usize, document.chunks.len(), "{what}: the store shows all");
    assert_eq!(upload.final_size, Some(document.size()), "{what}");
    assert_eq!((node.status.as_str(), node.size), ("ACTIVE", Some(document.size())), "{what}");
    assert_eq!(rig.digest(id).await, Some(document.sha256()), "{what}: other bytes");
    let mut events = ledger.events(0, 10_000).await.unwrap();
    events.retain(|event| event.node_id == upload.node_id || event.upload_id == *id);
    assert_eq!(events.len(), 1, "{what}: {events:?}");
    assert_eq!((&events[0].upload_id, &events[0].event_id), (id, &format!("{id}.completed")), "{what}");
    let open = rig.uploads.objects().pending(&upload.object_key, None).await.unwrap().uploads;
    assert_eq!(open, vec![], "{what}: a multipart upload is left over");
    assert_eq!(rig.uploads.bytes().spooled(id).await.unwrap(), 0, "{what}: files are left in the spool");
}
