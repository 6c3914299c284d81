//! The processes that are stopped: this same binary, told by its environment what it is.

use std::sync::Arc;
use std::time::Duration;

use quaymaster_upload::ledger::Step;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::PLACE;
use super::story::Story;
use crate::rig::{Document, Place, Rig, send_until_received};

/// Takes several uploads at once, ships with them, and ends when all of them are at their end.
pub const SERVER: &str = "server";

/// Ships and sweeps until it is killed.
pub const WORKER: &str = "worker";

/// Workers of one process.
const WORKERS: usize = 3;

pub fn child(role: &str) {
    let place: Place = serde_json::from_str(&std::env::var(PLACE).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role {
            SERVER => server(&place).await,
            WORKER => worker(&place.open().await).await,
            story => Story::ALL.into_iter().find(|known| known.name() == story).unwrap().live(&place).await,
        }
    });
}

/// What is uploaded in a round: one with identical chunks, one of two, one that is small, one that is empty.
pub fn documents(place: &Place) -> Vec<Document> {
    let of =
        |name: &str, chunks: Vec<Vec<u8>>| Document { key: format!("{}-{name}", place.document), chunks };
    let large = Document::new(&place.document, 11, 5 << 20).chunks;
    let small = Document::new(&place.document, 12, 300_000).chunks;
    vec![
        of("identical", vec![large[0].clone(), large[0].clone(), small[1].clone()]),
        of("two", vec![large[1].clone(), small[0].clone()]),
        of("small", vec![small[3].clone()]),
        of("empty", vec![Vec::new()]),
    ]
}

async fn worker(rig: &Rig) {
    let never = CancellationToken::new();
    tokio::join!(rig.uploads.ship(WORKERS, never.clone()), rig.uploads.tend(never));
}

async fn server(place: &Place) {
    let rig = Arc::new(place.open().await);
    let shipping = Arc::clone(&rig);
    tokio::spawn(async move { worker(&shipping).await });
    let mut clients = JoinSet::new();
    for document in documents(place) {
        let rig = Arc::clone(&rig);
        clients.spawn(async move { client(&rig, &document).await });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}

/// Sends what it is not told to be there, in any order and some of it twice, and again what is asked for again.
async fn client(rig: &Rig, document: &Document) {
    let id = rig.create(document).await;
    let mut left: Vec<usize> = (0..document.chunks.len()).collect();
    left.push(fastrand::usize(..document.chunks.len()));
    fastrand::shuffle(&mut left);
    loop {
        let upload = rig.uploads.ledger().find(&id).await.unwrap().unwrap();
        match upload.step {
            Step::Done => return,
            Step::Open => {
                for number in left.drain(..) {
                    send_until_received(rig, &id, document, number).await;
                }
                if let Some(standing) = rig.uploads.standing(&id).await.unwrap() {
                    left.extend(standing.resend.into_iter().flatten().map(|number| number as usize));
                }
            }
            Step::Failed => panic!("{:?}", upload.error),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
