//! Queues under processes that are stopped past their leases and killed at any moment: random histories in which every
//! job is accounted for at every step, none is lost and none acked twice.
//!
//! Three hundred jobs a store by default, ten thousand under `QUAYMASTER_SOAK=1`; `QUAYMASTER_HISTORIES` and
//! `QUAYMASTER_SEED` choose others. A seed gives the same intentions, not the same interleaving.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster::Quaymaster;
use quaymaster::queue::{Ack, Claim, Push};
use quaymaster::schema::{Source, load};
use quaymaster::store::{Engine, StoreOptions, open};
use quaymaster_testkit::crew::{Crew, Log as _, PATIENCE, Watch};
use quaymaster_testkit::differential::count;
use quaymaster_testkit::queue_history::{
    Event, Log, Observer, QUEUES, SCHEMA, Snapshot, Tally, check, job_of, payload,
};
use quaymaster_testkit::saboteur::Saboteur;
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

/// When nothing comes for so long, nothing will: many times the longest lease and backoff.
const STANDSTILL: Duration = Duration::from_secs(10);

/// The test's own place at the store.
struct Witness {
    engine: Arc<dyn Engine>,
    quaymaster: Quaymaster,
    observer: Observer,
    seen: Vec<Snapshot>,
    /// Jobs that were seen dead or moved out, by queue.
    ended: HashMap<&'static str, HashSet<String>>,
}

impl Witness {
    async fn at(store: &str, defect: &[&str]) -> Self {
        let loaded = load(&[Source { name: "history.toml", text: SCHEMA }], &|_| None);
        let schema = Arc::new(loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics)));
        let engine =
            open(StoreOptions::from_url(store, Path::new(".")).expect("a store")).await.expect("it opens");
        let used: Arc<dyn Engine> = match defect {
            [operation, old, new] => Arc::new(Saboteur::new(engine.clone(), operation, old, new)),
            _ => engine.clone(),
        };
        let quaymaster = Quaymaster::new(schema.clone(), used);
        let observer = Observer::new(engine.clone(), schema);
        Self { engine, quaymaster, observer, seen: Vec::new(), ended: HashMap::new() }
    }

    /// Looks at every queue. A store whose owner was just killed may not answer; a job in two places is told.
    async fn look(&mut self) -> Result<(), String> {
        for queue in QUEUES {
            if let Ok(found) = self.observer.look(queue).await {
                let mut look = found?;
                look.leave_out(self.ended.entry(queue).or_default())?;
                self.seen.push(look);
            }
        }
        Ok(())
    }

    /// The last look at every queue, at all there is.
    async fn look_at_last(&mut self) -> Result<(), String> {
        for queue in QUEUES {
            self.seen.push(self.observer.look(queue).await.expect("the store answers")?);
        }
        Ok(())
    }

    /// Takes and acks everything that is left, as another worker; its log.
    async fn drain(&mut self) -> Result<Log, String> {
        let (mut log, mut leases) = (Log::default(), 0);
        let mut tell = |event: Event| log.note(&format!("0 {event} ."));
        for name in QUEUES.into_iter().chain(["after"]) {
            let queue = self.quaymaster.queue(name).expect("declared");
            let mut until = Instant::now() + STANDSTILL;
            loop {
                let from = self.engine.time_us().await.expect("time");
                let ttl = Duration::from_secs(30);
                let wait = Duration::from_millis(20);
                let how = Claim { count: 100, lease: Some(ttl), wait, ..Claim::default() };
                let jobs = queue.claim(how).await.expect("claim");
                let to = self.engine.time_us().await.expect("time");
                if jobs.is_empty() {
                    let look = self.observer.look(name).await.expect("the store answers")?;
                    if look.live() == 0 {
                        break;
                    }
                    if Instant::now() > until {
                        // What is still leased will never come back: the model says which.
                        return Ok(log);
                    }
                }
                for job in jobs {
                    until = Instant::now() + STANDSTILL;
                    leases += 1;
                    let lease = format!("drain{leases}");
                    let (queue_name, ttl) = (name.to_owned(), ttl.as_micros() as i64);
                    let known =
                        job_of(&job.payload).ok_or_else(|| format!("nobody pushed {:?}", job.payload))?;
                    let (attempt, name) = (job.attempt, lease.clone());
                    tell(Event::Got { queue: queue_name, job: known, attempt, lease: name, from, to, ttl });
                    let time = self.engine.time_us().await.expect("time");
                    tell(Event::Acking { time, leases: lease, then: "-".to_owned() });
                    let told = queue.ack(Ack::of(vec![job.lease])).await.expect("ack");
                    let time = self.engine.time_us().await.expect("time");
                    tell(Event::Acked { time, acked: told.acked as usize, lost: told.lost as usize });
                }
            }
        }
        Ok(log)
    }
}

type Looking = std::thread::JoinHandle<Result<Vec<Snapshot>, String>>;

/// Looks again and again until told to stop.
fn witness(store: String, stop: Arc<AtomicBool>) -> Looking {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let mut witness = Witness::at(&store, &[]).await;
            let mut found = Ok(());
            while found.is_ok() && !stop.load(Ordering::SeqCst) {
                found = witness.look().await;
                // As often as jobs move; nothing waits for this.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // By now it may own an embedded store.
            witness.engine.close().await.expect("the store closes");
            found.map(|()| witness.seen)
        })
    })
}

/// Workers on `store`, stopped and killed at random, until so many jobs were handed over; what was found.
fn roam(store: &str, jobs: u64, defect: &[&str]) -> Result<(Tally, usize), String> {
    let handed: Arc<Mutex<HashSet<String>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let looking: Mutex<Option<Looking>> = Mutex::default();
    let watch: Watch = {
        let handed = handed.clone();
        Arc::new(move |line| {
            let mut words = line.split_whitespace().skip(1);
            if let (Some("got"), Some(_), Some(job)) = (words.next(), words.next(), words.next()) {
                handed.lock().insert(job.to_owned());
            }
        })
    };
    let most = PATIENCE + Duration::from_millis(200) * u32::try_from(jobs).expect("not as many");
    let program = env!("CARGO_BIN_EXE_queue_worker");
    let crew = Crew { program, store, defect, past_lease_ms: 160..400, most };
    let mut logs: Vec<Log> = crew.roam(&watch, || {
        // Only now: the first worker owns an embedded store, and its death must hurt.
        let mut looking = looking.lock();
        let running = looking.get_or_insert_with(|| witness(store.to_owned(), stop.clone()));
        // A finding ends the run.
        if running.is_finished() { 1.0 } else { handed.lock().len() as f64 / jobs as f64 }
    });
    stop.store(true, Ordering::SeqCst);
    let seen = looking.into_inner().expect("it was begun").join().expect("the witness ends")?;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut witness = Witness::at(store, defect).await;
        witness.seen = seen;
        logs.push(witness.drain().await?);
        witness.look_at_last().await?;
        let killed = logs.iter().filter(|log| log.killed).count();
        check(&logs, &witness.seen).map(|tally| (tally, killed))
    })
}

fn holds(store: &str, url: &str) {
    let jobs = count(300, 10_000);
    let (tally, killed) = roam(url, jobs, &[]).unwrap_or_else(|wrong| panic!("{store}: {wrong}"));
    println!("{store}: {killed} killed, {tally:?}");
    // A run in which nothing happened proves nothing.
    assert!(tally.jobs as u64 >= jobs && killed > 0, "{tally:?}");
    let often = [tally.deliveries, tally.acked, tally.again, tally.retried, tally.snapshots];
    let rarely = [
        tally.lost,
        tally.extended,
        tally.dead,
        tally.delayed,
        tally.then,
        tally.shared_ids,
        tally.refused,
        tally.given_back,
    ];
    for seen in often {
        assert!(seen as u64 >= jobs / 10, "{tally:?}");
    }
    for seen in rarely {
        assert!(seen as u64 >= jobs / 100, "{tally:?}");
    }
    assert!(tally.overflow > 0, "{tally:?}");
}

#[test]
fn on_disk_every_job_is_accounted_for_through_the_owners_death() {
    let folder = tempfile::tempdir().expect("a folder");
    holds("embedded", &format!("embedded:{}", folder.path().display()));
}

#[test]
fn on_redis_7_every_job_is_accounted_for() {
    let server = RedisServer::start(RedisConfig::default());
    holds("redis7", &server.url());
}

#[test]
fn on_valkey_9_every_job_is_accounted_for() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9));
    holds("valkey9", &server.url());
}

#[test]
fn on_a_cluster_every_job_is_accounted_for() {
    let cluster = Cluster::start(ClusterConfig::default());
    holds("cluster", &cluster.url());
}

/// What is found when `new` stands in place of `old` in the scripts of `operation`.
fn found(operation: &str, old: &str, new: &str) -> String {
    let known = quaymaster::operations()
        .iter()
        .any(|op| op.script.id.starts_with(operation) && op.script.source.contains(old));
    assert!(known, "{operation} does not say {old:?} any more");
    let server = RedisServer::start(RedisConfig::default());
    let wrong = roam(&server.url(), 150, &[operation, old, new]).expect_err("the defect must be found");
    println!("{operation}: {wrong}");
    wrong
}

#[test]
fn leases_whose_token_is_not_compared_are_found() {
    let wrong = found("queue.", "string.sub(record, 1, #prefix) == prefix", "true");
    let ways = [
        "stale lease",
        "acked twice",
        "lives",
        "no payload",
        "had ended",
        "only a record",
        "at once",
        "lost",
        "one attempt",
    ];
    assert!(ways.iter().any(|way| wrong.contains(way)), "{wrong}");
}

#[test]
fn a_claim_that_pops_without_a_record_is_found() {
    // What BLPOP does: the job is in its consumer's hands alone.
    let old = "local lease_end = string.format(\"%.0f\", now_ms + words[from + 2])";
    let pop = "for index = 1, count do\n\
               if ordered then reply[#reply + 1] = scores[index] end\n\
               reply[#reply + 1] = payloads[index]\n\
               end\n\
               if true then return count, shed end\n";
    let wrong = found("queue.", old, &format!("{pop}{old}"));
    assert!(wrong.contains("lost"), "{wrong}");
}

#[test]
fn leases_that_end_and_never_come_back_are_found() {
    let old = "local found = redis.call(\"ZRANGEBYSCORE\", leases, \"-inf\", now, \"LIMIT\", 0, most, \"WITHSCORES\")";
    let wrong = found("queue.", old, "local found = {}");
    assert!(wrong.contains("never came back"), "{wrong}");
}

#[test]
fn a_crash_that_counts_as_no_attempt_is_found() {
    let wrong = found("queue.", "if dying == 0 then attempt", "if dying == 0 and not ended then attempt");
    assert!(wrong.contains("one attempt"), "{wrong}");
}

#[test]
fn a_lease_handed_out_before_it_ended_is_found() {
    let old = "local ids, ends, now, foreign = {}, {}, string.format(\"%.0f\", now_ms), 0";
    let new = "local ids, ends, now, foreign = {}, {}, string.format(\"%.0f\", now_ms + 40), 0";
    let wrong = found("queue.", old, new);
    let ways = ["lives", "due", "early", "dead letter is wrong"];
    assert!(ways.iter().any(|way| wrong.contains(way)), "{wrong}");
}

#[test]
fn an_ack_without_what_follows_from_it_is_found() {
    let old = "queue_add(keys, at, words, first, now_us, waiting, pushed, stamped, number)";
    let wrong = found("queue.ack.then", old, "0, 0, 0");
    assert!(wrong.contains("without what follows") || wrong.contains("lost"), "{wrong}");
}

#[test]
fn an_id_that_is_let_in_twice_is_found() {
    let wrong =
        found("queue.push", "local known = id and redis.call(\"EXISTS\", id) == 1", "local known = false");
    assert!(wrong.contains("under the id"), "{wrong}");
}

#[test]
fn a_queue_over_its_bound_is_found() {
    let wrong = found(
        "queue.push",
        "length + before + count > max_size then return \"full\"",
        "length > max_size then return \"full\"",
    );
    assert!(wrong.contains("wait in a queue of") || wrong.contains("a queue that rejects"), "{wrong}");
}

/// One consumer that now and then dies with jobs in hand, three producers: what is handed over for the first time comes
/// in the order in which each producer pushed it, and what comes again comes before what is new.
async fn in_order(store: &str) {
    const EACH: u64 = 200;
    let mut rng = fastrand::Rng::with_seed(quaymaster_testkit::differential::seed());
    let mut producers = Vec::new();
    for producer in 0..3u64 {
        let store = store.to_owned();
        producers.push(tokio::spawn(async move {
            let witness = Witness::at(&store, &[]).await;
            let queue = witness.quaymaster.queue("work").expect("declared");
            let mut rng = fastrand::Rng::with_seed(producer);
            let mut next = 0;
            while next < EACH {
                let last = (next + rng.u64(1..6)).min(EACH);
                let jobs = (next..last).map(|n| payload(&format!("{producer}.{n}")).into()).collect();
                let _ = queue.push(Push::many(jobs)).await.expect("pushed");
                next = last;
            }
            witness.engine.close().await.expect("the store closes");
        }));
    }
    let witness = Witness::at(store, &[]).await;
    let queue = witness.quaymaster.queue("work").expect("declared");
    let mut next = [0; 3];
    let (mut forgotten, mut again, until) = (HashSet::new(), 0, Instant::now() + PATIENCE);
    while next != [EACH; 3] || !forgotten.is_empty() {
        assert!(Instant::now() < until, "{next:?} of {EACH} came, {forgotten:?} did not come again");
        // Short only where all of it will be forgotten: a busy machine must not lose what it works on.
        let dies = forgotten.is_empty() && rng.u8(..10) == 0;
        let lease = if dies { Duration::from_millis(30) } else { Duration::from_secs(60) };
        let how = Claim {
            count: rng.usize(1..8),
            lease: Some(lease),
            wait: Duration::from_secs(1),
            ..Claim::default()
        };
        let jobs = queue.claim(how).await.expect("claimed");
        let mut fresh = false;
        for job in &jobs {
            let name = job_of(&job.payload).expect("ours");
            if job.attempt > 1 {
                assert!(!fresh, "{name} comes again behind what is new");
                assert!(forgotten.remove(&name), "{name} was not forgotten");
                again += 1;
            } else {
                fresh = true;
                let (producer, number) = name.split_once('.').expect("a name");
                let producer: usize = producer.parse().expect("a number");
                assert_eq!(number, next[producer].to_string(), "of producer {producer}");
                next[producer] += 1;
            }
        }
        if dies {
            forgotten.extend(jobs.iter().filter_map(|job| job_of(&job.payload)));
            continue;
        }
        let acked = queue.ack(Ack::of(jobs.into_iter().map(|job| job.lease).collect())).await.expect("acked");
        assert_eq!(acked.lost, 0);
    }
    for producer in producers {
        producer.await.expect("a producer ends");
    }
    println!("{again} came again");
    assert!(again > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disk_one_consumer_gets_jobs_in_the_order_they_were_pushed() {
    let folder = tempfile::tempdir().expect("a folder");
    in_order(&format!("embedded:{}", folder.path().display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_7_one_consumer_gets_jobs_in_the_order_they_were_pushed() {
    let server = RedisServer::start(RedisConfig::default());
    in_order(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_one_consumer_gets_jobs_in_the_order_they_were_pushed() {
    let cluster = Cluster::start(ClusterConfig::default());
    in_order(&cluster.url()).await;
}
