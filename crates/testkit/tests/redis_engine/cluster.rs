use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Effect, Engine, Message, Repeat, Reply, Topology};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig};

use crate::support::{call, code, connect, count, count_once, counted, fails_with, options, until};

async fn calls_find_their_nodes(binary: Binary) {
    let cluster = Cluster::start(ClusterConfig { binary, ..ClusterConfig::default() });
    // One seed is enough.
    let store = connect(&format!("redis+cluster://{}", cluster.nodes[1].address())).await;
    assert_eq!(store.topology(), Topology::Cluster);
    let mut owners = HashSet::new();
    for index in 0..60 {
        let key = format!("key:{index}");
        assert_eq!(counted(&store, &key).await, 1);
        owners.insert(cluster.first_owner(&key));
        assert_eq!(store.key_facts(key.as_bytes()).await.unwrap().unwrap().kind, "string");
    }
    assert_eq!(owners.len(), 3, "the keys lie on every node");

    let mut across = call("return 1", Effect::Reads, "key:0");
    across.keys.push("key:1");
    assert_eq!(code(store.run(across).await), Code::StoreCrossSlot);

    let (mut found, mut cursor) = (HashSet::new(), None);
    loop {
        let page = store.scan(b"key:*", 5, cursor).await.unwrap();
        found.extend(page.keys);
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(found.len(), 60);

    let deployment = store.deployment().await.unwrap();
    assert_eq!(deployment.mode, "cluster");

    let mut reader = store.subscribe(b"c").await.unwrap();
    for node in &cluster.nodes {
        node.command::<i64>(&["PUBLISH", "c", "x"]);
        assert_eq!(reader.next().await, Some(Message::Data("x".into())));
    }

    cluster.nodes[cluster.first_owner("list")].command::<()>(&["RPUSH", "list", "x"]);
    assert!(store.wait_for_item(b"list", Duration::from_secs(60)).await.unwrap());
}

#[tokio::test]
async fn calls_find_their_nodes_on_redis_7() {
    calls_find_their_nodes(Binary::Redis7).await;
}

#[tokio::test]
async fn calls_find_their_nodes_on_valkey() {
    calls_find_their_nodes(Binary::Valkey9).await;
}

/// Moves the slot of `key` to another node, stopping half-way to let `meanwhile` look.
async fn move_slot(cluster: &Cluster, key: &str, meanwhile: impl AsyncFnOnce()) -> usize {
    let from = cluster.first_owner(key);
    let to = (from + 1) % 3;
    let slot = cluster.nodes[0].command::<u16>(&["CLUSTER", "KEYSLOT", key]).to_string();
    let ids: Vec<String> = cluster.nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"])).collect();
    cluster.nodes[to].command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]);
    cluster.nodes[from].command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]);
    let target = cluster.nodes[to].address();
    let (ip, port) = (target.ip().to_string(), target.port().to_string());
    let keys: Vec<String> = cluster.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    for key in keys {
        cluster.nodes[from].command::<()>(&["MIGRATE", &ip, &port, &key, "0", "10000"]);
    }
    meanwhile().await;
    for node in [to, from, (to + 1) % 3] {
        cluster.nodes[node].command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]);
    }
    to
}

#[tokio::test]
async fn a_slot_that_moves_is_followed_and_every_call_counts_once() {
    let cluster = Cluster::start(ClusterConfig::default());
    let store = connect(&cluster.url()).await;
    assert_eq!(counted(&store, "k").await, 1);
    // Migrated but not yet owned: the old owner says ASK, to a node that has not seen the script.
    let owner = move_slot(&cluster, "k", async || {
        assert_eq!(counted(&store, "k").await, 2);
    })
    .await;
    assert_eq!(counted(&store, "k").await, 3);
    assert_eq!(cluster.nodes[owner].command::<i64>(&["GET", "k"]), 3);
    // The table was put right: no redirect is needed any more.
    until("the table is right", async || {
        let before = store.health().retries;
        counted(&store, "k").await;
        store.health().retries == before
    })
    .await;
}

#[tokio::test]
async fn a_cluster_without_an_owner_of_the_slot_is_down_and_the_rest_goes_on() {
    let mut cluster = Cluster::start(ClusterConfig {
        lines: vec!["cluster-require-full-coverage no".into()],
        ..ClusterConfig::default()
    });
    let store = connect(&cluster.url()).await;
    let keys: Vec<String> = (0..50).map(|index| format!("k{index}")).collect();
    let lost = keys.iter().find(|key| cluster.first_owner(key) == 2).unwrap().clone();
    let kept = keys.iter().find(|key| cluster.first_owner(key) == 0).unwrap().clone();
    cluster.nodes[2].kill9();
    until("the breaker of the dead node is open", async || {
        let _ = store.run(count(&lost)).await;
        store.health().breaker_open
    })
    .await;
    let failed = code(store.run(count(&lost)).await);
    assert!(matches!(failed, Code::StoreBreaker | Code::StoreClusterDown | Code::StoreRefused), "{failed}");
    assert_eq!(counted(&store, &kept).await, 1, "the other shards go on");
    cluster.nodes[2].restart();
    until("the node is back", async || store.run(count(&lost)).await.is_ok()).await;
}

#[tokio::test]
async fn a_whole_cluster_that_is_down_says_so() {
    let mut cluster = Cluster::start(ClusterConfig::default());
    let store = connect(&cluster.url()).await;
    let key = (0..50).map(|index| format!("k{index}")).find(|key| cluster.first_owner(key) == 0).unwrap();
    counted(&store, &key).await;
    cluster.nodes[2].kill9();
    // Full coverage is required by default: the survivors refuse everything.
    until("the cluster is down", async || {
        cluster.nodes[0]
            .try_command::<String>(&["GET", &key])
            .is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    })
    .await;
    let mut config = options(&cluster.url());
    config.deadline = Duration::from_secs(1);
    let impatient = RedisStore::connect(config).await.unwrap();
    fails_with(&impatient, &count(&key), Code::StoreClusterDown).await;
}

#[tokio::test]
async fn a_failover_under_load_recovers_unaided_and_counts_no_safe_call_twice() {
    let mut cluster = Cluster::start(ClusterConfig { replicas: 1, ..ClusterConfig::default() });
    let store = Arc::new(connect(&cluster.url()).await);
    let key = (0..50).map(|index| format!("k{index}")).find(|key| cluster.first_owner(key) == 0).unwrap();
    counted(&*store, &key).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let (store, stop, key) = (Arc::clone(&store), Arc::clone(&stop), key.clone());
            tokio::spawn(async move {
                let mut last = 0;
                let mut answered = 0;
                for number in 0.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let call = count_once(&key, &format!("{worker}:{number}"));
                    assert_eq!(call.repeat, Repeat::Safe);
                    if let Ok(Reply::Int(value)) = store.run(call).await {
                        last = value;
                        answered += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (last, answered)
            })
        })
        .collect();
    until("there is load", async || store.health().operations > 100).await;
    cluster.nodes[0].kill9();
    let probe = format!("{{{key}}}:probe");
    until("calls succeed again", async || store.run(count(&probe)).await.is_ok()).await;
    let after = store.health().operations;
    until("the load goes on", async || store.health().operations > after + 100).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for worker in workers {
        let (last, answered) = worker.await.unwrap();
        assert!(answered > 0 && last > 0);
    }
    // A set of ids and a counter, written and replicated in one step, agree if and only if nothing ran twice.
    let promoted =
        cluster.nodes[1..].iter().find(|node| node.try_command::<i64>(&["GET", &key]).is_ok()).unwrap();
    let seen: i64 = promoted.command(&["SCARD", &format!("{{{key}}}:seen")]);
    let total: i64 = promoted.command(&["GET", &key]);
    assert_eq!(total, seen + 1);
}
