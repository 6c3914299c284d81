use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Engine};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{connect, counted, options, until};

const LONG: Duration = Duration::from_secs(600);

fn blocked(server: &RedisServer) -> usize {
    server.info("clients", "blocked_clients").and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_wait_ends_when_an_item_comes_and_leaves_it_there() {
    let server = RedisServer::start(RedisConfig::default());
    let store = Arc::new(connect(&server.url()).await);
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.wait_for_item(b"q", LONG).await }
    });
    until("it waits", async || blocked(&server) == 1).await;
    // Nobody else is held up meanwhile.
    assert_eq!(counted(&*store, "k").await, 1);
    server.command::<()>(&["RPUSH", "q", "a", "b"]);
    assert!(waiting.await.unwrap().unwrap());
    assert_eq!(server.command::<Vec<String>>(&["LRANGE", "q", "0", "-1"]), ["a", "b"]);
    assert!(store.wait_for_item(b"q", LONG).await.unwrap(), "an item that is there already");
}

#[tokio::test]
async fn every_waiter_is_woken() {
    let server = RedisServer::start(RedisConfig::default());
    let mut config = options(&server.url());
    // Some block and some poll.
    config.blocking_connections = 5;
    let store = Arc::new(RedisStore::connect(config).await.unwrap());
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.wait_for_item(b"q", LONG).await })
        })
        .collect();
    until("five block", async || blocked(&server) == 5).await;
    server.command::<()>(&["RPUSH", "q", "a"]);
    for wait in waiting {
        assert!(wait.await.unwrap().unwrap());
    }
    assert_eq!(server.command::<Vec<String>>(&["LRANGE", "q", "0", "-1"]), ["a"]);
}

#[tokio::test]
async fn a_wait_for_nothing_ends_at_its_limit() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    assert!(!store.wait_for_item(b"q", limit).await.unwrap());
    // The server counts whole milliseconds of its own clock.
    assert!(began.elapsed() + Duration::from_millis(5) >= limit);
    assert!(!store.wait_for_item(b"q", Duration::ZERO).await.unwrap());
}

#[tokio::test]
async fn a_wait_that_is_given_up_frees_its_connection() {
    let server = RedisServer::start(RedisConfig::default());
    let mut config = options(&server.url());
    // One long turn: the server would not let go by itself.
    config.refresh = LONG;
    let store = Arc::new(RedisStore::connect(config).await.unwrap());
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.wait_for_item(b"q", LONG).await }
    });
    until("it waits", async || blocked(&server) == 1).await;
    waiting.abort();
    until("the server let go", async || blocked(&server) == 0).await;
}

#[tokio::test]
async fn waiting_on_what_is_no_list_says_so() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    server.command::<()>(&["SET", "s", "x"]);
    assert_eq!(store.wait_for_item(b"s", LONG).await.unwrap_err().code, Code::KeyWrongType);
}

#[tokio::test]
async fn a_wait_survives_a_restart_of_the_server() {
    let mut server = RedisServer::start(RedisConfig::default());
    let store = Arc::new(connect(&server.url()).await);
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.wait_for_item(b"q", LONG).await }
    });
    until("it waits", async || blocked(&server) == 1).await;
    server.restart();
    until("it waits again", async || blocked(&server) == 1).await;
    server.command::<()>(&["RPUSH", "q", "a"]);
    assert!(waiting.await.unwrap().unwrap());
}
