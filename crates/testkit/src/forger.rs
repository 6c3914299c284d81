//! A store whose replies somebody changes on the way.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Engine, Invocation, Reply, Result};

use crate::passing::passes_on;

/// Passes everything on; scripts run, and something else is told in place of their replies.
#[derive(Debug)]
pub struct Forger {
    inner: Arc<dyn Engine>,
    told: Mutex<Option<Reply>>,
}

impl Forger {
    /// In front of `inner`, still honest.
    pub fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { inner, told: Mutex::default() })
    }

    /// Every script's reply from now on; `None` for its own.
    pub fn tell(&self, reply: Option<Reply>) {
        *self.told.lock() = reply;
    }
}

impl Engine for Forger {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(async move {
            let reply = self.inner.run(call).await?;
            Ok(self.told.lock().clone().unwrap_or(reply))
        })
    }
    passes_on!(now_us key_facts rest);
}
