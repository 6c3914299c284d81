//! The owner goes: somebody else takes over, and nobody has to help.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use quaymaster_store::{Code, Message};

use super::child::{Orders, Running, numbers, start};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_owner_hands_over_without_losing_or_repeating_a_call() {
    for _ in 0..rounds(8, 80) {
        let dir = tempfile::tempdir().unwrap();
        let owner = open(dir.path()).await;
        let heir = Arc::new(open(dir.path()).await);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let counters = (0..32).map(|_| {
            let (store, stopped) = (Arc::clone(&heir), stopped.clone());
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while !*stopped.borrow() {
                    // Never repeated by the store: a call that got lost would be an error here.
                    seen.push(int(&store, &INCR, &["n"]).await.unwrap());
                }
                seen
            })
        });
        let counters = counters.collect::<Vec<_>>();
        while int(&heir, &GET, &["n"]).await.unwrap() < 100 {
            assert!(!counters.iter().any(|counter| counter.is_finished()), "a call failed");
            tokio::task::yield_now().await;
        }
        owner.close().await.unwrap();
        assert_eq!(int(&owner, &INCR, &["n"]).await.unwrap_err().code, Code::StoreRefused);
        let before = int(&heir, &GET, &["n"]).await.unwrap();
        while int(&heir, &GET, &["n"]).await.unwrap() < before + 100 {
            assert!(!counters.iter().any(|counter| counter.is_finished()), "a call failed");
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
        let mut seen = Vec::new();
        for counter in counters {
            seen.extend(counter.await.unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=seen.len() as i64).collect::<Vec<_>>());
        assert_eq!(int(&heir, &GET, &["n"]).await.unwrap(), seen.len() as i64);
    }
}

#[tokio::test]
async fn a_subscription_outlives_the_owner_and_says_that_it_missed_something() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let (second, third) = (open(dir.path()).await, open(dir.path()).await);
    let mut at_second = second.subscribe(b"c").await.unwrap();
    let mut at_third = third.subscribe(b"c").await.unwrap();
    drop(owner);
    // One of them owns the folder now, the other is attached to it.
    for messages in [&mut at_second, &mut at_third] {
        assert_eq!(messages.next().await, Some(Message::Missed(0)));
    }
    second.run(call(&PUBLISH, &["c"], &["again"])).await.unwrap();
    for messages in [&mut at_second, &mut at_third] {
        assert_eq!(messages.next().await, Some(Message::Data("again".into())));
    }
}

#[tokio::test]
async fn a_wait_goes_on_under_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let attached = open(dir.path()).await;
    let (found, ()) = tokio::join!(attached.wait_for_item(b"l", Duration::from_secs(60)), async {
        owner.close().await.unwrap();
        attached.run(call(&PUSH, &["l"], &["i"])).await.unwrap();
    });
    assert!(found.unwrap());
}

#[tokio::test]
async fn many_that_open_at_once_have_one_owner() {
    for _ in 0..rounds(5, 50) {
        let dir = tempfile::tempdir().unwrap();
        let stores = futures_util::future::join_all((0..8).map(|_| open(dir.path()))).await;
        let mut owners = 0;
        for store in &stores {
            owners += u32::from(mode(store).await == "owner");
        }
        assert_eq!(owners, 1);
    }
}

#[tokio::test]
async fn a_folder_that_breaks_meanwhile_is_reported_by_the_heirs() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let heir = open(dir.path()).await;
    int(&heir, &INCR, &["n"]).await.unwrap();
    std::fs::write(dir.path().join("acknowledged"), b"garbage").unwrap();
    // The mark is open and written at its place; its length gives it away.
    std::fs::OpenOptions::new()
        .append(true)
        .open(dir.path().join("acknowledged"))
        .unwrap()
        .set_len(400)
        .unwrap();
    owner.close().await.unwrap();
    let error = int(&heir, &INCR, &["n"]).await.unwrap_err();
    assert_eq!(error.code, Code::StoreCorrupt);
}

/// The process that owns the folder, as it says itself.
fn owner_of(dir: &std::path::Path) -> Option<u32> {
    std::fs::read_to_string(dir.join("lock")).ok()?.trim().parse().ok()
}

#[test]
fn the_owner_killed_again_and_again_costs_no_acknowledged_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut children: Vec<Running> = (0..3).map(|_| start(Orders::Attach, dir.path(), None)).collect();
    let mut said = Vec::new();
    for child in &mut children {
        child.hear("ack");
    }
    let mut kills = 0;
    while kills < rounds(6, 60) {
        let owner = owner_of(dir.path());
        if let Some(at) = children.iter().position(|child| Some(child.id()) == owner) {
            said.push(children.remove(at).kill());
            kills += 1;
            children.push(start(Orders::Attach, dir.path(), None));
        }
        // Everybody counts again, unaided.
        for child in &mut children {
            child.listen(Duration::from_micros(fastrand::u64(0..20_000)));
            child.hear("ack");
        }
    }
    said.extend(children.into_iter().map(Running::kill));

    let mut seen = HashSet::new();
    let mut lost = 0;
    for said in &said {
        for value in numbers(said, "ack") {
            assert!(
                seen.insert(value),
                "{value} was handed out twice: there were two owners, or a count was lost"
            );
        }
        for (word, lines) in said {
            match word.as_str() {
                "store.lost" => lost += lines.len(),
                "store.timed_out" | "failed" => panic!("{word} {lines:?}"),
                _ => {}
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let value = runtime.block_on(async { int(&open(dir.path()).await, &GET, &["counter"]).await.unwrap() });
    let most = seen.iter().copied().max().unwrap();
    assert!(value >= most, "{value} is left of {most}");
    // What was never acknowledged: calls lost with an owner, and those under way in a killed child.
    let unaccounted = value - seen.len() as i64;
    let under_way = lost + said.len() * 2;
    assert!(
        unaccounted >= 0 && unaccounted <= under_way as i64,
        "{unaccounted} of {value}, at most {under_way}"
    );
}
