//! A Redis that is killed in the middle of uploads and comes back: from its log, from a log without its last second, or
//! with nothing at all. What is durable stays so; what was only received and is lost is asked for again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster_upload::ingest::Standing;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::node::{Node, check_done, ship_and_complete};
use crate::redis::Redis;
use crate::rig::{Document, Place, Rig, send_until_received};
use crate::set::rounds;
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("servers::a_redis_that_restarts_loses_nothing_durable", what_is_lost_is_asked_for_again),
        trial("servers::a_redis_that_restarts_again_and_again", uploads_outlive_every_restart),
    ]
}

/// Connections come back by themselves; the runner bounds it.
async fn standing(rig: &Rig, id: &str) -> Standing {
    loop {
        match rig.uploads.standing(id).await {
            Ok(standing) => return standing.unwrap(),
            Err(error) => assert!(error.trouble().may_pass(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn what_is_lost_is_asked_for_again() {
    let mut redis = Redis::start();
    let folder = TempDir::new().unwrap();
    let place = Place { store: redis.url(), ..Place::in_folder(folder.path(), false) };
    let rig = place.open().await;
    let document = Document::new("restarted", 9, SIZE);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 3).await));
    let early = redis.logged();
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    assert_eq!(rig.uploads.ship_once(10).await.unwrap().len(), 2);
    let durable = vec![0..=0, 3..=3];
    let logged = redis.logged();
    assert!(Rig::received(&rig.send(&id, &document, 1).await));
    redis.settle();
    // From its log: killed without a warning it has everything that it had written.
    redis.restart();
    let now = standing(&rig, &id).await;
    assert_eq!((now.state.durable(), now.resend), (durable.clone(), vec![2..=2]));
    // Without its last second.
    redis.restart_from(logged);
    let now = standing(&rig, &id).await;
    assert_eq!((now.state.durable(), now.resend), (durable.clone(), vec![1..=2]));
    // And the log ends in the middle of the bytes of a chunk.
    send_until_received(&rig, &id, &document, 1).await;
    redis.restart_from(logged + SIZE as u64 / 2);
    let now = standing(&rig, &id).await;
    assert_eq!((now.state.durable(), now.resend), (durable.clone(), vec![1..=2]));
    // From so long ago that it had not received what is durable by now.
    redis.restart_from(early);
    let now = standing(&rig, &id).await;
    assert_eq!((now.state.durable(), now.resend), (durable.clone(), vec![1..=2]));
    // With nothing at all.
    send_until_received(&rig, &id, &document, 1).await;
    redis.restart_empty();
    let now = standing(&rig, &id).await;
    assert_eq!((now.state.durable(), now.resend), (durable, vec![1..=2]));
    for number in [1, 2] {
        send_until_received(&rig, &id, &document, number).await;
    }
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    rig.until_nothing_is_left("restarted").await;
}

/// Sixteen chunks, some of them identical.
fn document(n: u64) -> Document {
    let base = Document::new(&format!("document-{n}"), n, 200_000).chunks;
    let mut chunks: Vec<Vec<u8>> = (0..15).map(|at| base[at % 3].clone()).collect();
    chunks.push(base[3].clone());
    Document { key: format!("document-{n}"), chunks }
}

/// Sends until it is done what is not there, in any order, and again what is asked for again.
async fn client(rig: &Rig, id: &str, document: &Document) {
    let mut random = fastrand::Rng::with_seed(document.size());
    let mut left: Vec<usize> = (0..document.chunks.len()).chain([3]).collect();
    random.shuffle(&mut left);
    loop {
        match rig.uploads.ledger().find(id).await.unwrap().unwrap().step {
            Step::Done => return,
            Step::Open => {
                for number in left.drain(..) {
                    send_until_received(rig, id, document, number).await;
                }
                let asked = standing(rig, id).await.resend.into_iter().flatten();
                left.extend(asked.map(|number| number as usize));
            }
            Step::Failed => panic!("{:?}", rig.uploads.ledger().history(id).await),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the ledger has of an upload.
async fn recorded(rig: &Rig, id: &str) -> BTreeSet<u32> {
    rig.uploads.ledger().parts(id).await.unwrap().iter().map(|part| part.number - 1).collect()
}

async fn uploads_outlive_every_restart() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..rounds(2, 20) {
        // One each: nodes that stop may still claim from it.
        let mut redis = Redis::start();
        let folder = TempDir::new().unwrap();
        let place =
            Place { store: redis.url(), reservation_ms: 5000, ..Place::in_folder(folder.path(), false) };
        let rig = Arc::new(place.open().await);
        let _nodes = [Node::start(&rig), Node::start(&rig)];
        let documents: Vec<Document> = (0..3).map(|n| document(3 * round + n)).collect();
        let mut clients = JoinSet::new();
        let mut ids = Vec::new();
        for document in &documents {
            let id = rig.create(document).await;
            ids.push(id.clone());
            let (rig, document) = (Arc::clone(&rig), document.clone());
            clients.spawn(async move { client(&rig, &id, &document).await });
        }
        for target in [8, 24, 40] {
            // By what was done, not by the clock: the upload is in the middle of it every time.
            loop {
                let mut parts = 0;
                for id in &ids {
                    parts += recorded(&rig, id).await.len();
                }
                if parts >= target {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let logged = redis.logged();
            let mut durable = Vec::new();
            for id in &ids {
                durable.push(recorded(&rig, id).await);
            }
            match random.u32(0..3) {
                0 => redis.restart(),
                1 => redis.restart_from(logged.saturating_sub(random.u64(0..600_000))),
                _ => redis.restart_empty(),
            }
            for (id, before) in ids.iter().zip(durable) {
                let now = standing(&rig, id).await;
                let upload = rig.uploads.ledger().find(id).await.unwrap().unwrap();
                let after: BTreeSet<u32> = recorded(&rig, id).await;
                assert!(after.is_superset(&before), "round {round}: {before:?} became {after:?}");
                let asked: BTreeSet<u32> = now.resend.iter().cloned().flatten().collect();
                if upload.step == Step::Open && !now.state.is_ended() {
                    let wrong: Vec<_> = asked.intersection(&before).collect();
                    assert!(wrong.is_empty(), "round {round}: durable ones are asked for again: {wrong:?}");
                }
            }
        }
        while let Some(done) = clients.join_next().await {
            done.unwrap();
        }
        for (id, document) in ids.iter().zip(&documents) {
            check_done(&rig, id, document).await;
        }
        assert_eq!(
            rig.uploads.ledger().events(0, 100).await.unwrap().len(),
            documents.len(),
            "round {round}"
        );
        assert_eq!(rig.pending().await, 0, "round {round}");
    }
}
