//! A store that ran while the machine's clock was ahead, and is opened again when it is right: nothing lives longer than
//! it was declared to. And a clock so late that scripts cannot count with it.
#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quaymaster::batch::Add;
use quaymaster::clean::{Ask, Mode};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::limit::{Charge, Verdict};
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::queue::{Ack, Claim, Push};
use quaymaster::schema::{Source, load};
use quaymaster::{Code, Engine, Quaymaster};
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

const SCHEMA: &str = "
[schema]
name = \"jumps\"
owner = \"tests\"
[lock.door]
key = \"door:{id}\"
ttl = \"30s\"
[queue.work]
max_size = 1000
lease = \"30s\"
[queue.later]
max_size = 1000
[queue.closed]
max_size = 1000
[idempotency.pay]
key = \"pay:{id}\"
ttl = \"1h\"
in_progress_ttl = \"30s\"
[queue.ranked]
max_size = 1000
order = \"priority\"
[limit.log]
key = \"log:{id}\"
algorithm = \"sliding_log\"
limit = 2
window = \"1m\"
[limit.bucket]
key = \"bucket:{id}\"
algorithm = \"token_bucket\"
limit = 2
window = \"1m\"
[limit.window]
key = \"window:{id}\"
algorithm = \"sliding_window\"
limit = 2
window = \"1m\"
[limit.fixed]
key = \"fixed:{id}\"
algorithm = \"fixed_window\"
limit = 2
window = \"1m\"
[batch.pair]
key = \"pair:{id}:current\"
by = \"id\"
to = \"closed\"
window = \"30s\"
ttl = \"1h\"
colocate = \"closed\"
";

const NOW_US: i64 = 1_794_744_020_000_000;
const DAY_US: i64 = 86_400_000_000;
const SECOND_US: i64 = 1_000_000;
const LIMITS: [&str; 4] = ["log", "bucket", "window", "fixed"];
const ID: &[(&str, &str)] = &[("id", "1")];

fn bind(store: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "jumps.toml", text: SCHEMA }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Quaymaster::new(Arc::new(schema), store)
}

async fn open(dir: &Path, time: &Arc<AtomicI64>) -> (Arc<EmbeddedStore>, Quaymaster) {
    let options = EmbeddedOptions { clock: Clock::Manual(Arc::clone(time)), ..EmbeddedOptions::default() };
    let store = Arc::new(EmbeddedStore::open(dir, options).await.unwrap());
    (Arc::clone(&store), bind(store))
}

async fn take(quaymaster: &Quaymaster, limit: &str) -> Verdict {
    quaymaster.limit(limit).unwrap().take(ID, Charge::default()).await.unwrap()
}

/// Uses everything there is, at one moment.
async fn use_all(quaymaster: &Quaymaster) {
    let locked = quaymaster.lock("door").unwrap().acquire(ID, Acquire::default()).await.unwrap();
    assert!(matches!(locked, Acquired::Ours(_)), "{locked:?}");
    let work = quaymaster.queue("work").unwrap();
    work.push(Push::one("1")).await.unwrap();
    assert_eq!(work.claim(Claim::default()).await.unwrap().len(), 1);
    let delayed = Push { delay: Some(Duration::from_secs(30)), ..Push::one("2") };
    quaymaster.queue("later").unwrap().push(delayed).await.unwrap();
    let begun = quaymaster.idempotency("pay").unwrap().begin(ID, Begin::default()).await.unwrap();
    assert!(matches!(begun, Begun::Started(_)), "{begun:?}");
    for limit in LIMITS {
        assert!(take(quaymaster, limit).await.is_allowed(), "{limit}");
        assert!(take(quaymaster, limit).await.is_allowed(), "{limit}");
    }
    let batch = quaymaster.batch("pair").unwrap();
    assert_eq!(batch.add(ID, Add { item: b"1", ..Add::default() }).await.unwrap().size, 1);
}

/// What is still held of it.
async fn held(quaymaster: &Quaymaster) -> Vec<&'static str> {
    let mut held = Vec::new();
    let locked = quaymaster.lock("door").unwrap().acquire(ID, Acquire::default()).await.unwrap();
    if let Acquired::Held { retry_after, .. } = locked {
        assert!(retry_after <= Duration::from_secs(30), "the lock: {retry_after:?}");
        held.push("lock");
    }
    for queue in ["work", "later"] {
        let queue = quaymaster.queue(queue).unwrap();
        if queue.claim(Claim::default()).await.unwrap().is_empty() {
            held.push(if queue.name() == "work" { "lease" } else { "delay" });
        }
    }
    let begun = quaymaster.idempotency("pay").unwrap().begin(ID, Begin::default()).await.unwrap();
    if matches!(begun, Begun::InProgress { .. }) {
        held.push("idempotency");
    }
    let swept = quaymaster.batch("pair").unwrap().sweep().await.unwrap();
    if swept.closed == 0 {
        held.push("batch");
    }
    for limit in LIMITS {
        if !take(quaymaster, limit).await.is_allowed() {
            held.push(limit);
        }
    }
    held
}

#[tokio::test]
async fn after_a_run_a_day_ahead_nothing_lives_longer_than_declared() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicI64::new(NOW_US + DAY_US));
    let (store, quaymaster) = open(dir.path(), &time).await;
    use_all(&quaymaster).await;
    store.close().await.unwrap();
    drop((store, quaymaster));

    time.store(NOW_US, Ordering::SeqCst);
    let (store, quaymaster) = open(dir.path(), &time).await;
    assert_eq!(store.deployment().await.unwrap().future_data, Some(1));
    let all = ["lock", "lease", "delay", "idempotency", "batch", "log", "bucket", "window", "fixed"];
    assert_eq!(held(&quaymaster).await, all, "nothing has ended yet");
    time.fetch_add(32 * SECOND_US, Ordering::SeqCst);
    assert_eq!(held(&quaymaster).await, ["log", "window", "fixed"], "half a minute of these is left");
    store.close().await.unwrap();
    drop((store, quaymaster));

    // Once is enough.
    time.fetch_add(100 * SECOND_US, Ordering::SeqCst);
    let (store, quaymaster) = open(dir.path(), &time).await;
    assert_eq!(store.deployment().await.unwrap().future_data, Some(0));
    for limit in LIMITS {
        assert!(take(&quaymaster, limit).await.is_allowed(), "{limit}");
    }
}

#[tokio::test]
async fn what_is_used_on_after_a_run_a_day_ahead_ends_as_declared_too() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicI64::new(NOW_US + DAY_US));
    let (store, quaymaster) = open(dir.path(), &time).await;
    assert!(take(&quaymaster, "log").await.is_allowed());
    let batch = quaymaster.batch("pair").unwrap();
    assert_eq!(batch.add(ID, Add { item: b"1", ..Add::default() }).await.unwrap().size, 1);
    store.close().await.unwrap();
    drop((store, quaymaster));

    time.store(NOW_US, Ordering::SeqCst);
    let (_store, quaymaster) = open(dir.path(), &time).await;
    let batch = quaymaster.batch("pair").unwrap();
    assert!(take(&quaymaster, "log").await.is_allowed(), "one of two is left");
    assert_eq!(batch.add(ID, Add { item: b"2", ..Add::default() }).await.unwrap().size, 2);
    assert!(!take(&quaymaster, "log").await.is_allowed());
    // Every 10 s an item comes: the window ends all the same.
    let mut closed = 0;
    for _ in 0..4 {
        time.fetch_add(10 * SECOND_US, Ordering::SeqCst);
        closed += batch.sweep().await.unwrap().closed;
        let _ = batch.add(ID, Add { item: b"3", ..Add::default() }).await.unwrap();
    }
    assert_eq!(closed, 1, "a window of 30 s ends within 40 s");
    time.fetch_add(21 * SECOND_US, Ordering::SeqCst);
    for taken in [0, 1] {
        assert!(
            take(&quaymaster, "log").await.is_allowed(),
            "{taken} of 2: what was taken a minute ago has left"
        );
    }
}

/// What a run in the year 2300 has left, by a version that did not refuse such a clock.
async fn leave_a_number_of_the_year_2300(quaymaster: &Quaymaster) {
    for (queue, priority) in [("work", None), ("ranked", Some(1.0))] {
        let queue = quaymaster.queue(queue).unwrap();
        queue.push(Push { priority, ..Push::many(["1", "2", "3"].map(Bytes::from).to_vec()) }).await.unwrap();
        let meta = format!("{{{}}}:meta", queue.name());
        let late: &[&[u8]] = &[b"HSET", meta.as_bytes(), b"sequence", b"10413792000000000"];
        command(&**quaymaster.engine(), meta.as_bytes(), late).await.unwrap();
    }
}

async fn every_job_is_claimed_after_a_clean_up(quaymaster: &Quaymaster) {
    let two = ["work", "ranked"].map(|name| quaymaster.queue(name).unwrap());
    for queue in two {
        assert_eq!(queue.claim(Claim::default()).await.unwrap_err().code, Code::KeyMalformed);
    }
    let ask = Ask { mode: Mode::Apply, ..Ask::default() };
    let report = quaymaster.clean(ask, |_| ()).await.unwrap();
    assert_eq!((report.unusable, report.done), (2, 2), "{report:?}");
    for queue in two {
        let jobs = queue.claim(Claim { count: 9, ..Claim::default() }).await.unwrap();
        assert_eq!(jobs.iter().map(|job| &job.payload[..]).collect::<Vec<_>>(), [b"1", b"2", b"3"]);
        assert!(jobs.iter().all(|job| job.id.len() == 16), "{jobs:?}");
        let acked = queue.ack(Ack::of(jobs.into_iter().map(|job| job.lease).collect())).await.unwrap();
        assert_eq!(acked.acked, 3);
    }
}

#[tokio::test]
async fn a_queue_that_once_ran_in_the_year_2300_is_repaired_by_clean_in_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicI64::new(NOW_US));
    let (store, quaymaster) = open(dir.path(), &time).await;
    leave_a_number_of_the_year_2300(&quaymaster).await;
    store.close().await.unwrap();
    drop((store, quaymaster));
    let (_store, quaymaster) = open(dir.path(), &time).await;
    every_job_is_claimed_after_a_clean_up(&quaymaster).await;
}

#[tokio::test]
async fn a_queue_that_once_ran_in_the_year_2300_is_repaired_by_clean_on_redis() {
    let server = RedisServer::start(RedisConfig::default());
    let store = RedisStore::connect(RedisOptions::from_url(&server.url()).unwrap()).await.unwrap();
    let quaymaster = bind(Arc::new(store));
    leave_a_number_of_the_year_2300(&quaymaster).await;
    every_job_is_claimed_after_a_clean_up(&quaymaster).await;
}

#[tokio::test]
async fn a_store_whose_clock_is_past_what_scripts_count_with_is_not_opened_and_runs_nothing() {
    let year_2300 = Arc::new(AtomicI64::new(10_413_792_000 * SECOND_US));
    let late = EmbeddedOptions { clock: Clock::Manual(Arc::clone(&year_2300)), ..EmbeddedOptions::default() };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(EmbeddedStore::open(dir.path(), late.clone()).await.unwrap_err().code, Code::StoreClock);
    let refused = EmbeddedStore::memory(late).await.unwrap_err();
    assert_eq!(refused.code, Code::StoreClock);
    assert!(refused.detail.contains("2255"), "{refused}");

    let time = Arc::new(AtomicI64::new(NOW_US));
    let (_store, quaymaster) = open(dir.path(), &time).await;
    time.store(year_2300.load(Ordering::SeqCst), Ordering::SeqCst);
    let refused = quaymaster.queue("work").unwrap().push(Push::one("1")).await.unwrap_err();
    assert_eq!(refused.code, Code::StoreClock);
    time.store(NOW_US, Ordering::SeqCst);
    quaymaster.queue("work").unwrap().push(Push::one("1")).await.unwrap();
}

/// A store's clock is looked at every few seconds, and of a cluster one node's: the script itself must see it.
#[tokio::test]
async fn a_clock_that_jumps_too_far_between_two_looks_at_it_lets_no_script_write() {
    for binary in [Binary::Redis7, Binary::Redis62, Binary::Valkey9] {
        let clock = HeldClock::frozen(NOW_US);
        let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::of(binary) });
        let mut options = RedisOptions::from_url(&server.url()).unwrap();
        options.refresh = Duration::from_secs(3_600);
        let store = Arc::new(RedisStore::connect(options).await.unwrap());
        let quaymaster = bind(Arc::clone(&store) as Arc<dyn Engine>);
        let (door, ranked) = (quaymaster.lock("door").unwrap(), quaymaster.queue("ranked").unwrap());
        let push = || Push { priority: Some(1.0), ..Push::one("1") };
        clock.freeze(9_100_000_000_000_000);
        let acquired = door.acquire(ID, Acquire::default()).await.map(drop);
        let pushed = ranked.push(push()).await.map(drop);
        for refused in [acquired, pushed] {
            let refused = refused.unwrap_err();
            assert_eq!(
                (refused.code, refused.may_have_run),
                (Code::StoreClock, false),
                "{binary:?}: {refused}"
            );
            assert!(refused.detail.contains("2255"), "{refused}");
        }
        assert_eq!(server.command::<u64>(&["DBSIZE"]), 0, "{binary:?}");
        clock.freeze(NOW_US);
        // Valkey looks at the clock only now and then, and counts on from there.
        let mut looks = 0..10_000;
        while store.time_us().await.unwrap() > NOW_US + 60_000_000 {
            assert!(looks.next().is_some(), "{binary:?} does not see its clock");
            tokio::task::yield_now().await;
        }
        let Acquired::Ours(lease) = door.acquire(ID, Acquire::default()).await.unwrap() else {
            panic!("nobody holds it")
        };
        assert!(lease.fence < 9_000_000_000_000_000, "{lease:?}");
        ranked.push(push()).await.unwrap();
        assert_eq!(ranked.claim(Claim::default()).await.unwrap()[0].payload.as_ref(), b"1");
    }
}
