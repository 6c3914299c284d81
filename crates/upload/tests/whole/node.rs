//! Nodes that work by themselves, and waiting for what they do.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::upload::Status;
use quaymaster_upload::ledger::Step;
use tokio_util::sync::CancellationToken;

use crate::rig::{Document, Rig};

/// Workers and sweep of a node, until dropped.
pub struct Node(CancellationToken);

impl Node {
    pub fn start(rig: &Arc<Rig>) -> Self {
        let stop = CancellationToken::new();
        let (shipping, tending) = (rig.uploads.clone(), rig.uploads.clone());
        let (one, two) = (stop.clone(), stop.clone());
        tokio::spawn(async move { shipping.ship(4, one).await });
        tokio::spawn(async move { tending.tend(two).await });
        Self(stop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Waits for a status by its progress, not by the clock; a test that waits in vain is ended by its runner's bound.
pub async fn until(rig: &Rig, id: &str, status: Status) {
    for _ in 0..6000 {
        let standing = rig.uploads.standing(id).await.unwrap().unwrap();
        if standing.state.status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} did not become {status}: {:?}", rig.uploads.standing(id).await);
}

pub async fn check_done(rig: &Rig, id: &str, document: &Document) {
    // The store shows the end just before the ledger has it.
    let mut upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
    for _ in 0..1000 {
        if upload.step == Step::Done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
    }
    assert_eq!((upload.step, upload.final_size), (Step::Done, Some(document.size())));
    assert_eq!(rig.digest(id).await, Some(document.sha256()));
    let events = rig.uploads.ledger().events(0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.upload_id == id).count(), 1);
    assert_eq!(rig.uploads.bytes().spooled(id).await.unwrap(), 0);
}

pub async fn ship_and_complete(rig: &Rig, id: &str) {
    for _ in 0..6000 {
        let _ = rig.uploads.ship_once(10).await.unwrap();
        let _ = rig.uploads.run_due().await.unwrap();
        if rig.uploads.ledger().find(id).await.unwrap().unwrap().step == Step::Done {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", rig.uploads.ledger().history(id).await);
}

/// Each of these with chunks in the spool and in the store.
macro_rules! on_both {
    ($trials:ident: $($name:ident)*) => {
        $(for spooled in [true, false] {
            let way = if spooled { "spool" } else { "store" };
            $trials.push(trial(format!("{way}::{}", stringify!($name)), move || async move {
                let folder = TempDir::new().unwrap();
                let place = Place::in_folder(folder.path(), spooled);
                $name(place).await;
            }));
        })*
    };
}
pub(crate) use on_both;
