//! A store whose node has a wrong clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use quaymaster_store::Engine;

use crate::passing::passes_on;

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
    fn now_us(&self) -> i64 {
        self.told_us.as_ref().map_or_else(|| self.inner.now_us(), |told| told.load(SeqCst)) + self.offset_us
    }
    passes_on!(run key_facts rest);
}
