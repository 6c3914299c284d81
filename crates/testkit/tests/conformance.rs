//! The conformance suite on every store: one test per case, or one per store where starting it is slow.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use libtest_mimic::{Arguments, Trial};
use quaymaster_store::embedded::{Clock, Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{Case, Subject, all, run_all};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

/// A moment in the middle of an hour and a minute, so that pinned clocks cross no bucket by themselves.
const PINNED_US: i64 = 1_794_699_030_000_000;

fn main() {
    let mut arguments = Arguments::from_args();
    // Every case starts a store of its own; a few at a time are enough for two cores.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let mut trials = Vec::new();
    for store in ["memory", "pinned", "owner", "attached", "redis7", "valkey9"] {
        for case in all() {
            trials.push(Trial::test(format!("{store}::{}", case.name), move || {
                one(store, case);
                Ok(())
            }));
        }
    }
    for store in ["redis62", "cluster7", "cluster9"] {
        trials.push(Trial::test(format!("{store}::every_case"), move || {
            every(store);
            Ok(())
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn one(store: &'static str, case: &'static Case) {
    runtime().block_on(async {
        let subject = subject(store).await;
        (case.run)(&subject.apart(case.name)).await;
    });
}

fn every(store: &'static str) {
    runtime().block_on(async { run_all(&subject(store).await).await });
}

async fn subject(name: &'static str) -> Subject {
    let options = EmbeddedOptions { durability: Durability::Always, ..EmbeddedOptions::default() };
    match name {
        "memory" => embedded(name, EmbeddedStore::memory(options).await.expect("memory"), None, Arc::new(())),
        "pinned" => {
            let clock = Arc::new(AtomicI64::new(PINNED_US));
            let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..options };
            embedded(name, EmbeddedStore::memory(options).await.expect("memory"), Some(clock), Arc::new(()))
        }
        "owner" => {
            let folder = tempfile::tempdir().expect("a folder");
            let store = EmbeddedStore::open(folder.path(), options).await.expect("owner");
            embedded(name, store, None, Arc::new(folder))
        }
        "attached" => {
            let folder = tempfile::tempdir().expect("a folder");
            let owner = EmbeddedStore::open(folder.path(), options.clone()).await.expect("owner");
            let store = EmbeddedStore::open(folder.path(), options).await.expect("attached");
            embedded(name, store, None, Arc::new((owner, folder)))
        }
        "redis7" => redis(name, Binary::Redis7).await,
        "valkey9" => redis(name, Binary::Valkey9).await,
        "redis62" => redis(name, Binary::Redis62).await,
        "cluster7" => cluster(name, Binary::Redis7).await,
        "cluster9" => cluster(name, Binary::Valkey9).await,
        other => panic!("no store {other}"),
    }
}

fn embedded(
    name: &'static str,
    store: EmbeddedStore,
    clock: Option<Arc<AtomicI64>>,
    keep: Arc<dyn Any + Send + Sync>,
) -> Subject {
    Subject { name, engine: Arc::new(store), clock, prefix: String::new(), keep }
}

async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(RedisOptions::from_url(url).expect("a good URL")).await.expect("connect")
}

async fn redis(name: &'static str, binary: Binary) -> Subject {
    let server = RedisServer::start(RedisConfig::of(binary));
    let engine = Arc::new(connect(&server.url()).await);
    Subject { name, engine, clock: None, prefix: String::new(), keep: Arc::new(server) }
}

async fn cluster(name: &'static str, binary: Binary) -> Subject {
    let cluster = Cluster::start(ClusterConfig { binary, ..ClusterConfig::default() });
    let engine = Arc::new(connect(&cluster.url()).await);
    Subject { name, engine, clock: None, prefix: String::new(), keep: Arc::new(cluster) }
}
