//! A store that remembers which scripts it was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Engine, Invocation, Reply, Result};

use crate::passing::passes_on;

/// Passes everything on.
#[derive(Debug)]
pub(super) struct Recorder {
    inner: Arc<dyn Engine>,
    scripts: Mutex<BTreeSet<&'static str>>,
}

impl Recorder {
    pub(super) fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { inner, scripts: Mutex::default() })
    }

    /// Scripts run since the last time this was asked.
    pub(super) fn scripts(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.scripts.lock())
    }
}

impl Engine for Recorder {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        self.scripts.lock().insert(call.script.id);
        self.inner.run(call)
    }
    passes_on!(now_us key_facts rest);
}
