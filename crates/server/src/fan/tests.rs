//! One subscription for all readers, and none when there are none.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};

use super::*;

async fn events() -> Quaymaster {
    let text = "[schema]\nname = \"t\"\nowner = \"t\"\n[event.news]\n[event.of]\nchannel = \"of:{id}\"\n";
    let schema = load(&[Source { name: "t.toml", text }], &|_| None).schema.unwrap();
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    Quaymaster::new(Arc::new(schema), Arc::new(store))
}

async fn next(reader: &mut Reader) -> Vec<String> {
    assert!(tokio::time::timeout(Duration::from_secs(10), reader.ready()).await.unwrap());
    let mut batch = Vec::new();
    assert_eq!(reader.take(&mut batch), None);
    batch.iter().map(|entry| entry.frame().to_text().unwrap().to_owned()).collect()
}

/// Waits until the store counts so many listeners.
async fn until_heard_by(event: &Event, key: &[(&str, &str)], listeners: u64) {
    let patience = std::time::Instant::now();
    while event.publish(key, b"0").await.unwrap() != listeners {
        assert!(patience.elapsed() < Duration::from_secs(10), "never {listeners} listeners");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn any_number_of_readers_share_one_subscription_and_the_last_one_ends_it() {
    let quaymaster = events().await;
    let news = quaymaster.event("news").unwrap();
    let fan = Arc::new(Fan::new(100));
    let mut readers = Vec::new();
    for _ in 0..50 {
        readers.push(fan.listen(news, &[]).await.unwrap());
    }
    assert_eq!(news.publish(&[], b"{\"n\":1}").await.unwrap(), 1, "the store sees one listener");
    for reader in &mut readers {
        assert_eq!(next(reader).await, ["{\"n\":1}"]);
    }
    let kept = readers.pop();
    drop(readers);
    assert_eq!(fan.counts.readers.load(Relaxed), 1);
    assert_eq!(news.publish(&[], b"2").await.unwrap(), 1);
    drop(kept);
    until_heard_by(news, &[], 0).await;
    assert!(fan.channels.lock().is_empty(), "nothing is left of a channel nobody listens to");
    let mut again = fan.listen(news, &[]).await.unwrap();
    news.publish(&[], b"3").await.unwrap();
    assert_eq!(next(&mut again).await, ["3"]);
}

#[tokio::test]
async fn channels_do_not_mix_and_places_are_bounded() {
    let quaymaster = events().await;
    let of = quaymaster.event("of").unwrap();
    let fan = Arc::new(Fan::new(2));
    let (a, b) = ([("id", "a")], [("id", "b")]);
    let (mut one, mut two) = (fan.listen(of, &a).await.unwrap(), fan.listen(of, &b).await.unwrap());
    assert_eq!(fan.listen(of, &a).await.unwrap_err().code, Code::ServerBusy);
    assert_eq!(fan.counts.readers.load(Relaxed), 2, "who was refused has no place");
    of.publish(&a, b"\"a\"").await.unwrap();
    of.publish(&b, b"\"b\"").await.unwrap();
    assert_eq!(
        (next(&mut one).await, next(&mut two).await),
        (vec!["\"a\"".to_owned()], vec!["\"b\"".to_owned()])
    );
    drop(one);
    assert!(fan.listen(of, &b).await.is_ok());
}

#[tokio::test]
async fn readers_that_come_and_go_all_at_once_leave_one_subscription_or_none() {
    let quaymaster = events().await;
    let news = quaymaster.event("news").unwrap();
    let fan = Arc::new(Fan::new(1000));
    for round in 0..50 {
        let crowd = (0..20).map(|_| fan.listen(news, &[]));
        let readers = futures_util::future::try_join_all(crowd).await.unwrap();
        assert_eq!(news.publish(&[], b"1").await.unwrap(), 1, "round {round}");
        drop(readers);
    }
    until_heard_by(news, &[], 0).await;
    assert_eq!(fan.counts.readers.load(Relaxed), 0);
}
