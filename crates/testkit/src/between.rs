//! A store on which something happens between two steps of somebody else.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Engine, Invocation, Reply, Result};

use crate::passing::passes_on;

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
    passes_on!(now_us key_facts rest);
}
