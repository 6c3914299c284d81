//! A store on which something happens between two steps of somebody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use quaymaster_store::{
    Deployment, Engine, Health, Invocation, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage, Topology,
};

/// Passes everything on; right before one operation's next script it waits for something else to be done.
pub struct Between {
    inner: Arc<dyn Engine>,
    operation: &'static str,
    first: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "before {} of {:?}", self.operation, self.inner)
    }
}

impl Between {
    /// Before the script `operation` runs for the first time, `first` is done.
    pub fn new(inner: Arc<dyn Engine>, operation: &'static str, first: BoxFuture<'static, ()>) -> Arc<Self> {
        Arc::new(Self { inner, operation, first: Mutex::new(Some(first)) })
    }

    /// Whether it was done.
    pub fn happened(&self) -> bool {
        self.first.lock().is_none()
    }
}

impl Engine for Between {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        let first = if call.script.id == self.operation { self.first.lock().take() } else { None };
        Box::pin(async move {
            if let Some(first) = first {
                first.await;
            }
            self.inner.run(call).await
        })
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.time_us()
    }
    fn now_us(&self) -> i64 {
        self.inner.now_us()
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
