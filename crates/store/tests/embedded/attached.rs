//! Several processes on one folder; here several stores in one process, which is the same to the lock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use quaymaster_store::{Code, Message};

use super::*;

async fn owner_and_attached(dir: &std::path::Path) -> (EmbeddedStore, EmbeddedStore) {
    let owner = open(dir).await;
    let attached = open(dir).await;
    assert_eq!((mode(&owner).await, mode(&attached).await), ("owner".to_owned(), "attached".to_owned()));
    (owner, attached)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_one_connection_and_get_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (_owner, attached) = owner_and_attached(dir.path()).await;
    let attached = Arc::new(attached);
    let calls = (0..100).map(|n| {
        let attached = Arc::clone(&attached);
        tokio::spawn(async move {
            let (key, value) = (format!("k{n}"), format!("v{n}"));
            for _ in 0..10 {
                attached.run(call(&SET, &[&key], &[&value])).await.unwrap();
                let reply = attached.run(call(&GET, &[&key], &[])).await.unwrap();
                assert_eq!(reply, Reply::Bytes(Bytes::from(value.clone())));
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn messages_cross_between_processes_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, attached) = owner_and_attached(dir.path()).await;
    let mut at_owner = owner.subscribe(b"c").await.unwrap();
    let mut at_attached = attached.subscribe(b"c").await.unwrap();
    for (n, store) in [&owner, &attached, &owner].into_iter().enumerate() {
        assert_eq!(store.run(call(&PUBLISH, &["c"], &[&n.to_string()])).await.unwrap(), Reply::Int(2));
    }
    for n in 0..3 {
        let message = Some(Message::Data(Bytes::from(n.to_string())));
        assert_eq!(at_owner.next().await, message);
        assert_eq!(at_attached.next().await, message);
    }
    // A reader that is gone is not counted as one for long.
    drop(at_attached);
    while owner.run(call(&PUBLISH, &["c"], &["x"])).await.unwrap() != Reply::Int(1) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_reader_that_falls_behind_is_told_how_much_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, attached) = owner_and_attached(dir.path()).await;
    let mut messages = attached.subscribe(b"c").await.unwrap();
    let burst = script(
        "test.burst",
        Effect::Writes,
        "for n = 1, 20000 do redis.call('PUBLISH', KEYS[1], n) end return 1",
    );
    owner.run(call(burst, &["c"], &[])).await.unwrap();
    let (mut heard, mut missed) = (0, 0);
    while heard + missed < 20_000 {
        match tokio::time::timeout(Duration::from_secs(30), messages.next()).await.unwrap().unwrap() {
            Message::Data(_) => heard += 1,
            Message::Missed(count) => missed += count,
        }
        if missed > 0 && heard + missed < 20_000 {
            // Whatever is missing now is told with the next message.
            owner.run(call(&PUBLISH, &["c"], &["more"])).await.unwrap();
        }
    }
    assert!(heard > 0 && missed > 0, "heard {heard}, missed {missed}");
}

#[tokio::test]
async fn waiting_for_an_item_crosses_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, attached) = owner_and_attached(dir.path()).await;
    let (found, ()) = tokio::join!(attached.wait_for_item(b"l", Duration::from_secs(60)), async {
        owner.run(call(&PUSH, &["l"], &["i"])).await.unwrap();
    });
    assert!(found.unwrap());
}

#[tokio::test]
async fn a_call_longer_than_a_frame_is_refused_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let (_owner, attached) = owner_and_attached(dir.path()).await;
    let huge = "x".repeat(65 << 20);
    let error = attached.run(call(&SET, &["k"], &[&huge])).await.unwrap_err();
    assert_eq!(error.code, Code::RequestTooLarge);
    assert_eq!(int(&attached, &INCR, &["n"]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_reply_longer_than_a_frame_may_have_had_its_effect() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, attached) = owner_and_attached(dir.path()).await;
    let long = script(
        "test.long",
        Effect::Writes,
        "redis.call('INCR', KEYS[1]) local part, all = string.rep('x', 1048576), {} \
         for n = 1, 64 do all[n] = part end return all",
    );
    let error = attached.run(call(long, &["n"], &[])).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (Code::StoreReply, true), "{error}");
    assert_eq!(int(&owner, &GET, &["n"]).await.unwrap(), 1);
    assert_eq!(int(&attached, &INCR, &["n"]).await.unwrap(), 2);
}

#[tokio::test]
async fn an_error_names_its_field_in_an_attached_process_too() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, attached) = owner_and_attached(dir.path()).await;
    let cursor = quaymaster_store::ScanCursor(vec![7; 24]);
    for store in [&owner, &attached] {
        let error = store.scan(b"*", 10, Some(cursor.clone())).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::RequestInvalid, Some("cursor")), "{error}");
        assert!(!error.may_have_run);
    }
}

#[tokio::test]
async fn an_attached_process_knows_that_its_owner_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let small = EmbeddedOptions { max_memory_bytes: 10_000, ..EmbeddedOptions::default() };
    let owner = EmbeddedStore::open(dir.path(), small).await.unwrap();
    let attached = open(dir.path()).await;
    for store in [&owner, &attached] {
        store.ready(Duration::from_secs(5)).await.unwrap();
    }
    attached.run(call(&SET, &["k"], &[&"x".repeat(20_000)])).await.unwrap();
    for store in [&owner, &attached] {
        let error = store.ready(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!((error.code, error.may_have_run), (Code::StoreOom, false), "{error}");
    }
}

#[tokio::test]
async fn the_clock_of_the_owner_is_the_clock_of_all() {
    use quaymaster_store::embedded::Clock;
    use std::sync::atomic::{AtomicI64, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicI64::new(5_000_000_000));
    let manual = EmbeddedOptions { clock: Clock::Manual(Arc::clone(&time)), ..EmbeddedOptions::default() };
    let _owner = EmbeddedStore::open(dir.path(), manual).await.unwrap();
    let attached = open(dir.path()).await;
    assert_eq!(attached.time_us().await.unwrap(), 5_000_000_000);
    assert!((attached.now_us() - 5_000_000_000).abs() < 10_000_000, "the offset is kept");
    time.store(9_000_000_000, Ordering::SeqCst);
    assert_eq!(attached.time_us().await.unwrap(), 9_000_000_000);
    assert!((attached.now_us() - 9_000_000_000).abs() < 10_000_000);
}
