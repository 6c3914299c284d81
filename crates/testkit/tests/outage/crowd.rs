//! Many keys wait for a store that is back: a call tells it of its own keys alone, within its own deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};
use futures_util::stream::BoxStream;
use quaymaster::guard::{Enter, Entered};
use quaymaster::limit::{self, Charge, Part};
use quaymaster::schema::Outage;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{
    Deployment, Health, Invocation, KeyFacts, Message, Reply, ScanCursor, ScanPage, Topology,
};
use quaymaster::{Code, Engine, Error, Quaymaster, Result};

use crate::scene::{among, bind};

const SCHEMA: &str = r#"
[schema]
name = "crowd"
owner = "tests"

[limit.api]
key = "api:{id}"
algorithm = "fixed_window"
limit = 10
window = "1h"
on_outage = "local"

[limit.all]
key = "all:{id}"
algorithm = "sliding_log"
limit = 10
window = "1h"
on_outage = "local"

[guard.both]
limits = ["api", "all"]
"#;

/// A store that can be away, and that never answers what is added to a counter whose key does not end in `free`.
#[derive(Debug)]
struct Stuck {
    inner: EmbeddedStore,
    away: AtomicBool,
    free: &'static [u8],
}

impl Stuck {
    fn refuse<'a, T: Send + 'a>(&self) -> Option<BoxFuture<'a, Result<T>>> {
        let away = self.away.load(SeqCst);
        away.then(|| ready(Err(Error::new("test", Code::StoreRefused, "away"))).boxed())
    }
}

impl Engine for Stuck {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        let adds = call.script.id.starts_with("limit.add.");
        if adds && !call.keys.word(0).is_some_and(|key| key.ends_with(self.free)) {
            return pending().boxed();
        }
        self.refuse().unwrap_or_else(|| self.inner.run(call))
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.refuse().unwrap_or_else(|| self.inner.time_us())
    }
    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }
    fn deadline(&self) -> Duration {
        Duration::from_millis(500)
    }
    fn topology(&self) -> Topology {
        self.inner.topology()
    }
    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        self.inner.subscribe(channel)
    }
    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        self.inner.wait_for_item(key, limit)
    }
    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        self.inner.key_facts(key)
    }
    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>> {
        self.inner.scan(pattern, count, cursor)
    }
    fn health(&self) -> Health {
        self.inner.health()
    }
    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        self.inner.deployment()
    }
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

/// A node that counted one unit under each of `ids` while the store was away, and the store is back.
async fn counted_alone(free: &'static [u8], ids: &[&str]) -> Quaymaster {
    let inner = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let store = Arc::new(Stuck { inner, away: AtomicBool::new(true), free });
    let node = bind(SCHEMA, store.clone(), among(1));
    for name in ["api", "all"] {
        for id in ids {
            let verdict = node.limit(name).unwrap().take(&[("id", id)], Charge::one()).await.unwrap();
            assert_eq!(verdict.quota().outage, Some(Outage::Local));
        }
    }
    store.away.store(false, SeqCst);
    node
}

/// A call that waits for anything but its own is found by this, not by a clock.
async fn in_time<T>(what: &str, call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), call).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

#[tokio::test]
async fn a_call_tells_the_store_of_its_own_keys_and_of_no_others() {
    let node = counted_alone(b"mine", &["mine", "a", "b", "c"]).await;
    let mine: &[(&str, &str)] = &[("id", "mine")];
    let (api, all) = (node.limit("api").unwrap(), node.limit("all").unwrap());

    let entered = in_time("enter", node.guard("both").unwrap().enter(mine, Enter::default())).await.unwrap();
    let Entered::Entered(pass) = entered else { panic!("{entered:?}") };
    assert_eq!(pass.outage, None, "the store answers");
    let used: Vec<u64> = pass.quotas.iter().map(|quota| quota.used).collect();
    assert_eq!(used, [2, 2], "what was counted alone came first");

    let parts = [Part { limit: api, key: mine, cost: 1 }, Part { limit: all, key: mine, cost: 1 }];
    let together = in_time("take_all", limit::take_all(&parts, None)).await.unwrap();
    let limit::Together::Allowed(quotas) = together else { panic!("{together:?}") };
    let seen: Vec<_> = quotas.iter().map(|quota| (quota.used, quota.outage)).collect();
    assert_eq!(seen, [(3, None), (3, None)]);

    let fresh = in_time("take", api.take(&[("id", "fresh")], Charge::one())).await.unwrap();
    assert_eq!((fresh.quota().used, fresh.quota().outage), (1, None), "a key nobody counted asks at once");
    assert_eq!(node.outages().uncarried().await.local_keys, 6, "the others still wait");
}

#[tokio::test]
async fn telling_and_asking_have_one_deadline_together() {
    let node = counted_alone(b"none", &["mine"]).await;
    let mine: &[(&str, &str)] = &[("id", "mine")];
    let (api, all) = (node.limit("api").unwrap(), node.limit("all").unwrap());

    let taken = in_time("take", api.take(mine, Charge::one())).await.unwrap();
    assert_eq!(taken.quota().outage, Some(Outage::Local), "by policy once the deadline has passed");
    let parts = [Part { limit: api, key: mine, cost: 1 }, Part { limit: all, key: mine, cost: 1 }];
    let together = in_time("take_all", limit::take_all(&parts, None)).await.unwrap();
    let limit::Together::Allowed(quotas) = together else { panic!("{together:?}") };
    assert!(quotas.iter().all(|quota| quota.outage == Some(Outage::Local)), "{quotas:?}");
    let entered = in_time("enter", node.guard("both").unwrap().enter(mine, Enter::default())).await.unwrap();
    let Entered::Entered(pass) = entered else { panic!("{entered:?}") };
    assert!(pass.outage.is_some(), "{pass:?}");
}
