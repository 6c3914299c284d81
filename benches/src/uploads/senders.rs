//! So many at once: each takes the next chunk as soon as its own is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::Result;
use tokio::task::JoinSet;

/// Runs `senders` tasks made by `sender`; each calls its `take` for numbers until there are none.
pub(super) async fn together<F>(senders: usize, chunks: u32, sender: impl Fn(Numbers) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let next = Arc::new(AtomicU32::new(0));
    let mut working = JoinSet::new();
    for _ in 0..senders {
        working.spawn(sender(Numbers { next: Arc::clone(&next), chunks }));
    }
    while let Some(done) = working.join_next().await {
        // The others are dropped with the set.
        done??;
    }
    Ok(())
}

/// The numbers that are left.
#[derive(Debug)]
pub(super) struct Numbers {
    next: Arc<AtomicU32>,
    chunks: u32,
}

impl Numbers {
    pub(super) fn take(&self) -> Option<u32> {
        Some(self.next.fetch_add(1, Relaxed)).filter(|number| *number < self.chunks)
    }
}
