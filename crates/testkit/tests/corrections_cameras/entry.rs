//! From the watcher to the queue.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use quaymaster::Code;
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::queue::{Push, PushDedupe};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{JOB, claimed, length, ours, ours_with};

const IMAGE: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const PATH: &str = "/export/foscam/Front Door/image_001.jpg";

fn deduped() -> Push {
    let key = vec![("sha256_hash".to_owned(), IMAGE.to_owned())];
    let dedupe = PushDedupe { name: "image".to_owned(), key, value: Some(PATH.into()) };
    Push { dedupe: Some(dedupe), ..Push::one(JOB) }
}

#[tokio::test]
async fn two_watchers_that_look_before_they_mark_both_queue_the_image() {
    let server = RedisServer::start(RedisConfig::default());
    let key = format!("dedupe:{IMAGE}");
    let seen = || server.command::<Option<String>>(&["GET", &key]);
    let (one, two) = (seen(), seen());
    for existing in [one, two] {
        assert_eq!(existing, None, "neither sees the other");
        server.command::<()>(&["SET", &key, PATH, "EX", "300"]);
        server.command::<i64>(&["RPUSH", "detection_queue", JOB]);
    }
    assert_eq!(length(&server, "detection_queue"), 2, "one image, detected twice");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let answers = join_all((0..50).map(|_| queue.push(deduped()))).await;
    let accepted: u64 = answers.iter().map(|answer| answer.as_ref().expect("an answer").accepted).sum();
    let duplicates =
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(|pushed| pushed.duplicate)).count();
    assert_eq!((accepted, duplicates, length(&server, "detection_queue")), (1, 49, 1));
    // What a program of the old scheme sees: the documented key with the first path, for five minutes.
    assert_eq!(server.command::<String>(&["GET", &key]), PATH);
    assert!((290..=300).contains(&server.command::<i64>(&["TTL", &key])));
}

#[tokio::test]
async fn a_watcher_that_dies_between_mark_and_push_loses_its_image() {
    let server = RedisServer::start(RedisConfig::default());
    let key = format!("dedupe:{IMAGE}");
    server.command::<()>(&["SET", &key, PATH, "EX", "300"]);
    // The watcher dies here. Started again, it finds the image:
    assert!(server.command::<Option<String>>(&["GET", &key]).is_some(), "a duplicate, of nothing");
    assert_eq!(length(&server, "detection_queue"), 0);
    server.command::<()>(&["FLUSHALL"]);

    // One step: whatever moment the watcher dies at, both happened or neither. A push that is refused marks nothing.
    let quaymaster = ours_with(&server, &[("QUEUE_MAX_SIZE", "1")]).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let _ = queue.push(Push::one("{}")).await.expect("there is room");
    let error = queue.push(deduped()).await.expect_err("it is full");
    assert_eq!(error.code, Code::QueueFull);
    assert_eq!(server.command::<i64>(&["EXISTS", &key]), 0, "not queued, so not seen");
    let _ = claimed(queue, None).await;
    let pushed = queue.push(deduped()).await.expect("an answer");
    assert_eq!((pushed.accepted, pushed.duplicate), (1, false));
    assert_eq!(server.command::<i64>(&["EXISTS", &key]), 1);
    // The mark of a program of the old scheme holds ours off, also when that queued nothing.
    server.command::<()>(&["FLUSHALL"]);
    server.command::<()>(&["SET", &key, PATH, "EX", "300"]);
    let pushed = queue.push(deduped()).await.expect("an answer");
    assert_eq!((pushed.accepted, pushed.duplicate), (0, true));
}

#[tokio::test]
async fn who_asks_the_length_before_pushing_overruns_the_queue_and_who_moves_the_oldest_loses_it() {
    const MAX: i64 = 10;
    let server = RedisServer::start(RedisConfig::default());
    for n in 0..MAX - 1 {
        server.command::<i64>(&["RPUSH", "detection_queue", &n.to_string()]);
    }
    let lengths: Vec<i64> = (0..5).map(|_| length(&server, "detection_queue")).collect();
    for length in lengths {
        assert!(length < MAX, "each of five producers sees room");
        server.command::<i64>(&["RPUSH", "detection_queue", JOB]);
    }
    assert_eq!(length(&server, "detection_queue"), MAX + 4);
    // The `dlq` policy takes the oldest out before it puts it anywhere.
    let oldest: String = server.command(&["LPOP", "detection_queue"]);
    // Its producer dies here.
    assert_eq!(oldest, "0");
    assert_eq!(length(&server, "dlq:overflow:detection_queue"), 0, "an item that was accepted is nowhere");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours_with(&server, &[("QUEUE_MAX_SIZE", "10")]).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let answers = join_all((0..50).map(|_| queue.push(Push::one(JOB)))).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((accepted, length(&server, "detection_queue")), (10, MAX));
    assert!(
        answers.iter().filter_map(|answer| answer.as_ref().err()).all(|error| error.code == Code::QueueFull)
    );
    server.command::<()>(&["FLUSHALL"]);

    let moving = [("QUEUE_MAX_SIZE", "10"), ("QUEUE_OVERFLOW_POLICY", "dlq")];
    let quaymaster = ours_with(&server, &moving).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let payloads: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let pushes = payloads.iter().map(|payload| queue.push(Push::one(payload.clone())));
    let moved: u64 =
        join_all(pushes).await.into_iter().map(|answer| answer.expect("an answer").moved_to_dlq).sum();
    assert_eq!((moved, length(&server, "detection_queue")), (40, MAX));
    let mut all: Vec<String> = server.command(&["LRANGE", "dlq:overflow:detection_queue", "0", "-1"]);
    all.extend(server.command::<Vec<String>>(&["LRANGE", "detection_queue", "0", "-1"]));
    all.sort_by_key(|item| item.parse::<u32>().ok());
    assert_eq!(all, payloads, "every item is in one of the two, raw");
}

#[tokio::test]
async fn producers_with_bounds_of_their_own_shed_what_others_were_told_is_queued() {
    // The documented method, with the bound that its caller gives.
    let add = |server: &RedisServer, item: &str, max_size: i64| {
        let over = length(server, "detection_queue") + 1 - max_size;
        for _ in 0..over {
            let oldest: String = server.command(&["LPOP", "detection_queue"]);
            server.command::<i64>(&["RPUSH", "dlq:overflow:detection_queue", &oldest]);
        }
        server.command::<i64>(&["RPUSH", "detection_queue", item]);
    };
    let server = RedisServer::start(RedisConfig::default());
    for n in 0..10 {
        add(&server, &n.to_string(), 10_000);
    }
    add(&server, "10", 3);
    assert_eq!(length(&server, "detection_queue"), 3);
    assert_eq!(
        length(&server, "dlq:overflow:detection_queue"),
        8,
        "eight that were told there is room for 10,000"
    );
    server.command::<()>(&["FLUSHALL"]);

    let moving = [("QUEUE_MAX_SIZE", "10"), ("QUEUE_OVERFLOW_POLICY", "dlq")];
    let nodes = [ours_with(&server, &moving).await, ours_with(&server, &moving).await];
    for n in 0..11 {
        let queue = nodes[n % 2].queue("detection_queue").expect("declared");
        let _ = queue.push(Push::one(n.to_string())).await.expect("an answer");
    }
    assert_eq!(
        (length(&server, "detection_queue"), length(&server, "dlq:overflow:detection_queue")),
        (10, 1)
    );
}

#[tokio::test]
async fn what_an_old_program_pushed_beyond_the_bound_is_refused_moved_or_dropped_by_the_policy() {
    let server = RedisServer::start(RedisConfig::default());
    for (policy, moved, dropped) in [("reject", 0, 0), ("dlq", 4, 0), ("drop_oldest", 0, 4)] {
        server.command::<()>(&["FLUSHALL"]);
        for n in 0..13 {
            server.command::<i64>(&["RPUSH", "detection_queue", &n.to_string()]);
        }
        let bounds = [("QUEUE_MAX_SIZE", "10"), ("QUEUE_OVERFLOW_POLICY", policy)];
        let quaymaster = ours_with(&server, &bounds).await;
        let queue = quaymaster.queue("detection_queue").expect("declared");
        let answer = queue.push(Push::one(JOB)).await;
        if policy == "reject" {
            assert_eq!(answer.expect_err("it is over its bound").code, Code::QueueFull);
            assert_eq!(length(&server, "detection_queue"), 13, "nothing was shed");
            continue;
        }
        let pushed = answer.expect("an answer");
        assert_eq!((pushed.moved_to_dlq, pushed.dropped), (moved, dropped), "{policy}");
        assert_eq!(length(&server, "detection_queue"), 10, "{policy}");
        assert_eq!(length(&server, "dlq:overflow:detection_queue") as u64, moved, "{policy}");
    }
}

#[tokio::test]
async fn the_documents_cache_and_lock_are_ours_and_what_either_sets_the_other_sees() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = ours(&server).await;
    let (cache, lock) =
        (quaymaster.cache("key").expect("declared"), quaymaster.lock("key").expect("declared"));
    let key = [("key", "key")];
    // `redis.set("cache:key", {"data": "value"}, expire=3600)`, and `get`, which deserializes.
    server.command::<()>(&["SET", "cache:key", r#"{"data": "value"}"#, "EX", "3600"]);
    let value = cache.get(&key).await.expect("an answer").value().expect("a hit");
    assert_eq!(value.parsed::<serde_json::Value>().expect("JSON"), serde_json::json!({"data": "value"}));
    for json in ["42", "\"42\""] {
        let _ = cache.put(&key, &json.into(), quaymaster::cache::Put::default()).await.expect("an answer");
        assert_eq!(server.command::<String>(&["GET", "cache:key"]), json, "as json.dumps writes it");
        assert_eq!(cache.get(&key).await.expect("an answer").value(), Some(json.into()));
    }
    // `redis.set("lock:key", "1", expire=30, nx=True)`.
    let set = || server.command::<Option<String>>(&["SET", "lock:key", "1", "EX", "30", "NX"]);
    assert!(set().is_some());
    let held = lock.acquire(&key, Acquire::default()).await.expect("an answer");
    assert!(matches!(held, Acquired::Held { .. }), "{held:?}");
    server.command::<i64>(&["DEL", "lock:key"]);
    let ours = lock.acquire(&key, Acquire::default()).await.expect("an answer");
    assert!(matches!(ours, Acquired::Ours(_)), "{ours:?}");
    assert!(set().is_none(), "and ours holds off the document's");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn dropping_the_oldest_is_a_warning_with_the_queue_and_how_many() {
    let log = Log::default();
    let writer = log.clone();
    let logging = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(logging);
    let server = RedisServer::start(RedisConfig::default());
    let dropping = [("QUEUE_MAX_SIZE", "2"), ("QUEUE_OVERFLOW_POLICY", "drop_oldest")];
    let quaymaster = ours_with(&server, &dropping).await;
    let queue = quaymaster.queue("detection_queue").expect("declared");
    let warnings = || {
        let text = String::from_utf8_lossy(&log.0.lock().expect("no panic")).into_owned();
        text.lines().filter(|line| line.contains("dropped")).map(str::to_owned).collect::<Vec<_>>()
    };
    let _ =
        queue.push(Push { payloads: vec!["1".into(), "2".into()], ..Push::one("0") }).await.expect("room");
    assert_eq!(warnings(), [""; 0], "nothing was dropped");
    let all = Push { payloads: vec!["3".into(), "4".into()], ..Push::one("0") };
    assert_eq!(queue.push(all).await.expect("an answer").dropped, 2);
    let told = warnings();
    let [line] = &told[..] else { panic!("one line: {told:?}") };
    for part in [" WARN ", "queue=\"detection_queue\"", "dropped=2"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[tokio::test]
async fn a_count_asked_before_it_is_added_to_lets_more_than_the_limit_through() {
    const LIMIT: i64 = 3;
    let server = RedisServer::start(RedisConfig::default());
    let key = "ratelimit:api:192.168.1.1";
    let counts: Vec<i64> = (0..10).map(|_| server.command(&["ZCARD", key])).collect();
    let mut allowed = 0;
    for count in counts {
        if count < LIMIT {
            allowed += 1;
            // The member is the timestamp: requests of one millisecond are one.
            server.command::<i64>(&["ZADD", key, "1769250600000", "1769250600000"]);
        }
    }
    assert_eq!(allowed, 10, "ten at once under a limit of three");
    assert_eq!(server.command::<i64>(&["ZCARD", key]), 1, "counted as one");
    assert_eq!(server.command::<i64>(&["TTL", key]), -1, "and kept for ever");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    let limit = quaymaster.limit("endpoint").expect("declared");
    let client = [("endpoint", "api"), ("client_ip", "192.168.1.1")];
    let most = limit.peek(&client).await.expect("an answer").quota().limit;
    let calls = 2 * most + 10;
    let answers = join_all((0..calls).map(|_| limit.take(&client, Charge::one()))).await;
    let allowed =
        answers.into_iter().filter(|answer| answer.as_ref().expect("an answer").is_allowed()).count();
    assert_eq!(allowed as u64, most, "exactly the limit");
    assert_eq!(
        server.command::<u64>(&["ZCARD", key]),
        most,
        "members are unique, what was refused is not there"
    );
    assert!(server.command::<i64>(&["PTTL", key]) > 0);
}
