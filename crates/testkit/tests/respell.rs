//! A data folder whose keys an earlier version named: converted when it is opened, whoever opens it and whatever ends the
//! conversion. A Redis with such keys is refused.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use quaymaster::respell::{Depth, prepare};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Schema, Source, load};
use quaymaster_server::doctor::Eviction;
use quaymaster_server::open_store;
use quaymaster_store::backoff::Backoff;
use quaymaster_store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Engine, Reply, StoreOptions};
use quaymaster_testkit::conformance::{command, command_int, command_text};
use quaymaster_testkit::servers::{Cluster, ClusterConfig, RedisConfig, RedisServer};

/// Keys of requests: several pages of the conversion.
const KEYS: usize = 2500;

fn text(prefix: &str) -> String {
    format!(
        "[schema]\nname = \"s{}\"\nowner = \"tests\"\nprefix = \"{prefix}\"\n[lock.door]\nkey = \"door:{{id}}\"\nttl = \"1m\"\n\
         [queue.jobs]\nmax_size = 9\n",
        prefix.replace(':', "-")
    )
}

fn schema(prefix: &str) -> Arc<Schema> {
    let text = text(prefix);
    Arc::new(load(&[Source { name: "s.toml", text: &text }], &|_| None).schema.expect("a good schema"))
}

async fn open(folder: &Path) -> Arc<dyn Engine> {
    let options = EmbeddedOptions { durability: Durability::EverySec, ..EmbeddedOptions::default() };
    Arc::new(EmbeddedStore::open(folder, options).await.expect("a store"))
}

/// Old keys of several types, some with an end.
async fn fill(engine: &dyn Engine, prefix: &str) {
    for n in 0..KEYS {
        let key = format!("{{{prefix}door:a}}:req:{n}");
        command_text(engine, &["SET", &key, &n.to_string(), "PX", "600000"]).await;
    }
    let jobs = |suffix: &str| format!("{{{prefix}jobs}}:{suffix}");
    command_int(engine, &["HSET", &jobs("meta"), "sequence", "7", "pushed", "8"]).await;
    command_int(engine, &["HSET", &jobs("jobs"), "7", "payload"]).await;
    command_int(engine, &["ZADD", &jobs("leases"), "99", "7"]).await;
    command_int(engine, &["RPUSH", &jobs("stamps"), "1 2", "3 4"]).await;
}

/// Every key of the prefix by its name of today, and what it holds.
async fn held(engine: &dyn Engine, prefix: &str) -> BTreeMap<String, String> {
    let (mut all, mut cursor) = (BTreeMap::new(), None);
    loop {
        let page = engine.scan(format!("*{prefix}*").as_bytes(), 1000, cursor).await.expect("a page");
        for key in &page.keys {
            let name = String::from_utf8_lossy(key).into_owned();
            let facts = engine.key_facts(key).await.expect("facts").expect("there");
            let words: &[&[u8]] = match facts.kind.as_str() {
                "string" => &[b"GET", key],
                "hash" => &[b"HGETALL", key],
                "list" => &[b"LRANGE", key, b"0", b"-1"],
                _ => &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            };
            let reply = command(engine, key, words).await.expect("content");
            let reply = match reply {
                Reply::Array(mut parts) if facts.kind == "hash" => {
                    parts.sort_by_key(|part| format!("{part:?}"));
                    Reply::Array(parts)
                }
                reply => reply,
            };
            let today = if name.starts_with('{') { format!("{prefix}{name}") } else { name.clone() };
            let before = all.insert(today, format!("{} {} {reply:?}", facts.kind, facts.ttl_ms.is_some()));
            assert!(before.is_none(), "{name} has two names");
        }
        match page.next {
            None => return all,
            next => cursor = next,
        }
    }
}

async fn old_names(engine: &dyn Engine) -> usize {
    engine.scan(b"{*", 100_000, None).await.expect("a page").keys.len()
}

fn respeller(folder: &Path, file: &Path, calls: u64) -> ExitStatus {
    let mut program = Command::new(env!("CARGO_BIN_EXE_respeller"));
    program.args([folder, file]).arg(calls.to_string()).status().expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversion_that_is_killed_loses_nothing_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("s.toml"));
    std::fs::write(&file, text("ha:")).expect("written");
    let engine = open(&data).await;
    fill(&*engine, "ha:").await;
    let before = held(&*engine, "ha:").await;
    assert_eq!((before.len(), old_names(&*engine).await), (KEYS + 4, KEYS + 4));
    engine.close().await.expect("closed");
    drop(engine);
    let (mut killed, mut left) = (0, KEYS + 4);
    while !respeller(&data, &file, 1).success() {
        killed += 1;
        let engine = open(&data).await;
        assert_eq!(held(&*engine, "ha:").await, before, "after {killed}");
        let now = old_names(&*engine).await;
        assert!(now < left || left == 0, "{now} of {left} after {killed}");
        left = now;
        engine.close().await.expect("closed");
        assert!(killed < 50, "it never ends");
    }
    assert!(killed >= 4, "{killed}");
    let engine = open(&data).await;
    assert_eq!((held(&*engine, "ha:").await, old_names(&*engine).await), (before, 0));
    engine.close().await.expect("closed");
    drop(engine);
    assert!(respeller(&data, &file, 1).success(), "there is nothing left to change");
    assert_eq!(respeller(&data, &file, u64::MAX).signal(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_schema_is_converted_by_whoever_knows_it_owner_or_attached() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = open(folder.path()).await;
    let all = 2 * (KEYS + 4);
    for prefix in ["ha:", "ha:b:"] {
        fill(&*engine, prefix).await;
    }
    let before = held(&*engine, "ha:b:").await;
    // Nobody who knows no schema, or none with a prefix, changes anything.
    prepare(&schema(""), &engine, Depth::Scan).await.expect("fit");
    assert_eq!(old_names(&*engine).await, all);
    prepare(&schema("ha:"), &engine, Depth::Scan).await.expect("fit");
    assert_eq!(old_names(&*engine).await, KEYS + 4, "the other schema is not known here");
    let attached = open(folder.path()).await;
    let (one, two) = (schema("ha:b:"), schema("ha:b:"));
    let (first, second) =
        tokio::join!(prepare(&one, &attached, Depth::Scan), prepare(&two, &engine, Depth::Scan));
    first.expect("fit");
    second.expect("fit");
    assert_eq!(old_names(&*engine).await, 0);
    assert_eq!(held(&*engine, "ha:b:").await, before);
    let quaymaster = Quaymaster::new(schema("ha:b:"), attached);
    let pressure = quaymaster.queue("jobs").expect("declared").pressure().await.expect("pressure");
    assert_eq!(pressure.leased, 1, "{pressure:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_stays_and_the_folder_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = open(folder.path()).await;
    command_text(&*engine, &["SET", "{ha:door:a}:fence", "1"]).await;
    command_text(&*engine, &["SET", "ha:{ha:door:a}:fence", "2"]).await;
    for _ in 0..2 {
        prepare(&schema("ha:"), &engine, Depth::Scan).await.expect("it opens all the same");
        assert_eq!(command_text(&*engine, &["GET", "{ha:door:a}:fence"]).await.as_deref(), Some("1"));
        assert_eq!(command_text(&*engine, &["GET", "ha:{ha:door:a}:fence"]).await.as_deref(), Some("2"));
    }
    command_int(&*engine, &["DEL", "ha:{ha:door:a}:fence"]).await;
    prepare(&schema("ha:"), &engine, Depth::Scan).await.expect("fit");
    assert_eq!(command_text(&*engine, &["GET", "ha:{ha:door:a}:fence"]).await.as_deref(), Some("1"));
}

/// What a server says that opens this store.
async fn opened(url: &str, schema: Arc<Schema>) -> Result<(), quaymaster::Error> {
    let options = StoreOptions::from_url(url, Path::new(".")).expect("a URL");
    open_store(options, schema, Eviction::Refused, Backoff::default()).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_old_names_is_refused_with_the_command_to_run() {
    let server = RedisServer::start(RedisConfig::default());
    opened(&server.url(), schema("ha:")).await.expect("an empty store is fit");
    // A name without placeholders, then one that only a look at the keys finds.
    for (old, new) in [("{ha:jobs}:meta", "ha:{ha:jobs}:meta"), ("{ha:door:x}:fence", "ha:{ha:door:x}:fence")]
    {
        let _: i64 = server.command(&["HSET", old, "sequence", "7"]);
        let error = opened(&server.url(), schema("ha:")).await.expect_err("old names");
        assert_eq!((error.code, error.code.exit_code()), (Code::StoreNames, 3));
        for part in [old, new, "quaymaster respell --apply"] {
            assert!(error.detail.contains(part), "{part}: {}", error.detail);
        }
        let keys: Vec<String> = server.command(&["KEYS", "*"]);
        assert_eq!(keys, [old], "nothing was changed");
        opened(&server.url(), schema("")).await.expect("a schema without a prefix has no old names");
        opened(&server.url(), schema("other:")).await.expect("nor has another one here");
        let _: i64 = server.command(&["DEL", old]);
    }
    // A user that may not look at the old names did not write them.
    let _: String = server.command(&["SET", "{ha:jobs}:meta", "1"]);
    let _: String = server.command(&[
        "ACL",
        "SETUSER",
        "new",
        "on",
        ">secret",
        "~ha:*",
        "~quaymaster:*",
        "&ha:*",
        "+@all",
        "-scan",
    ]);
    let url = server.url().replace("redis://", "redis://new:secret@");
    opened(&url, schema("ha:")).await.expect("it cannot tell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_old_names_is_refused_and_respelled_slot_by_slot() {
    let cluster = Cluster::start(ClusterConfig::default());
    let options = StoreOptions::from_url(&cluster.url(), Path::new(".")).expect("a URL");
    let engine = quaymaster_store::open(options).await.expect("a cluster");
    // On a cluster the dead letters lie behind the queue's tag, and had no prefix in front of it.
    command_int(&*engine, &["RPUSH", "{ha:jobs}:ha:dlq:jobs", "dead"]).await;
    let error = opened(&cluster.url(), schema("ha:")).await.expect_err("old names");
    assert_eq!(error.code, Code::StoreNames);
    for n in 0..50 {
        command_text(&*engine, &["SET", &format!("{{ha:door:{n}}}:fence"), "9"]).await;
    }
    let quaymaster = Quaymaster::new(schema("ha:"), engine);
    let ask = quaymaster::respell::Ask { mode: quaymaster::respell::Mode::Apply, ..Default::default() };
    let report = quaymaster.respell(ask, |_| ()).await.expect("a report");
    assert_eq!((report.renamed, report.taken, report.complete), (51, 0, true));
    let dead = quaymaster.queue("jobs").expect("declared").pressure().await.expect("pressure").dead;
    assert_eq!(dead, 1);
    opened(&cluster.url(), schema("ha:")).await.expect("fit");
}
