//! Stores that misbehave on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use quaymaster::store::{
    Deployment, Health, Invocation, KeyFacts, Message, Readiness, Reply, ScanCursor, ScanPage, Topology,
};
use quaymaster::{Code, Engine, Error, Result};
use tokio::sync::Semaphore;

/// What a [`Stage`] does with a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Runs it once somebody added a permit.
    Wait,
    /// Panics.
    Panic,
    /// Says that the store is away.
    Away(Code),
    /// Says that it is a cluster.
    Cluster,
    /// Answers questions, and knows that it cannot serve.
    Unwell,
    /// Answers questions, and never says whether it accepts writes.
    Silent,
}

/// A store that counts every question and does as it was told with scripts.
#[derive(Debug)]
pub(crate) struct Stage {
    inner: Arc<dyn Engine>,
    act: Act,
    /// Scripts that arrived.
    pub(crate) arrived: Semaphore,
    /// Scripts that may go on.
    pub(crate) released: Semaphore,
    /// Questions of any kind.
    pub(crate) asked: AtomicU64,
    /// Whether it was closed.
    pub(crate) closed: AtomicU64,
}

impl Stage {
    pub(crate) fn new(inner: Arc<dyn Engine>, act: Act) -> Arc<Self> {
        Arc::new(Self {
            inner,
            act,
            arrived: Semaphore::new(0),
            released: Semaphore::new(0),
            asked: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        })
    }

    fn away(&self) -> Option<Error> {
        self.asked.fetch_add(1, SeqCst);
        match self.act {
            Act::Away(code) => Some(Error::new("store.test", code, "nobody is there")),
            _ => None,
        }
    }
}

fn is_duty(call: &Invocation) -> bool {
    let duties =
        ["queue.sweep", "batch.due", "event.turn", "run.due", "run.sweep", "stats.silent", "stats.leave"];
    duties.contains(&call.script.id)
}

impl Engine for Stage {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        async move {
            // What the server does by itself is not what a test watches.
            if is_duty(&call) {
                return Err(Error::new("store.test", Code::StoreRefused, "not for duties"));
            }
            if let Some(error) = self.away() {
                return Err(error);
            }
            assert_ne!(self.act, Act::Panic, "as told");
            self.arrived.add_permits(1);
            self.released.acquire().await.unwrap().forget();
            self.inner.run(call).await
        }
        .boxed()
    }

    fn ready(&self, patience: Duration) -> BoxFuture<'_, Result<Readiness>> {
        match self.act {
            Act::Away(code) => {
                let away = Error::new("store.test", code, "nobody is there");
                futures_util::future::ready(Err(away)).boxed()
            }
            Act::Silent => std::future::pending().boxed(),
            // What the server does by itself is not what a test watches.
            _ => self.inner.ready(patience),
        }
    }

    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        match self.away() {
            Some(error) => futures_util::future::ready(Err(error)).boxed(),
            None => self.inner.time_us(),
        }
    }

    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn topology(&self) -> Topology {
        if self.act == Act::Cluster { Topology::Cluster } else { self.inner.topology() }
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        self.inner.subscribe(channel)
    }

    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        self.inner.wait_for_item(key, limit)
    }

    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        match self.away() {
            Some(error) => futures_util::future::ready(Err(error)).boxed(),
            None => self.inner.key_facts(key),
        }
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
        let health = self.inner.health();
        Health { connected: health.connected && self.act != Act::Unwell, ..health }
    }

    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        match self.act {
            Act::Away(code) => {
                let away = Error::new("store.test", code, "nobody is there");
                futures_util::future::ready(Err(away)).boxed()
            }
            // The server looks at its thresholds by itself.
            _ => self.inner.deployment(),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.closed.fetch_add(1, SeqCst);
        self.inner.close()
    }
}
