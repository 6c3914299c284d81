//! From the queue to the consumer.

use std::time::Duration;

use quaymaster::queue::{Ack, Claim, Push};
use quaymaster::store::backoff::Backoff;
use quaymaster::store::redis::RedisOptions;
use quaymaster_testkit::foreign::{Foreign, Language};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::{Value, json};

use crate::support::{JOB, bind, cameras, claimed, length, ours};

#[tokio::test]
async fn a_consumer_that_dies_after_its_blpop_takes_the_job_with_it() {
    let server = RedisServer::start(RedisConfig::default());
    let job: Value = serde_json::from_str(JOB).expect("JSON");
    let mut consumer = Foreign::start(Language::Python, &server.url());
    consumer.push("detection_queue", std::slice::from_ref(&job));
    assert_eq!(consumer.pop("detection_queue").0, job);
    // It works on the image, and is killed.
    consumer.kill9();
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "*"]), [""; 0], "the job is nowhere");

    let quaymaster = ours(&server).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let _ = queue.push(Push::one(JOB)).await.expect("an answer");
    let lost = claimed(queue, Some(Duration::from_millis(50))).await;
    assert_eq!(length(&server, "detection_queue"), 0, "a claimed job is not in the list");
    // Its consumer dies here. The lease ends, and the next one gets the job, the crash counted.
    let again = claimed(queue, None).await;
    assert_eq!((lost.attempt, again.attempt), (1, 2));
    assert_eq!(again.payload, JOB.as_bytes());
    let late = queue.ack(Ack::of(vec![lost.lease])).await.expect("an answer");
    assert_eq!((late.acked, late.lost), (0, 1), "who comes back from the dead ends nothing");
    let done = queue.ack(Ack::of(vec![again.lease])).await.expect("an answer");
    assert_eq!((done.acked, done.lost), (1, 0));
    // What a program of the old scheme sees: the same list, whose items it may still take.
    let _ = queue.push(Push::one(JOB)).await.expect("an answer");
    let mut consumer = Foreign::start(Language::Python, &server.url());
    assert_eq!(consumer.pop("detection_queue").0, job);
}

/// One RESP array of bulk strings.
fn wire(words: &[&str]) -> Vec<u8> {
    let parts: Vec<String> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{}", words.len(), parts.concat()).into_bytes()
}

/// Sends one command on a connection of its own, whose answer never comes; returns when that is known.
async fn unanswered(proxy: &FaultProxy, words: &[&str]) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    proxy.cut_after(Way::Reply, 0, Cut::Rst);
    let mut stream = tokio::net::TcpStream::connect(proxy.address()).await.expect("the proxy listens");
    stream.write_all(&wire(words)).await.expect("sent");
    let mut rest = Vec::new();
    let heard = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{heard:?} {rest:?}");
}

#[tokio::test]
async fn a_pop_repeated_after_a_lost_reply_has_lost_a_job_and_a_push_doubled_it() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    // The documented retry wrapper sends again what was not answered.
    unanswered(&proxy, &["RPUSH", "detection_queue", JOB]).await;
    server.command::<i64>(&["RPUSH", "detection_queue", JOB]);
    assert_eq!(length(&server, "detection_queue"), 2, "one image, two jobs");
    unanswered(&proxy, &["BLPOP", "detection_queue", "5"]).await;
    server.command::<(String, String)>(&["BLPOP", "detection_queue", "5"]);
    assert_eq!(length(&server, "detection_queue"), 0, "two jobs, one of them seen by nobody");

    let quaymaster = bind(&proxy.url(), cameras(), &[]).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let push = || Push { request_id: Some("watcher-1".to_owned()), ..Push::one(JOB) };
    proxy.cut_after(Way::Reply, 0, Cut::Rst);
    // Sent again by itself, since the id makes that harmless.
    let pushed = queue.push(push()).await.expect("an answer");
    assert_eq!((pushed.accepted, length(&server, "detection_queue")), (1, 1));
    let again = queue.push(push()).await.expect("an answer");
    assert_eq!((again.accepted, length(&server, "detection_queue")), (1, 1), "the same answer, one job");
    let how = || Claim { request_id: Some("consumer-1".to_owned()), ..Claim::default() };
    proxy.cut_after(Way::Reply, 0, Cut::Rst);
    let jobs = queue.claim(how()).await.expect("an answer");
    assert_eq!(jobs.len(), 1, "the claim whose answer was lost is told again");
    let repeated = queue.claim(how()).await.expect("an answer");
    assert_eq!(repeated[0].lease, jobs[0].lease);
}

#[test]
fn a_lost_connection_is_made_again_after_50_ms_to_5_s() {
    let ours = RedisOptions::from_url("redis://").expect("the documented server").backoff;
    let (first, last) = (ours.floor(1), ours.floor(u32::MAX));
    assert_eq!((first, last, ours.jitter), (Duration::from_millis(50), Duration::from_secs(5), 0.25));
    // The document's own, which programs have that nobody waits for.
    let documented = Backoff::default();
    assert_eq!((documented.floor(1), documented.floor(6)), (Duration::from_secs(1), Duration::from_secs(30)));
}

#[tokio::test]
async fn equal_members_of_a_sorted_set_are_one_job_and_ties_are_not_oldest_first() {
    let server = RedisServer::start(RedisConfig::default());
    for member in ["\"b\"", "\"a\"", "\"c\"", "\"b\""] {
        server.command::<i64>(&["ZADD", "priority_queue", "1", member]);
    }
    let popped: Vec<(String, f64)> = server.command(&["ZPOPMAX", "priority_queue", "10"]);
    let order: Vec<&str> = popped.iter().map(|(member, _)| member.as_str()).collect();
    assert_eq!(order, ["\"c\"", "\"b\"", "\"a\""], "one of four is gone, and the spelling decides");

    let quaymaster = ours(&server).await;
    let queue = quaymaster.queue("priority_queue").expect("declared");
    let pushes = [("\"b\"", 1.0), ("\"a\"", 1.0), ("\"urgent\"", 9.0), ("\"b\"", 1.0)];
    for (payload, priority) in pushes {
        let _ = queue.push(Push { priority: Some(priority), ..Push::one(payload) }).await.expect("an answer");
    }
    // A foreign ZADD stands beside them with the name it has: the document's is an id, not JSON.
    server.command::<i64>(&["ZADD", "priority_queue", "5", "\"foreign\""]);
    server.command::<i64>(&["ZADD", "priority_queue", "7", "item_id"]);
    let mut order = Vec::new();
    for _ in 0..6 {
        let job = claimed(queue, None).await;
        order.push(String::from_utf8_lossy(&job.payload).into_owned());
        let _ = queue.ack(Ack::of(vec![job.lease])).await.expect("an answer");
    }
    assert_eq!(
        order,
        ["\"urgent\"", "\"item_id\"", "\"foreign\"", "\"b\"", "\"a\"", "\"b\""],
        "highest first, oldest first"
    );
}

#[tokio::test]
async fn an_item_of_a_few_bytes_fills_its_readers_memory() {
    const GROWN: u64 = 128 << 20;
    let server = RedisServer::start(RedisConfig::default());
    let mut foreign = Foreign::start(Language::Python, &server.url());
    let told = foreign.ask(&json!({ "do": "bomb", "queue": "detection_queue", "bytes": GROWN }));
    let (item, grown) =
        (told["item_bytes"].as_u64().expect("a size"), told["grown"].as_u64().expect("a size"));
    assert_eq!(grown, GROWN, "the documented reader swallows all of it");
    assert!(item * 1000 < grown, "{item} bytes in the queue, {grown} in memory");

    let quaymaster = ours(&server).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let _ = queue.push(Push::one(JOB)).await.expect("an answer");
    let job = claimed(queue, None).await;
    assert_eq!(job.payload, JOB.as_bytes(), "nobody is handed the other one");
    let dead: Vec<Value> = foreign.range("dlq:detection_queue");
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(dead[0]["error"].as_str().is_some_and(|error| !error.is_empty()), "it says why: {dead:?}");
    assert!(dead[0]["original_job"].as_str().is_some_and(|item| item.starts_with("Z:")), "and what it was");
}
