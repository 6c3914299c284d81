//! The contract, the same for memory, owner and attached.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use quaymaster_store::{Code, Message, Topology};

use super::*;

/// Everything the contract says that one store can show by itself.
async fn contract(store: &EmbeddedStore) {
    assert_eq!(store.topology(), Topology::Single);
    assert_eq!(int(store, &INCR, &["n"]).await.unwrap(), 1);
    assert_eq!(int(store, &INCR, &["n"]).await.unwrap(), 2);
    assert_eq!(store.run(call(&GET, &["nothing"], &[])).await.unwrap(), Reply::Nil);
    let value = Bytes::from_static(b"\xff\0v");
    let mut set = call(&SET, &["bin"], &[]);
    set.args.push(&value);
    assert_eq!(store.run(set).await.unwrap(), Reply::Bytes(Bytes::from_static(b"OK")));
    assert_eq!(store.run(call(&GET, &["bin"], &[])).await.unwrap(), Reply::Bytes(value));

    let error = store.run(call(&PUSH, &["n"], &["x"])).await.unwrap_err();
    assert_eq!((error.code, error.op), (Code::KeyWrongType, "test.push"));
    let failing = script("test.fail", Effect::Writes, "redis.call('SET', KEYS[1], 'x') error('no')");
    assert_eq!(store.run(call(failing, &["half"], &[])).await.unwrap_err().code, Code::ScriptFailed);
    assert_eq!(store.key_facts(b"half").await.unwrap(), None);

    let before = store.time_us().await.unwrap();
    assert!(store.time_us().await.unwrap() >= before);
    assert!((store.now_us() - before).abs() < 10_000_000);

    let facts = store.key_facts(b"n").await.unwrap().unwrap();
    assert_eq!((facts.kind.as_str(), facts.ttl_ms), ("string", None));
    for n in 0..30 {
        store.run(call(&SET, &[&format!("page:{n}")], &["v"])).await.unwrap();
    }
    let (mut keys, mut cursor) = (std::collections::BTreeSet::new(), None);
    loop {
        let page = store.scan(b"page:*", 7, cursor).await.unwrap();
        keys.extend(page.keys);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), 30);

    let mut messages = store.subscribe(b"channel").await.unwrap();
    assert_eq!(store.run(call(&PUBLISH, &["channel"], &["hello"])).await.unwrap(), Reply::Int(1));
    assert_eq!(messages.next().await, Some(Message::Data(Bytes::from_static(b"hello"))));

    assert!(!store.wait_for_item(b"list", Duration::from_millis(1)).await.unwrap());
    let (found, pushed) = tokio::join!(store.wait_for_item(b"list", Duration::from_secs(30)), async {
        store.run(call(&PUSH, &["list"], &["item"])).await
    });
    assert!(found.unwrap());
    assert_eq!(pushed.unwrap(), Reply::Int(1));
    assert!(store.wait_for_item(b"list", Duration::ZERO).await.unwrap());
    assert_eq!(
        store.run(call(&POP, &["list"], &[])).await.unwrap(),
        Reply::Bytes(Bytes::from_static(b"item"))
    );

    let health = store.health();
    assert!(health.connected && health.operations > 30, "{health:?}");
    assert_eq!(health.failures, 0, "a failed script is not a failed store");
    let deployment = store.deployment().await.unwrap();
    assert_eq!(deployment.product, "embedded");
    assert_eq!(deployment.version, env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_store_in_memory_keeps_the_contract() {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    contract(&store).await;
    let deployment = store.deployment().await.unwrap();
    assert_eq!((deployment.mode.as_str(), deployment.persistence.as_deref()), ("memory", Some("none")));
    store.close().await.unwrap();
    assert_eq!(int(&store, &INCR, &["n"]).await.unwrap_err().code, Code::StoreRefused);
}

#[tokio::test]
async fn an_owner_keeps_the_contract_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    contract(&store).await;
    let deployment = store.deployment().await.unwrap();
    assert_eq!((deployment.mode.as_str(), deployment.persistence.as_deref()), ("owner", Some("always")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_keeps_the_contract_on_many_threads_and_under_everysec() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), options(Durability::EverySec)).await.unwrap();
    contract(&store).await;
    assert_eq!(store.deployment().await.unwrap().persistence.as_deref(), Some("everysec"));
}

#[tokio::test]
async fn an_attached_store_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let store = open(dir.path()).await;
    contract(&store).await;
    let deployment = store.deployment().await.unwrap();
    assert_eq!((deployment.mode.as_str(), deployment.persistence.as_deref()), ("attached", Some("always")));
    assert_eq!(deployment.connected_clients, Some(1));
    assert_eq!(int(&owner, &GET, &["n"]).await.unwrap(), 2);
}

#[tokio::test]
async fn what_was_there_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let fill = script(
        "test.fill",
        Effect::Writes,
        "redis.call('SET', 's', 'text', 'PX', 3600000)
         redis.call('HSET', 'h', 'f', 'v', 'g', 'w') redis.call('HDEL', 'h', 'g')
         redis.call('RPUSH', 'l', '1', '2', '3') redis.call('LPUSH', 'l', '0') redis.call('LREM', 'l', 1, '2')
         redis.call('SADD', 'm', 'a', 'b') redis.call('ZADD', 'z', 1.5, 'x', -2, 'y')
         redis.call('RPUSH', 'gone', '1') redis.call('DEL', 'gone')
         redis.call('RPUSH', 'old', '1') redis.call('RENAME', 'old', 'new') return 1",
    );
    let read = script(
        "test.read",
        Effect::Reads,
        "local ttl = redis.call('PTTL', 's')
         return {redis.call('GET', 's'), ttl > 3500000 and ttl <= 3600000 and 1 or 0, redis.call('HGETALL', 'h'),
                 redis.call('LRANGE', 'l', 0, -1), redis.call('SCARD', 'm'), redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES'),
                 redis.call('EXISTS', 'gone', 'old'), redis.call('LRANGE', 'new', 0, -1)}",
    );
    let store = open(dir.path()).await;
    store.run(call(fill, &[], &[])).await.unwrap();
    let before = store.run(call(read, &[], &[])).await.unwrap();
    for close in [true, false, true] {
        let store = open(dir.path()).await;
        assert_eq!(mode(&store).await, "attached");
        assert_eq!(store.run(call(read, &[], &[])).await.unwrap(), before);
        drop(store);
        if close {
            break;
        }
    }
    store.close().await.unwrap();
    for _ in 0..3 {
        let store = open(dir.path()).await;
        assert_eq!(mode(&store).await, "owner");
        assert_eq!(store.run(call(read, &[], &[])).await.unwrap(), before);
        // Dropped, not closed: safe all the same.
        drop(store);
    }
}

/// The bytes of the database's log. After opening it is cut to what is in it, so its length tells.
fn log_bytes(dir: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(dir.join("data")).unwrap().map(|entry| entry.unwrap());
    let logs = files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "jnl"));
    logs.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn a_call_on_a_huge_collection_writes_a_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let fill = script(
        "test.huge",
        Effect::Writes,
        "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
           redis.call('RPUSH', 'l', n) redis.call('HSET', 'h', n, n) redis.call('ZADD', 'z', n, n)
         end return 1",
    );
    let store = open(dir.path()).await;
    for piece in 0..rounds(10, 200) {
        let (from, to) = ((piece * 5_000 + 1).to_string(), ((piece + 1) * 5_000).to_string());
        store.run(call(fill, &[], &[&from, &to])).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(dir.path()).await;
    for source in [
        "return redis.call('RPUSH', 'l', 'item')",
        "return redis.call('LPUSH', 'l', 'item')",
        "return redis.call('LPOP', 'l')",
        "return redis.call('LREM', 'l', 1, '25000')",
        "return redis.call('LSET', 'l', 30000, 'other')",
        "return redis.call('HSET', 'h', '25000', 'other')",
        "return redis.call('HDEL', 'h', '25001')",
        "return redis.call('ZADD', 'z', 7, '25000')",
        "return redis.call('ZINCRBY', 'z', 1, '25001')",
        "return redis.call('ZPOPMIN', 'z')",
        "return redis.call('PEXPIRE', 'l', 100000000)",
        "return redis.call('RENAME', 'l', 'm')",
        "return redis.call('DEL', 'm')",
    ] {
        let before = log_bytes(dir.path());
        store.run(call(script("test.one", Effect::Writes, source), &[], &[])).await.unwrap();
        let written = log_bytes(dir.path()) - before;
        assert!((60..400).contains(&written), "{source} wrote {written} bytes");
    }
}

#[tokio::test]
async fn calls_that_need_not_wait_let_the_other_tasks_of_their_thread_have_their_turn() {
    const MANY: u32 = 100_000;
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let other = tokio::spawn(async {});
    let mut calls = 0;
    while !other.is_finished() && calls < MANY {
        int(&store, &INCR, &["n"]).await.unwrap();
        calls += 1;
    }
    assert!(calls < MANY, "nobody else got a turn in {MANY} calls");
    let other = tokio::spawn(async {});
    let mut questions = 0;
    while !other.is_finished() && questions < MANY {
        store.time_us().await.unwrap();
        questions += 1;
    }
    assert!(questions < MANY, "nobody else got a turn in {MANY} questions");
}
