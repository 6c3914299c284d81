//! Opens a data folder with a schema, as a server does, and kills itself after so many calls of the conversion.
//!
//! `respeller DIR SCHEMA.toml CALLS`

#![expect(clippy::expect_used, reason = "a process that cannot do its work ends, and the test with it")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use futures_util::future::BoxFuture;
use quaymaster::respell::{Depth, prepare};
use quaymaster_schema::{Source, load};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{
    Deployment, Effect, Engine, Health, Invocation, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage,
    Topology,
};

/// Passes everything on, so many changing calls long.
#[derive(Debug)]
struct Mortal {
    inner: EmbeddedStore,
    left: AtomicU64,
}

impl Engine for Mortal {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(async move {
            let writes = call.script.effect == Effect::Writes;
            let reply = self.inner.run(call).await;
            if writes && self.left.fetch_sub(1, SeqCst) == 1 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("a signal");
            }
            reply
        })
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.time_us()
    }
    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }
    fn topology(&self) -> Topology {
        self.inner.topology()
    }
    fn subscribe<'a>(
        &'a self,
        channel: &'a [u8],
    ) -> BoxFuture<'a, Result<futures_util::stream::BoxStream<'static, Message>>> {
        self.inner.subscribe(channel)
    }
    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: std::time::Duration) -> BoxFuture<'a, Result<bool>> {
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

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, file, calls] = args.as_slice() else { panic!("respeller DIR SCHEMA.toml CALLS") };
    let text = std::fs::read_to_string(file).expect("a schema");
    let schema = load(&[Source { name: "s.toml", text: &text }], &|_| None).schema.expect("a good schema");
    let inner = EmbeddedStore::open(Path::new(folder), EmbeddedOptions::default()).await.expect("a store");
    let left = AtomicU64::new(calls.parse().expect("a number"));
    let engine: Arc<dyn Engine> = Arc::new(Mortal { inner, left });
    prepare(&schema, &engine, Depth::Scan).await.expect("converted");
    engine.close().await.expect("closed");
}
