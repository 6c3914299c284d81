//! Locks under processes that are stopped past their leases and killed at any moment: thousands of random
//! histories, in none of which two hold a lock at once, a fence falls or a waiter starves.
//!
//! A hundred histories a store by default, three thousand under `QUAYMASTER_SOAK=1`; `QUAYMASTER_HISTORIES` and
//! `QUAYMASTER_SEED` choose others. Which processes meet when is the machine's doing: a seed gives the same
//! intentions, not the same interleaving.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quaymaster::Quaymaster;
use quaymaster::lock::{Acquire, Acquired, Hold, Lock, Released, Renewed};
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::crew::{Crew, PATIENCE, Watch};
use quaymaster_testkit::differential::count;
use quaymaster_testkit::lock_history::{Log, SCHEMA, Tally, check};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

/// Workers on `store`, stopped and killed at random, until so many histories are made.
fn roam(store: &str, histories: u64, defect: &[&str]) -> Vec<Log> {
    // Every lock that was held is a history.
    let held: Arc<Mutex<HashSet<String>>> = Arc::default();
    let watch: Watch = {
        let held = held.clone();
        Arc::new(move |line| {
            let mut words = line.split_whitespace();
            if let (Some(_), Some(lock), Some("ours")) = (words.next(), words.next(), words.next()) {
                held.lock().insert(lock.to_owned());
            }
        })
    };
    let most = PATIENCE + Duration::from_millis(200) * u32::try_from(histories).expect("not as many");
    let program = env!("CARGO_BIN_EXE_lock_worker");
    let crew = Crew { program, store, defect, past_lease_ms: 160..400, most };
    crew.roam(&watch, || held.lock().len() as f64 / histories as f64)
}

fn holds(store: &str, url: &str) {
    let histories = count(100, 3000);
    let logs = roam(url, histories, &[]);
    let tally = check(&logs).unwrap_or_else(|wrong| panic!("{store}: {wrong}"));
    println!("{store}: {} killed, {tally:?}", logs.iter().filter(|log| log.killed).count());
    meaningful(&tally, histories);
}

/// A run in which nothing happened proves nothing.
fn meaningful(tally: &Tally, histories: u64) {
    assert!(tally.histories as u64 >= histories, "{tally:?}");
    for seen in [tally.leases / 4, tally.waited, tally.renewed, tally.lost] {
        assert!(seen as u64 >= histories / 10, "{tally:?}");
    }
    assert!(tally.raised > 0, "{tally:?}");
}

#[test]
fn on_disk_every_history_holds_through_the_owners_death() {
    let folder = tempfile::tempdir().expect("a folder");
    holds("embedded", &format!("embedded:{}", folder.path().display()));
}

#[test]
fn on_redis_7_every_history_holds() {
    let server = RedisServer::start(RedisConfig::default());
    holds("redis7", &server.url());
}

#[test]
fn on_valkey_9_every_history_holds() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9));
    holds("valkey9", &server.url());
}

#[test]
fn on_a_cluster_every_history_holds() {
    let cluster = Cluster::start(ClusterConfig::default());
    holds("cluster", &cluster.url());
}

/// What is found when `new` stands in place of `old` in the scripts of `operation`.
fn found(operation: &str, old: &str, new: &str) -> String {
    let server = RedisServer::start(RedisConfig::default());
    let logs = roam(&server.url(), 100, &[operation, old, new]);
    let wrong = check(&logs).expect_err("the defect must be found");
    println!("{operation}: {wrong}");
    wrong
}

#[test]
fn a_renewal_that_compares_no_token_is_found() {
    let wrong = found("lock.renew", r#"if redis.call("GET", lock) ~= token then return { "lost" } end"#, "");
    assert!(wrong.contains("two holders") || wrong.contains("had not ended"), "{wrong}");
}

#[test]
fn a_release_that_compares_no_token_is_found() {
    let compare = r#"if redis.call("GET", lock) ~= token then return "lost" end"#;
    let wrong = found("lock.release", compare, "");
    assert!(wrong.contains("two holders") || wrong.contains("had not ended"), "{wrong}");
}

#[test]
fn a_fence_that_forgets_the_last_one_is_found() {
    let wrong = found("lock.", "math.max(number + 1, now_us)", "now_us");
    assert!(wrong.contains("the fence fell"), "{wrong}");
}

#[test]
fn a_lock_that_lets_others_barge_in_is_found() {
    let wrong = found("lock.", r#"if head and head ~= token then return "held", left_ms, dead end"#, "");
    assert!(wrong.contains("starves") || wrong.contains("in vain"), "{wrong}");
}

/// What the lock protects: a file that remembers the highest fence it was written under.
struct Ledger(std::path::PathBuf);

impl Ledger {
    fn write(&self, fence: u64, text: &str) -> Result<(), u64> {
        let mut held = String::new();
        if let Ok(mut file) = std::fs::File::open(&self.0) {
            file.read_to_string(&mut held).expect("the file can be read");
        }
        let highest = held.split_whitespace().next().map_or(0, |fence| fence.parse().expect("a fence"));
        if fence < highest {
            return Err(highest);
        }
        std::fs::write(&self.0, format!("{fence} {text}")).expect("the file can be written");
        Ok(())
    }
}

/// A node of its own on the server.
async fn node(server: &RedisServer) -> Lock {
    let source = Source { name: "history.toml", text: SCHEMA };
    let schema = load(&[source], &|_| None).schema.expect("a good schema");
    let options = StoreOptions::from_url(&server.url(), Path::new(".")).expect("a store");
    let engine = open(options).await.expect("the server is there");
    Quaymaster::new(Arc::new(schema), engine).lock("history").expect("declared").clone()
}

const FENCED: &[(&str, &str)] = &[("id", "fenced")];

/// A node that stands still knows afterwards what it was told before, and no more.
#[tokio::test]
async fn a_holder_stopped_past_its_lease_cannot_write_with_its_old_fence() {
    let server = RedisServer::start(RedisConfig::default());
    let folder = tempfile::tempdir().expect("a folder");
    let (ledger, key) = (Ledger(folder.path().join("ledger")), FENCED);
    let (slow, quick) = (node(&server).await, node(&server).await);
    let short = Acquire { ttl: Some(Duration::from_millis(50)), ..Acquire::default() };
    let Acquired::Ours(old) = slow.acquire(key, short).await.expect("acquire") else { panic!("free") };
    ledger.write(old.fence, "first").expect("it holds the lock");
    // The slow one stands still; by the store's clock its lease ends, and another takes the lock.
    let patient = Acquire { wait: PATIENCE, ..Acquire::default() };
    let Acquired::Ours(new) = quick.acquire(key, patient).await.expect("acquire") else { panic!("its turn") };
    assert!(new.at_us >= old.at_us + 49_000, "before the first lease had ended");
    ledger.write(new.fence, "second").expect("it holds the lock");
    // Awake again, it believes in its lease: the resource does not.
    assert_eq!(ledger.write(old.fence, "late"), Err(new.fence));
    assert_eq!(slow.renew(key, &old.token, None).await.expect("renew"), Renewed::Lost);
    assert_eq!(slow.release(key, &old.token, None).await.expect("release"), Released::Lost);
    ledger.write(new.fence, "third").expect("the later holder is not disturbed");
    assert_eq!(quick.release(key, &new.token, None).await.expect("release"), Released::Released);
}

/// The store stands still: nobody can say that the lease is lost, and the holder's own clock does.
#[tokio::test]
async fn a_holding_is_lost_by_its_own_clock_when_the_store_is_silent() {
    let server = RedisServer::start(RedisConfig::default());
    let lock = node(&server).await;
    let how = Acquire { ttl: Some(Duration::from_millis(400)), ..Acquire::default() };
    let Hold::Ours(holding) = lock.hold(FENCED, how).await.expect("hold") else { panic!("free") };
    server.pause();
    tokio::time::timeout(PATIENCE, holding.lost()).await.expect("it is told");
    assert!(holding.is_lost());
    server.resume();
    // The store never saw a renewal after that: by its clock too the lease has ended or will.
    let Acquired::Ours(next) =
        lock.acquire(FENCED, Acquire { wait: PATIENCE, ..Acquire::default() }).await.expect("acquire")
    else {
        panic!("the lost lease is held on to")
    };
    assert!(next.fence > holding.fence());
    assert_eq!(holding.release().await.expect("release"), Released::Lost);
}
