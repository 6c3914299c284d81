//! Jobs of 5 to 50 ms, four worker processes, one killed -9 again and again so that kills land inside work, Redis
//! restarted once under `appendfsync always`: every job is acked exactly once, or dead with its reason.
//!
//! Three thousand jobs by default; under `QUAYMASTER_SOAK=1` a hundred thousand, with a kill every second for a minute.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use quaymaster::Quaymaster;
use quaymaster::queue::Push;
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::crew::{PATIENCE, WORKERS, Worker, unwatched};
use quaymaster_testkit::differential::{count, seed};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_testkit::storm::{Log, POISON, SCHEMA, explain, is_poison};
use serde_json::Value;

/// How long a call may take to notice that the store went away, and a lease to end.
const SLACK_US: i64 = 10_000_000;

/// A store that answers nobody for so long may take the ack of a job only after its lease, of which a third was left
/// at least when it began.
const STILL: Duration = Duration::from_millis(500);

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

async fn push_all(server: &RedisServer, jobs: u64) {
    let loaded = load(&[Source { name: "storm.toml", text: SCHEMA }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let options = StoreOptions::from_url(&server.url(), Path::new(".")).expect("a store");
    let quaymaster = Quaymaster::new(Arc::new(schema), open(options).await.expect("the server is there"));
    let queue = quaymaster.queue("storm").expect("declared");
    let numbers: Vec<u64> = (0..jobs).collect();
    for some in numbers.chunks(1000) {
        let pushed = queue.push(Push::many(some.iter().map(|n| n.to_string().into()).collect())).await;
        assert_eq!(pushed.expect("an answer").accepted as usize, some.len());
    }
}

fn worker(server: &RedisServer, born: &mut u64) -> Worker<Log> {
    *born += 1;
    let mut program = Command::new(env!("CARGO_BIN_EXE_storm_worker"));
    program.arg(server.url()).arg(born.to_string());
    Worker::start(program, unwatched())
}

/// Jobs that were acked, by the witness that each ack leaves, and dead letters.
fn ended(server: &RedisServer) -> u64 {
    let length = |list: &str| server.try_command::<u64>(&["LLEN", list]).unwrap_or(0);
    length("done") + length("dlq:storm")
}

#[test]
fn every_job_is_acked_once_or_dead_with_its_reason_through_kills_and_a_restart() {
    let jobs = count(3000, 100_000);
    let long = jobs >= 50_000;
    let (every, for_long) = if long {
        (Duration::from_secs(1), Duration::from_secs(60))
    } else {
        (Duration::from_millis(250), Duration::from_secs(2))
    };
    let lines = RedisConfig::default().line("appendonly yes").line("appendfsync always");
    let mut server = RedisServer::start(lines);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(push_all(&server, jobs));

    let (mut rng, mut born) = (Rng::with_seed(seed()), seed() * 100);
    let mut workers: Vec<Worker<Log>> = (0..WORKERS).map(|_| worker(&server, &mut born)).collect();
    let (began, mut logs, mut away) = (Instant::now(), Vec::new(), None);
    let most = PATIENCE + for_long * 3;
    let mut next_kill = began + every;
    let mut still = Vec::new();
    loop {
        let asked = (now_us(), Instant::now());
        if ended(&server) >= jobs {
            break;
        }
        if asked.1.elapsed() >= STILL {
            still.push((asked.0, now_us()));
        }
        assert!(began.elapsed() < most, "only {} of {jobs} have ended", ended(&server));
        if away.is_none() && began.elapsed() > for_long / 2 {
            let from = now_us();
            server.restart();
            away = Some((from, now_us() + SLACK_US));
        }
        if began.elapsed() < for_long && Instant::now() >= next_kill {
            next_kill += every;
            let chosen = rng.usize(0..WORKERS);
            logs.push(std::mem::replace(&mut workers[chosen], worker(&server, &mut born)).kill9());
        }
        // Looks now and then; kills come at their own times.
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    let kills = logs.len();
    logs.extend(workers.into_iter().map(Worker::finish));

    let mut acked: Vec<u64> = server.command(&["LRANGE", "done", "0", "-1"]);
    let letters: Vec<String> = server.command(&["LRANGE", "dlq:storm", "0", "-1"]);
    let letters: Vec<Value> = letters.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
    let mut dead: Vec<u64> = letters.iter().filter_map(|letter| letter["original_job"].as_u64()).collect();
    assert_eq!(dead.len(), letters.len(), "{letters:?}");
    let (acks, deaths) = (acked.len(), dead.len());
    let mut by_crash = 0;
    for letter in &letters {
        let poison = letter["original_job"].as_u64().is_some_and(is_poison);
        let error = letter["error"].as_str().expect("a reason");
        // A job may also have been at work in five processes that were killed.
        by_crash += usize::from(error != POISON);
        assert!(poison || error != POISON, "{letter}");
        assert!(!error.is_empty(), "{letter}");
        assert_eq!(
            (&letter["attempt_count"], &letter["queue_name"]),
            (&Value::from(5), &Value::from("storm"))
        );
    }
    acked.sort_unstable();
    dead.sort_unstable();
    assert!(acked.windows(2).all(|pair| pair[0] != pair[1]), "a job was acked twice");
    assert!(acked.iter().all(|job| !is_poison(*job)), "a job that always fails was acked");
    acked.append(&mut dead);
    acked.sort_unstable();
    assert_eq!(acked, (0..jobs).collect::<Vec<_>>(), "each job has one end");
    for side in ["storm", "{storm}:leases", "{storm}:held", "{storm}:jobs", "{storm}:delayed"] {
        assert_eq!(server.command::<i64>(&["EXISTS", side]), 0, "{side} is left behind");
    }

    let told =
        explain(&logs, away.expect("it was restarted"), &still).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!(
        "{jobs} jobs in {took:?}: {kills} kills, {acks} acked, {deaths} dead ({by_crash} of a crash), stood still {} times, {told:#?}",
        still.len()
    );
    assert_eq!(told.jobs as u64, jobs, "every job was handed over");
    assert!(kills >= 5 && told.cut_off > 0, "kills landed inside work: {told:?}");
}
