//! Programs of other languages that follow the document, and ours, on the same lists: redis-py and ioredis push and pop
//! beside us, plain and compressed, in both directions.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::Quaymaster;
use quaymaster::queue::{Ack, Claim, Job, Nack, Nacked, Push, Queue};
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::foreign::{Foreign, Language};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const SCHEMA: &str = r#"
[schema]
name = "foreign"
owner = "tests"
[queue.images]
retry = { max_attempts = 2, base = "1ms", max = "1ms", jitter = 0.0 }
compress_over = "1KiB"
[queue.ranked]
order = "priority"
"#;

async fn node(server: &RedisServer) -> Quaymaster {
    let loaded = load(&[Source { name: "foreign.toml", text: SCHEMA }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let options = StoreOptions::from_url(&server.url(), Path::new(".")).expect("a store");
    Quaymaster::new(Arc::new(schema), open(options).await.expect("the server is there"))
}

/// A small job and one over a kilobyte, with text that must survive every encoding.
fn jobs() -> [Value; 2] {
    let small = json!({ "camera_id": "Köln – Süd ☃", "file_path": "/a b/1.jpg", "n": 1.5, "none": null });
    let large = json!({ "camera_id": "front_door", "boxes": (0..400).collect::<Vec<i32>>(), "note": "é".repeat(300) });
    [small, large]
}

async fn claim(queue: &Queue, count: usize) -> Vec<Job> {
    let mut jobs = Vec::new();
    while jobs.len() < count {
        let how = Claim { count: count - jobs.len(), wait: PATIENCE, ..Claim::default() };
        let more = queue.claim(how).await.expect("an answer");
        assert!(!more.is_empty(), "{} of {count} came", jobs.len());
        jobs.extend(more);
    }
    jobs
}

fn value(job: &Job) -> Value {
    serde_json::from_slice(&job.payload).expect("a payload is JSON")
}

async fn in_both_directions(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary));
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("images").expect("declared");
    for language in Language::ALL {
        let mut foreign = Foreign::start(language, &server.url());
        // Theirs to us.
        foreign.push("images", &jobs());
        let items: Vec<String> = server.command(&["LRANGE", "images", "0", "-1"]);
        assert!(
            !items[0].starts_with("Z:") && items[1].starts_with("Z:"),
            "{language:?} compressed the large one"
        );
        let claimed = claim(queue, 2).await;
        assert_eq!(claimed.iter().map(value).collect::<Vec<_>>(), jobs(), "{language:?}");
        let leases = claimed.into_iter().map(|job| job.lease).collect();
        let acked = queue.ack(Ack::of(leases)).await.expect("an answer");
        assert_eq!((acked.acked, acked.lost), (2, 0), "{language:?}");
        // Ours to them.
        for job in jobs() {
            let _ = queue.push(Push::one(job.to_string())).await.expect("an answer");
        }
        for (job, squeezed) in jobs().into_iter().zip([false, true]) {
            assert_eq!(foreign.pop("images"), (job, squeezed), "{language:?}");
        }
        // What they took is theirs: nothing of it comes back.
        assert_eq!(queue.claim(Claim::default()).await.expect("an answer").len(), 0, "{language:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_pass_in_both_directions_on_redis_7() {
    in_both_directions(Binary::Redis7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_pass_in_both_directions_on_valkey_9() {
    in_both_directions(Binary::Valkey9).await;
}

fn blocked(server: &RedisServer) -> bool {
    server.info("clients", "blocked_clients").is_some_and(|count| count != "0")
}

async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_claim_wakes_for_their_push_and_their_blpop_for_ours() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("images").expect("declared");
    let [job, _] = jobs();
    for language in Language::ALL {
        let mut foreign = Foreign::start(language, &server.url());
        assert_eq!(foreign.range("images"), [Value::Null; 0], "the program is up");
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { claim(&queue, 1).await }
        });
        until("our claim waits in the server", || blocked(&server)).await;
        foreign.push("images", std::slice::from_ref(&job));
        let claimed = waiting.await.expect("the claim ends");
        assert_eq!(value(&claimed[0]), job, "{language:?}");
        let _ = queue.ack(Ack::of(vec![claimed[0].lease.clone()])).await.expect("an answer");

        until("nobody waits", || !blocked(&server)).await;
        foreign.send(&json!({ "do": "pop", "queue": "images", "timeout": PATIENCE.as_secs() }));
        until("their BLPOP waits", || blocked(&server)).await;
        let _ = queue.push(Push::one(job.to_string())).await.expect("an answer");
        assert_eq!(foreign.answer()["job"], job, "{language:?}");
    }
}

/// A claim that waits looks without taking: of one item, whoever takes it first has it, and nobody has it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_of_both_kinds_share_a_list_and_every_job_goes_to_one_of_them() {
    const JOBS: i64 = 300;
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("images").expect("declared").clone();
    let ours = tokio::spawn({
        let queue = queue.clone();
        async move {
            let mut numbers = Vec::new();
            loop {
                let how = Claim { count: 7, wait: PATIENCE, ..Claim::default() };
                let claimed = queue.claim(how).await.expect("an answer");
                let leases = claimed.iter().map(|job| job.lease.clone()).collect();
                let acked = queue.ack(Ack::of(leases)).await.expect("an answer");
                assert_eq!(acked.lost, 0);
                let here: Vec<i64> =
                    claimed.iter().map(|job| value(job)["n"].as_i64().expect("a number")).collect();
                let stop = here.contains(&-1);
                numbers.extend(here);
                if stop {
                    return numbers;
                }
            }
        }
    });
    let url = server.url();
    let theirs = tokio::task::spawn_blocking(move || {
        let mut foreign = Foreign::start(Language::Python, &url);
        let mut numbers = Vec::new();
        loop {
            let n = foreign.pop("images").0["n"].as_i64().expect("a number");
            numbers.push(n);
            if n == -1 {
                return numbers;
            }
        }
    });
    let mut node = Foreign::start(Language::Node, &server.url());
    for n in 0..JOBS {
        match n % 2 {
            0 => drop(node.push("images", &[json!({ "n": n })])),
            _ => drop(queue.push(Push::one(json!({ "n": n }).to_string())).await.expect("an answer")),
        }
    }
    // One end mark for each; whoever takes two would leave the other waiting, so it goes in when one has ended.
    node.push("images", &[json!({ "n": -1 })]);
    let (mut ours, mut theirs) = (ours, theirs);
    let (one, two) = tokio::select! {
        numbers = &mut ours => {
            node.push("images", &[json!({ "n": -1 })]);
            (numbers.expect("our consumer ends"), theirs.await.expect("their consumer ends"))
        }
        numbers = &mut theirs => {
            node.push("images", &[json!({ "n": -1 })]);
            (ours.await.expect("our consumer ends"), numbers.expect("their consumer ends"))
        }
    };
    println!("{} of {JOBS} came to us", one.len() - 1);
    let mut all: Vec<i64> = one.into_iter().chain(two).filter(|n| *n >= 0).collect();
    all.sort_unstable();
    assert_eq!(all, (0..JOBS).collect::<Vec<_>>(), "each job once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_dead_letters_are_the_documented_items() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("images").expect("declared");
    for language in Language::ALL {
        let mut foreign = Foreign::start(language, &server.url());
        foreign.push("images", &jobs());
        for _ in 0..4 {
            let job = claim(queue, 1).await.remove(0);
            let error = format!("Connection refused: attempt {}", job.attempt);
            match queue.nack(Nack::of(job.lease, error)).await.expect("an answer") {
                Nacked::Retry { attempt, .. } => assert_eq!(attempt, 1),
                Nacked::Dead { attempt, .. } => assert_eq!(attempt, 2),
                Nacked::Lost => panic!("the lease is ours"),
            }
        }
        let mut letters = foreign.range("dlq:images");
        letters.sort_by_key(|letter| letter["original_job"].to_string().len());
        assert_eq!(letters.len(), 2, "{language:?}");
        for (letter, job) in letters.iter().zip(jobs()) {
            let fields: Vec<&String> = letter.as_object().expect("an object").keys().collect();
            assert_eq!(fields.len(), 6, "{fields:?}");
            assert_eq!(letter["original_job"], job);
            assert_eq!(letter["error"], "Connection refused: attempt 2");
            assert_eq!(letter["attempt_count"], 2);
            assert_eq!(letter["queue_name"], "images");
            // `2026-01-24T10:30:05.000000`
            for field in ["first_failed_at", "last_failed_at"] {
                let text = letter[field].as_str().expect("a moment");
                let (day, time) = text.split_once('T').expect("ISO 8601");
                assert_eq!((day.len(), time.len()), (10, 15), "{text}");
            }
            assert!(letter["first_failed_at"].as_str() <= letter["last_failed_at"].as_str());
        }
        server.command::<i64>(&["DEL", "dlq:images"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_items_that_nobody_can_read_are_dead_at_once_and_the_rest_goes_on() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("images").expect("declared");
    let mut foreign = Foreign::start(Language::Node, &server.url());
    let items = ["not json", "Z:not base64!", "Z:bm90IHpzdGQ=", "{\"cut\":", "{\"good\":1}"];
    foreign.ask(&json!({ "do": "raw", "queue": "images", "items": items }));
    server.command::<i64>(&["RPUSH", "images", "{\"last\":1}"]);
    let claimed = claim(queue, 4).await;
    let told = [json!("not json"), json!("{\"cut\":"), json!({ "good": 1 }), json!({ "last": 1 })];
    assert_eq!(claimed.iter().map(value).collect::<Vec<_>>(), told, "text that is not JSON is a string");
    let letters = foreign.range("dlq:images");
    let originals: Vec<&str> = letters.iter().filter_map(|letter| letter["original_job"].as_str()).collect();
    assert_eq!(originals, items[1..3], "the items as they were");
    for letter in &letters {
        assert!(letter["error"].as_str().is_some_and(|error| error.len() > 5), "{letter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_zadd_is_claimed_in_its_turn_and_zpopmax_takes_ours() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = node(&server).await;
    let queue = quaymaster.queue("ranked").expect("declared");
    for language in Language::ALL {
        let mut foreign = Foreign::start(language, &server.url());
        assert_eq!(
            foreign.ask(&json!({ "do": "zpopmax", "queue": "ranked", "count": 1 }))["members"],
            json!([])
        );
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { claim(&queue, 1).await }
        });
        foreign.ask(&json!({ "do": "zadd", "queue": "ranked", "members": { "{\"theirs\":1}": 5 } }));
        let claimed = waiting.await.expect("the claim ends");
        assert_eq!(value(&claimed[0]), json!({ "theirs": 1 }), "{language:?}");
        let _ = queue.ack(Ack::of(vec![claimed[0].lease.clone()])).await.expect("an answer");
        for (n, priority) in [(1, 1.0), (2, 7.0)] {
            let _ = queue
                .push(Push { priority: Some(priority), ..Push::one(json!({ "ours": n }).to_string()) })
                .await
                .expect("pushed");
        }
        let told = foreign.ask(&json!({ "do": "zpopmax", "queue": "ranked", "count": 2 }));
        let payloads: Vec<&str> = told["members"]
            .as_array()
            .expect("members")
            .iter()
            .filter_map(|member| member[0].as_str()?.split_once(':').map(|(_, payload)| payload))
            .collect();
        assert_eq!(payloads, ["{\"ours\":2}", "{\"ours\":1}"], "{language:?}");
    }
}
