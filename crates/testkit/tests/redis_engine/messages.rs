use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt};
use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Engine, Message};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

use crate::support::{connect, options, until};

fn data(text: &str) -> Message {
    Message::Data(text.to_owned().into())
}

async fn heard(reader: &mut BoxStream<'static, Message>) -> Message {
    let next = tokio::time::timeout(Duration::from_secs(60), reader.next());
    next.await.expect("a message comes").expect("the stream goes on")
}

fn publish(server: &RedisServer, channel: &str, text: &str) -> i64 {
    server.command(&["PUBLISH", channel, text])
}

#[tokio::test]
async fn messages_arrive_byte_for_byte_at_every_reader_of_their_channel() {
    for binary in [Binary::Redis7, Binary::Valkey9, Binary::Redis62] {
        let server = RedisServer::start(RedisConfig::of(binary));
        let store = connect(&server.url()).await;
        let mut first = store.subscribe(b"a").await.unwrap();
        let mut second = store.subscribe(b"a").await.unwrap();
        let mut other = store.subscribe(b"b").await.unwrap();
        assert_eq!(publish(&server, "a", "1\r\n*3"), 1, "one connection carries both readers");
        publish(&server, "b", "2");
        assert_eq!(heard(&mut first).await, data("1\r\n*3"));
        assert_eq!(heard(&mut second).await, data("1\r\n*3"));
        assert_eq!(heard(&mut other).await, data("2"));
    }
}

#[tokio::test]
async fn readers_are_told_when_the_connection_was_lost_and_go_on_by_themselves() {
    let mut server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    let mut reader = store.subscribe(b"c").await.unwrap();
    publish(&server, "c", "before");
    assert_eq!(heard(&mut reader).await, data("before"));
    server.restart();
    assert_eq!(heard(&mut reader).await, Message::Missed(0));
    assert_eq!(publish(&server, "c", "after"), 1);
    assert_eq!(heard(&mut reader).await, data("after"));
    server.command::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(heard(&mut reader).await, Message::Missed(0));
}

/// A long outage must not leave subscriptions deaf after everything else is back.
#[tokio::test]
async fn subscriptions_come_back_as_soon_as_commands_may() {
    let mut server = RedisServer::start(RedisConfig::default());
    let mut patient = options(&server.url());
    patient.backoff.base = Duration::from_secs(3600);
    patient.backoff.max = Duration::from_secs(3600);
    patient.breaker.cool_down = Duration::from_millis(50);
    let store = RedisStore::connect(patient).await.unwrap();
    let mut reader = store.subscribe(b"a").await.unwrap();
    server.restart();
    assert_eq!(heard(&mut reader).await, Message::Missed(0));
}

#[tokio::test]
async fn a_slow_reader_learns_how_much_it_missed_and_holds_up_nobody() {
    let server = RedisServer::start(RedisConfig::default());
    let mut config = options(&server.url());
    config.subscriber_buffer = 4;
    let store = RedisStore::connect(config).await.unwrap();
    let mut slow = store.subscribe(b"c").await.unwrap();
    let mut quick = store.subscribe(b"c").await.unwrap();
    for number in 0..10 {
        publish(&server, "c", &number.to_string());
        assert_eq!(heard(&mut quick).await, data(&number.to_string()));
    }
    assert_eq!(heard(&mut slow).await, Message::Missed(6));
    assert_eq!(heard(&mut slow).await, data("6"));
}

#[tokio::test]
async fn a_channel_without_readers_is_left() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    let kept = store.subscribe(b"kept").await.unwrap();
    drop(store.subscribe(b"left").await.unwrap());
    until("the channel is left", async || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]) == ["kept"])
        .await;
    let mut again = store.subscribe(b"left").await.unwrap();
    publish(&server, "left", "x");
    assert_eq!(heard(&mut again).await, data("x"));
    drop(kept);
}

#[tokio::test]
async fn a_channel_the_user_may_not_read_is_refused_and_disturbs_no_other() {
    let rights = "user narrow on >pw ~* +@all resetchannels &mine";
    let server = RedisServer::start(RedisConfig::default().line(rights));
    let store = connect(&format!("redis://narrow:pw@{}", server.address())).await;
    let mut mine = store.subscribe(b"mine").await.unwrap();
    let refused = store.subscribe(b"theirs").await.err().expect("refused");
    assert_eq!(refused.code, Code::StorePermission);
    publish(&server, "mine", "x");
    assert_eq!(heard(&mut mine).await, data("x"));
}
