//! The embedded store from outside: on disk, attached, killed, taken over.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attached;
mod child;
mod disk;
mod engine;
mod kill;
mod socket;
mod takeover;

use std::sync::LazyLock;

use quaymaster_store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Effect, Engine, Invocation, Reply, Result, Script, Workload};

/// How many rounds a test of chance makes.
fn rounds(few: u32, many: u32) -> u32 {
    if std::env::var_os("QUAYMASTER_SOAK").is_some_and(|soak| soak == "1") { many } else { few }
}

fn script(id: &'static str, effect: Effect, source: &'static str) -> &'static Script {
    let sha = sha1_smol::Sha1::from(source).digest().to_string();
    Box::leak(Box::new(Script { id, source, sha: Box::leak(sha.into_boxed_str()), effect }))
}

/// Counts two keys up together; answers the first.
static BOTH: LazyLock<&Script> = LazyLock::new(|| {
    let source = "redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])";
    script("test.both", Effect::Writes, source)
});
static INCR: LazyLock<&Script> =
    LazyLock::new(|| script("test.incr", Effect::Writes, "return redis.call('INCR', KEYS[1])"));
static GET: LazyLock<&Script> =
    LazyLock::new(|| script("test.get", Effect::Reads, "return redis.call('GET', KEYS[1])"));
static SET: LazyLock<&Script> =
    LazyLock::new(|| script("test.set", Effect::Writes, "return redis.call('SET', KEYS[1], ARGV[1])"));
static PUSH: LazyLock<&Script> =
    LazyLock::new(|| script("test.push", Effect::Writes, "return redis.call('RPUSH', KEYS[1], ARGV[1])"));
static POP: LazyLock<&Script> =
    LazyLock::new(|| script("test.pop", Effect::Writes, "return redis.call('LPOP', KEYS[1])"));
static PUBLISH: LazyLock<&Script> = LazyLock::new(|| {
    script("test.publish", Effect::Writes, "return redis.call('PUBLISH', KEYS[1], ARGV[1])")
});

fn call(script: &'static Script, keys: &[&str], args: &[&str]) -> Invocation {
    let mut call = Invocation::new(script, Workload::Default);
    for key in keys {
        call.keys.push(key);
    }
    for arg in args {
        call.args.push(arg);
    }
    call
}

async fn int(store: &EmbeddedStore, script: &'static Script, keys: &[&str]) -> Result<i64> {
    match store.run(call(script, keys, &[])).await? {
        Reply::Int(value) => Ok(value),
        Reply::Bytes(text) => Ok(std::str::from_utf8(&text).unwrap().parse().unwrap()),
        Reply::Nil => Ok(0),
        other @ Reply::Array(_) => panic!("{other:?} is no number"),
    }
}

fn options(durability: Durability) -> EmbeddedOptions {
    EmbeddedOptions { durability, ..EmbeddedOptions::default() }
}

async fn open(dir: &std::path::Path) -> EmbeddedStore {
    EmbeddedStore::open(dir, EmbeddedOptions::default()).await.unwrap()
}

async fn mode(store: &EmbeddedStore) -> String {
    store.deployment().await.unwrap().mode
}
