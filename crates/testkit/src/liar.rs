//! A store whose node has a wrong clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use quaymaster_store::{
    Deployment, Engine, Health, Invocation, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage, Topology,
};

/// Passes everything on, but its idea of the time is off.
#[derive(Debug)]
pub struct Liar {
    inner: Arc<dyn Engine>,
    offset_us: i64,
    /// What the node's clock says, whatever the store's does.
    told_us: Option<Arc<AtomicI64>>,
}

impl Liar {
    /// A node whose corrected clock is wrong by `offset_ms`.
    pub fn new(inner: Arc<dyn Engine>, offset_ms: i64) -> Self {
        Self { inner, offset_us: offset_ms * 1000, told_us: None }
    }

    /// A node whose corrected clock is told by the test.
    pub fn told(inner: Arc<dyn Engine>, told_us: Arc<AtomicI64>) -> Self {
        Self { inner, offset_us: 0, told_us: Some(told_us) }
    }
}

impl Engine for Liar {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        self.inner.run(call)
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.time_us()
    }
    fn now_us(&self) -> i64 {
        self.told_us.as_ref().map_or_else(|| self.inner.now_us(), |told| told.load(SeqCst)) + self.offset_us
    }
    fn deadline(&self) -> Duration {
        self.inner.deadline()
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
