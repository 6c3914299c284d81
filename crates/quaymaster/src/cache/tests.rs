//! What needs no store, and what only a process can see of itself.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use quaymaster_schema::{CacheType, Source, load};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use tokio::sync::Notify;

use super::counts::{Counts, Reads};
use super::value::check;
use super::{Cache, Load, LoadError, MAX_BYTES, MAX_FIELDS, Put, Value};
use crate::{Code, Quaymaster};

const A: &[(&str, &str)] = &[("id", "a")];

async fn quaymaster() -> Quaymaster {
    let text = "[schema]\nname = \"t\"\nowner = \"tests\"\n[cache.c]\nkey = \"c:{id}\"\nttl = \"1h\"\n";
    let schema = load(&[Source { name: "t.toml", text }], &|_| None).schema.unwrap();
    let engine = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    Quaymaster::new(Arc::new(schema), Arc::new(engine))
}

async fn cache() -> Cache {
    quaymaster().await.cache("c").unwrap().clone()
}

#[test]
fn a_value_that_the_cache_cannot_hold_is_refused_by_name() {
    let large = Value::from(vec![0; MAX_BYTES + 1]);
    let wide = Value::fields((0..=MAX_FIELDS).map(|n| (n.to_string(), "")));
    for (holds, value, code) in [
        (CacheType::String, Value::fields([("a", "b")]), Code::ResourceMismatch),
        (CacheType::Hash, Value::from("a"), Code::ResourceMismatch),
        (CacheType::Hash, Value::Fields(Vec::new()), Code::ResourceMismatch),
        (CacheType::Json, Value::from("{\"a\": "), Code::ResourceMismatch),
        (CacheType::Json, Value::from(vec![b'"', 0xff, b'"']), Code::ResourceMismatch),
        (CacheType::Json, Value::fields([("a", "b")]), Code::ResourceMismatch),
        (CacheType::Json, large.clone(), Code::RequestTooLarge),
        (CacheType::String, large, Code::RequestTooLarge),
        (CacheType::Hash, wide, Code::RequestTooLarge),
    ] {
        let error = check("cache.put", holds, &value).unwrap_err();
        assert_eq!(error.code, code);
        assert!(error.detail.starts_with("value "), "{}", error.detail);
    }
    assert!(check("cache.put", CacheType::String, &Value::from(vec![0; MAX_BYTES])).is_ok());
}

#[test]
fn the_ratio_is_of_reads_and_there_is_none_without() {
    let counts = Counts::default();
    assert_eq!((counts.reads().hit_ratio(), counts.recent()), (None, Reads::default()));
    for _ in 0..3 {
        counts.hit();
    }
    counts.miss();
    assert_eq!(counts.recent(), Reads { hits: 3, misses: 1 });
    assert_eq!(counts.reads().hit_ratio(), Some(0.75));
}

/// A loader that says when it began and goes on when it is told to.
#[derive(Clone, Default)]
struct Gate {
    began: Arc<Notify>,
    go: Arc<Notify>,
    loads: Arc<AtomicUsize>,
}

impl Gate {
    async fn load(self, value: &'static str) -> Result<Value, std::io::Error> {
        self.loads.fetch_add(1, SeqCst);
        self.began.notify_one();
        self.go.notified().await;
        Ok(Value::from(value))
    }
}

#[tokio::test]
async fn callers_of_one_process_join_one_load_and_a_caller_that_leaves_takes_nothing_away() {
    let (cache, gate) = (cache().await, Gate::default());
    let call = |gate: Gate| {
        let cache = cache.clone();
        tokio::spawn(async move { cache.get_or_load(A, Load::default(), || gate.load("v")).await })
    };
    let first = call(gate.clone());
    gate.began.notified().await;
    let others: Vec<_> = (0..50).map(|_| call(gate.clone())).collect();
    while cache.counts().joined() < 50 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.go.notify_one();
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().value, Value::from("v"));
    }
    assert_eq!((gate.loads.load(SeqCst), cache.counts().loaded()), (1, 1));
    assert_eq!(cache.counts().reads().misses, 51);
}

#[tokio::test]
async fn what_was_put_or_deleted_during_a_load_is_not_overwritten_by_it() {
    let (cache, gate) = (cache().await, Gate::default());
    let start = |gate: Gate| {
        let cache = cache.clone();
        tokio::spawn(async move { cache.get_or_load(A, Load::default(), || gate.load("old")).await })
    };
    let loading = start(gate.clone());
    gate.began.notified().await;
    let _ = cache.put(A, &Value::from("new"), Put::default()).await.unwrap();
    gate.go.notify_one();
    assert_eq!(
        loading.await.unwrap().unwrap().value,
        Value::from("old"),
        "who asked before may have what was before"
    );
    assert_eq!(cache.get(A).await.unwrap().value(), Some(Value::from("new")));
    cache.delete(A, None).await.unwrap();

    let loading = start(gate.clone());
    gate.began.notified().await;
    cache.delete(A, None).await.unwrap();
    // Who asks after the delete must not be given what was read before it.
    let late = start(gate.clone());
    while cache.counts().joined() == 0 {
        tokio::task::yield_now().await;
    }
    gate.go.notify_one();
    assert_eq!(loading.await.unwrap().unwrap().value, Value::from("old"));
    gate.began.notified().await;
    gate.go.notify_one();
    assert_eq!(late.await.unwrap().unwrap().value, Value::from("old"));
    assert_eq!((gate.loads.load(SeqCst), cache.counts().load_lost(), cache.counts().loaded()), (3, 2, 1));
}

#[tokio::test]
async fn a_loader_that_fails_panics_or_hangs_says_so_and_the_next_one_loads() {
    let cache = cache().await;
    let load = Load { patience: Duration::from_millis(50), ..Load::default() };
    let failed = cache.get_or_load(A, load, || async { Err::<Value, _>("no database") }).await;
    assert!(matches!(&failed, Err(LoadError::Failed(why)) if why.to_string() == "no database"), "{failed:?}");
    let panicked = cache.get_or_load(A, load, || async {
        assert!(A.is_empty(), "at the loader");
        Ok::<_, String>(Value::from("never"))
    });
    let panicked = panicked.await;
    assert!(matches!(&panicked, Err(LoadError::Panicked(why)) if &**why == "at the loader"), "{panicked:?}");
    let hung = cache.get_or_load(A, load, std::future::pending::<Result<Value, String>>).await;
    assert!(matches!(hung, Err(LoadError::TimedOut(_))), "{hung:?}");
    assert_eq!(cache.counts().load_failures(), 3);
    let loaded = cache.get_or_load(A, load, || async { Ok::<_, String>(Value::from("v")) }).await;
    assert_eq!(loaded.unwrap().value, Value::from("v"));
}

#[tokio::test]
async fn what_a_loader_may_not_say_fails_the_load_and_leaves_no_lease() {
    let cache = cache().await;
    let load = Load::default();
    let wrong = cache.get_or_load(A, load, || async { Ok::<_, String>(Value::fields([("a", "b")])) }).await;
    assert!(
        matches!(&wrong, Err(LoadError::Store(error)) if error.code == Code::ResourceMismatch),
        "{wrong:?}"
    );
    for lease in [Duration::ZERO, Duration::from_secs(61)] {
        let load = Load { lease, ..load };
        let refused = cache.get_or_load(A, load, || async { Ok::<_, String>(Value::from("v")) }).await;
        assert!(matches!(refused, Err(LoadError::Store(_))), "{refused:?}");
    }
    let right = cache.get_or_load(A, load, || async { Ok::<_, String>(Value::from("v")) }).await;
    assert_eq!(right.unwrap().value, Value::from("v"), "nobody waits for the load that failed");
}
