//! A scan that is resumed where it cannot be: a cursor belongs to one process at one address, and is refused elsewhere.
#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::clean::{Ask, Report};
use quaymaster::schema::{Source, load};
use quaymaster::{Code, Engine, Quaymaster, Result};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::command_text;
use quaymaster_testkit::servers::{
    Cluster, ClusterConfig, RedisConfig, RedisServer, Sentinel, SentinelConfig,
};

const KEYS: usize = 1_600;
const PATIENCE: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
[schema]
name = \"scan\"
owner = \"tests\"
[dedupe.seen]
key = \"seen:{id}\"
ttl = \"1h\"
";

fn bind(engine: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "scan.toml", text: SCHEMA }], &|_| None);
    Quaymaster::new(Arc::new(loaded.schema.unwrap()), engine)
}

async fn redis(url: &str) -> Quaymaster {
    bind(Arc::new(RedisStore::connect(RedisOptions::from_url(url).unwrap()).await.unwrap()))
}

/// Keys that never end: each is a finding.
async fn fill(quaymaster: &Quaymaster) {
    for id in 0..KEYS {
        command_text(&**quaymaster.engine(), &["SET", &format!("seen:{id}"), "1"]).await;
    }
}

async fn clean(quaymaster: &Quaymaster, most: Option<u64>, from: Option<String>) -> Result<Report> {
    quaymaster.clean(Ask { rate: u32::MAX, most, from, ..Ask::default() }, |_| ()).await
}

/// A part of the walk, and where it goes on.
async fn part(quaymaster: &Quaymaster) -> String {
    clean(quaymaster, Some(600), None).await.unwrap().next.unwrap()
}

/// The cursor is refused with what to do, and doing that finds everything.
async fn must_begin_again(quaymaster: &Quaymaster, cursor: String) {
    let error = clean(quaymaster, None, Some(cursor)).await.unwrap_err();
    assert_eq!(error.code, Code::RequestInvalid, "{error}");
    assert!(error.detail.contains("begin again without it (--from)"), "{error}");
    let found = clean(quaymaster, None, None).await.unwrap();
    assert_eq!((found.immortal, found.next), (KEYS as u64, None));
}

#[tokio::test]
async fn a_cursor_is_refused_after_a_restart_of_redis() {
    let mut server = RedisServer::start(RedisConfig::default().line("appendonly yes"));
    let quaymaster = redis(&server.url()).await;
    fill(&quaymaster).await;
    let cursor = part(&quaymaster).await;
    let seen = clean(&quaymaster, None, Some(cursor.clone())).await.unwrap();
    assert!(seen.immortal > 0, "before the restart it is resumed");
    server.restart_cleanly();
    must_begin_again(&redis(&server.url()).await, cursor.clone()).await;
    // A connection that outlived the restart tells them apart too.
    must_begin_again(&quaymaster, cursor).await;
}

#[tokio::test]
async fn a_cursor_of_another_server_is_refused() {
    let (one, other) =
        (RedisServer::start(RedisConfig::default()), RedisServer::start(RedisConfig::default()));
    let (one, other) = (redis(&one.url()).await, redis(&other.url()).await);
    fill(&one).await;
    fill(&other).await;
    must_begin_again(&other, part(&one).await).await;
}

#[tokio::test]
async fn a_cursor_is_refused_after_a_restart_of_a_node_of_a_cluster() {
    let mut cluster =
        Cluster::start(ClusterConfig { lines: vec!["appendonly yes".into()], ..ClusterConfig::default() });
    let quaymaster = redis(&cluster.url()).await;
    fill(&quaymaster).await;
    // By the lowest slot: the first page is the first node's.
    let cursor = part(&quaymaster).await;
    assert!(clean(&quaymaster, None, Some(cursor.clone())).await.unwrap().immortal > 0);
    for node in &mut cluster.nodes {
        node.restart_cleanly();
    }
    for node in &cluster.nodes {
        while !node.command::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
            tokio::task::yield_now().await;
        }
    }
    must_begin_again(&redis(&cluster.url()).await, cursor).await;
}

async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn role(server: &RedisServer) -> Option<String> {
    server.info("replication", "role")
}

#[tokio::test]
async fn a_cursor_is_refused_after_a_failover_by_sentinels() {
    let group = Sentinel::start(SentinelConfig::default());
    let (old, heir) = (&group.servers[0], &group.servers[1]);
    let quaymaster = redis(&group.url()).await;
    fill(&quaymaster).await;
    until("the replica has everything", async || heir.command::<usize>(&["DBSIZE"]) == KEYS).await;
    let cursor = part(&quaymaster).await;
    assert!(clean(&quaymaster, None, Some(cursor.clone())).await.unwrap().immortal > 0);
    until("the sentinels agree to fail over", async || group.fail_over()).await;
    until("the other is primary", async || {
        role(heir).as_deref() == Some("master") && group.primary_port() == heir.address().port()
    })
    .await;
    // Until then a sentinel may still name the old one, and the cursor is good there.
    until("the old primary follows", async || role(old).as_deref() == Some("slave")).await;
    must_begin_again(&redis(&group.url()).await, cursor.clone()).await;
    // The connection of before finds the new primary by itself.
    until("writes arrive at the new one", async || quaymaster.engine().ready(PATIENCE).await.is_ok()).await;
    must_begin_again(&quaymaster, cursor).await;
}

#[tokio::test]
async fn a_cursor_is_refused_after_a_failover_in_a_cluster() {
    let cluster = Cluster::start(ClusterConfig { replicas: 1, ..ClusterConfig::default() });
    let quaymaster = redis(&cluster.url()).await;
    fill(&quaymaster).await;
    let cursor = part(&quaymaster).await;
    assert!(clean(&quaymaster, None, Some(cursor.clone())).await.unwrap().immortal > 0);
    let heirs = &cluster.nodes[ClusterConfig::default().masters..];
    for heir in heirs {
        heir.command::<()>(&["CLUSTER", "FAILOVER"]);
        until("the replica is a primary", async || role(heir).as_deref() == Some("master")).await;
    }
    for node in &cluster.nodes {
        until("every node knows", async || {
            let nodes: String = node.command(&["CLUSTER", "NODES"]);
            let is_primary = |line: &str, heir: &RedisServer| {
                line.contains(&format!("{}@", heir.address())) && line.contains("master")
            };
            heirs.iter().all(|heir| nodes.lines().any(|line| is_primary(line, heir)))
        })
        .await;
    }
    must_begin_again(&redis(&cluster.url()).await, cursor).await;
}

#[tokio::test]
async fn a_cursor_is_refused_after_a_restart_of_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        bind(Arc::new(EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).await.unwrap()))
    };
    let quaymaster = open().await;
    fill(&quaymaster).await;
    let cursor = part(&quaymaster).await;
    assert!(clean(&quaymaster, None, Some(cursor.clone())).await.unwrap().immortal > 0);
    quaymaster.engine().close().await.unwrap();
    drop(quaymaster);
    must_begin_again(&open().await, cursor).await;
}
