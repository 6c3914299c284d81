//! A store in which somebody else is quick: what is found there has changed when it is acted on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use quaymaster_store::{
    Deployment, Engine, Health, Invocation, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage, Topology,
};

use crate::conformance::command;

/// Passes everything on; after a look at a key it runs what was put down for it.
#[derive(Debug)]
pub struct Meddler {
    inner: Arc<dyn Engine>,
    then: Mutex<HashMap<Vec<u8>, Vec<Vec<String>>>>,
}

impl Meddler {
    /// A store nobody meddles with yet.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self { inner, then: Mutex::default() }
    }

    /// After the next look at `key` this command runs; its second word is the key it is about.
    pub fn after_look(&self, key: &str, words: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.then.lock().entry(key.as_bytes().to_vec()).or_default().push(words);
    }

    /// Commands that nothing has set off.
    pub fn left(&self) -> usize {
        self.then.lock().len()
    }
}

impl Engine for Meddler {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        self.inner.run(call)
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
        Box::pin(async move {
            let facts = self.inner.key_facts(key).await?;
            let then = self.then.lock().remove(key).unwrap_or_default();
            for words in then {
                let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                command(&*self.inner, bytes[1], &bytes).await?;
            }
            Ok(facts)
        })
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
