//! The same uploads wherever the store is: Redis with SeaweedFS and PostgreSQL, a cluster, Valkey, the oldest Redis, and
//! chunks in a Redis of their own.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use quaymaster::upload::Status;
use quaymaster_upload::ship::Sent;
use tempfile::TempDir;

use crate::node::{Node, check_done, ship_and_complete, until};
use crate::rig::{Document, Place, Rig, send_all, send_until_received};
use crate::servers::tools::Binary;
use crate::servers::{Cluster, ClusterConfig, RedisConfig, RedisServer};
use crate::set::Servers;
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("servers::redis_seaweedfs_and_postgres", redis_seaweedfs_and_postgres),
        trial("servers::chunks_in_a_redis_of_their_own", chunks_in_a_redis_of_their_own),
        trial("cluster::redis", || on_a_cluster(Binary::Redis7)),
        trial("cluster::valkey", || on_a_cluster(Binary::Valkey9)),
        trial("servers::valkey", || on_one(Binary::Valkey9)),
        trial("servers::redis_6_2", || on_one(Binary::Redis62)),
    ]
}

/// Several uploads at once through two nodes, one of them called off, and nothing left then.
async fn whole_flow(place: &Place, size: usize) {
    let rigs = [Arc::new(place.open().await), Arc::new(place.open().await)];
    let _nodes = [Node::start(&rigs[0]), Node::start(&rigs[1])];
    let mut sending = tokio::task::JoinSet::new();
    for n in 0..4u64 {
        let rig = Arc::clone(&rigs[n as usize % 2]);
        sending.spawn(async move {
            let document = Document::new(&format!("document-{n}"), n, size);
            let id = rig.create(&document).await;
            for number in [3, 0, 2, 1, 2] {
                send_until_received(&rig, &id, &document, number).await;
            }
            until(&rig, &id, Status::Completed).await;
            check_done(&rig, &id, &document).await;
        });
    }
    while let Some(done) = sending.join_next().await {
        done.unwrap();
    }
    let rig = &rigs[0];
    let given_up = Document::new("given-up", 9, size);
    let id = rig.create(&given_up).await;
    assert!(Rig::received(&rig.send(&id, &given_up, 1).await));
    let _ = rigs[1].uploads.abort(&id).await.unwrap();
    let empty = Document { key: "empty".to_owned(), chunks: vec![Vec::new()] };
    let id = rig.create(&empty).await;
    assert!(Rig::received(&rig.send(&id, &empty, 0).await));
    until(rig, &id, Status::Completed).await;
    check_done(rig, &id, &empty).await;
    assert_eq!(rig.uploads.ledger().events(0, 100).await.unwrap().len(), 5);
    assert_eq!(rig.pending().await, 0);
    rig.until_nothing_is_left("all of them").await;
}

async fn redis_seaweedfs_and_postgres() {
    let servers = Servers::start().await;
    let folder = TempDir::new().unwrap();
    whole_flow(&servers.place(folder.path()), 5 << 20).await;
}

/// Every upload has a slot of its own, and the indexes have others.
async fn on_a_cluster(binary: Binary) {
    let config = ClusterConfig { binary, ..ClusterConfig::default() };
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(config)).await.unwrap();
    let folder = TempDir::new().unwrap();
    let place = Place { store: cluster.url(), ..Place::in_folder(folder.path(), false) };
    whole_flow(&place, SIZE).await;
    let is_used = || cluster.nodes.iter().all(|node| node.command::<u64>(&["DBSIZE"]) > 0);
    // A handful of ids may pass a node by; a hundred more do not.
    let rig = place.open().await;
    for n in 0..100 {
        if !is_used() {
            let _ = rig.create(&Document::new(&format!("more-{n}"), 1, SIZE)).await;
        }
    }
    assert!(is_used(), "uploads are spread over the nodes");
}

async fn on_one(binary: Binary) {
    let server =
        tokio::task::spawn_blocking(move || RedisServer::start(RedisConfig::of(binary))).await.unwrap();
    let folder = TempDir::new().unwrap();
    let place = Place { store: server.url(), ..Place::in_folder(folder.path(), false) };
    whole_flow(&place, SIZE).await;
}

async fn chunks_in_a_redis_of_their_own() {
    let mut chunks = crate::redis::Redis::start();
    let folder = TempDir::new().unwrap();
    let place = Place { apart: Some(chunks.url()), ..Place::in_folder(folder.path(), false) };
    let rig = place.open().await;
    let other = Place { store: chunks.url(), ..Place::in_folder(folder.path(), false) }.open().await;
    let document = Document::new("apart", 13, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    assert_eq!(rig.keys("upload:*:chunks:*").await.len() + rig.keys("upload:*:staging:*").await.len(), 0);
    assert_eq!(other.keys("upload:*").await.len(), 4, "every chunk once, however often it was sent");
    assert_eq!(rig.uploads.ship_once(2).await.unwrap(), vec![Sent::Durable; 2]);
    assert_eq!(other.keys("upload:*").await.len(), 2);
    // It forgets everything: what was not durable is asked for again.
    chunks.restart_empty();
    for _ in 0..1000 {
        let waits =
            rig.uploads.standing(&id).await.unwrap().unwrap().state.received().into_iter().flatten().count();
        if waits == 0 {
            break;
        }
        let _ = rig.uploads.ship_once(10).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lost = rig.uploads.standing(&id).await.unwrap().unwrap().resend;
    assert_eq!(lost.iter().cloned().flatten().count(), 2);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(other.keys("upload:*").await, Vec::<String>::new());
}
