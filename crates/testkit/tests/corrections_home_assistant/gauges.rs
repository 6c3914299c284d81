//! What is so now: connections and speed.

use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{Took, bind, connections, eventually, number, record, report, seen, stats_with};

const CURRENT: &str = "ha:connections:http:current";
const MAX: &str = "ha:connections:http:max_since_startup";
const SPEED: &str = "ha:requests:speed_per_second";

/// Flushes often and is missed soon, though not while a busy machine takes its time.
const BRISK: &str = "flush = \"50ms\"\nheartbeat = \"2s\"";

#[tokio::test]
async fn a_killed_instance_leaves_its_connections_behind() {
    let server = RedisServer::start(RedisConfig::default());
    // Two instances, five connections; one of them is killed and closes none of its three.
    for _ in 0..5 {
        server.command::<i64>(&["INCR", CURRENT]);
    }
    for _ in 0..2 {
        server.command::<i64>(&["DECR", CURRENT]);
    }
    assert_eq!(number(&server, CURRENT), 3, "nobody is connected, and it will never be less");
    assert_eq!(server.command::<i64>(&["TTL", CURRENT]), -1);
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = bind(&server.url(), &stats_with(BRISK), &[]).await;
    let lives = quaymaster.stats("ha").expect("declared").recorder("0");
    let open: Vec<_> = (0..2).map(|_| lives.connected()).collect();
    // The other one says once that it has three, and is never heard again.
    connections(&quaymaster, "1", 3).await;
    eventually("both are counted", async || {
        let both = report(&quaymaster).await.connections_max == 5;
        both.then_some(())
    })
    .await;
    eventually("its connections are gone", async || (number(&server, CURRENT) == 2).then_some(())).await;
    assert_eq!(report(&quaymaster).await.connections, 2);
    // What a program of the old scheme adds lasts until the next flush.
    server.command::<i64>(&["INCRBY", CURRENT, "7"]);
    eventually("it is written over", async || (number(&server, CURRENT) == 2).then_some(())).await;
    drop(open);
    eventually("the others are closed", async || (report(&quaymaster).await.connections == 0).then_some(()))
        .await;
    lives.shutdown().await;
}

#[tokio::test]
async fn the_most_since_startup_is_lost_between_two_writers_and_survives_every_startup() {
    let server = RedisServer::start(RedisConfig::default());
    // Two instances see a new most at once; each reads the old one, and the smaller is written last.
    let old = [number(&server, MAX), number(&server, MAX)];
    for (old, now) in old.into_iter().zip([12, 11]) {
        if now > old {
            server.command::<()>(&["SET", MAX, &now.to_string()]);
        }
    }
    assert_eq!(number(&server, MAX), 11, "where it was 12");
    // All of them stop, and start again the next day with one connection.
    assert_eq!(number(&server, MAX), 11, "since which startup?");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = bind(&server.url(), &stats_with(BRISK), &[]).await;
    // Both tell at once; then another, with less.
    tokio::join!(connections(&quaymaster, "0", 12), connections(&quaymaster, "1", 11));
    connections(&quaymaster, "1", 1).await;
    let most = number(&server, MAX);
    assert_eq!(most, 23, "12 and 11 were open at once");
    eventually("nobody is alive", async || (number(&server, CURRENT) == 0).then_some(())).await;
    connections(&quaymaster, "0", 1).await;
    assert_eq!(number(&server, MAX), 1, "a new startup");
}

#[tokio::test]
async fn a_speed_that_nobody_writes_any_more_stays_as_it_was() {
    let server = RedisServer::start(RedisConfig::default());
    // Two instances write their speed into the one key: it is of whoever wrote last, and never of both.
    server.command::<()>(&["SET", SPEED, "120"]);
    server.command::<()>(&["SET", SPEED, "80"]);
    assert_eq!(number(&server, SPEED), 80, "where it is 200 requests a second");
    // Both are stopped.
    assert_eq!(number(&server, SPEED), 80, "and tomorrow too");
    assert_eq!(server.command::<i64>(&["TTL", SPEED]), -1);
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = bind(&server.url(), &stats_with(BRISK), &[]).await;
    let stats = quaymaster.stats("ha").expect("declared");
    let instances = [stats.recorder("0"), stats.recorder("1")];
    // Until a whole second of both has been flushed.
    let speed = eventually("there is a speed", async || {
        for recorder in &instances {
            seen(recorder, "/api/users", 200, 1);
        }
        let speed = report(&quaymaster).await.speed_per_second;
        (speed > 0).then_some(speed)
    })
    .await;
    assert!(speed > 0);
    for recorder in instances {
        recorder.shutdown().await;
    }
    eventually("nobody counts any more", async || {
        let key: i64 = server.command(&["EXISTS", SPEED]);
        (key == 0 && report(&quaymaster).await.speed_per_second == 0).then_some(())
    })
    .await;
    assert!(report(&quaymaster).await.max_speed_per_second >= speed, "the most there was stays");
    // What came over HTTP in one call is there to be seen too.
    record(&quaymaster, &[Took::get("2", "/api/users", 1.0)]).await;
    assert!(report(&quaymaster).await.instances.contains(&("2".to_owned(), 1)));
}
