use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Effect, Engine, Reply, ScanCursor, StoreOptions, Topology, Workload};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

use crate::support::{call, code, connect, count, counted, options, until};

async fn everything_basic(binary: Binary, product: &str, version: &str) {
    let server = RedisServer::start(RedisConfig::of(binary).line("maxmemory 100mb").line("appendonly yes"));
    let store = connect(&server.url()).await;
    assert_eq!(store.topology(), Topology::Single);

    let source = "return { 'ok', 7, false, { ARGV[1], '' }, redis.call('SET', KEYS[1], ARGV[1]) }";
    let mut all = call(source, Effect::Writes, "k");
    all.args.push(b"\xff\r\n\x00");
    let text = |text: &'static [u8]| Reply::Bytes(Bytes::from_static(text));
    let inner = Reply::Array(vec![text(b"\xff\r\n\x00"), text(b"")]);
    // Twice: the first finds the server without the script.
    for _ in 0..2 {
        let reply = store.run(all.clone()).await.unwrap();
        assert_eq!(
            reply,
            Reply::Array(vec![text(b"ok"), Reply::Int(7), Reply::Nil, inner.clone(), text(b"OK")])
        );
    }

    let facts = store.key_facts(b"k").await.unwrap().unwrap();
    assert_eq!((facts.kind.as_str(), facts.ttl_ms), ("string", None));
    assert!(facts.bytes.unwrap() > 4);
    server.command::<()>(&["PEXPIRE", "k", "60000"]);
    let facts = store.key_facts(b"k").await.unwrap().unwrap();
    assert!((1..=60_000).contains(&facts.ttl_ms.unwrap()));
    assert_eq!(store.key_facts(b"none").await.unwrap(), None);

    let deployment = store.deployment().await.unwrap();
    assert_eq!(deployment.product, product);
    assert!(deployment.version.starts_with(version), "{}", deployment.version);
    assert_eq!(deployment.mode, "standalone");
    assert_eq!(deployment.eviction_policy.as_deref(), Some("noeviction"));
    assert_eq!(deployment.max_memory_bytes, Some(100 * 1024 * 1024));
    assert_eq!(deployment.persistence.as_deref(), Some("everysec"));
    assert!(deployment.used_memory_bytes.unwrap() > 0 && deployment.connected_clients.unwrap() > 0);

    let error = store.run(call("return redis.call('LPUSH', KEYS[1], 'x')", Effect::Writes, "k")).await;
    assert_eq!(code(error), Code::KeyWrongType);
    let error = store.run(call("error('boom')", Effect::Reads, "k")).await.unwrap_err();
    assert_eq!(error.code, Code::ScriptFailed);
    assert!(error.detail.contains("boom"), "{error}");
}

#[tokio::test]
async fn redis_7_answers_as_the_contract_says() {
    everything_basic(Binary::Redis7, "redis", "7.").await;
}

#[tokio::test]
async fn valkey_9_answers_as_the_contract_says() {
    everything_basic(Binary::Valkey9, "valkey", "9.").await;
}

#[tokio::test]
async fn redis_6_2_answers_as_the_contract_says() {
    everything_basic(Binary::Redis62, "redis", "6.2").await;
}

/// The documented fallback: DEFAULT where dedicated pools are disabled.
#[tokio::test]
async fn without_dedicated_pools_calls_share_the_default_and_only_what_waits_has_its_own() {
    let server = RedisServer::start(RedisConfig::default());
    let parse = |toml| RawConfig::parse("q.toml", toml, "".as_ref(), &|_| None).unwrap();
    let raw = parse("[store.pools]\ndedicated = false\ndefault = { size = 2 }\nqueue = { size = 7 }");
    let overrides = Overrides { store: Some(server.url()), ..Overrides::default() };
    let StoreOptions::Redis(options) = Config::resolve(raw, overrides).unwrap().store else {
        panic!("a Redis")
    };
    let store = Arc::new(RedisStore::connect(*options).await.unwrap());
    for workload in [Workload::Cache, Workload::Queue, Workload::RateLimit, Workload::Default] {
        for _ in 0..6 {
            let mut touch = count("k");
            touch.workload = workload;
            store.run(touch).await.unwrap();
        }
    }
    let named = |workloads: &[&str]| {
        let mut names: Vec<String> =
            server.client_names().into_iter().filter(|name| !name.is_empty()).collect();
        names.sort();
        let pid = std::process::id();
        names == workloads.iter().map(|one| format!("quaymaster:{one}:{pid}")).collect::<Vec<_>>()
    };
    until("both connections of the default pool are there", async || named(&["default", "default"])).await;
    let _messages = store.subscribe(b"c").await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for_item(b"q", Duration::from_secs(600)).await }
    });
    until("what waits has its own", async || named(&["default", "default", "pubsub", "queue"])).await;
    waiting.abort();
}

#[tokio::test]
async fn every_workload_has_its_named_connections_and_keeps_the_names_after_a_reconnect() {
    let server = RedisServer::start(RedisConfig::default());
    let mut config = options(&server.url());
    config.pools.queue.size = 3;
    let store = quaymaster_store::redis::RedisStore::connect(config).await.unwrap();
    let touch_all = async || {
        for workload in Workload::ALL {
            for _ in 0..6 {
                let mut touch = count("k");
                touch.workload = workload;
                // Lost replies are expected while connections are killed; the test is about what comes back.
                let _ = store.run(touch).await;
            }
        }
    };
    let expected = || {
        let pid = std::process::id();
        let mut names: Vec<String> =
            ["bulk", "cache", "default", "pubsub", "queue", "queue", "queue", "ratelimit", "ratelimit"]
                .map(|w| format!("quaymaster:{w}:{pid}"))
                .to_vec();
        names.sort();
        names
    };
    let named = || {
        let mut names: Vec<String> =
            server.client_names().into_iter().filter(|name| !name.is_empty()).collect();
        names.sort();
        names
    };
    touch_all().await;
    assert_eq!(named(), expected());
    server.command::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    until("every connection is back", async || {
        touch_all().await;
        named() == expected()
    })
    .await;
}

#[tokio::test]
async fn a_scan_finds_every_key_once_it_has_seen_all_pages() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    for index in 0..500 {
        server.command::<()>(&["SET", &format!("scan:{index}"), "x"]);
        server.command::<()>(&["SET", &format!("other:{index}"), "x"]);
    }
    let (mut found, mut cursor, mut pages) = (HashSet::new(), None, 0);
    loop {
        let page = store.scan(b"scan:*", 50, cursor).await.unwrap();
        found.extend(page.keys);
        pages += 1;
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(found.len(), 500);
    assert!(pages > 1);
    let error = store.scan(b"*", 1, Some(ScanCursor(b"nonsense".to_vec()))).await.unwrap_err();
    assert_eq!(error.code, Code::RequestInvalid);
}

#[tokio::test]
async fn a_script_that_the_server_forgot_is_sent_again() {
    let mut server =
        RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
    let store = connect(&server.url()).await;
    assert_eq!(counted(&store, "k").await, 1);
    server.command::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(counted(&store, "k").await, 2);
    server.restart();
    // A call that was on its way when the old server died may be reported lost; it did not run.
    until("the new server is reached", async || store.run(count("other")).await.is_ok()).await;
    assert_eq!(counted(&store, "k").await, 3);
}

#[tokio::test]
async fn many_callers_share_a_connection_and_get_their_own_replies() {
    let server = RedisServer::start(RedisConfig::default());
    let store = std::sync::Arc::new(connect(&server.url()).await);
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..100_i64 {
                    let mut echo =
                        call("return { KEYS[1], ARGV[1], ARGV[2] }", Effect::Reads, &format!("t{task}"));
                    echo.args.push_int(round);
                    // Replies of every size, also larger than any buffer at first.
                    echo.args.push(vec![
                        b'x';
                        (round as usize * 37) % 5000 + if round == 50 { 200_000 } else { 0 }
                    ]);
                    let expected = Reply::Array(
                        [echo.keys.word(0), echo.args.word(0), echo.args.word(1)]
                            .map(|word| Reply::Bytes(Bytes::copy_from_slice(word.unwrap())))
                            .to_vec(),
                    );
                    assert_eq!(store.run(echo).await.unwrap(), expected);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_plain_url_on_a_node_of_a_cluster_is_refused_at_the_start() {
    let server = RedisServer::start(RedisConfig::default().line("cluster-enabled yes"));
    let error = quaymaster_store::redis::RedisStore::connect(options(&server.url())).await.unwrap_err();
    assert_eq!(error.code, Code::ConfigInvalid);
    assert!(error.detail.contains("redis+cluster"), "{error}");
}

#[tokio::test]
async fn a_cluster_url_on_a_single_server_is_refused_at_the_start() {
    let server = RedisServer::start(RedisConfig::default());
    let url = server.url().replace("redis://", "redis+cluster://");
    let error = quaymaster_store::redis::RedisStore::connect(options(&url)).await.unwrap_err();
    assert_eq!(error.code, Code::ConfigInvalid);
}

#[tokio::test]
async fn a_dropped_store_closes_its_connections() {
    let server = RedisServer::start(RedisConfig::default());
    let store = connect(&server.url()).await;
    counted(&store, "k").await;
    let _messages = store.subscribe(b"c").await.unwrap();
    drop(store);
    until("only the asking connection is left", async || server.client_names() == [""]).await;
}
