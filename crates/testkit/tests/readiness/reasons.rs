//! Each reason why no write succeeds, on a store that answers every PING.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::{Code, Engine};
use quaymaster_store::embedded::{Bug, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::RedisOptions;
use quaymaster_testkit::conformance::{command, command_int};
use quaymaster_testkit::servers::{
    Binary, Cluster, ClusterConfig, RedisConfig, RedisServer, Sentinel, SentinelConfig,
};

use crate::scene::{Scene, until};

const LOST: &str = "not ready: ";
const BACK: &str = "ready: the store accepts writes again";

/// Ready, then not for this reason, then ready again; each told once.
async fn comes_and_goes(scene: &Scene, code: &str, begin: impl FnOnce(), end: impl FnOnce()) {
    comes_and_goes_by(scene, code, async || begin(), async || end()).await;
}

async fn comes_and_goes_by(scene: &Scene, code: &str, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) {
    scene.is_ready().await;
    let (lost, back) = (scene.logged(LOST).len(), scene.logged(BACK).len());
    begin().await;
    scene.is_not_ready(code).await;
    let status = scene.json("/v1/status").await;
    let warned =
        status["warnings"].as_array().unwrap().iter().any(|told| told.as_str().unwrap().contains(code));
    assert!(warned, "{}", status["warnings"]);
    assert!(scene.get("/metrics").await.1.contains("\nquaymaster_store_ready 0\n"));
    end().await;
    scene.is_ready().await;
    assert_eq!(scene.logged(LOST).len(), lost + 1, "{:?}", scene.logged(""));
    assert_eq!(scene.logged(BACK).len(), back + 1, "{:?}", scene.logged(""));
}

async fn every_reason(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary));
    let primary = RedisServer::start(RedisConfig::of(binary));
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all"]);
    let scene = Scene::on(&format!("redis://svc:pw@{}", server.address())).await;
    let set = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);

    comes_and_goes(&scene, "store.out_of_memory", || set("maxmemory", "1"), || set("maxmemory", "0")).await;
    comes_and_goes(
        &scene,
        "store.no_replicas",
        || set("min-replicas-to-write", "1"),
        || set("min-replicas-to-write", "0"),
    )
    .await;
    comes_and_goes(
        &scene,
        "store.permission",
        || server.command::<()>(&["ACL", "SETUSER", "svc", "resetkeys", "~calls:*"]),
        || server.command::<()>(&["ACL", "SETUSER", "svc", "allkeys"]),
    )
    .await;
    let at = primary.address();
    let (ip, port) = (at.ip().to_string(), at.port().to_string());
    comes_and_goes(
        &scene,
        "store.read_only",
        || server.command::<()>(&["REPLICAOF", &ip, &port]),
        || server.command::<()>(&["REPLICAOF", "NO", "ONE"]),
    )
    .await;
    // A replica that takes writes forgets them with its next synchronisation.
    set("replica-read-only", "no");
    comes_and_goes(
        &scene,
        "store.read_only",
        || server.command::<()>(&["REPLICAOF", &ip, &port]),
        || server.command::<()>(&["REPLICAOF", "NO", "ONE"]),
    )
    .await;
    let blocked = server.folder().join("dump.rdb");
    comes_and_goes(
        &scene,
        "store.misconf",
        || {
            let _ = std::fs::remove_file(&blocked);
            set("save", "3600 1");
            // A folder where the file should be: the save fails whoever runs the test.
            std::fs::create_dir(&blocked).unwrap();
            std::fs::write(blocked.join("x"), "").unwrap();
            let _ = server.try_command::<()>(&["SAVE"]);
            let _ = server.try_command::<()>(&["BGSAVE"]);
        },
        || {
            std::fs::remove_dir_all(&blocked).unwrap();
            server.command::<()>(&["SAVE"]);
        },
    )
    .await;
}

/// No page waits for somebody to ask `/readyz`: a write is tried where the last try is older than a second.
#[tokio::test]
async fn metrics_and_status_follow_the_store_though_nobody_asks_for_readyz() {
    let server = RedisServer::start(RedisConfig::default());
    let scene = Scene::on(&server.url()).await;
    let accepts = async |replicas: &str| {
        server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
        // Then no try from before counts.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    };
    let ready = async || scene.get("/metrics").await.1.contains("\nquaymaster_store_ready 1\n");
    let warned =
        async || scene.json("/v1/status").await["warnings"].to_string().contains("store.no_replicas");
    assert!(ready().await && !warned().await);
    accepts("1").await;
    assert!(!ready().await);
    accepts("0").await;
    assert!(ready().await);
    accepts("1").await;
    assert!(warned().await);
    accepts("0").await;
    assert!(!warned().await);
    assert_eq!(scene.logged(LOST).len(), 2, "{:?}", scene.logged(""));
    assert_eq!(scene.logged(BACK).len(), 2, "{:?}", scene.logged(""));
}

#[tokio::test]
async fn every_reason_is_told_on_redis_7() {
    every_reason(Binary::Redis7).await;
}

#[tokio::test]
async fn every_reason_is_told_on_valkey() {
    every_reason(Binary::Valkey9).await;
}

#[tokio::test]
async fn every_reason_is_told_on_redis_6_2() {
    every_reason(Binary::Redis62).await;
}

#[tokio::test]
async fn the_status_tells_how_many_connections_were_tried_and_how_many_failed() {
    let mut server = RedisServer::start(RedisConfig::default());
    let scene = Scene::on(&server.url()).await;
    scene.is_ready().await;
    let store = scene.json("/v1/status").await["store"].clone();
    assert!(store["connect_attempts"].as_u64().unwrap() >= 1, "{store}");
    assert_eq!((&store["connect_failures"], &store["connect_success_rate"]), (&0.into(), &1.0.into()));
    server.kill9();
    until("a connection has failed", async || {
        let store = scene.json("/v1/status").await["store"].clone();
        let (tried, failed) =
            (store["connect_attempts"].as_f64().unwrap(), store["connect_failures"].as_f64().unwrap());
        let rate = store["connect_success_rate"].as_f64().unwrap();
        assert!((rate - (tried - failed) / tried).abs() < 1e-9, "{store}");
        failed >= 1.0
    })
    .await;
    assert!(scene.get("/metrics").await.1.contains("\nquaymaster_store_connect_success_ratio 0."));
}

#[tokio::test]
async fn a_refused_probe_names_its_key() {
    let server = RedisServer::start(RedisConfig::default());
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">pw", "~calls:*", "~{calls:*", "&*", "+@all"]);
    let mut options = RedisOptions::from_url(&format!("redis://svc:pw@{}", server.address())).unwrap();
    options.own_prefix = "mine:".into();
    let scene = Scene::with(options).await;
    let told = scene.is_not_ready("store.permission").await;
    assert!(told["detail"].as_str().unwrap().contains("writing mine:probe: NOPERM"), "{told}");
    server.command::<()>(&["ACL", "SETUSER", "svc", "~mine:*"]);
    scene.is_ready().await;
    assert!(
        (1..=10_000).contains(&server.command::<i64>(&["PTTL", "mine:probe"])),
        "the probe's key ends by itself"
    );
}

#[tokio::test]
async fn a_store_that_goes_and_comes_back_is_told_once_each() {
    let mut server = RedisServer::start(RedisConfig::default());
    let scene = Scene::on(&server.url()).await;
    scene.is_ready().await;
    let attempts = || scene.quaymaster.engine().health().connect_failures;
    server.kill9();
    until("/readyz is 503", async || scene.get("/readyz").await.0 == 503).await;
    until("the store was tried often", async || attempts() > 5).await;
    server.restart();
    scene.is_ready().await;
    let told: Vec<String> = scene.logged("").into_iter().filter(|line| !line.contains("serving")).collect();
    assert_eq!(scene.logged(LOST).len(), 1, "{told:?}");
    assert_eq!(scene.logged(BACK).len(), 1, "{told:?}");
    assert!(told.len() <= 4, "no flood: {told:?}");
}

#[tokio::test]
async fn a_failover_by_sentinels_is_told_once_and_ends_by_itself() {
    let mut group = Sentinel::start(SentinelConfig::default());
    let scene = Scene::on(&group.url()).await;
    scene.is_ready().await;
    let was = group.primary_port();
    // A failover that is quicker than the next try would be told of by nobody.
    group.never_fail_over();
    group.servers[0].kill9();
    until("/readyz is 503", async || scene.get("/readyz").await.0 == 503).await;
    // A lost connection is a 503 at once; only a try is logged.
    until("the loss is told", async || scene.logged(LOST).len() == 1).await;
    group.fail_over_again();
    scene.is_ready().await;
    // The sentinel that is asked here may hear of it last.
    until("every sentinel knows", async || group.primary_port() != was).await;
    assert_eq!(scene.logged(LOST).len(), 1, "{:?}", scene.logged(""));
    assert_eq!(scene.logged(BACK).len(), 1, "{:?}", scene.logged(""));
}

#[tokio::test]
async fn one_primary_of_a_cluster_that_takes_no_writes_is_enough() {
    let cluster = Cluster::start(ClusterConfig::default());
    let scene = Scene::on(&cluster.url()).await;
    for node in &cluster.nodes {
        comes_and_goes(
            &scene,
            "store.out_of_memory",
            || node.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]),
            || node.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]),
        )
        .await;
        let keys: Vec<String> = node.command(&["KEYS", "quaymaster:probe:*"]);
        assert_eq!(keys.len(), 1, "a key of its own: {keys:?}");
    }
}

async fn embedded(options: EmbeddedOptions) -> (Arc<EmbeddedStore>, Scene) {
    let store = Arc::new(EmbeddedStore::memory(options).await.unwrap());
    let engine = Arc::clone(&store) as Arc<dyn Engine>;
    (store, Scene::of(|| async { engine }).await)
}

#[tokio::test]
async fn an_embedded_store_at_its_bound_is_not_ready_and_is_again_by_itself() {
    let options = EmbeddedOptions { max_memory_bytes: 10_000, ..EmbeddedOptions::default() };
    let (store, scene) = embedded(options).await;
    let big = "x".repeat(20_000);
    comes_and_goes_by(
        &scene,
        "store.out_of_memory",
        async || assert_eq!(command_int(&*store, &["APPEND", "calls:big", &big]).await, 20_000),
        async || assert_eq!(command_int(&*store, &["DEL", "calls:big"]).await, 1),
    )
    .await;
}

#[tokio::test]
async fn an_embedded_store_whose_disk_hangs_is_not_ready_and_is_again_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let open = async || Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap());
    let store = open().await;
    let attached = open().await;
    let engine = Arc::clone(&store) as Arc<dyn Engine>;
    let scene = Scene::of(|| async { engine }).await;
    let mut writing = None;
    comes_and_goes_by(
        &scene,
        "store.timed_out",
        async || {
            store.seed_bug(Some(Bug::CommitsHang));
            // A commit blocks the thread that makes it, and this one answers HTTP.
            let store = Arc::clone(&store);
            writing = Some(std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(command_int(&*store, &["APPEND", "calls:k", "v"]))
            }));
        },
        async || {
            let error = attached.ready(Duration::from_secs(60)).await.unwrap_err();
            assert_eq!(error.code, Code::StoreTimedOut, "{error}");
            assert!(error.detail.contains("the disk has not taken a commit"), "{error}");
            store.seed_bug(None);
        },
    )
    .await;
    assert_eq!(writing.unwrap().join().unwrap(), 1, "it was only late");
    attached.ready(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn an_embedded_store_whose_command_panicked_is_not_ready() {
    let (store, scene) = embedded(EmbeddedOptions::default()).await;
    scene.is_ready().await;
    store.seed_bug(Some(Bug::PersistPanics));
    command_int(&*store, &["APPEND", "calls:k", "v"]).await;
    command(&*store, b"calls:k", &[b"PERSIST", b"calls:k"]).await.unwrap_err();
    let told = scene.is_not_ready("store.refused").await;
    assert!(told["detail"].as_str().unwrap().contains("restart"), "{told}");
    // The next try logs it. Whoever asks makes one when the last is a second old.
    while scene.logged(LOST).is_empty() {
        scene.is_not_ready("store.refused").await;
    }
    assert_eq!(scene.logged(LOST).len(), 1, "{:?}", scene.logged(""));
}

#[tokio::test]
async fn nothing_is_written_into_the_embedded_store() {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let scene = Scene::of(|| async { Arc::new(store) as Arc<dyn Engine> }).await;
    scene.is_ready().await;
    let page = scene.quaymaster.engine().scan(b"*", 100, None).await.unwrap();
    assert_eq!((page.keys.len(), page.next), (0, None));
}
