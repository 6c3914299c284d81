//! How many requests there were.

use quaymaster::stats::OVERFLOW;
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

use crate::support::{
    HOUR_MS, Took, bind, eventually, home_assistant, keys, number, ours, record, report, seen, stats_with,
};

/// The documented commands of one answered request, in the order of the document.
fn documented(instance: &str, endpoint: &str) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    vec![
        words(&["INCRBY", "ha:requests:total", "1"]),
        words(&["INCRBY", "ha:requests:accepted", "1"]),
        words(&["INCRBY", &format!("ha:requests:endpoint:{endpoint}"), "1"]),
        words(&["INCRBY", &format!("ha:requests:instance:{instance}"), "1"]),
        words(&["INCRBY", &format!("ha:requests:hourly:{HOUR_MS}"), "1"]),
        words(&["EXPIRE", &format!("ha:requests:hourly:{HOUR_MS}"), "86400"]),
        words(&["ZADD", &format!("ha:response_times:{endpoint}"), "1672531200123", "150"]),
        words(&["INCR", &format!("ha:response_count:{endpoint}")]),
    ]
}

fn run(server: &RedisServer, commands: &[Vec<String>]) {
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        server.command::<i64>(&words);
    }
}

#[tokio::test]
async fn commands_one_after_the_other_disagree_when_their_process_dies_between_them() {
    let server = RedisServer::start(RedisConfig::default());
    let commands = documented("0", "GET /api/users");
    // It dies before each of them once, as it does when it is killed often enough.
    for whole in 0..=commands.len() {
        run(&server, &commands[..whole]);
    }
    let total = number(&server, "ha:requests:total");
    let of_endpoint = number(&server, "ha:requests:endpoint:GET /api/users");
    let of_instance = number(&server, "ha:requests:instance:0");
    let timed = number(&server, "ha:response_count:GET /api/users");
    assert_eq!((total, of_endpoint, of_instance, timed), (8, 6, 5, 1), "one request, four opinions");
    assert_eq!(server.command::<i64>(&["DBSIZE"]), 7, "and so many keys and round trips for one endpoint");
    server.command::<()>(&["FLUSHALL"]);

    // All of a flush is one step, however many requests it carries; whatever moment its process dies at, every number
    // agrees with every other.
    let quaymaster = ours(&server).await;
    record(&quaymaster, &(0..500).map(|_| Took::get("0", "/api/users", 150.0)).collect::<Vec<_>>()).await;
    for key in ["ha:requests:total", "ha:requests:accepted", "ha:requests:endpoint:GET /api/users"] {
        assert_eq!(number(&server, key), 500, "{key}");
    }
    assert_eq!(number(&server, "ha:requests:instance:0"), 500);
    assert_eq!(number(&server, "ha:response_count:GET /api/users"), 500);
    let times: i64 = server.command(&["ZCARD", "ha:response_times:GET /api/users"]);
    assert_eq!(times, 100, "of the times a flush brings the newest hundred");
}

#[tokio::test]
async fn an_increment_repeated_after_a_lost_reply_counts_twice() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let incr = async || {
        let client = redis::Client::open(proxy.url()).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("INCRBY").arg("ha:requests:total").arg(1).query_async::<i64>(&mut connection).await
    };
    assert_eq!(incr().await.expect("the first one"), 1);
    // The second request is counted, and the reply is lost; a client that retries, as they do, counts it again.
    let client = redis::Client::open(proxy.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    proxy.cut_after(Way::Reply, 0, Cut::Rst);
    let lost = redis::cmd("INCRBY").arg("ha:requests:total").arg(1).query_async::<i64>(&mut connection).await;
    assert!(lost.is_err());
    assert_eq!(incr().await.expect("again"), 3, "two requests, counted three times");
    server.command::<()>(&["FLUSHALL"]);

    // A flush carries its process and a number; the store knows it again.
    let quaymaster = bind(&proxy.url(), home_assistant(), &[]).await;
    let recorder = quaymaster.stats("ha").expect("declared").recorder("0");
    for round in 1..=20 {
        seen(&recorder, "/api/users", 200, 7);
        proxy.cut_after(Way::Reply, 0, Cut::Rst);
        eventually("the flush is in the store", async || recorder.flush().await.ok()).await;
        assert_eq!(number(&server, "ha:requests:total"), round, "no more and no less");
    }
    assert!(recorder.stats().counts().repeats() > 0, "replies were lost, and their flushes known again");
    recorder.shutdown().await;
}

#[tokio::test]
async fn a_key_for_every_path_grows_with_every_id() {
    const IDS: usize = 1000;
    let server = RedisServer::start(RedisConfig::default());
    for id in 0..IDS {
        run(&server, &documented("0", &format!("PUT /api/forum/questions/{id}")));
    }
    let (counters, times) = (keys(&server, "ha:requests:endpoint:"), keys(&server, "ha:response_times:"));
    assert_eq!((counters, times), (IDS, IDS), "one question each, kept for ever");
    server.command::<()>(&["FLUSHALL"]);

    // Whoever sends raw paths fills the cap, and what is over it is counted where everybody sees it.
    const CAP: usize = 50;
    let quaymaster = bind(&server.url(), &stats_with(&format!("max_endpoints = {CAP}")), &[]).await;
    for part in (0..10 * IDS).collect::<Vec<_>>().chunks(IDS) {
        let took: Vec<Took> =
            part.iter().map(|id| Took::get("0", &format!("/api/forum/questions/{id}"), 1.0)).collect();
        record(&quaymaster, &took).await;
    }
    for prefix in ["ha:requests:endpoint:", "ha:response_times:", "ha:avg_response:", "ha:response_count:"] {
        let held = keys(&server, prefix);
        assert!(held <= CAP + 2, "{prefix}: {held} keys");
    }
    let told = report(&quaymaster).await;
    assert_eq!(told.total, 10 * IDS as u64, "nothing is lost");
    let overflow = told.endpoints.iter().find(|endpoint| endpoint.name == OVERFLOW);
    assert_eq!(overflow.map(|endpoint| endpoint.count as usize), Some(10 * IDS - CAP));
    // A service that names its routes, as the layer does, needs one.
    server.command::<()>(&["FLUSHALL"]);
    let quaymaster = ours(&server).await;
    let took: Vec<Took> = (0..IDS).map(|_| Took::get("0", "/api/forum/questions/{id}", 1.0)).collect();
    record(&quaymaster, &took).await;
    assert_eq!(number(&server, "ha:requests:endpoint:GET /api/forum/questions/:id"), IDS as i64);
    assert_eq!(keys(&server, "ha:requests:endpoint:"), 1);
}

#[tokio::test]
async fn two_spellings_of_an_endpoint_never_meet() {
    let server = RedisServer::start(RedisConfig::default());
    // The document has both: a space for the counters, an underscore for the times.
    server.command::<i64>(&["INCRBY", "ha:requests:endpoint:GET /api/users", "100"]);
    server.command::<i64>(&["INCRBY", "ha:response_count:GET_/api/users", "100"]);
    let endpoint = "GET /api/users";
    let timed: Option<i64> = server.command(&["GET", &format!("ha:response_count:{endpoint}")]);
    assert_eq!(timed, None, "an endpoint with a hundred requests has no response times");
    // And where both are read, a route with an underscore is two endpoints or one, as you like.
    let read = |key: &str| key.replace('_', " ");
    assert_eq!(read("GET_/api/forum_questions"), "GET /api/forum questions");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    record(&quaymaster, &[Took::get("0", "/api/forum_questions", 150.0)]).await;
    let names: Vec<String> = server.command(&["KEYS", "ha:*GET*"]);
    assert!(names.len() >= 4, "{names:?}");
    assert!(names.iter().all(|name| name.ends_with("GET /api/forum_questions")), "{names:?}");
}

#[tokio::test]
async fn an_hour_is_kept_for_ever_when_its_process_dies_and_follows_a_wrong_clock() {
    let server = RedisServer::start(RedisConfig::default());
    let key = format!("ha:requests:hourly:{HOUR_MS}");
    server.command::<i64>(&["INCRBY", &key, "1"]);
    // It dies before its EXPIRE; the hour passes, and no other request comes to set it.
    assert_eq!(server.command::<i64>(&["TTL", &key]), -1);
    // An instance whose clock is two hours ahead counts the same moment in another hour.
    let now_ms: i64 = 1_672_531_200_123;
    let bucket = |clock_ms: i64| clock_ms / 3_600_000 * 3_600_000;
    assert_ne!(bucket(now_ms), bucket(now_ms + 7_200_000));
    server.command::<()>(&["FLUSHALL"]);

    // The hour is the store's, whatever the instances' clocks say; here the store's is some hours off.
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9).faked());
    server.clock().set_offset_ms(-5 * 3_600_000);
    let quaymaster = ours(&server).await;
    let before = server.command::<Vec<i64>>(&["TIME"])[0] * 1000;
    record(&quaymaster, &[Took::get("0", "/api/users", 150.0)]).await;
    let after = server.command::<Vec<i64>>(&["TIME"])[0] * 1000;
    let held: Vec<String> = server.command(&["KEYS", "ha:requests:hourly:*"]);
    let possible = [bucket(before), bucket(after)].map(|hour| format!("ha:requests:hourly:{hour}"));
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(possible.contains(&held[0]), "{held:?} is none of {possible:?}");
    let ttl_ms: i64 = server.command(&["PTTL", &held[0]]);
    assert!((1..=86_400_000).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn every_restart_leaves_an_instance_for_ever() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9).faked());
    // Without PM2 an instance is called by the moment it started at.
    for restart in 0..200 {
        let started_ms = 1_672_531_200_000_u64 + restart * 60_000;
        server.command::<i64>(&["INCRBY", &format!("ha:requests:instance:instance-{started_ms}"), "1"]);
    }
    server.clock().set_offset_ms(30 * 86_400_000);
    assert_eq!(keys(&server, "ha:requests:instance:"), 200, "a month later");
    server.clock().set_offset_ms(0);
    server.command::<()>(&["FLUSHALL"]);

    const CAP: usize = 20;
    let quaymaster = bind(&server.url(), &stats_with(&format!("max_instances = {CAP}")), &[]).await;
    let stats = quaymaster.stats("ha").expect("declared");
    let took: Vec<Took> = (0..200).map(|n| Took::get(&format!("instance-{n}"), "/api/users", 1.0)).collect();
    record(&quaymaster, &took).await;
    let held = keys(&server, "ha:requests:instance:");
    assert!((CAP..=CAP + 1).contains(&held), "{held} instances");
    let told = report(&quaymaster).await;
    assert_eq!(told.total, 200);
    assert_eq!(
        told.instances.iter().map(|(_, count)| count).sum::<u64>(),
        200,
        "those over the cap are counted together"
    );
    // A day without a heartbeat, and they are gone; what they counted is still in the totals.
    server.clock().set_offset_ms(25 * 3_600_000);
    eventually("they have left", async || {
        let _ = stats.sweep().await.expect("a sweep");
        (keys(&server, "ha:requests:instance:instance-") == 0).then_some(())
    })
    .await;
    assert_eq!(report(&quaymaster).await.total, 200);
}
