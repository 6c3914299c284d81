//! Bytes in flight over several nodes: never more than their bound, and whoever is over it is told when to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster_upload::ingest::Took;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, check_done};
use crate::rig::{Document, Place, Rig, send_until_received};
use crate::servers::{RedisConfig, RedisServer};
use crate::trial;

const MOST: u64 = 16 << 20;

pub fn trials() -> Vec<Trial> {
    vec![trial("bound::several_nodes_at_once_never_hold_more_than_may_be_in_flight", several_nodes)]
}

/// Bytes of chunks and of what is on its way that Redis really holds.
fn held(redis: &RedisServer) -> u64 {
    let keys: Vec<String> = redis.command(&["KEYS", "upload:*:*:*"]);
    let bytes = keys.iter().filter(|key| key.contains(":chunks:") || key.contains(":staging:"));
    // One may be gone meanwhile; that has none.
    bytes.map(|key| redis.command::<u64>(&["STRLEN", key])).sum()
}

async fn several_nodes() {
    let redis = RedisServer::start(RedisConfig::default());
    let folder = TempDir::new().unwrap();
    let max_in_flight = format!("{}KiB", MOST / 1024);
    let place = Place { store: redis.url(), max_in_flight, ..Place::in_folder(folder.path(), false) };
    let mut rigs = Vec::new();
    for _ in 0..3 {
        rigs.push(Arc::new(place.open().await));
    }
    let documents: Vec<Document> =
        (0..9).map(|n| Document::new(&format!("document-{n}"), n, 1_500_000)).collect();
    let mut ids = Vec::new();
    for document in &documents {
        ids.push(rigs[0].create(document).await);
    }
    // Nobody ships: twice as much as fits is sent at once, over three nodes.
    let (refused, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = CancellationToken::new();
    let watching = {
        let (rig, stop) = (Arc::clone(&rigs[0]), stop.clone());
        let redis = redis.url();
        tokio::spawn(async move {
            let mut seen = 0;
            while !stop.is_cancelled() {
                let now = rig.uploads.store().in_flight().await.unwrap();
                assert!(now.bytes <= now.max_bytes, "{now:?} on {redis}");
                seen = now.bytes.max(seen);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            seen
        })
    };
    let mut sending = JoinSet::new();
    for (n, (id, document)) in ids.iter().zip(&documents).enumerate() {
        for number in 0..document.chunks.len() {
            let rig = Arc::clone(&rigs[(n + number) % 3]);
            let (id, document) = (id.clone(), document.clone());
            let (refused, taken) = (Arc::clone(&refused), Arc::clone(&taken));
            sending.spawn(async move {
                match rig.send(&id, &document, number).await {
                    Took::Busy { retry_after } => {
                        let told = Duration::from_secs(1)..=Duration::from_secs(5);
                        assert!(told.contains(&retry_after), "{retry_after:?}");
                        refused.fetch_add(1, SeqCst);
                    }
                    took => {
                        assert!(Rig::received(&took), "{took:?}");
                        taken.fetch_add(document.chunks[number].len() as u64, SeqCst);
                    }
                }
            });
        }
    }
    while let Some(done) = sending.join_next().await {
        done.unwrap();
    }
    let (refused, taken) = (refused.load(SeqCst), taken.load(SeqCst));
    assert!(refused > 0, "more was sent than fits");
    assert!(taken > MOST / 2, "what fits is taken: {taken}");
    let in_flight = rigs[1].uploads.store().in_flight().await.unwrap();
    assert_eq!((in_flight.bytes, in_flight.max_bytes), (taken, MOST));
    assert_eq!(held(&redis), taken, "what counts is what is there");
    // Somebody ships: everything goes through, and still never more.
    let _nodes: Vec<Node> = rigs.iter().map(Node::start).collect();
    let mut sending = JoinSet::new();
    for (n, (id, document)) in ids.iter().zip(&documents).enumerate() {
        let (rig, id, document) = (Arc::clone(&rigs[n % 3]), id.clone(), document.clone());
        sending.spawn(async move {
            for number in 0..document.chunks.len() {
                send_until_received(&rig, &id, &document, number).await;
            }
            while rig.uploads.ledger().find(&id).await.unwrap().unwrap().step != Step::Done {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            check_done(&rig, &id, &document).await;
        });
    }
    while let Some(done) = sending.join_next().await {
        done.unwrap();
    }
    stop.cancel();
    let seen = watching.await.unwrap();
    assert!(seen > MOST / 2, "it was full: {seen}");
    rigs[0].until_nothing_is_left("all are done").await;
    assert_eq!(held(&redis), 0);
}
