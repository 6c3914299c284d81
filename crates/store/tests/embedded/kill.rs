//! kill -9 at random moments, under load.

use std::collections::HashSet;
use std::time::Duration;

use super::child::{Orders, numbers, start};
use super::*;

/// Kills a counting child `rounds` times; returns for each round how far the folder is behind what it said.
fn kill_rounds(orders: Orders, rounds: u32) -> Vec<i64> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut seen = HashSet::new();
    let mut behind = Vec::new();
    for round in 0..rounds {
        let mut child = start(orders, dir.path(), None);
        child.hear("ack");
        child.listen(Duration::from_micros(fastrand::u64(0..60_000)));
        let acknowledged = numbers(&child.kill(), "ack");
        for value in &acknowledged {
            assert!(seen.insert(*value), "{value} was handed out twice");
        }
        let most = acknowledged.iter().copied().max().unwrap();
        let (a, b) = runtime.block_on(async {
            let store = open(dir.path()).await;
            assert_eq!(mode(&store).await, "owner");
            let values = (int(&store, &GET, &["a"]).await.unwrap(), int(&store, &GET, &["b"]).await.unwrap());
            store.close().await.unwrap();
            values
        });
        assert_eq!(a, b, "round {round}: half of a script is there");
        behind.push(most - a);
    }
    behind
}

#[test]
fn nothing_acknowledged_is_lost_to_kill_nine_under_always() {
    for (round, behind) in kill_rounds(Orders::Count, rounds(10, 200)).into_iter().enumerate() {
        assert!(behind <= 0, "round {round}: {behind} acknowledged counts are gone");
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_kill_nine_under_everysec() {
    for (round, behind) in kill_rounds(Orders::CountEverySec, rounds(10, 200)).into_iter().enumerate() {
        assert!(behind <= 0, "round {round}: {behind} acknowledged counts are gone");
    }
}

#[tokio::test]
async fn a_closed_store_leaves_everything_and_the_folder_free() {
    let dir = tempfile::tempdir().unwrap();
    let said = start(Orders::WriteAndClose, dir.path(), None).end();
    assert_eq!(numbers(&said, "ack").len(), 10);
    assert!(said.contains_key("closed"));
    let store = open(dir.path()).await;
    assert_eq!(mode(&store).await, "owner");
    for n in 0..10 {
        assert!(store.key_facts(format!("closed:{n}").as_bytes()).await.unwrap().is_some());
    }
}
